/* Our own filters, with libhdf5 as the maker of the stored bytes and as the referee. Every buffer
 * is exactly as long as it must be, so that the address sanitizer sees one byte too many. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"

#define MAX_FILTERS 4

/* A pipeline by its letters in the order of writing: d deflate, s shuffle, f fletcher32. */
struct pipeline {
    struct sfs_filter filters[MAX_FILTERS];
    unsigned values[MAX_FILTERS];
    size_t n;
};

static struct filter_pipeline masked(const struct pipeline *pipeline, uint32_t mask)
{
    return (struct filter_pipeline){pipeline->n, pipeline->filters, mask};
}

static struct pipeline *make_pipeline(const char *letters, unsigned level, unsigned element_size)
{
    struct pipeline *pipeline = allocate(sizeof(*pipeline));
    memset(pipeline, 0, sizeof(*pipeline));
    for (; *letters; letters++) {
        struct sfs_filter *filter = &pipeline->filters[pipeline->n];
        filter->id = *letters == 'd'   ? FILTER_DEFLATE
                     : *letters == 's' ? FILTER_SHUFFLE
                                       : FILTER_FLETCHER32;
        pipeline->values[pipeline->n] = *letters == 'd' ? level : element_size;
        filter->values = &pipeline->values[pipeline->n++];
        filter->n_values = *letters != 'f';
    }
    return pipeline;
}

/* One chunk, decoded and as stored. */
struct stored {
    size_t size, stored_size;
    unsigned char *bytes, *stored_bytes;
    uint32_t mask;
};

static void free_stored(struct stored *stored)
{
    free(stored->bytes);
    free(stored->stored_bytes);
}

/* Compressible bytes that are not all alike. */
static void fill_with_data(unsigned char *bytes, size_t n)
{
    unsigned spread = (unsigned)random_between(1, 200);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i / 64 + random_below(spread));
}

static hid_t create_dataset(hid_t file, const char *letters, unsigned level, size_t element_size,
                            size_t elements)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t dims = elements;
    assert_true(H5Pset_chunk(dcpl, 1, &dims) >= 0);
    for (; *letters; letters++)
        assert_true((*letters == 'd'   ? H5Pset_deflate(dcpl, level)
                     : *letters == 's' ? H5Pset_shuffle(dcpl)
                                       : H5Pset_fletcher32(dcpl)) >= 0);
    hid_t type = H5Tcreate(H5T_OPAQUE, element_size);
    hid_t space = H5Screate_simple(1, &dims, NULL);
    hid_t dataset = H5Dcreate2(file, "data", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(dcpl);
    return dataset;
}

static struct stored read_stored(hid_t dataset, unsigned char *bytes, size_t size)
{
    struct stored stored = {.bytes = bytes, .size = size};
    hsize_t offset = 0, stored_size;
    assert_true(H5Dget_chunk_storage_size(dataset, &offset, &stored_size) >= 0);
    stored.stored_size = stored_size;
    stored.stored_bytes = allocate(stored_size);
    assert_true(H5Dread_chunk(dataset, H5P_DEFAULT, &offset, &stored.mask, stored.stored_bytes) >=
                0);
    return stored;
}

/* Random data as libhdf5 stores it through a pipeline. */
static struct stored write_chunk(const char *letters, unsigned level, size_t element_size,
                                 size_t elements)
{
    hid_t file = H5Fcreate("chunk.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = create_dataset(file, letters, level, element_size, elements);
    size_t size = element_size * elements;
    unsigned char *bytes = allocate(size);
    fill_with_data(bytes, size);
    hid_t type = H5Dget_type(dataset);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
    assert_true(H5Dflush(dataset) >= 0);
    struct stored stored = read_stored(dataset, bytes, size);
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
    return stored;
}

/* What libhdf5 makes of stored bytes that it is handed with a mask; false if it refuses them. */
static bool libhdf5_reads(const char *letters, size_t element_size, size_t elements, uint32_t mask,
                          const void *stored, size_t stored_size, void *out)
{
    hid_t file = H5Fcreate("referee.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = create_dataset(file, letters, 6, element_size, elements);
    hsize_t offset = 0;
    assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, &offset, stored_size, stored) >= 0);
    H5Dclose(dataset); /* it would read with an old mask in its hands */
    dataset = H5Dopen2(file, "data", H5P_DEFAULT);
    hid_t type = H5Dget_type(dataset);
    herr_t status;
    H5E_BEGIN_TRY
    {
        status = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
    }
    H5E_END_TRY
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
    return status >= 0;
}

