/* Filters that others have as plugins of libhdf5 and that are ours, too. Where a plugin is
 * installed it is the referee: what it made is decoded, and what we make are the same bytes. Chunks
 * that were made by it before (golden) are decoded everywhere. Every buffer is exactly as long as
 * it must be, so that the address sanitizer sees one byte too many. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cpu_limit.h"
#include "config.h"
#include "filter/filter.h"
#include "filter/transpose.h"
#include "hdf5/hdf5.h"
#if HAVE_ZSTD
#include <zstd.h>
#endif

#define PLUGINS    "/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins"
#define MOST_BYTES 70000
#define E          0xE1E1E1E1 /* a parameter: the bytes of an element */

static const struct spec {
    const char *name;
    bool ours; /* in this build */
    int id;
    size_t n_values;
    unsigned values[8];
    bool same; /* the plugin makes the same bytes */
} specs[] = {
    {"bitshuffle", true, FILTER_BITSHUFFLE, 3, {0, 3, E}, true},
    {"bitshuffle, blocks of 24", true, FILTER_BITSHUFFLE, 5, {0, 3, E, 24, 0}, true},
    {"bitshuffle, LZ4", HAVE_LZ4, FILTER_BITSHUFFLE, 5, {0, 3, E, 0, 2}, true},
    {"bitshuffle, LZ4, blocks of 8", HAVE_LZ4, FILTER_BITSHUFFLE, 5, {0, 3, E, 8, 2}, true},
    {"bitshuffle, LZ4, large blocks", HAVE_LZ4, FILTER_BITSHUFFLE, 5, {0, 3, E, 4096, 2}, true},
    {"bitshuffle, zstd", HAVE_ZSTD, FILTER_BITSHUFFLE, 5, {0, 4, E, 0, 3}, false},
    {"bitshuffle, zstd 9", HAVE_ZSTD, FILTER_BITSHUFFLE, 6, {0, 4, E, 64, 3, 9}, false},
    {"LZ4", HAVE_LZ4, FILTER_LZ4, 0, {0}, true},
    {"LZ4, blocks of 100", HAVE_LZ4, FILTER_LZ4, 1, {100}, true},
    {"zstd", HAVE_ZSTD, FILTER_ZSTD, 0, {0}, true},
    {"LZF", true, FILTER_LZF, 3, {4, 0x0105, MOST_BYTES}, false},
    {"Blosc", HAVE_BLOSC, FILTER_BLOSC, 4, {2, 2, E, MOST_BYTES}, true},
    {"Blosc, LZ4 3, bits", HAVE_BLOSC, FILTER_BLOSC, 7, {2, 2, E, MOST_BYTES, 3, 2, 1}, true},
    {"Blosc, zstd 1", HAVE_BLOSC, FILTER_BLOSC, 7, {2, 2, E, MOST_BYTES, 1, 1, 5}, true},
    {"Blosc, zlib 9", HAVE_BLOSC, FILTER_BLOSC, 7, {2, 2, E, MOST_BYTES, 9, 0, 4}, true},
    {"Blosc2", HAVE_BLOSC2, FILTER_BLOSC2, 6, {1, 0, E, MOST_BYTES, 5, 1}, true},
    {"Blosc2, LZ4 3, bits", HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 0, E, MOST_BYTES, 3, 2, 1}, true},
    {"Blosc2, zstd 1, blocks", HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 4096, E, 0, 1, 1, 5}, true},
    {"Blosc2, zlib 9", HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 0, E, MOST_BYTES, 9, 0, 4}, true},
    {"Blosc2 0", HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 0, E, MOST_BYTES, 0, 0, 0}, true},
    {"bzip2", HAVE_BZIP2, FILTER_BZIP2, 0, {0}, true},
    {"bzip2 1", HAVE_BZIP2, FILTER_BZIP2, 1, {1}, true},
    {"szip", HAVE_SZIP, FILTER_SZIP, 4, {169, 8, 8, 256}, true},
    {"szip, entropy", HAVE_SZIP, FILTER_SZIP, 4, {141, 32, 8, 100}, true},
    {"zstd 7", HAVE_ZSTD, FILTER_ZSTD, 1, {7}, true},
};

struct use {
    struct sfs_filter filter;
    unsigned values[8];
};

static struct use *use_of(const struct spec *spec, size_t element)
{
    struct use *use = allocate(sizeof(*use));
    for (size_t i = 0; i < spec->n_values; i++)
        use->values[i] = spec->values[i] == E ? (unsigned)element : spec->values[i];
    use->filter =
        (struct sfs_filter){.id = spec->id, .n_values = spec->n_values, .values = use->values};
    return use;
}

/* Most know nothing of elements. */
static bool depends_on_element(const struct spec *spec)
{
    for (size_t i = 0; i < spec->n_values; i++)
        if (spec->values[i] == E)
            return true;
    return false;
}

/* Elements like those of detectors, noise, or all the same. */
static void fill(unsigned char *bytes, size_t size, size_t element, unsigned kind)
{
    memset(bytes, kind == 1 ? 0xFF : 0, size);
    if (kind == 0)
        random_fill(bytes, size);
    for (size_t i = 0; kind == 2 && i < size / element; i++)
        bytes[i * element] =
            random_below(20) ? (unsigned char)random_below(4) : (unsigned char)random_below(256);
}

#define KINDS 3

