/* Filters that run in libhdf5, alone and in pipelines with our own; datasets of libhdf5 are maker
 * and referee. Plugins are looked for on HDF5_PLUGIN_PATH and where Debian has them. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "filter/filter.h"
#include "hdf5/hdf5.h"

#define PLUGINS     "/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins"
#define BZIP2       307
#define LZ4         32004
#define UNKNOWN     511
#define OURS        65535 /* what src/hdf5/run_filter.c registers for itself */
#define ELEMENTS    1000  /* of 4 bytes */
#define BYTES       (4 * (size_t)ELEMENTS)
#define MAX_FILTERS 3
#define MAX_VALUES  20

/* A pipeline by its letters in the order of writing: as in test_filter.c, and n nbit, o
 * scale-offset, z szip, b bzip2, l lz4, ? one that nobody has. */
struct pipeline {
    struct sfs_filter filters[MAX_FILTERS];
    unsigned values[MAX_FILTERS][MAX_VALUES];
    size_t n;
};

static struct filter_pipeline masked(const struct pipeline *pipeline, uint32_t mask)
{
    return (struct filter_pipeline){pipeline->n, pipeline->filters, mask};
}

/* Of those whose mask is of no interest. */
static int encode(const struct sfs_filter *filters, size_t n_filters, const void *in, size_t size,
                  void **out, size_t *out_size)
{
    return filters_encode(&(struct filter_pipeline){n_filters, filters}, in, size, out, out_size);
}

static const char *const pipelines[] = {"n",  "o",  "z",  "nd", "od", "zf", "sz",
                                        "fz", "zd", "ff", "dd", "ds", "nf", "ofd"};
static const char *const with_plugins[] = {"b", "l", "sb", "sl", "bf", "fb", "bl", "nb", "lb"};

static bool set_filter(hid_t dcpl, char letter)
{
    const unsigned six = 6, nine = 9, scale[] = {H5Z_SO_INT, H5Z_SO_INT_MINBITS_DEFAULT};
    const unsigned szip[] = {H5_SZIP_NN_OPTION_MASK, 8};
    switch (letter) {
    case 'd':
        return H5Pset_filter(dcpl, H5Z_FILTER_DEFLATE, H5Z_FLAG_MANDATORY, 1, &six) >= 0;
    case 's':
        return H5Pset_filter(dcpl, H5Z_FILTER_SHUFFLE, H5Z_FLAG_MANDATORY, 0, NULL) >= 0;
    case 'f':
        return H5Pset_filter(dcpl, H5Z_FILTER_FLETCHER32, H5Z_FLAG_MANDATORY, 0, NULL) >= 0;
    case 'n':
        return H5Pset_filter(dcpl, H5Z_FILTER_NBIT, H5Z_FLAG_MANDATORY, 0, NULL) >= 0;
    case 'o':
        return H5Pset_filter(dcpl, H5Z_FILTER_SCALEOFFSET, H5Z_FLAG_MANDATORY, 2, scale) >= 0;
    case 'z':
        return H5Pset_filter(dcpl, H5Z_FILTER_SZIP, H5Z_FLAG_MANDATORY, 2, szip) >= 0;
    case 'b':
        return H5Pset_filter(dcpl, BZIP2, H5Z_FLAG_MANDATORY, 1, &nine) >= 0;
    default:
        return H5Pset_filter(dcpl, LZ4, H5Z_FLAG_MANDATORY, 0, NULL) >= 0;
    }
}

static hid_t create_dataset(hid_t file, const char *letters)
{
    const hsize_t dims = ELEMENTS;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), type = H5Tcopy(H5T_STD_I32LE);
    hid_t space = H5Screate_simple(1, &dims, NULL);
    if (!strchr(letters, 'z')) /* szip would keep no more bits of a shuffled or other element */
        assert_true(H5Tset_precision(type, 20) >= 0);
    assert_true(H5Pset_chunk(dcpl, 1, &dims) >= 0);
    for (; *letters; letters++)
        assert_true(set_filter(dcpl, *letters));
    hid_t dataset = H5Dcreate2(file, "data", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(dcpl);
    return dataset;
}