/* Decodes from and into buffers without a spare byte. The result is allocated. */
static int decode(const struct pipeline *pipeline, uint32_t mask, const void *in, size_t in_size,
                  size_t size, unsigned char **out)
{
    const struct filter_pipeline filters = masked(pipeline, mask);
    unsigned char *tight_in = allocate(in_size);
    memcpy(tight_in, in, in_size);
    size_t scratch_size = filter_scratch(&filters, size);
    void *scratch = scratch_size ? allocate(scratch_size) : NULL;
    *out = allocate(size);
    int error = filter_decode(&filters, tight_in, in_size, scratch, *out, size);
    free(scratch);
    free(tight_in);
    return error;
}

static void expect_decoded(const struct pipeline *pipeline, const struct stored *stored)
{
    unsigned char *out;
    assert_true(filter_is_native(&(struct filter_pipeline){pipeline->n, pipeline->filters}));
    assert_int_equal(decode(pipeline, stored->mask, stored->stored_bytes, stored->stored_size,
                            stored->size, &out),
                     0);
    assert_memory_equal(out, stored->bytes, stored->size);
    free(out);
}

static const char *const pipelines[] = {"d",   "sd",   "sdf", "fd",  "f",    "s",    "sf", "fs",
                                        "fsd", "fsdf", "sfd", "df",  "ff",   "fdf",  "dd", "dsd",
                                        "dfd", "ds",   "dds", "ddd", "fdfd", "sdfd", ""};
static const size_t element_sizes[] = {1, 2, 3, 4, 7, 8, 16};

static void chunks_of_libhdf5_are_decoded(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        for (size_t e = 0; e < COUNT(element_sizes); e++) {
            struct pipeline *pipeline = make_pipeline(pipelines[p], 6, (unsigned)element_sizes[e]);
            for (int round = 0; round < 4; round++) {
                size_t elements = random_between(1, round == 0 ? 3 : 3000);
                struct stored stored = write_chunk(pipelines[p], 6, element_sizes[e], elements);
                expect_decoded(pipeline, &stored);
                free_stored(&stored);
            }
            free(pipeline);
        }
    }
}

static void every_deflate_level_is_decoded(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= 9; level++) {
        struct pipeline *pipeline = make_pipeline("sd", level, 4);
        struct stored stored = write_chunk("sd", level, 4, 20000);
        expect_decoded(pipeline, &stored);
        free_stored(&stored);
        free(pipeline);
    }
}

/* libhdf5 shuffles by the parameter in the file, which need not divide the chunk. */
static void shuffle_leaves_a_tail_shorter_than_an_element(void **state)
{
    (void)state;
    for (size_t size = 0; size < 100; size++) {
        for (size_t element_size = 1; element_size <= 17; element_size++) {
            unsigned char *in = allocate(size), *out = allocate(size);
            random_fill(in, size);
            shuffle_decode(in, out, size, element_size);
            size_t n = size / element_size;
            for (size_t i = 0; i < size; i++) {
                bool tail = i >= n * element_size;
                assert_int_equal(out[i], in[tail ? i : i % element_size * n + i / element_size]);
            }
            free(out);
            free(in);
        }
    }
}