/* From and into buffers without a spare byte; *out is allocated. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, unsigned char **out,
                  size_t *out_size, uint32_t *mask)
{
    unsigned char *tight = allocate(size);
    memcpy(tight, in, size);
    struct filter_pipeline pipeline = {1, filter};
    size_t bound = filter_encode_bound(&pipeline, size);
    assert_true(bound >= size && bound < 12 * size + 4096);
    assert_int_equal(filter_encode_scratch(&pipeline, size), 0);
    *out = allocate(bound);
    *out_size = bound;
    int error = filter_encode(&pipeline, tight, size, NULL, *out, out_size);
    *mask = pipeline.mask;
    assert_true(error || *out_size <= bound);
    free(tight);
    return error;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, size_t size,
                  unsigned char **out)
{
    unsigned char *tight = allocate(in_size);
    memcpy(tight, in, in_size);
    const struct filter_pipeline pipeline = {1, filter};
    assert_int_equal(filter_scratch(&pipeline, size), 0);
    *out = allocate(size);
    int error = filter_decode(&pipeline, tight, in_size, NULL, *out, size);
    free(tight);
    return error;
}

static void expect_decoded(const struct sfs_filter *filter, const void *stored, size_t n,
                           const void *bytes, size_t size)
{
    unsigned char *back;
    assert_int_equal(decode(filter, stored, n, size, &back), 0);
    assert_memory_equal(back, bytes, size);
    free(back);
}

/* What is left out because it fails is so for both. */
static void expect_the_same_if_optional(const struct sfs_filter *filter, const void *bytes,
                                        size_t size)
{
    struct sfs_filter optional = *filter;
    struct filter_pipeline pipeline = {1, &optional};
    unsigned char *ours;
    void *theirs;
    size_t n, their_n;
    uint32_t mask;
    optional.optional = true;
    assert_int_equal(encode(&optional, bytes, size, &ours, &n, &mask), 0);
    assert_int_equal(hdf5_filter_encode(&pipeline, bytes, size, &theirs, &their_n), 0);
    assert_int_equal(mask, pipeline.mask);
    assert_int_equal(n, their_n);
    assert_memory_equal(ours, theirs, n);
    free(theirs);
    free(ours);
}

static void expect_agreement(const struct spec *spec, const struct sfs_filter *filter,
                             const void *bytes, size_t size)
{
    unsigned char *ours, *back = allocate(size);
    void *theirs;
    size_t n, their_n;
    struct filter_pipeline pipeline = {1, filter};
    assert_int_equal(encode(filter, bytes, size, &ours, &n, &pipeline.mask), 0);
    assert_int_equal(hdf5_filter_decode(&pipeline, ours, n, back, size), 0);
    assert_memory_equal(back, bytes, size);
    if (hdf5_filter_encode(&pipeline, bytes, size, &theirs, &their_n) == 0) {
        expect_decoded(filter, theirs, their_n, bytes, size);
        if (spec->same) {
            assert_int_equal(n, their_n);
            assert_memory_equal(ours, theirs, n);
        }
        free(theirs);
    }
    if (spec->same)
        expect_the_same_if_optional(filter, bytes, size);
    free(back);
    free(ours);
}

/* bitshuffle of Debian cannot compress by zstd. */
static bool has_plugin(const struct spec *spec)
{
    bool by_zstd = spec->id == FILTER_BITSHUFFLE && spec->n_values > 4 && spec->values[4] == 3;
    return spec->ours && !by_zstd && hdf5_filter_available(spec->id);
}

static const size_t counts[] = {1, 2, 7, 8, 9, 15, 17, 63, 200, 1031, 4099};
static const size_t elements[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16};

static void plugins_agree(void **state)
{
    (void)state;
    static unsigned char bytes[MOST_BYTES];
    unsigned there = 0;
    for (size_t s = 0; s < COUNT(specs); s++) {
        if (!has_plugin(&specs[s]))
            continue;
        there++;
        for (size_t e = 0; e < (depends_on_element(&specs[s]) ? COUNT(elements) : 1); e++) {
            struct use *use = use_of(&specs[s], elements[e]);
            for (size_t c = 0; c < COUNT(counts); c++) {
                size_t size = counts[c] * elements[e];
                fill(bytes, size, elements[e], (unsigned)(c + e) % KINDS);
                expect_agreement(&specs[s], &use->filter, bytes, size);
            }
            free(use);
        }
    }
    if (there == 0)
        skip();
}

static void what_is_encoded_is_decoded_again(void **state)
{
    (void)state;
    static unsigned char bytes[MOST_BYTES];
    for (size_t s = 0; s < COUNT(specs); s++)
        for (size_t e = 0; e < (depends_on_element(&specs[s]) ? COUNT(elements) : 1); e++) {
            struct use *use = use_of(&specs[s], elements[e]);
            for (size_t c = 0; specs[s].ours && c < KINDS * 80; c++) {
                size_t n = c < 3 * 70 ? c / KINDS : random_below(MOST_BYTES / elements[e]);
                size_t size = n * elements[e], made;
                unsigned char *stored;
                uint32_t mask;
                if (size == 0 && use->filter.id == FILTER_SZIP)
                    continue; /* it has nothing to say of no bytes */
                fill(bytes, size, elements[e], c % KINDS);
                assert_int_equal(encode(&use->filter, bytes, size, &stored, &made, &mask), 0);
                assert_int_equal(mask, 0);
                expect_decoded(&use->filter, stored, made, bytes, size);
                free(stored);
            }
            free(use);
        }
}