/* The filters of a dataset with the parameters that creating it has given them. */
static void describe(hid_t dataset, struct pipeline *pipeline)
{
    hid_t dcpl = H5Dget_create_plist(dataset);
    int n = H5Pget_nfilters(dcpl);
    memset(pipeline, 0, sizeof(*pipeline));
    assert_in_range(n, 1, MAX_FILTERS);
    for (pipeline->n = 0; pipeline->n < (size_t)n; pipeline->n++) {
        struct sfs_filter *filter = &pipeline->filters[pipeline->n];
        unsigned flags;
        filter->n_values = MAX_VALUES;
        filter->values = pipeline->values[pipeline->n];
        filter->id = H5Pget_filter2(dcpl, (unsigned)pipeline->n, &flags, &filter->n_values,
                                    pipeline->values[pipeline->n], 0, NULL, NULL);
        assert_true(filter->id > 0 && filter->n_values <= MAX_VALUES);
    }
    H5Pclose(dcpl);
}

struct chunk {
    struct pipeline pipeline;
    unsigned char bytes[BYTES];
    unsigned char *stored;
    size_t stored_size;
};

static void make_elements(unsigned char *bytes)
{
    for (uint32_t i = 0, value; i < ELEMENTS; i++) {
        value = 1000 + i / 7 + (uint32_t)random_below(30);
        memcpy(bytes + 4 * (size_t)i, &value, 4);
    }
}

/* Random elements as libhdf5 stores them through a pipeline. */
static struct chunk *write_chunk(const char *letters)
{
    struct chunk *chunk = allocate(sizeof(*chunk));
    hid_t file = H5Fcreate("chunk.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = create_dataset(file, letters), type = H5Dget_type(dataset);
    hsize_t offset = 0, size;
    uint32_t mask;
    describe(dataset, &chunk->pipeline);
    make_elements(chunk->bytes);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, chunk->bytes) >= 0);
    assert_true(H5Dflush(dataset) >= 0);
    assert_true(H5Dget_chunk_storage_size(dataset, &offset, &size) >= 0);
    chunk->stored_size = size;
    chunk->stored = allocate(size);
    assert_true(H5Dread_chunk(dataset, H5P_DEFAULT, &offset, &mask, chunk->stored) >= 0);
    assert_int_equal(mask, 0);
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
    return chunk;
}

static void free_chunk(struct chunk *chunk)
{
    free(chunk->stored);
    free(chunk);
}

/* What libhdf5 makes of stored bytes that it is handed. */
static void expect_libhdf5_reads(const char *letters, const void *stored, size_t stored_size,
                                 const void *bytes)
{
    unsigned char back[BYTES];
    hid_t file = H5Fcreate("referee.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = create_dataset(file, letters), type = H5Dget_type(dataset);
    const hsize_t offset = 0;
    assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, stored_size, stored) >= 0);
    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
    assert_memory_equal(back, bytes, BYTES);
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
}

/* Decodes from and into buffers without a spare byte; *out is allocated. */
static int decode(const struct pipeline *pipeline, uint32_t mask, const void *in, size_t in_size,
                  size_t size, unsigned char **out)
{
    const struct filter_pipeline filters = masked(pipeline, mask);
    unsigned char *tight_in = allocate(in_size);
    memcpy(tight_in, in, in_size);
    size_t scratch_size = filters_scratch(&filters, size);
    void *scratch = scratch_size ? allocate(scratch_size) : NULL;
    *out = allocate(size);
    int error = filters_decode(&filters, tight_in, in_size, scratch, *out, size);
    free(scratch);
    free(tight_in);
    return error;
}

static void expect_round_trip(const struct pipeline *pipeline, const void *bytes, size_t size)
{
    void *stored;
    unsigned char *back;
    size_t n;
    struct filter_pipeline filters = masked(pipeline, 0);
    assert_int_equal(filters_encode(&filters, bytes, size, &stored, &n), 0);
    assert_int_equal(decode(pipeline, filters.mask, stored, n, size, &back), 0);
    assert_memory_equal(back, bytes, size);
    free(back);
    free(stored);
}

static void expect_both_ways(const char *letters)
{
    struct chunk *chunk = write_chunk(letters);
    const struct pipeline *pipeline = &chunk->pipeline;
    unsigned char *back;
    assert_int_equal(decode(pipeline, 0, chunk->stored, chunk->stored_size, BYTES, &back), 0);
    assert_memory_equal(back, chunk->bytes, BYTES);
    free(back);

    void *ours;
    size_t n;
    struct filter_pipeline filters = masked(pipeline, 0);
    assert_int_equal(filters_encode(&filters, chunk->bytes, BYTES, &ours, &n), 0);
    assert_int_equal(filters.mask, 0);
    expect_libhdf5_reads(letters, ours, n, chunk->bytes);
    free(ours);
    free_chunk(chunk);
}