/* Over every length, odd ones too, and over enough words for the sums to be folded many times. */
static void checksums_are_those_of_libhdf5(void **state)
{
    (void)state;
    struct pipeline *pipeline = make_pipeline("f", 0, 0);
    for (int round = 0; round < 60; round++) {
        struct stored stored =
            write_chunk("f", 0, 1, round < 30 ? (size_t)round + 1 : random_between(31, 100000));
        assert_int_equal(stored.stored_size, stored.size + 4);
        expect_decoded(pipeline, &stored);
        free_stored(&stored);
    }
    free(pipeline);
    unsigned char *worst = allocate(1 << 20);
    memset(worst, 0xFF, 1 << 20);
    assert_int_equal(fletcher32(worst, 1 << 20), 0xFFFFFFFF);
    free(worst);
}

static void checksums_of_old_libhdf5_are_taken(void **state)
{
    (void)state;
    struct pipeline *pipeline = make_pipeline("f", 0, 0);
    struct stored stored = write_chunk("f", 0, 2, 500);
    unsigned char *sum = stored.stored_bytes + stored.size,
                  old[4] = {sum[1], sum[0], sum[3], sum[2]};
    memcpy(sum, old, 4);
    expect_decoded(pipeline, &stored);
    unsigned char *out = allocate(stored.size);
    assert_true(libhdf5_reads("f", 2, 500, 0, stored.stored_bytes, stored.stored_size, out));
    free(out);
    free_stored(&stored);
    free(pipeline);
}

/* All masks of all pipelines: stored bytes are made by the pipeline of the filters left. */
static void masked_filters_are_skipped(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        size_t n = strlen(pipelines[p]);
        struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
        for (uint32_t mask = 0; mask < (uint32_t)1 << n; mask++) {
            char left[MAX_FILTERS + 1] = "";
            for (size_t i = 0; i < n; i++)
                if (!(mask >> i & 1))
                    strncat(left, pipelines[p] + i, 1);
            struct stored stored = write_chunk(left, 6, 4, 700);
            unsigned char *out = allocate(stored.size);
            assert_true(libhdf5_reads(pipelines[p], 4, 700, mask, stored.stored_bytes,
                                      stored.stored_size, out));
            assert_memory_equal(out, stored.bytes, stored.size);
            stored.mask = mask;
            expect_decoded(pipeline, &stored);
            free(out);
            free_stored(&stored);
        }
        free(pipeline);
    }
}

static void every_flipped_byte_is_noticed_or_changes_values(void **state)
{
    (void)state;
    unsigned misses = 0;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        /* A zlib stream has a checksum of its own; but bits behind its end and in its header may
         * be without meaning, and then the values are unharmed. */
        bool checksum = strchr(pipelines[p], 'f') != NULL;
        bool deflate = strchr(pipelines[p], 'd') != NULL;
        bool checksum_last = pipelines[p][0] && pipelines[p][strlen(pipelines[p]) - 1] == 'f';
        struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
        struct stored stored = write_chunk(pipelines[p], 6, 4, 150);
        for (size_t i = 0; i < stored.stored_size; i++) {
            unsigned char *out, flip = (unsigned char)random_between(1, 255);
            stored.stored_bytes[i] ^= flip;
            int error = decode(pipeline, stored.mask, stored.stored_bytes, stored.stored_size,
                               stored.size, &out);
            stored.stored_bytes[i] ^= flip;
            bool same = !error && !memcmp(out, stored.bytes, stored.size);
            free(out);
            assert_true(error == 0 || error == -EILSEQ);
            if (checksum_last)
                assert_int_equal(error, -EILSEQ);
            else if (checksum || deflate)
                misses += !error && !same;
            else
                assert_true(!error && !same);
        }
        free_stored(&stored);
        free(pipeline);
    }
    /* Behind a flipped Huffman code three literals may change by 1, -2 and 1 times the same number:
     * neither Adler-32 nor Fletcher-32 sees that. It happens once in some ten thousand flips. */
    assert_true(misses <= 3);
}

static void random_bytes_are_decoded_or_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 4000; round++) {
        const char *letters = pipelines[random_below(COUNT(pipelines))];
        struct pipeline *pipeline = make_pipeline(letters, 6, (unsigned)random_between(1, 20));
        size_t in_size = random_below(200), size = random_between(1, 200);
        unsigned char *in = allocate(in_size), *out;
        random_fill(in, in_size);
        int error = decode(pipeline, (uint32_t)random_below(16), in, in_size, size, &out);
        assert_true(error == 0 || error == -EILSEQ);
        free(out);
        free(in);
        free(pipeline);
    }
}

