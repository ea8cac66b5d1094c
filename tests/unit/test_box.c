/* Boxes against the plainest loops that do the same, one element at a time. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "common/box.h"

/* A box of random rank somewhere inside an array of random dims that contains it. */
struct placed {
    int rank;
    uint64_t dims[SFS_MAX_RANK];
    uint64_t start[SFS_MAX_RANK];
};

static uint64_t product(int rank, const uint64_t *factors)
{
    uint64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= factors[i];
    return n;
}

static int random_rank(void)
{
    return random_below(6) == 0 ? 32 : (int)random_between(1, 5);
}

/* Counts of which few are large, so that rank 32 stays small too; some are 1. */
static void random_counts(int rank, uint64_t *count)
{
    for (int i = 0; i < rank; i++)
        count[i] = rank > 5 && random_below(8) ? 1 : random_between(1, rank > 5 ? 2 : 6);
}

static struct placed place(int rank, const uint64_t *count)
{
    struct placed placed = {.rank = rank};
    bool tight = random_below(3) == 0; /* the box is the whole array: all axes merge */
    for (int i = 0; i < rank; i++) {
        bool loose = !tight && random_below(rank > 5 ? 12 : 2) == 0;
        uint64_t spare = loose ? random_between(1, 2) : 0;
        placed.start[i] = random_below(spare + 1);
        placed.dims[i] = count[i] + spare;
    }
    return placed;
}

/* The row-major position in an array of `dims` of the n-th element of a box. */
static uint64_t position(int rank, const uint64_t *count, uint64_t n, const uint64_t *dims,
                         const uint64_t *start)
{
    uint64_t p = 0, stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        p += (n % count[i] + (start ? start[i] : 0)) * stride;
        n /= count[i];
        stride *= dims[i];
    }
    return p;
}

static struct box random_slab(void)
{
    struct box slab = {.rank = random_rank()};
    random_counts(slab.rank, slab.count);
    for (int i = 0; i < slab.rank; i++)
        slab.start[i] = random_below(1000);
    return slab;
}

static void intervals_are_cut_into_few_boxes_that_cover_them_in_order(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct box slab = random_slab();
        uint64_t all = box_elements(&slab);
        uint64_t first = random_below(all), n = random_between(1, all - first), at = first;
        int pieces = 0;
        while (at < first + n) {
            struct box piece;
            uint64_t length = box_of_interval(&slab, at, first + n - at, &piece);
            assert_in_range(length, 1, first + n - at);
            assert_int_equal(piece.rank, slab.rank);
            assert_int_equal(box_elements(&piece), length);
            for (int i = 0; i < slab.rank; i++) {
                assert_true(piece.start[i] >= slab.start[i]);
                piece.start[i] -= slab.start[i];
                assert_true(piece.start[i] + piece.count[i] <= slab.count[i]);
            }
            for (uint64_t k = 0; k < length; k++)
                assert_int_equal(position(slab.rank, piece.count, k, slab.count, piece.start),
                                 at + k);
            at += length;
            pieces++;
        }
        assert_in_range(pieces, 1, 2 * slab.rank - 1);
    }
}

static void a_whole_slab_is_one_piece(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct box slab = random_slab(), piece;
        assert_int_equal(box_of_interval(&slab, 0, box_elements(&slab), &piece),
                         box_elements(&slab));
        assert_memory_equal(piece.start, slab.start, 8 * (size_t)slab.rank);
        assert_memory_equal(piece.count, slab.count, 8 * (size_t)slab.rank);
    }
}

static void the_box_around_an_interval_is_whole_slices_and_as_small_as_can_be(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct box slab = random_slab(), around;
        uint64_t all = box_elements(&slab), skipped;
        uint64_t first = random_below(all), n = random_between(1, all - first);
        box_around_interval(&slab, first, n, &around, &skipped);

        /* The interval lies in it, `skipped` behind its beginning, and it has no gap in the slab.
         */
        uint64_t start[SFS_MAX_RANK], where, size = box_elements(&around);
        for (int i = 0; i < slab.rank; i++) {
            assert_true(around.start[i] >= slab.start[i]);
            start[i] = around.start[i] - slab.start[i];
            assert_true(start[i] + around.count[i] <= slab.count[i]);
        }
        assert_true(box_is_contiguous(slab.rank, around.count, slab.count, start, &where));
        assert_int_equal(where + skipped, first);
        assert_true(skipped + n <= size);

        /* The axis that is cut: whole behind it, one before it, and without a slice too many. */
        int axis = 0;
        while (axis < slab.rank - 1 && around.count[axis] == 1)
            axis++;
        uint64_t slice = product(slab.rank - axis - 1, slab.count + axis + 1);
        assert_true(skipped < slice);
        assert_true(size - skipped - n < slice);
    }
}