static void chunks_of_libhdf5s_filters_go_both_ways(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++)
        expect_both_ways(pipelines[p]);
}

static bool there_are_plugins(void)
{
    return hdf5_filter_available(BZIP2) && hdf5_filter_available(LZ4);
}

static void chunks_of_plugins_go_both_ways(void **state)
{
    (void)state;
    if (!there_are_plugins())
        skip();
    for (size_t p = 0; p < COUNT(with_plugins); p++)
        expect_both_ways(with_plugins[p]);
}

/* Sections have as many bytes as there are defined elements; szip needs some to work on, and is
 * left out where there are fewer. */
static void sections_have_any_length(void **state)
{
    (void)state;
    static const char *const some[] = {"z", "sz", "dd", "b", "l", "fb"};
    static const size_t sizes[] = {1, 2, 3, 4, 5, 63, 64, 1000, 4003, ((size_t)8 << 20) + 1};
    unsigned char *bytes = allocate(sizes[COUNT(sizes) - 1]);
    for (size_t i = 0; i < sizes[COUNT(sizes) - 1]; i++)
        bytes[i] = (unsigned char)(i / 100);
    for (size_t p = 0; p < (there_are_plugins() ? COUNT(some) : 3); p++) {
        struct chunk *chunk = write_chunk(some[p]);
        for (size_t i = 0; i < chunk->pipeline.n; i++)
            chunk->pipeline.filters[i].optional = true;
        for (size_t i = 0; i < COUNT(sizes); i++)
            expect_round_trip(&chunk->pipeline, bytes, sizes[i]);
        free_chunk(chunk);
    }
    free(bytes);
}

static void a_section_without_bytes_is_not_filtered(void **state)
{
    (void)state;
    static const char *const some[] = {"f", "d", "z"}; /* the last by libhdf5 */
    for (size_t p = 0; p < COUNT(some); p++) {
        struct chunk *chunk = write_chunk(some[p]);
        struct filter_pipeline pipeline = {1, chunk->pipeline.filters, 1};
        void *out = chunk;
        size_t n = 1;
        assert_int_equal(filters_encode(&pipeline, NULL, 0, &out, &n), 0);
        assert_true(!out && n == 0 && pipeline.mask == 0);
        out = chunk, n = pipeline.mask = 1;
        assert_int_equal(hdf5_filter_encode(&pipeline, NULL, 0, &out, &n), 0);
        assert_true(!out && n == 0 && pipeline.mask == 0);
        assert_int_equal(filters_decode(&pipeline, NULL, 0, NULL, NULL, 0), 0);
        assert_int_equal(hdf5_filter_decode(&pipeline, NULL, 0, NULL, 0), 0);
        assert_int_equal(filters_decode(&pipeline, "x", 1, NULL, NULL, 0), -EILSEQ);
        assert_int_equal(hdf5_filter_decode(&pipeline, "x", 1, NULL, 0), -EILSEQ);
        assert_int_equal(filters_decode(&pipeline, NULL, 0, NULL, &out, 1), -EILSEQ);
        assert_int_equal(hdf5_filter_decode(&pipeline, NULL, 0, &out, 1), -EILSEQ);
        free_chunk(chunk);
    }
}

static void our_own_filters_in_libhdf5_agree_with_ours(void **state)
{
    (void)state;
    static const char *const native[] = {"d", "s", "f", "sd", "sdf", "fsd", "df"};
    for (size_t p = 0; p < COUNT(native); p++) {
        struct chunk *chunk = write_chunk(native[p]);
        struct filter_pipeline pipeline = masked(&chunk->pipeline, 0);
        void *theirs, *ours;
        size_t n, m;
        unsigned char *back = allocate(BYTES);
        assert_int_equal(hdf5_filter_encode(&pipeline, chunk->bytes, BYTES, &theirs, &n), 0);
        assert_int_equal(n, chunk->stored_size);
        assert_memory_equal(theirs, chunk->stored, n);
        assert_int_equal(filters_encode(&pipeline, chunk->bytes, BYTES, &ours, &m), 0);
        assert_int_equal(hdf5_filter_decode(&pipeline, ours, m, back, BYTES), 0);
        assert_memory_equal(back, chunk->bytes, BYTES);
        free(back);
        free(ours);
        free(theirs);
        free_chunk(chunk);
    }
}

