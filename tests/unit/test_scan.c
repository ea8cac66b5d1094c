/* Looking for defined elements: all ways of comparing agree, intervals are maximal wherever a scan
 * begins and ends, and what is packed is what lies in them. */
#include "support.h"
#undef fail /* sparsectl has one of its own */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/blocks.h"
#include "cli/defined_bits.h"
#include "cli/find_defined.h"
#include "cli/roi_and_points.h"

#define MOST  6000
#define SIZES 4

static const size_t sizes[SIZES] = {1, 2, 4, 8};

/* Elements of which about one in `rare` differs from the value: at random, or many in a row. */
static void make_elements(unsigned char *elements, size_t n, size_t size, const void *value,
                          uint64_t rare)
{
    bool differs = false;
    for (size_t i = 0; i < n; i++) {
        if (random_below(rare < 3 ? 40 : 3) == 0)
            differs = random_below(rare) == 0;
        memcpy(elements + i * size, value, size);
        if (differs) /* in one byte only */
            elements[i * size + random_below(size)] ^= 1 << random_below(8);
    }
}

static void all_ways_of_comparing_agree(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++)
        for (int k = 0; k < SIZES; k++) {
            size_t size = sizes[k], words = random_between(1, 5), n = words * COMPARED;
            size_t before = random_below(9);
            unsigned char *elements = allocate(before + n * size);
            uint64_t value = random_next(), bits[5];
            make_elements(elements + before, n, size, &value, random_between(1, 30));
            for (size_t w = 0; compare_way(w); w++) {
                compare_way(w)->differ[k](elements + before, value, words, bits);
                for (size_t i = 0; i < n; i++)
                    assert_int_equal(bits[i / COMPARED] >> i % COMPARED & 1,
                                     memcmp(elements + before + i * size, &value, size) != 0);
            }
            free(elements);
        }
}

/* The intervals, and what is packed, of what a list of elements says one by one. */
static void check_findings(struct findings *findings, const bool *defined, size_t n, size_t size,
                           const unsigned char *elements)
{
    unsigned char *packed = allocate(n * size);
    size_t at = 0, k = 0;
    assert_int_equal(findings_finish(findings), 0);
    findings_pack(findings, size, elements, packed);
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        while (i + length < n && defined[i + length])
            length++;
        if (length > 0) {
            const struct sfs_interval *interval = &findings->defined.interval[at++];
            assert_true(at <= findings->defined.n);
            assert_int_equal(interval->first, i);
            assert_int_equal(interval->index, k);
            assert_memory_equal(packed + k * size, elements + i * size, length * size);
        }
        k += length;
        i += length + 1;
    }
    assert_int_equal(findings->defined.n, at);
    assert_int_equal(findings->defined.elements, k);
    assert_int_equal(findings->defined.interval[at].index, k);
    free(packed);
}

/* Some parts are left out, some are defined whatever they are; findings are used again and again.
 */
static void scan_parts(struct findings *findings, const struct undefined *undefined,
                       const unsigned char *elements, size_t n, bool *defined)
{
    size_t size = undefined->type->size;
    findings_clear(findings);
    memset(defined, 0, n * sizeof(*defined));
    for (size_t at = 0; at < n;) {
        size_t length = random_between(1, random_below(4) ? 200 : n), kind = random_below(6);
        length = length < n - at ? length : n - at;
        if (kind == 0) {
            assert_int_equal(findings_add(findings, at, length), 0);
        } else if (kind > 1) {
            assert_int_equal(findings_scan(findings, undefined, at, length, elements + at * size),
                             0);
        }
        for (size_t i = at; i < at + length; i++) {
            bool differs = undefined->nan ? !is_nan(undefined->type, elements + i * size)
                                          : memcmp(elements + i * size, undefined->value, size);
            defined[i] = kind == 0 || (kind > 1 && differs);
        }
        at += length;
    }
}