/* A million zeros, compressed again and again. The room for them is what a thousand bytes may have
 * become. */
static void what_claims_more_than_was_encoded_is_refused(void **state)
{
    (void)state;
    enum { BOMB = 1000000, SIZE = 1000 };
    for (size_t n = 2; n <= MAX_FILTERS; n++) {
        struct pipeline *pipeline = make_pipeline(&"dddd"[MAX_FILTERS - n], 9, 0);
        unsigned char *zeros = calloc(1, BOMB), *stored = allocate(2 * BOMB), *out;
        struct filter_pipeline filters = masked(pipeline, 0);
        void *scratch = allocate(filter_encode_scratch(&filters, BOMB));
        size_t stored_size = 2 * BOMB;
        assert_int_equal(filter_encode(&filters, zeros, BOMB, scratch, stored, &stored_size), 0);
        assert_true(filter_scratch(&filters, SIZE) < 20 * SIZE);
        assert_true(filter_can_make(&filters, stored_size, BOMB));
        assert_int_equal(decode(pipeline, filters.mask, stored, stored_size, SIZE, &out), -EILSEQ);
        free(out);
        assert_int_equal(decode(pipeline, filters.mask, stored, stored_size, BOMB, &out), 0);
        assert_memory_equal(out, zeros, BOMB);
        free(out);
        free(scratch);
        free(stored);
        free(zeros);
        free(pipeline);
    }
}

/* Stored bytes of any wrong length, for every pipeline and every mask. */
static void wrong_lengths_are_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
        struct stored stored = write_chunk(pipelines[p], 6, 4, 25);
        unsigned char *longer = calloc(1, stored.stored_size + 200);
        assert_non_null(longer);
        memcpy(longer, stored.stored_bytes, stored.stored_size);
        /* The bytes of a stream may end with it though more follow, also where they are shuffled.
         */
        bool deflate_last = strchr(pipelines[p], 'd') && !strchr(strrchr(pipelines[p], 'd'), 'f');
        for (size_t n = 0; n < stored.stored_size + 200; n++) {
            unsigned char *out;
            if (n == stored.stored_size)
                continue;
            int error = decode(pipeline, 0, longer, n, stored.size, &out);
            /* Bytes behind a zlib stream are none of its business. */
            if (n > stored.stored_size && deflate_last)
                assert_true(error == -EILSEQ || !memcmp(out, stored.bytes, stored.size));
            else
                assert_int_equal(error, -EILSEQ);
            free(out);
        }
        free(longer);
        free_stored(&stored);
        free(pipeline);
    }
}

/* A chunk that is shorter or longer inside its checksum or its compression than its dims say. */
static void wrong_lengths_inside_are_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        for (size_t wrong = 1; wrong < 60; wrong++) {
            struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
            struct stored stored = write_chunk(pipelines[p], 6, 1, wrong);
            unsigned char *out;
            size_t right =
                wrong > 29 ? wrong - random_between(1, 29) : wrong + random_between(1, 29);
            assert_int_equal(
                decode(pipeline, 0, stored.stored_bytes, stored.stored_size, right, &out), -EILSEQ);
            free(out);
            free_stored(&stored);
            free(pipeline);
        }
    }
}

/* ---- Encoding ---- */

/* Encodes from and into buffers without a spare byte. *out is allocated. */
static int encode(const struct pipeline *pipeline, const void *in, size_t size, unsigned char **out,
                  size_t *out_size, uint32_t *mask)
{
    struct filter_pipeline filters = masked(pipeline, 0);
    unsigned char *tight_in = allocate(size);
    memcpy(tight_in, in, size);
    size_t bound = *out_size = filter_encode_bound(&filters, size);
    size_t scratch_size = filter_encode_scratch(&filters, size);
    void *scratch = scratch_size ? allocate(scratch_size) : NULL;
    *out = allocate(bound);
    int error = filter_encode(&filters, tight_in, size, scratch, *out, out_size);
    *mask = filters.mask;
    assert_true(error || *out_size <= bound);
    free(scratch);
    free(tight_in);
    return error;
}