/* nbit and scale-offset say in their parameters how many elements there are. */
static void filters_for_one_number_of_elements_take_no_other(void **state)
{
    (void)state;
    static const char *const some[] = {"n", "o"};
    for (size_t p = 0; p < COUNT(some); p++) {
        struct chunk *chunk = write_chunk(some[p]);
        struct sfs_filter *filter = &chunk->pipeline.filters[0];
        void *out;
        size_t n;
        for (size_t size = 1; size < BYTES; size += size < 30 ? 1 : 97) {
            filter->optional = false;
            assert_int_equal(encode(filter, 1, chunk->bytes, size, &out, &n), -EINVAL);
            filter->optional = true;
            expect_round_trip(&chunk->pipeline, chunk->bytes, size);
        }
        free_chunk(chunk);
    }
}

static void filters_that_nobody_has_are_not_available(void **state)
{
    (void)state;
    static const int ids[] = {-1, 0, UNKNOWN, OURS, 65536};
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct sfs_filter filters[] = {{.id = FILTER_FLETCHER32}, {.id = ids[i]}};
        char bytes[8] = "bytes", number[12];
        void *out;
        size_t n;
        struct filter_pipeline pipeline = {2, filters};
        snprintf(number, sizeof(number), " %d ", ids[i]);
        assert_false(hdf5_filter_available(ids[i]));
        assert_int_equal(filters_decode(&pipeline, bytes, 8, NULL, bytes, 4), -EOPNOTSUPP);
        assert_non_null(strstr(hdf5_error(), number));
        assert_int_equal(filters_encode(&pipeline, bytes, 8, &out, &n), -EOPNOTSUPP);
        assert_non_null(strstr(hdf5_error(), number));
        filters[1].optional = true;
        assert_int_equal(filters_encode(&pipeline, bytes, 8, &out, &n), 0);
        assert_true(n == 12 && pipeline.mask == 2);
        char back[8];
        assert_int_equal(filters_decode(&pipeline, out, n, NULL, back, 8), 0);
        assert_memory_equal(back, bytes, 8);
        free(out);
    }
    assert_true(hdf5_filter_available(FILTER_DEFLATE));
}

/* A file may name the filter with which we reach into libhdf5. */
static void our_helper_does_nothing_in_datasets(void **state)
{
    (void)state;
    struct chunk *chunk = write_chunk("z");
    expect_round_trip(&chunk->pipeline, chunk->bytes, BYTES); /* it is registered now */
    hid_t file = H5Fcreate("helper.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t dims = ELEMENTS, offset = 0;
    hid_t space = H5Screate_simple(1, &dims, NULL);
    H5Pset_chunk(dcpl, 1, &dims);
    assert_true(H5Pset_filter(dcpl, OURS, 0, 1, (unsigned[]){1}) >= 0);
    hid_t dataset = H5Dcreate2(file, "data", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, 10, chunk->bytes) >= 0);
    H5E_BEGIN_TRY
    {
        assert_true(H5Dread(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, chunk->bytes) <
                    0);
    }
    H5E_END_TRY
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Fclose(file);
    free_chunk(chunk);
}

static void masked_filters_are_skipped(void **state)
{
    (void)state;
    static const char *const some[] = {"z", "sz", "nd", "zd"};
    for (size_t p = 0; p < COUNT(some); p++) {
        struct chunk *chunk = write_chunk(some[p]);
        struct pipeline left = {0};
        for (uint32_t mask = 0; mask < (uint32_t)1 << chunk->pipeline.n; mask++) {
            void *stored;
            unsigned char *back;
            size_t n;
            left.n = 0;
            for (size_t i = 0; i < chunk->pipeline.n; i++)
                if (!(mask >> i & 1))
                    left.filters[left.n++] = chunk->pipeline.filters[i];
            assert_int_equal(encode(left.filters, left.n, chunk->bytes, BYTES, &stored, &n), 0);
            assert_int_equal(decode(&chunk->pipeline, mask, stored, n, BYTES, &back), 0);
            assert_memory_equal(back, chunk->bytes, BYTES);
            free(back);
            free(stored);
        }
        free_chunk(chunk);
    }
}