static void what_is_found_is_what_differs(void **state)
{
    (void)state;
    static const size_t of[] = {1, 2, 3, 4, 8, 12, 16, 20};
    struct findings findings = {0};
    for (int round = 0; round < 400; round++)
        for (size_t k = 0; k < COUNT(of); k++) {
            size_t n = random_between(1, round % 8 ? 300 : MOST);
            unsigned char *elements = allocate(n * of[k]), value[20];
            bool *defined = allocate(n * sizeof(*defined));
            struct sfs_type type = {.class = SFS_INTEGER, .size = of[k]};
            struct undefined undefined = {.type = &type, .value = value};
            random_fill(value, sizeof(value));
            make_elements(elements, n, of[k], value, random_between(1, 30));
            scan_parts(&findings, &undefined, elements, n, defined);
            check_findings(&findings, defined, n, of[k], elements);
            free(defined);
            free(elements);
        }
    findings_free(&findings);
}

static void what_is_no_nan_is_found(void **state)
{
    (void)state;
    struct findings findings = {0};
    for (int round = 0; round < 300; round++)
        for (int k = 1; k < SIZES; k++) {
            size_t n = random_between(1, 1000), size = sizes[k];
            unsigned char *elements = allocate(n * size);
            bool *defined = allocate(n * sizeof(*defined));
            struct sfs_type type = {
                .class = SFS_FLOAT, .size = size, .big_endian = random_below(2)};
            struct undefined undefined = {.type = &type, .nan = true};
            random_fill(elements, n * size);
            for (size_t i = 0; i < n; i++) /* NaN, infinite, or any number */
                if (random_below(2))
                    for (size_t b = 0; b < size; b++) {
                        size_t high = type.big_endian ? b : size - 1 - b;
                        elements[i * size + b] = high < 2 ? 0xff : random_below(5) == 0;
                    }
            scan_parts(&findings, &undefined, elements, n, defined);
            check_findings(&findings, defined, n, size, elements);
            free(defined);
            free(elements);
        }
    findings_free(&findings);
}

/* A small file may claim any dims: rows of a rectangle, and blocks that one chunk touches. */
static void a_signal_ends_what_the_dims_make_long(void **state)
{
    (void)state;
    struct sfs_dataset_create description = {
        .rank = 2, .dims = {100, 40}, .max_dims = {100, 40}, .chunk_dims = {100, 2}};
    struct sfs_options options = {.replace = true};
    const uint64_t origin[SFS_MAX_RANK] = {0};
    struct sfs_slab slab = {.rank = 2, .count = {1, 1}};
    struct blocks blocks = {
        .rank = 2, .dims = {100, 40}, .block = {1, 40}, .blocks = {100, 1}, .n = 100};
    struct pick pick = {0}, fitted;
    struct block_list list;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    assert_int_equal(sfs_type_encode("u1", &type, &description.type.n), 0);
    description.type.bytes = type;
    assert_int_equal(sfs_create("rows.h5", &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &description, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, "x"), 0);
    assert_int_equal(pick_add_roi(&pick, ":,:"), 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&interrupted, i > 0);
        assert_int_equal(pick_fit(&pick, "/d", sfs_dataset_info(dataset), &fitted),
                         i ? FAILED : DONE);
        pick_free(&fitted);
        assert_int_equal(blocks_stored(&blocks, dataset, origin, &list), i ? -EINTR : 0);
        assert_int_equal(list.n, i ? 0 : 100);
        free(list.number);
    }
    atomic_store(&interrupted, false);
    pick_free(&pick);
    sfs_dataset_close(dataset);
    sfs_discard(file);
    free(type);
}

TEST_MAIN(cmocka_unit_test(all_ways_of_comparing_agree),
          cmocka_unit_test(what_is_found_is_what_differs),
          cmocka_unit_test(what_is_no_nan_is_found),
          cmocka_unit_test(a_signal_ends_what_the_dims_make_long))