static void expect_round_trip(const struct pipeline *pipeline, const void *bytes, size_t size,
                              uint32_t expected_mask)
{
    unsigned char *stored, *back;
    size_t stored_size;
    uint32_t mask;
    assert_int_equal(encode(pipeline, bytes, size, &stored, &stored_size, &mask), 0);
    assert_int_equal(mask, expected_mask);
    assert_int_equal(decode(pipeline, mask, stored, stored_size, size, &back), 0);
    assert_memory_equal(back, bytes, size);
    free(back);
    free(stored);
}

static void what_is_encoded_is_decoded_again(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        for (size_t e = 0; e < COUNT(element_sizes); e++) {
            struct pipeline *pipeline = make_pipeline(pipelines[p], 6, (unsigned)element_sizes[e]);
            for (size_t size = 0; size < 40; size++) {
                unsigned char *bytes = allocate(size);
                random_fill(bytes, size);
                expect_round_trip(pipeline, bytes, size, 0);
                free(bytes);
            }
            free(pipeline);
        }
    }
}

static void no_bytes_need_no_input(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
        struct filter_pipeline filters = masked(pipeline, 0);
        unsigned char scratch[64], out[64];
        bool with_scratch = filter_encode_scratch(&filters, 0) > 0;
        size_t n = sizeof(out);
        assert_int_equal(filter_encode(&filters, NULL, 0, with_scratch ? scratch : NULL, out, &n),
                         0);
        assert_int_equal(filter_decode(&filters, out, n, scratch, out, 0), 0);
        free(pipeline);
    }
}

static void large_sections_are_encoded(void **state)
{
    (void)state;
    static const char *const some[] = {"", "f", "s", "d", "fsdf"};
    const size_t size = ((size_t)8 << 20) + 3;
    unsigned char *bytes = allocate(size);
    fill_with_data(bytes, size);
    for (size_t p = 0; p < COUNT(some); p++) {
        struct pipeline *pipeline = make_pipeline(some[p], 1, 8);
        expect_round_trip(pipeline, bytes, size, 0);
        free(pipeline);
    }
    free(bytes);
}

/* Without deflate, whose streams may differ, to the byte. */
static void libhdf5_reads_what_is_encoded(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        for (size_t e = 0; e < COUNT(element_sizes); e++) {
            struct pipeline *pipeline = make_pipeline(pipelines[p], 6, (unsigned)element_sizes[e]);
            size_t elements = random_between(1, 3000);
            struct stored theirs = write_chunk(pipelines[p], 6, element_sizes[e], elements);
            unsigned char *ours, *back = allocate(theirs.size);
            size_t n;
            uint32_t mask;
            assert_int_equal(encode(pipeline, theirs.bytes, theirs.size, &ours, &n, &mask), 0);
            assert_int_equal(mask, 0);
            assert_true(
                libhdf5_reads(pipelines[p], element_sizes[e], elements, mask, ours, n, back));
            assert_memory_equal(back, theirs.bytes, theirs.size);
            if (!strchr(pipelines[p], 'd')) {
                assert_int_equal(n, theirs.stored_size);
                assert_memory_equal(ours, theirs.stored_bytes, n);
            }
            free(back);
            free(ours);
            free_stored(&theirs);
            free(pipeline);
        }
    }
}