static void contiguous_is_what_has_no_gap(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint64_t count[SFS_MAX_RANK], where;
        int rank = random_rank();
        random_counts(rank, count);
        struct placed in = place(rank, count);
        uint64_t n = product(rank, count);
        uint64_t first = position(rank, count, 0, in.dims, in.start);
        bool gapless = position(rank, count, n - 1, in.dims, in.start) - first == n - 1;
        assert_int_equal(box_is_contiguous(rank, count, in.dims, in.start, &where), gapless);
        if (gapless)
            assert_int_equal(where, first);
    }
}

struct rows {
    size_t element_size;
    uint64_t *found; /* for every element of the walk: its position in a, in b */
    size_t n;
    size_t until; /* rows to take before an error */
};

static int take_row(void *context, size_t a, size_t b, size_t bytes)
{
    struct rows *rows = context;
    assert_int_equal(bytes % rows->element_size, 0);
    assert_true(bytes > 0);
    for (size_t k = 0; k < bytes; k += rows->element_size, rows->n++) {
        rows->found[2 * rows->n] = (a + k) / rows->element_size;
        rows->found[2 * rows->n + 1] = (b + k) / rows->element_size;
    }
    return rows->until-- == 0 ? -77 : 0;
}

static void rows_visit_every_element_once_in_order(void **state)
{
    (void)state;
    for (int round = 0; round < 5000; round++) {
        uint64_t count[SFS_MAX_RANK];
        int rank = random_rank();
        random_counts(rank, count);
        struct placed a = place(rank, count), b = place(rank, count);
        uint64_t n = product(rank, count);
        struct rows rows = {random_between(1, 17), allocate(16 * n), 0, SIZE_MAX};
        assert_int_equal(box_each_row(&(struct box_shape){rank, count, rows.element_size},
                                      (struct box_place){a.dims, a.start},
                                      (struct box_place){b.dims, b.start}, take_row, &rows),
                         0);
        assert_int_equal(rows.n, n);
        for (uint64_t k = 0; k < n; k++) {
            assert_int_equal(rows.found[2 * k], position(rank, count, k, a.dims, a.start));
            assert_int_equal(rows.found[2 * k + 1], position(rank, count, k, b.dims, b.start));
        }
        free(rows.found);
    }
}

static void rows_end_with_the_first_error(void **state)
{
    (void)state;
    const uint64_t count[] = {5, 3}, a[] = {5, 4}, b[] = {5, 3};
    uint64_t found[2 * 15];
    struct rows rows = {1, found, 0, 2};
    assert_int_equal(box_each_row(&(struct box_shape){2, count, 1}, (struct box_place){a, NULL},
                                  (struct box_place){b, NULL}, take_row, &rows),
                     -77);
    assert_int_equal(rows.n, 9);
}

/* Copies or fills a random box of random elements, of all element sizes, into a larger array and
 * compares all of that array with what loops make. */
static void check_copy_or_fill(bool fill)
{
    for (int round = 0; round < 5000; round++) {
        uint64_t count[SFS_MAX_RANK];
        size_t size = random_between(1, 17);
        int rank = random_rank();
        random_counts(rank, count);
        struct placed to = place(rank, count), from = place(rank, count);
        bool at_origin = random_below(4) == 0;
        if (at_origin)
            memset(to.start, 0, sizeof(to.start));
        size_t to_bytes = product(rank, to.dims) * size,
               from_bytes = product(rank, from.dims) * size;
        char *got = allocate(to_bytes), *expected = allocate(to_bytes),
             *source = allocate(from_bytes);
        random_fill(got, to_bytes);
        memcpy(expected, got, to_bytes);
        random_fill(source, from_bytes);
        if (fill && random_below(3) == 0)
            memset(source, 0x5a, size); /* an element of equal bytes */

        for (uint64_t k = 0; k < product(rank, count); k++) {
            uint64_t at = position(rank, count, k, from.dims, from.start);
            memcpy(expected + position(rank, count, k, to.dims, to.start) * size,
                   source + (fill ? 0 : at * size), size);
        }
        if (fill)
            box_fill(&(struct box_shape){rank, count, size}, got,
                     (struct box_place){to.dims, at_origin ? NULL : to.start}, source);
        else
            box_copy(&(struct box_shape){rank, count, size}, got,
                     (struct box_place){to.dims, at_origin ? NULL : to.start}, source,
                     (struct box_place){from.dims, from.start});
        assert_memory_equal(got, expected, to_bytes);
        free(source);
        free(expected);
        free(got);
    }
}

static void copies_are_those_of_a_loop(void **state)
{
    (void)state;
    check_copy_or_fill(false);
}

static void fills_are_those_of_a_loop(void **state)
{
    (void)state;
    check_copy_or_fill(true);
}

static int refuse_row(void *context, size_t a, size_t b, size_t bytes)
{
    (void)context, (void)a, (void)b, (void)bytes;
    return -1;
}