static void all_are_native_that_the_build_has(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(specs); s++) {
        struct use *use = use_of(&specs[s], 4);
        struct sfs_filter *filter = &use->filter;
        const struct filter_pipeline one = {1, filter};
        assert_true(filter_is_native(&one) == specs[s].ours);
        if (specs[s].ours && filter->id == FILTER_BITSHUFFLE) {
            use->values[2] = 0; /* bytes of an element */
            assert_false(filter_is_native(&one));
            filter->n_values = 2;
            assert_false(filter_is_native(&one));
            *filter = (struct sfs_filter){.id = filter->id, .n_values = 5, .values = use->values};
            use->values[2] = 4;
            use->values[3] = 12; /* elements of a block: no multiple of 8 */
            assert_false(filter_is_native(&one));
            use->values[3] = 1u << 30; /* of 4 bytes */
            assert_false(filter_is_native(&one));
            use->values[3] = 0;
            use->values[4] = 1; /* a compression that nobody has */
            assert_false(filter_is_native(&one));
        }
        free(use);
    }
}

/* A chunk of 150 elements is flipped at every byte, cut at every length and made longer. */
static void damaged_chunks_are_decoded_or_refused(void **state)
{
    (void)state;
    unsigned char bytes[1200];
    for (size_t s = 0; s < COUNT(specs); s++)
        for (unsigned kind = 0; specs[s].ours && kind < KINDS; kind++) {
            size_t element = random_between(1, 8), size = 150 * element, n;
            struct use *use = use_of(&specs[s], element);
            unsigned char *stored, *out;
            uint32_t mask;
            fill(bytes, size, element, kind);
            assert_int_equal(encode(&use->filter, bytes, size, &stored, &n, &mask), 0);
            for (size_t i = 0; i < n; i++) {
                unsigned char flip = (unsigned char)random_between(1, 255);
                stored[i] ^= flip;
                int error = decode(&use->filter, stored, n, size, &out);
                assert_true(error == 0 || error == -EILSEQ);
                free(out);
                stored[i] ^= flip;
                error = decode(&use->filter, stored, i, size, &out);
                assert_true(error == -EILSEQ || (error == 0 && use->filter.id == FILTER_SZIP));
                free(out);
            }
            size_t other[] = {size - 1, size + 1, size + element, size / 2, 2 * size, 0};
            for (size_t i = 0; i < COUNT(other); i++) {
                assert_int_equal(decode(&use->filter, stored, n, other[i], &out), -EILSEQ);
                free(out);
            }
            free(stored);
            free(use);
        }
}

static void random_bytes_are_decoded_or_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 40000; round++) {
        const struct spec *spec = &specs[random_below(COUNT(specs))];
        if (!spec->ours)
            continue;
        struct use *use = use_of(spec, random_between(1, 20));
        size_t n = random_below(200), size = random_below(200);
        unsigned char *in = allocate(n), *out;
        random_fill(in, n);
        /* Heads of streams that get beyond the first look. */
        if (n >= 12 && round % 2 == 0) {
            memset(in, 0, 12);
            in[7] = (unsigned char)size;
            in[11] = (unsigned char)(random_below(40) * use->values[2]);
        }
        int error = decode(&use->filter, in, n, size, &out);
        assert_true(error == 0 || error == -EILSEQ);
        free(out);
        free(in);
        free(use);
    }
}

/* What a head claims is compared before anything is done. */
static void sizes_that_a_head_claims_are_refused(void **state)
{
    (void)state;
    static const unsigned char huge[] = {0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xF8, 0xFF,
                                         0xFF, 0xFF, 0xF8, 0,    0,    0,    1,    0};
    static const unsigned char large_block[] = {0,    0,    0,    0,    0,    0,    0,    8, 0xFF,
                                                0xFF, 0xFF, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0};
    for (size_t s = 0; s < COUNT(specs); s++) {
        if (!specs[s].ours || (specs[s].id == FILTER_BITSHUFFLE && specs[s].values[4] == 0))
            continue;
        struct use *use = use_of(&specs[s], 1);
        unsigned char *out;
        assert_int_equal(decode(&use->filter, huge, sizeof(huge), 8, &out), -EILSEQ);
        free(out);
        assert_int_equal(decode(&use->filter, large_block, sizeof(large_block), 8, &out), -EILSEQ);
        free(out);
        free(use);
    }
}

/* No package of Debian has the plugin: the library is the referee, whose contexts are used again
 * and again here and once there. */
#if HAVE_ZSTD
static void frames_are_those_of_libzstd(void **state)
{
    (void)state;
    unsigned char bytes[30000], theirs[40000], turned[sizeof(bytes)];
    static const unsigned plain[] = {0, 3, 4, 7496};
    const struct sfs_filter shuffle = {FILTER_BITSHUFFLE, .n_values = 4, .values = plain};
    static const unsigned levels[] = {0, 1, 3, 9, 3, 19, 22, 1};
    for (size_t l = 0; l < COUNT(levels); l++) {
        unsigned level = levels[l];
        unsigned values[] = {0, 4, 4, plain[3], 3, level}, used = level ? level : 1;
        struct sfs_filter filters[] = {
            {.id = FILTER_ZSTD, .n_values = 1, .values = &level},
            {.id = FILTER_BITSHUFFLE, .n_values = COUNT(values), .values = values}};
        unsigned char *ours;
        size_t n, their_n;
        uint32_t mask;
        fill(bytes, sizeof(bytes), 4, 2);
        their_n = ZSTD_compress(theirs, sizeof(theirs), bytes, sizeof(bytes), (int)used);
        assert_int_equal(encode(&filters[0], bytes, sizeof(bytes), &ours, &n, &mask), 0);
        assert_int_equal(n, their_n);
        assert_memory_equal(ours, theirs, n);
        free(ours);

        size_t block = 4 * (size_t)plain[3];
        n = sizeof(turned);
        assert_int_equal(filter_encode(&(struct filter_pipeline){1, &shuffle}, bytes, sizeof(bytes),
                                       NULL, turned, &n),
                         0);
        their_n = ZSTD_compress(theirs, sizeof(theirs), turned, block, (int)level);
        assert_int_equal(encode(&filters[1], bytes, sizeof(bytes), &ours, &n, &mask), 0);
        assert_in_range(n, 16 + their_n, sizeof(bytes));
        assert_memory_equal(ours + 16, theirs, their_n);
        free(ours);
    }
}
#endif