/* Random bytes grow, and are kept so: libhdf5 does not mark the filter as left out either. */
static void every_deflate_level_is_encoded(void **state)
{
    (void)state;
    unsigned char *noise = allocate(20000), *zeros = calloc(1, 20000), *stored;
    random_fill(noise, 20000);
    assert_non_null(zeros);
    for (unsigned level = 0; level <= 9; level++) {
        struct pipeline *pipeline = make_pipeline("d", level, 0);
        size_t n;
        uint32_t mask;
        pipeline->filters[0].optional = true;
        expect_round_trip(pipeline, noise, 20000, 0);
        expect_round_trip(pipeline, zeros, 20000, 0);
        assert_int_equal(encode(pipeline, zeros, 20000, &stored, &n, &mask), 0);
        assert_true(level == 0 ? n > 20000 : n < 300);
        free(stored);
        free(pipeline);
    }
    free(zeros);
    free(noise);
}

/* All else of the pipeline is applied, and the mask says what is not. */
static void an_optional_filter_that_fails_is_left_out(void **state)
{
    (void)state;
    unsigned char bytes[700];
    random_fill(bytes, sizeof(bytes));
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct pipeline *pipeline = make_pipeline(pipelines[p], 10, 4);
        uint32_t deflate = 0;
        for (size_t i = 0; i < pipeline->n; i++)
            deflate |= (uint32_t)(pipelines[p][i] == 'd') << i;
        if (deflate) {
            size_t n;
            unsigned char *out;
            uint32_t mask;
            assert_int_equal(encode(pipeline, bytes, sizeof(bytes), &out, &n, &mask), -EINVAL);
            free(out);
            for (size_t i = 0; i < pipeline->n; i++)
                pipeline->filters[i].optional = true;
            expect_round_trip(pipeline, bytes, sizeof(bytes), deflate);
            for (size_t i = 0; i < pipeline->n; i++) {
                pipeline->values[i] = deflate >> i & 1 ? 1 : 4;
                pipeline->filters[i].n_values = !(deflate >> i & 1); /* no level at all */
            }
            expect_round_trip(pipeline, bytes, sizeof(bytes), deflate);
        }
        free(pipeline);
    }
}

static void a_buffer_that_may_be_too_small_is_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct pipeline *pipeline = make_pipeline(pipelines[p], 6, 4);
        struct filter_pipeline filters = masked(pipeline, 0);
        unsigned char in[64] = {0}, scratch[256], out[256];
        size_t bound = filter_encode_bound(&filters, sizeof(in)), n = bound - 1;
        assert_in_range(bound, sizeof(in), sizeof(out));
        assert_int_equal(filter_encode(&filters, in, sizeof(in), scratch, out, &n), -EINVAL);
        assert_true(filter_encode_bound(&filters, SIZE_MAX) == SIZE_MAX);
        free(pipeline);
    }
}

static void shuffling_is_undone_by_unshuffling(void **state)
{
    (void)state;
    for (size_t size = 0; size < 300; size++) {
        for (size_t element_size = 1; element_size <= 17; element_size++) {
            unsigned char *in = allocate(size), *out = allocate(size), *back = allocate(size);
            random_fill(in, size);
            shuffle_encode(in, out, size, element_size);
            shuffle_decode(out, back, size, element_size);
            assert_memory_equal(back, in, size);
            free(back);
            free(out);
            free(in);
        }
    }
}

/* The sum of nothing but zeros is the one that is 0. */
static void a_checksum_of_zeros_is_zero(void **state)
{
    (void)state;
    unsigned char *bytes = calloc(1, 100000);
    assert_non_null(bytes);
    for (size_t n = 0; n < 100000; n = n * 2 + 1) {
        assert_int_equal(fletcher32(bytes, n), 0);
        if (n > 0) {
            size_t i = random_below(n);
            bytes[i] = 1;
            assert_int_not_equal(fletcher32(bytes, n) & 0xFFFF, 0);
            assert_int_not_equal(fletcher32(bytes, n) >> 16, 0);
            bytes[i] = 0;
        }
    }
    free(bytes);
}