static void other_sizes_than_recorded_are_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct chunk *chunk = write_chunk(pipelines[p]);
        static const size_t sizes[] = {1, 4, BYTES - 4, BYTES - 1, BYTES + 1, BYTES + 4, 2 * BYTES};
        for (size_t i = 0; i < COUNT(sizes); i++) {
            unsigned char *out;
            assert_int_equal(
                decode(&chunk->pipeline, 0, chunk->stored, chunk->stored_size, sizes[i], &out),
                -EILSEQ);
            free(out);
        }
        free_chunk(chunk);
    }
}

/* Whatever comes out of damaged bytes and parameters, nothing is read or written out of bounds. */
static void expect_decoded_or_refused(const struct pipeline *pipeline, const void *in, size_t n)
{
    unsigned char *out;
    int error = decode(pipeline, 0, in, n, BYTES, &out);
    assert_true(error == 0 || error == -EILSEQ);
    free(out);
}

static void damaged_bytes_are_decoded_or_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT(pipelines); p++) {
        struct chunk *chunk = write_chunk(pipelines[p]);
        for (size_t n = 0; n < chunk->stored_size; n += n < 40 ? 1 : 37)
            expect_decoded_or_refused(&chunk->pipeline, chunk->stored, n);
        for (size_t i = 0; i < chunk->stored_size; i += i < 40 ? 1 : 37) {
            unsigned char flip = (unsigned char)random_between(1, 255);
            chunk->stored[i] ^= flip;
            expect_decoded_or_refused(&chunk->pipeline, chunk->stored, chunk->stored_size);
            chunk->stored[i] ^= flip;
        }
        free_chunk(chunk);
    }
}

static unsigned odd_value(unsigned value)
{
    switch (random_below(4)) {
    case 0:
        return value ^ 1U << random_below(32);
    case 1:
        return value + (unsigned)random_between(0, 6) - 3;
    case 2:
        return (unsigned)random_below(70);
    default:
        return (unsigned)random_next();
    }
}

static void damaged_parameters_are_used_or_refused(void **state)
{
    (void)state;
    static const char *const some[] = {"n", "o", "z"};
    for (size_t p = 0; p < COUNT(some); p++) {
        struct chunk *chunk = write_chunk(some[p]);
        struct sfs_filter *filter = &chunk->pipeline.filters[0];
        const struct sfs_filter sound = *filter;
        for (int round = 0; round < 2000; round++) {
            unsigned values[MAX_VALUES];
            memcpy(values, sound.values, sizeof(values));
            filter->values = values;
            filter->n_values = sound.n_values;
            for (uint64_t changes = random_between(1, 2); changes > 0; changes--) {
                size_t i = random_below(sound.n_values);
                values[i] = odd_value(values[i]);
            }
            if (random_below(10) == 0)
                filter->n_values = random_below(MAX_VALUES + 1);
            expect_decoded_or_refused(&chunk->pipeline, chunk->stored, chunk->stored_size);
            void *out;
            size_t n;
            int error = encode(filter, 1, chunk->bytes, BYTES, &out, &n);
            assert_true(error == 0 || error == -EINVAL);
            if (!error)
                free(out);
        }
        free_chunk(chunk);
    }
}

/* Compound and array types have a tree of parameters. */
static void nbit_takes_apart_compound_types(void **state)
{
    (void)state;
    static const unsigned compound[] = {
        22, 0,  50,                  /* parameters, something to do, elements */
        3,  20, 3,                   /* compound of 20 bytes, 3 members */
        0,  1,  4,  0, 20, 0,        /* at 0 atomic of 4 bytes, little-endian, 20 bits from bit 0 */
        4,  2,  12, 1, 4,  0, 12, 3, /* at 4 an array of 12 bytes of such with 12 bits from bit 3 */
        16, 4,  4};                  /* at 16 no number, 4 bytes */
    unsigned values[COUNT(compound) + 1];
    memcpy(values, compound, sizeof(compound));
    struct pipeline pipeline = {
        .filters = {{.id = H5Z_FILTER_NBIT, .n_values = COUNT(compound), .values = values}},
        .n = 1,
    };
    values[0] = COUNT(compound);
    unsigned char bytes[1000] = {0};
    for (size_t i = 0; i < sizeof(bytes); i++) /* those that are kept whole */
        bytes[i] = i % 20 < 2 || i % 20 > 15 ? (unsigned char)random_next() : 0;
    expect_round_trip(&pipeline, bytes, sizeof(bytes));

    /* The array with a base that is larger, a member beyond the end, members that are too many. */
    static const struct {
        size_t i;
        unsigned value;
    } wrong[] = {{16, 24}, {20, 17}, {5, 4}, {4, 0}, {18, 0}, {18, 30}, {12, 9}, {21, 5}, {2, 51}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        void *out;
        size_t n;
        unsigned sound = values[wrong[i].i];
        values[wrong[i].i] = wrong[i].value;
        assert_int_equal(encode(pipeline.filters, 1, bytes, sizeof(bytes), &out, &n), -EINVAL);
        values[wrong[i].i] = sound;
    }
}