static void empty_counts_touch_nothing(void **state)
{
    (void)state;
    for (int rank = 1; rank <= SFS_MAX_RANK; rank++) {
        uint64_t count[SFS_MAX_RANK], dims[SFS_MAX_RANK];
        for (int i = 0; i < rank; i++)
            count[i] = dims[i] = 2;
        int empty = (int)random_below((uint64_t)rank);
        count[empty] = 0;
        dims[empty] = random_below(2);
        char *nothing = allocate(0);
        box_copy(&(struct box_shape){rank, count, 3}, nothing, (struct box_place){dims, NULL},
                 nothing, (struct box_place){dims, NULL});
        box_fill(&(struct box_shape){rank, count, 3}, nothing, (struct box_place){dims, NULL},
                 "abc");
        assert_int_equal(box_each_row(&(struct box_shape){rank, count, 3},
                                      (struct box_place){dims, NULL},
                                      (struct box_place){dims, NULL}, refuse_row, NULL),
                         0);
        free(nothing);
    }
    fill_elements(NULL, 0, 5, "abcde");
}

static void products_stop_at_63_bits(void **state)
{
    (void)state;
    uint64_t product;
    const uint64_t half = (uint64_t)1 << 32;
    assert_true(box_product((uint64_t[]){INT64_MAX}, 1, 1, &product));
    assert_int_equal(product, INT64_MAX);
    assert_true(box_product((uint64_t[]){7, 7, 73, 127, 337, 92737}, 6, 649657, &product));
    assert_int_equal(product, INT64_MAX);
    assert_true(box_product(NULL, 0, 8, &product));
    assert_int_equal(product, 8);

    product = 42;
    assert_false(box_product((uint64_t[]){(uint64_t)INT64_MAX + 1}, 1, 1, &product));
    assert_false(box_product((uint64_t[]){half, half / 2}, 2, 1, &product));
    assert_false(box_product((uint64_t[]){half, half}, 2, 1, &product));
    assert_false(box_product((uint64_t[]){UINT64_MAX, 2}, 2, 1, &product));
    assert_false(box_product((uint64_t[]){half, half / 8}, 2, 8, &product));
    assert_false(box_product(NULL, 0, UINT64_MAX, &product));
    assert_int_equal(product, 42);
}

static void a_factor_of_zero_makes_any_product_zero(void **state)
{
    (void)state;
    uint64_t product = 42;
    assert_true(box_product((uint64_t[]){UINT64_MAX, UINT64_MAX, 0}, 3, 8, &product));
    assert_int_equal(product, 0);
    product = 42;
    assert_true(box_product((uint64_t[]){UINT64_MAX, UINT64_MAX}, 2, 0, &product));
    assert_int_equal(product, 0);
    product = 42;
    assert_true(box_product((uint64_t[]){0}, 1, UINT64_MAX, &product));
    assert_int_equal(product, 0);
}

static void intersections_hold_what_both_boxes_hold(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct box a = {.rank = (int)random_between(1, 3)}, b = {.rank = a.rank}, common;
        uint64_t in_both = 0, dims[] = {12, 12, 12};
        for (int i = 0; i < a.rank; i++) {
            a.start[i] = random_below(6), a.count[i] = random_below(7);
            b.start[i] = random_below(6), b.count[i] = random_below(7);
        }
        for (uint64_t k = 0; k < product(a.rank, dims); k++) {
            uint64_t rest = k;
            bool inside = true;
            for (int i = a.rank - 1; i >= 0; i--, rest /= 12) {
                uint64_t c = rest % 12;
                inside &= c >= a.start[i] && c < a.start[i] + a.count[i];
                inside &= c >= b.start[i] && c < b.start[i] + b.count[i];
            }
            in_both += inside;
        }
        assert_int_equal(box_intersect(&a, &b, &common), in_both > 0);
        if (in_both == 0)
            continue;
        assert_int_equal(box_elements(&common), in_both);
        for (int i = 0; i < a.rank; i++) {
            assert_true(common.start[i] >= a.start[i] && common.start[i] >= b.start[i]);
            assert_true(common.start[i] + common.count[i] <= a.start[i] + a.count[i]);
            assert_true(common.start[i] + common.count[i] <= b.start[i] + b.count[i]);
        }
    }
}

TEST_MAIN(cmocka_unit_test(intervals_are_cut_into_few_boxes_that_cover_them_in_order),
          cmocka_unit_test(a_whole_slab_is_one_piece),
          cmocka_unit_test(the_box_around_an_interval_is_whole_slices_and_as_small_as_can_be),
          cmocka_unit_test(contiguous_is_what_has_no_gap),
          cmocka_unit_test(rows_visit_every_element_once_in_order),
          cmocka_unit_test(rows_end_with_the_first_error),
          cmocka_unit_test(copies_are_those_of_a_loop), cmocka_unit_test(fills_are_those_of_a_loop),
          cmocka_unit_test(empty_counts_touch_nothing), cmocka_unit_test(products_stop_at_63_bits),
          cmocka_unit_test(a_factor_of_zero_makes_any_product_zero),
          cmocka_unit_test(intersections_hold_what_both_boxes_hold))