/* libblosc would divide by zero, or allocate nearly all there is. */
static void numbers_that_harm_libblosc_are_refused(void **state)
{
    (void)state;
    static const unsigned nothing[] = {2, 2, 0, 400};
    const struct spec *spec = &specs[0];
    while (spec->id != FILTER_BLOSC)
        spec++;
    struct use *use = use_of(spec, 4);
    struct sfs_filter without = {.id = FILTER_BLOSC, .n_values = 4, .values = nothing};
    unsigned char bytes[400] = {1}, *stored, *out;
    size_t n;
    uint32_t mask;
    if (!spec->ours) {
        free(use);
        skip();
    }
    assert_int_equal(encode(&without, bytes, sizeof(bytes), &out, &n, &mask), -EINVAL);
    free(out);
    for (size_t size = 1; size < 4; size++) { /* fewer bytes than an element has */
        assert_int_equal(encode(&use->filter, bytes, size, &stored, &n, &mask), 0);
        expect_decoded(&use->filter, stored, n, bytes, size);
        free(stored);
    }
    static const struct {
        size_t at;
        unsigned char byte;
    } wrong[] = {{3, 0}, {8, 0}, {9, 0xFF}, {11, 0xFF}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(encode(&use->filter, bytes, sizeof(bytes), &stored, &n, &mask), 0);
        if (wrong[i].at == 8)
            memset(stored + 8, 0, 4);
        stored[wrong[i].at] = wrong[i].byte;
        assert_int_equal(decode(&use->filter, stored, n, sizeof(bytes), &out), -EILSEQ);
        free(out);
        free(stored);
    }
    free(use);
}

/* ---- Golden chunks ---- */

/* Elements 0, 1, 2, 3, 0, ... of 2 bytes, little-endian, the last of them 0xABCD. */
#define GOLDEN_ELEMENTS 83

static void make_golden_elements(unsigned char *bytes)
{
    memset(bytes, 0, 2 * (size_t)GOLDEN_ELEMENTS);
    for (size_t i = 0; i < GOLDEN_ELEMENTS; i++)
        bytes[2 * i] = i % 4;
    bytes[2 * GOLDEN_ELEMENTS - 2] = 0xCD;
    bytes[2 * GOLDEN_ELEMENTS - 1] = 0xAB;
}