static void pipelines_that_fit_no_file_are_refused(void **state)
{
    (void)state;
    static unsigned values[20000];
    struct sfs_filter filters[33] = {{.id = FILTER_SHUFFLE, .n_values = 20000, .values = values}};
    unsigned char byte = 1;
    struct filter_pipeline pipeline = {1, filters};
    void *out;
    size_t n;
    assert_int_equal(hdf5_filter_encode(&pipeline, &byte, 1, &out, &n), -EINVAL);
    assert_int_equal(hdf5_filter_decode(&pipeline, &byte, 1, &byte, 1), -EILSEQ);
    for (size_t i = 0; i < COUNT(filters); i++)
        filters[i] = (struct sfs_filter){.id = FILTER_FLETCHER32, .optional = true};
    pipeline = (struct filter_pipeline){33, filters};
    assert_int_equal(filters_encode(&pipeline, &byte, 1, &out, &n), -EINVAL);
    assert_int_equal(filters_decode(&pipeline, &byte, 1, NULL, &byte, 1), -EILSEQ);
}

static void *go_to_and_fro(void *chunk_of_thread)
{
    struct chunk *chunk = chunk_of_thread;
    for (int round = 0; round < 50; round++) {
        void *out;
        unsigned char back[BYTES];
        size_t n;
        struct filter_pipeline pipeline = masked(&chunk->pipeline, 0);
        if (hdf5_filter_encode(&pipeline, chunk->bytes, BYTES, &out, &n) != 0)
            return chunk;
        int error = hdf5_filter_decode(&pipeline, out, n, back, BYTES);
        free(out);
        if (error || memcmp(back, chunk->bytes, BYTES) != 0)
            return chunk;
    }
    return NULL;
}

static void threads_wait_for_each_other(void **state)
{
    (void)state;
    static const char *const some[] = {"z", "nd", "o", "sdf"};
    struct chunk *chunks[COUNT(some)];
    pthread_t threads[COUNT(some)];
    for (size_t i = 0; i < COUNT(some); i++)
        chunks[i] = write_chunk(some[i]);
    for (size_t i = 0; i < COUNT(some); i++)
        start_thread(&threads[i], go_to_and_fro, chunks[i]);
    for (size_t i = 0; i < COUNT(some); i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
        free_chunk(chunks[i]);
    }
}

static int look_where_debian_has_plugins(void **state)
{
    (void)state;
    return !getenv("HDF5_PLUGIN_PATH") && access(PLUGINS, F_OK) == 0 && H5PLappend(PLUGINS) < 0;
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_libhdf5s_filters_go_both_ways),
        cmocka_unit_test(chunks_of_plugins_go_both_ways),
        cmocka_unit_test(sections_have_any_length),
        cmocka_unit_test(a_section_without_bytes_is_not_filtered),
        cmocka_unit_test(our_own_filters_in_libhdf5_agree_with_ours),
        cmocka_unit_test(filters_for_one_number_of_elements_take_no_other),
        cmocka_unit_test(filters_that_nobody_has_are_not_available),
        cmocka_unit_test(our_helper_does_nothing_in_datasets),
        cmocka_unit_test(masked_filters_are_skipped),
        cmocka_unit_test(other_sizes_than_recorded_are_refused),
        cmocka_unit_test(damaged_bytes_are_decoded_or_refused),
        cmocka_unit_test(damaged_parameters_are_used_or_refused),
        cmocka_unit_test(nbit_takes_apart_compound_types),
        cmocka_unit_test(pipelines_that_fit_no_file_are_refused),
        cmocka_unit_test(threads_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, look_where_debian_has_plugins, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