static void *go_to_and_fro(void *error)
{
    unsigned char in[5000], back[5000], scratch[5100], out[6000];
    struct pipeline *pipeline = make_pipeline("sdf", 1, 4);
    for (unsigned i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i / 50);
    struct filter_pipeline filters = masked(pipeline, 0);
    for (unsigned round = 0; round < 200; round++) {
        size_t n = sizeof(out);
        pipeline->values[1] = round % 10;
        if (filter_encode(&filters, in, sizeof(in), scratch, out, &n) != 0 ||
            filter_decode(&filters, out, n, scratch, back, sizeof(back)) != 0 ||
            memcmp(in, back, sizeof(in)) != 0)
            *(int *)error = 1;
    }
    free(pipeline);
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[4];
    int errors[4] = {0};
    for (size_t i = 0; i < COUNT(threads); i++)
        start_thread(&threads[i], go_to_and_fro, &errors[i]);
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(errors[i], 0);
    }
}

/* ---- Which are ours ---- */

static bool native(const char *letters)
{
    struct pipeline *pipeline = make_pipeline(letters, 6, 4);
    bool is_native = filter_is_native(&(struct filter_pipeline){pipeline->n, pipeline->filters});
    free(pipeline);
    return is_native;
}

static void pipelines_that_are_not_ours_are_left_alone(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++)
        assert_true(native(pipelines[p]));
    assert_true(native("ss"));
    unsigned zero = 0, four = 4;
    struct sfs_filter shuffle = {.id = FILTER_SHUFFLE, .values = &four};
    assert_false(filter_is_native(&(struct filter_pipeline){1, &shuffle})); /* no parameters */
    shuffle.n_values = 1;
    assert_true(filter_is_native(&(struct filter_pipeline){1, &shuffle}));
    shuffle.values = &zero;
    assert_false(filter_is_native(&(struct filter_pipeline){1, &shuffle}));

    const int unknown[] = {0, -1, 5, 6, 511, 32013, 65535};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        struct sfs_filter filters[] = {{.id = FILTER_FLETCHER32}, {.id = unknown[i]}};
        assert_false(filter_is_native(&(struct filter_pipeline){2, filters}));
    }
}

static void a_mask_has_bits_for_32_filters_only(void **state)
{
    (void)state;
    struct sfs_filter filters[33];
    memset(filters, 0, sizeof(filters));
    for (size_t i = 0; i < COUNT(filters); i++)
        filters[i].id = FILTER_FLETCHER32;
    assert_true(filter_is_native(&(struct filter_pipeline){32, filters}));
    assert_false(filter_is_native(&(struct filter_pipeline){33, filters}));
}

TEST_MAIN(cmocka_unit_test(chunks_of_libhdf5_are_decoded),
          cmocka_unit_test(every_deflate_level_is_decoded),
          cmocka_unit_test(shuffle_leaves_a_tail_shorter_than_an_element),
          cmocka_unit_test(checksums_are_those_of_libhdf5),
          cmocka_unit_test(checksums_of_old_libhdf5_are_taken),
          cmocka_unit_test(masked_filters_are_skipped),
          cmocka_unit_test(every_flipped_byte_is_noticed_or_changes_values),
          cmocka_unit_test(random_bytes_are_decoded_or_refused),
          cmocka_unit_test(wrong_lengths_are_refused),
          cmocka_unit_test(wrong_lengths_inside_are_refused),
          cmocka_unit_test(what_is_encoded_is_decoded_again),
          cmocka_unit_test(no_bytes_need_no_input), cmocka_unit_test(large_sections_are_encoded),
          cmocka_unit_test(libhdf5_reads_what_is_encoded),
          cmocka_unit_test(every_deflate_level_is_encoded),
          cmocka_unit_test(an_optional_filter_that_fails_is_left_out),
          cmocka_unit_test(a_buffer_that_may_be_too_small_is_refused),
          cmocka_unit_test(shuffling_is_undone_by_unshuffling),
          cmocka_unit_test(a_checksum_of_zeros_is_zero),
          cmocka_unit_test(threads_do_not_disturb_each_other),
          cmocka_unit_test(pipelines_that_are_not_ours_are_left_alone),
          cmocka_unit_test(what_claims_more_than_was_encoded_is_refused),
          cmocka_unit_test(a_mask_has_bits_for_32_filters_only))