/* By bitshuffle 0.3.5. */
static const unsigned char golden_0[] = {
    0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xCC, 0xCC, 0xCC, 0xCC, 0xCC, 0xCC,
    0xCC, 0xCC, 0xCC, 0xCC, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By bitshuffle 0.3.5 with liblz4 1.9.4. */
static const unsigned char golden_1[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00,
    0x00, 0x13, 0x15, 0xAA, 0x01, 0x00, 0x15, 0xCC, 0x01, 0x00, 0x1F, 0x00, 0x01, 0x00,
    0x73, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By the same, blocks of 8 elements. */
static const unsigned char golden_2[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00,
    0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00, 0x50,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01, 0x00,
    0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x34, 0xAA, 0xCC, 0x00, 0x01,
    0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By what bitshuffle 0.3.5 made without compression, through the program zstd 1.5.4. */
static const unsigned char golden_3[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00,
    0x16, 0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58, 0x6D, 0x00, 0x00, 0x20, 0xAA, 0xAA, 0xCC, 0x00,
    0x03, 0x10, 0x00, 0x08, 0x2A, 0xE5, 0x12, 0x58, 0x00, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By hdf5-filter-plugin 0.0~git20221111 with liblz4 1.9.4. */
static const unsigned char golden_4[] = {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0x00,
                                         0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x12, 0x8F, 0x00,
                                         0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x08, 0x00,
                                         0x86, 0x50, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By the same, blocks of 16 bytes, some of which do not get smaller. */
static const unsigned char golden_5[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x10,
    0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10,
    0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x10,
    0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By the program zstd 1.5.4. */
static const unsigned char golden_6[] = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58, 0x8D, 0x00, 0x00,
                                         0x50, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00,
                                         0xCD, 0xAB, 0x01, 0x00, 0x99, 0x51, 0x85, 0x0B};

/* By hdf5-filter-plugin-blosc-serial with libblosc 1.21.3. */
static const unsigned char golden_7[] = {
    0x02, 0x01, 0x11, 0x02, 0xA6, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x29, 0x00,
    0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x23, 0x00, 0x01, 0x02,
    0x03, 0xE0, 0x45, 0x03, 0x01, 0xCD, 0x00, 0xE0, 0x47, 0x00, 0x01, 0x00, 0xAB};

/* By the same, of bits, with LZ4. */
static const unsigned char golden_8[] = {
    0x02, 0x01, 0x34, 0x02, 0xA6, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x2A, 0x00,
    0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x00, 0x8F, 0x00, 0x00, 0x01,
    0x00, 0x02, 0x00, 0x03, 0x00, 0x08, 0x00, 0x86, 0x50, 0x00, 0x01, 0x00, 0xCD, 0xAB};

/* By hdf5-filter-plugin with libbz2 1.0.8. */
static const unsigned char golden_9[] = {
    0x42, 0x5A, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x2A, 0x4D, 0xBE,
    0xB6, 0x00, 0x00, 0x0A, 0x40, 0x14, 0x78, 0x00, 0x00, 0x08, 0x00, 0x02, 0x20,
    0x00, 0x30, 0xC0, 0x02, 0x95, 0x32, 0x1A, 0x4E, 0xE4, 0x4D, 0x27, 0x49, 0xCC,
    0x95, 0x7B, 0x9F, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, 0x2A, 0x4D, 0xBE, 0xB6};

/* By h5py. */
static const unsigned char golden_10[] = {0x08, 0x00, 0x00, 0x01, 0x00, 0x02, 0x00, 0x03,
                                          0x00, 0x00, 0xE0, 0x92, 0x07, 0x01, 0xCD, 0xAB};

/* By libhdf5 1.10.8 with libaec 1.0.6. */
static const unsigned char golden_11[] = {
    0xA6, 0x00, 0x00, 0x00, 0x20, 0x00, 0x0A, 0x9A, 0xCC, 0x23, 0x53, 0x5C, 0xC2, 0x35,
    0x35, 0xCC, 0x23, 0x53, 0x5C, 0xC2, 0x35, 0x35, 0xCC, 0x23, 0x53, 0x5C, 0xC2, 0x35,
    0x35, 0xCC, 0x23, 0x53, 0x5C, 0xC2, 0x35, 0x35, 0xCC, 0x23, 0x53, 0x5C, 0xCD, 0xC0,
    0x0F, 0xC0, 0x14, 0x00, 0x6F, 0x34, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

/* By the filter of PyTables 3.10.2 with libblosc2 2.17.1. */
static const unsigned char golden_12[] = {
    0x9E, 0xA8, 0x62, 0x32, 0x66, 0x72, 0x61, 0x6D, 0x65, 0x00, 0xD2, 0x00, 0x00, 0x00, 0x61, 0xCF,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xF0, 0xA4, 0x12, 0x00, 0x50, 0x03, 0xD3, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0xD3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x44, 0xD2,
    0x00, 0x00, 0x00, 0x02, 0xD2, 0x00, 0x00, 0x00, 0xA6, 0xD2, 0x00, 0x00, 0x00, 0xA6, 0xD1, 0x00,
    0x00, 0xD1, 0x00, 0x01, 0xC2, 0xD8, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x93, 0xCD, 0x00, 0x07, 0xDE, 0x00, 0x00, 0xDC, 0x00,
    0x00, 0x05, 0x01, 0x05, 0x02, 0xA6, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x44, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x24, 0x00, 0x00, 0x00, 0x0C, 0x00, 0x00, 0x00, 0x23, 0x00, 0x01, 0x02, 0x03, 0xE0, 0x43,
    0x03, 0x02, 0x00, 0x01, 0xCD, 0x0C, 0x00, 0x00, 0x00, 0x23, 0x00, 0x00, 0x00, 0x00, 0xE0, 0x43,
    0x03, 0x02, 0x00, 0x00, 0xAB, 0x05, 0x01, 0x07, 0x08, 0x08, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00,
    0x00, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x94, 0x01, 0x93,
    0xCD, 0x00, 0x06, 0xDE, 0x00, 0x00, 0xDC, 0x00, 0x00, 0xCE, 0x00, 0x00, 0x00, 0x23, 0xD8, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

/* By the same, of bits, with LZ4. */
static const unsigned char golden_13[] = {
    0x9E, 0xA8, 0x62, 0x32, 0x66, 0x72, 0x61, 0x6D, 0x65, 0x00, 0xD2, 0x00, 0x00, 0x00, 0x61, 0xCF,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xE7, 0xA4, 0x12, 0x00, 0x91, 0x03, 0xD3, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xA6, 0xD3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3B, 0xD2,
    0x00, 0x00, 0x00, 0x02, 0xD2, 0x00, 0x00, 0x00, 0xA6, 0xD2, 0x00, 0x00, 0x00, 0xA6, 0xD1, 0x00,
    0x00, 0xD1, 0x00, 0x01, 0xC2, 0xD8, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x93, 0xCD, 0x00, 0x07, 0xDE, 0x00, 0x00, 0xDC, 0x00,
    0x00, 0x05, 0x01, 0x35, 0x02, 0xA6, 0x00, 0x00, 0x00, 0xA6, 0x00, 0x00, 0x00, 0x3B, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x24, 0x00, 0x00, 0x00, 0x13, 0x00, 0x00, 0x00, 0x15, 0xAA, 0x01, 0x00, 0x15, 0xCC, 0x01,
    0x00, 0x1F, 0x00, 0x01, 0x00, 0x79, 0x50, 0x00, 0x01, 0x00, 0xCD, 0xAB, 0x05, 0x01, 0x07, 0x08,
    0x08, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x94, 0x01, 0x93, 0xCD, 0x00, 0x06, 0xDE, 0x00, 0x00, 0xDC, 0x00, 0x00,
    0xCE, 0x00, 0x00, 0x00, 0x23, 0xD8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

/* By the same, with LZ4: a chunk of 1 x 83 in blocks of 1 x 16. */
static const unsigned char golden_14[] = {
    0x9E, 0xA8, 0x62, 0x32, 0x66, 0x72, 0x61, 0x6D, 0x65, 0x00, 0xD2, 0x00, 0x00, 0x00, 0xA5, 0xCF,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xA1, 0xA4, 0x12, 0x00, 0x51, 0x03, 0xD3, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xC0, 0xD3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xB1, 0xD2,
    0x00, 0x00, 0x00, 0x02, 0xD2, 0x00, 0x00, 0x00, 0x20, 0xD2, 0x00, 0x00, 0x00, 0xC0, 0xD1, 0x00,
    0x00, 0xD1, 0x00, 0x01, 0xC2, 0xD8, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x93, 0xCD, 0x00, 0x11, 0xDE, 0x00, 0x01, 0xA4, 0x62,
    0x32, 0x6E, 0x64, 0xD2, 0x00, 0x00, 0x00, 0x6B, 0xDC, 0x00, 0x01, 0xC6, 0x00, 0x00, 0x00, 0x35,
    0x97, 0x00, 0x02, 0x92, 0xD3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xD3, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x53, 0x92, 0xD2, 0x00, 0x00, 0x00, 0x01, 0xD2, 0x00, 0x00, 0x00,
    0x53, 0x92, 0xD2, 0x00, 0x00, 0x00, 0x01, 0xD2, 0x00, 0x00, 0x00, 0x10, 0x00, 0xDB, 0x00, 0x00,
    0x00, 0x03, 0x7C, 0x56, 0x32, 0x05, 0x01, 0x35, 0x02, 0xC0, 0x00, 0x00, 0x00, 0x20, 0x00, 0x00,
    0x00, 0xB1, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x38, 0x00, 0x00, 0x00, 0x4C, 0x00, 0x00, 0x00, 0x60, 0x00, 0x00,
    0x00, 0x74, 0x00, 0x00, 0x00, 0x88, 0x00, 0x00, 0x00, 0x9C, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
    0x00, 0x49, 0x00, 0x01, 0x02, 0x03, 0x04, 0x00, 0x06, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x10, 0x00, 0x00, 0x00, 0x49, 0x00, 0x01, 0x02, 0x03, 0x04, 0x00, 0x06, 0x01, 0x00, 0x50,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x49, 0x00, 0x01, 0x02, 0x03, 0x04, 0x00,
    0x06, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x49, 0x00, 0x01,
    0x02, 0x03, 0x04, 0x00, 0x06, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
    0x00, 0x49, 0x00, 0x01, 0x02, 0x03, 0x04, 0x00, 0x06, 0x01, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x11, 0x00, 0x00, 0x00, 0x4A, 0x00, 0x01, 0xCD, 0x00, 0x01, 0x00, 0x14, 0xAB, 0x0F, 0x00,
    0x50, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x01, 0x07, 0x08, 0x08, 0x00, 0x00, 0x00, 0x08, 0x00,
    0x00, 0x00, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x94, 0x01,
    0x93, 0xCD, 0x00, 0x06, 0xDE, 0x00, 0x00, 0xDC, 0x00, 0x00, 0xCE, 0x00, 0x00, 0x00, 0x23, 0xD8,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00};

static const struct {
    bool ours; /* in this build */
    int id;
    size_t n_values;
    unsigned values[8];
    const unsigned char *stored;
    size_t n;
} golden[] = {
    {true, FILTER_BITSHUFFLE, 5, {0, 3, 2, 0, 0}, golden_0, sizeof(golden_0)},
    {HAVE_LZ4, FILTER_BITSHUFFLE, 5, {0, 3, 2, 0, 2}, golden_1, sizeof(golden_1)},
    {HAVE_LZ4, FILTER_BITSHUFFLE, 5, {0, 3, 2, 8, 2}, golden_2, sizeof(golden_2)},
    {HAVE_ZSTD, FILTER_BITSHUFFLE, 5, {0, 4, 2, 0, 3}, golden_3, sizeof(golden_3)},
    {HAVE_LZ4, FILTER_LZ4, 1, {0}, golden_4, sizeof(golden_4)},
    {HAVE_LZ4, FILTER_LZ4, 1, {16}, golden_5, sizeof(golden_5)},
    {HAVE_ZSTD, FILTER_ZSTD, 1, {3}, golden_6, sizeof(golden_6)},
    {HAVE_BLOSC, FILTER_BLOSC, 7, {2, 2, 2, 166, 5, 1, 0}, golden_7, sizeof(golden_7)},
    {HAVE_BLOSC, FILTER_BLOSC, 7, {2, 2, 2, 166, 9, 2, 1}, golden_8, sizeof(golden_8)},
    {HAVE_BZIP2, FILTER_BZIP2, 1, {9}, golden_9, sizeof(golden_9)},
    {true, FILTER_LZF, 3, {4, 261, 166}, golden_10, sizeof(golden_10)},
    {HAVE_SZIP, FILTER_SZIP, 4, {169, 8, 16, 83}, golden_11, sizeof(golden_11)},
    {HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 0, 2, 166, 5, 1, 0}, golden_12, sizeof(golden_12)},
    {HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 0, 2, 166, 9, 2, 1}, golden_13, sizeof(golden_13)},
    {HAVE_BLOSC2, FILTER_BLOSC2, 7, {1, 32, 2, 166, 5, 1, 1}, golden_14, sizeof(golden_14)},
};

static void golden_chunks_are_decoded(void **state)
{
    (void)state;
    unsigned char bytes[2 * GOLDEN_ELEMENTS];
    make_golden_elements(bytes);
    for (size_t g = 0; g < COUNT(golden); g++) {
        struct sfs_filter filter = {
            .id = golden[g].id, .n_values = golden[g].n_values, .values = golden[g].values};
        if (golden[g].ours)
            expect_decoded(&filter, golden[g].stored, golden[g].n, bytes, sizeof(bytes));
    }
}

/* ---- What fails ---- */

static void bitshuffle_takes_whole_elements_only(void **state)
{
    (void)state;
    unsigned char bytes[41] = {1, 2, 3}, *out;
    for (size_t s = 0; s < COUNT(specs); s++) {
        if (!specs[s].ours || specs[s].id != FILTER_BITSHUFFLE)
            continue;
        struct use *use = use_of(&specs[s], 4);
        size_t n;
        uint32_t mask;
        assert_int_equal(encode(&use->filter, bytes, sizeof(bytes), &out, &n, &mask), -EINVAL);
        free(out);
        use->filter.optional = true;
        assert_int_equal(encode(&use->filter, bytes, sizeof(bytes), &out, &n, &mask), 0);
        assert_int_equal(mask, 1);
        assert_int_equal(n, sizeof(bytes));
        assert_memory_equal(out, bytes, n);
        free(out);
        assert_int_equal(decode(&use->filter, bytes, sizeof(bytes), sizeof(bytes), &out), -EILSEQ);
        free(out);
        free(use);
    }
}

/* ---- In pipelines ---- */

/* A pipeline of up to five filters in any order, of which any number compress. */
static size_t choose_filters(const struct sfs_filter *kept, size_t n_kept, struct use **uses,
                             struct sfs_filter *filters)
{
    size_t n = random_below(6);
    for (size_t i = 0; i < n; i++) {
        uses[i] = use_of(&specs[random_below(COUNT(specs))], 1);
        bool compresses =
            filter_is_native(&(struct filter_pipeline){1, &uses[i]->filter}) && random_below(2);
        filters[i] = compresses ? uses[i]->filter : kept[random_below(n_kept)];
    }
    return n;
}

/* What does not take what the one before it has made, whose size may be any, leaves itself out. */
static void filters_go_together(void **state)
{
    (void)state;
    static const unsigned four = 4, plain[] = {0, 3, 4}, other[] = {0, 3, 3};
    static const struct sfs_filter kept[] = {
        {.id = FILTER_SHUFFLE, .n_values = 1, .values = &four},
        {.id = FILTER_BITSHUFFLE, .n_values = 3, .values = plain, .optional = true},
        {.id = FILTER_BITSHUFFLE, .n_values = 3, .values = other, .optional = true},
        {.id = FILTER_FLETCHER32},
    };
    unsigned char bytes[700];
    fill(bytes, sizeof(bytes), 4, 2);
    for (int round = 0; round < 2000; round++) {
        struct use *uses[6];
        struct sfs_filter filters[6];
        size_t n = choose_filters(kept, COUNT(kept), uses, filters), made, scratch_n;
        struct filter_pipeline pipeline = {n, filters};
        assert_true(filter_is_native(&pipeline));
        made = filter_encode_bound(&pipeline, sizeof(bytes));
        scratch_n = filter_encode_scratch(&pipeline, sizeof(bytes));
        unsigned char *stored = allocate(made), *scratch = scratch_n ? allocate(scratch_n) : NULL;
        assert_int_equal(filter_encode(&pipeline, bytes, sizeof(bytes), scratch, stored, &made), 0);
        free(scratch);
        unsigned char *tight = allocate(made), *back = allocate(sizeof(bytes));
        memcpy(tight, stored, made);
        scratch_n = filter_scratch(&pipeline, sizeof(bytes));
        scratch = scratch_n ? allocate(scratch_n) : NULL;
        assert_int_equal(filter_decode(&pipeline, tight, made, scratch, back, sizeof(bytes)), 0);
        assert_memory_equal(back, bytes, sizeof(bytes));
        assert_true(filter_can_make(&pipeline, made, sizeof(bytes)));
        free(scratch);
        free(back);
        free(tight);
        free(stored);
        for (size_t i = 0; i < n; i++)
            free(uses[i]);
    }
}

static bool count_question(void *asked)
{
    ++*(unsigned *)asked;
    return false;
}

static bool count_down(void *left)
{
    return --*(unsigned *)left == 0;
}

/* 8 MiB by this filter: how often it is asked whether they are still wanted. */
static void expect_questions(const struct sfs_filter *filter, unsigned least)
{
    const size_t size = (size_t)8 << 20;
    const struct filter_pipeline one = {1, filter};
    if (!filter_is_native(&one))
        return;
    struct filter_pipeline pipeline = one;
    unsigned char *bytes = calloc(1, size), *back = allocate(size);
    size_t n = filter_encode_bound(&pipeline, size);
    unsigned char *stored = allocate(n);
    unsigned asked = 0;
    assert_non_null(bytes);
    assert_int_equal(filter_encode(&pipeline, bytes, size, NULL, stored, &n), 0);
    sfs_set_interrupt(count_question, &asked);
    assert_int_equal(filter_decode(&pipeline, stored, n, NULL, back, size), 0);
    assert_memory_equal(back, bytes, size);
    assert_true(asked >= least && asked < 20);
    for (unsigned i = 1; i <= asked; i++) {
        unsigned left = i;
        sfs_set_interrupt(count_down, &left);
        assert_int_equal(filter_decode(&pipeline, stored, n, NULL, back, size), -EINTR);
        assert_int_equal(left, 0);
    }
    sfs_set_interrupt(NULL, NULL);
    cpu_limit_set(1e-9);
    assert_int_equal(filter_decode(&pipeline, stored, n, NULL, back, size), 0);
    cpu_limit_begin();
    int error = filter_decode(&pipeline, stored, n, NULL, back, size);
    assert_int_equal(error,
                     asked > 1 ? -ETIMEDOUT : 0); /* from the first question on it is counted */
    cpu_limit_end();
    cpu_limit_set(0);
    assert_int_equal(filter_decode(&pipeline, stored, n, NULL, back, size), 0);
    free(stored);
    free(back);
    free(bytes);
}

static void decoding_asks_whether_it_is_wanted(void **state)
{
    (void)state;
    static const unsigned two = 2, eight = 8, odd = 4093, block = 65536, level = 6;
    static const unsigned plain[] = {0, 3, 4}, lz4[] = {0, 3, 4, 0, 2}, zstd[] = {0, 4, 4, 0, 3};
    static const struct {
        struct sfs_filter filter;
        unsigned least;
    } cases[] = {
        {{.id = FILTER_SHUFFLE, .n_values = 1, .values = &two}, 8},
        {{.id = FILTER_SHUFFLE, .n_values = 1, .values = &eight}, 8},
        {{.id = FILTER_SHUFFLE, .n_values = 1, .values = &odd}, 4},
        {{.id = FILTER_BITSHUFFLE, .n_values = 3, .values = plain}, 8},
        {{.id = FILTER_BITSHUFFLE, .n_values = 5, .values = lz4}, 8},
        {{.id = FILTER_BITSHUFFLE, .n_values = 5, .values = zstd}, 8},
        {{.id = FILTER_LZ4, .n_values = 1, .values = &block}, 8},
        {{.id = FILTER_LZF}, 8},
        {{.id = FILTER_BZIP2}, 8},
        {{.id = FILTER_DEFLATE, .n_values = 1, .values = &level}, 1},
        {{.id = FILTER_ZSTD}, 1},
        {{.id = FILTER_FLETCHER32}, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_questions(&cases[i].filter, cases[i].least);
}

static void absurd_sizes_are_not_believed(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(specs); s++) {
        struct use *use = use_of(&specs[s], 4);
        bool plain = specs[s].id == FILTER_BITSHUFFLE && specs[s].values[4] == 0;
        assert_true(filter_can_make(&(struct filter_pipeline){1, &use->filter}, 1000,
                                    plain ? 1000 : 80000));
        if (specs[s].ours && plain)
            assert_false(filter_can_make(&(struct filter_pipeline){1, &use->filter}, 1000, 4000));
        if (specs[s].ours && (specs[s].id == FILTER_LZ4 || specs[s].id == FILTER_ZSTD))
            assert_false(filter_can_make(&(struct filter_pipeline){1, &use->filter}, 1000,
                                         (uint64_t)1 << 40));
        free(use);
    }
}

static void *go_to_and_fro(void *error)
{
    unsigned char bytes[5000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i / 50);
    for (size_t round = 0; round < 20 * COUNT(specs); round++) {
        const struct spec *spec = &specs[round % COUNT(specs)];
        unsigned char stored[20000], back[sizeof(bytes)];
        size_t n = sizeof(stored);
        struct use *use = use_of(spec, 4);
        struct filter_pipeline pipeline = {1, &use->filter};
        if (spec->ours && (filter_encode(&pipeline, bytes, sizeof(bytes), NULL, stored, &n) != 0 ||
                           filter_decode(&pipeline, stored, n, NULL, back, sizeof(back)) != 0 ||
                           memcmp(back, bytes, sizeof(bytes)) != 0))
            *(int *)error = 1;
        free(use);
    }
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

/* ---- Turning bits ---- */

static bool bit(const unsigned char *bytes, size_t i)
{
    return bytes[i / 8] >> i % 8 & 1;
}

static void all_ways_of_turning_bits_agree(void **state)
{
    (void)state;
    for (size_t w = 0; transpose_way(w); w++)
        for (size_t columns = 0; columns < 140; columns++) {
            const struct transpose *way = transpose_way(w);
            size_t step = columns + random_below(3), n = 8 * step, shift = random_below(3);
            unsigned char *rows = allocate(n), *back = allocate(n);
            unsigned char *buffer = allocate(shift + 8 * columns), *plane = buffer + shift;
            random_fill(rows, n);
            memcpy(back, rows, n);
            way->to_plane(rows, step, columns, plane);
            for (size_t r = 0; r < 8; r++)
                for (size_t i = 0; i < 8 * columns; i++)
                    assert_true(bit(rows, 8 * r * step + i) == bit(plane, 8 * i + r));
            for (size_t r = 0; r < 8; r++)
                memset(back + r * step, 0, columns);
            way->to_rows(plane, columns, back, step);
            assert_memory_equal(back, rows, n);
            free(back);
            free(buffer);
            free(rows);
        }
}

/* The first way behind plain C, where one is sure to be: otherwise nothing is compared. */
static void processors_have_the_vectors_they_always_have(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const char *name = "sse2";
#elif defined(__aarch64__) && !defined(__ARM_BIG_ENDIAN)
    const char *name = "neon";
#else
    const char *name = NULL;
#endif
    if (!name)
        skip();
    const struct transpose *way = transpose_way(1);
    assert_non_null(way);
    assert_string_equal(way->name, name);
}

static int look_where_debian_has_plugins(void **state)
{
    (void)state;
    return !getenv("HDF5_PLUGIN_PATH") && access(PLUGINS, F_OK) == 0 && H5PLappend(PLUGINS) < 0;
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugins_agree),
        cmocka_unit_test(what_is_encoded_is_decoded_again),
        cmocka_unit_test(all_are_native_that_the_build_has),
        cmocka_unit_test(damaged_chunks_are_decoded_or_refused),
        cmocka_unit_test(random_bytes_are_decoded_or_refused),
        cmocka_unit_test(sizes_that_a_head_claims_are_refused),
#if HAVE_ZSTD
        cmocka_unit_test(frames_are_those_of_libzstd),
#endif
        cmocka_unit_test(numbers_that_harm_libblosc_are_refused),
        cmocka_unit_test(golden_chunks_are_decoded),
        cmocka_unit_test(bitshuffle_takes_whole_elements_only),
        cmocka_unit_test(filters_go_together),
        cmocka_unit_test(decoding_asks_whether_it_is_wanted),
        cmocka_unit_test(absurd_sizes_are_not_believed),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(all_ways_of_turning_bits_agree),
        cmocka_unit_test(processors_have_the_vectors_they_always_have),
    };
    return cmocka_run_group_tests(tests, look_where_debian_has_plugins, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
