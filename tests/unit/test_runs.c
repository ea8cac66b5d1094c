/* Runs against bitmaps, in which everything is obvious. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "selection/runs.h"

#define SIZE 300

static bool check_invariants(const struct runs *runs)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < runs->n; i++) {
        struct run run = runs_at(runs, i);
        assert_true(run.first < run.last);
        assert_int_equal(run.index, elements);
        assert_true(i == 0 || runs_at(runs, i - 1).last < run.first);
        elements += run.last - run.first;
    }
    assert_int_equal(runs->elements, elements);
    assert_true(runs->n == 0 || runs->n < runs->capacity);
    return true;
}

static void to_bitmap(const struct runs *runs, bool *bits, size_t n)
{
    memset(bits, 0, n);
    assert_true(check_invariants(runs));
    for (size_t i = 0; i < runs->n; i++) {
        struct run run = runs_at(runs, i);
        assert_true(run.last <= n);
        memset(bits + run.first, 1, run.last - run.first);
    }
}

static void from_bitmap(const bool *bits, size_t n, struct runs *runs)
{
    runs_init(runs);
    for (size_t i = 0; i < n; i++)
        if (bits[i])
            assert_int_equal(runs_append(runs, i, i + 1), 0);
}

static void random_bits(bool *bits, size_t n)
{
    uint64_t kind = random_below(6), length = random_between(1, 40);
    memset(bits, kind == 0, n);
    if (kind < 2)
        return;
    bool value = random_below(2);
    for (size_t i = 0; i < n;) {
        size_t end = i + (kind == 2 ? 1 + random_below(2) : 1 + random_below(length));
        for (; i < end && i < n; i++)
            bits[i] = value;
        value = !value;
    }
}

static void expect_bits(const struct runs *runs, const bool *expected, size_t n)
{
    bool *bits = allocate(n);
    to_bitmap(runs, bits, n);
    assert_memory_equal(bits, expected, n);
    free(bits);
}

typedef int operation(const struct runs *, const struct runs *, struct runs *);

/* An operation into a new result and into either operand. */
static void expect_operation(operation *operate, const bool *a_bits, const bool *b_bits,
                             const bool *expected)
{
    for (int target = 0; target < 3; target++) {
        struct runs a, b, c = {0};
        from_bitmap(a_bits, SIZE, &a);
        from_bitmap(b_bits, SIZE, &b);
        struct runs *result = target == 0 ? &a : target == 1 ? &b : &c;
        assert_int_equal(operate(&a, &b, result), 0);
        expect_bits(result, expected, SIZE);
        if (target != 0)
            expect_bits(&a, a_bits, SIZE);
        if (target != 1)
            expect_bits(&b, b_bits, SIZE);
        runs_free(&a);
        runs_free(&b);
        runs_free(&c);
    }
}

static void algebra_is_that_of_bitmaps(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        bool a[SIZE], b[SIZE], any[SIZE], both[SIZE], rest[SIZE];
        random_bits(a, SIZE);
        random_bits(b, SIZE);
        for (size_t i = 0; i < SIZE; i++) {
            any[i] = a[i] || b[i];
            both[i] = a[i] && b[i];
            rest[i] = a[i] && !b[i];
        }
        expect_operation(runs_union, a, b, any);
        expect_operation(runs_intersection, a, b, both);
        expect_operation(runs_difference, a, b, rest);
    }
}

static void parts_are_appended(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        bool bits[SIZE], expected[3 * SIZE] = {0};
        struct runs runs, sum = {0};
        uint64_t end = random_below(10);
        for (int part = 0; part < 2; part++) {
            random_bits(bits, SIZE);
            from_bitmap(bits, SIZE, &runs);
            uint64_t first = random_below(SIZE), last = first + random_below(SIZE - first + 1);
            uint64_t place = end + (random_below(2) ? random_below(10) : 0);
            assert_int_equal(runs_append_part(&sum, &runs, first, last, place), 0);
            for (uint64_t i = first; i < last; i++)
                expected[place + i - first] = bits[i];
            end = place + last - first;
            runs_free(&runs);
        }
        expect_bits(&sum, expected, 3 * SIZE);
        runs_free(&sum);
    }
}

static void clipping_copying_and_shifting(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        bool bits[SIZE], expected[2 * SIZE] = {0};
        random_bits(bits, SIZE);
        struct runs runs, copy = {0}, clipped = {0};
        from_bitmap(bits, SIZE, &runs);
        assert_int_equal(runs_copy(&runs, &copy), 0);
        assert_true(runs_equal(&runs, &copy));

        uint64_t first = random_below(SIZE + 10), last = random_below(SIZE + 10);
        assert_int_equal(runs_clip(&runs, first, last, &clipped), 0);
        for (size_t i = first; i < last && i < SIZE; i++)
            expected[i] = bits[i];
        expect_bits(&clipped, expected, SIZE);
        assert_int_equal(runs_equal(&runs, &clipped), memcmp(bits, expected, SIZE) == 0);

        uint64_t offset = random_below(SIZE);
        memset(expected, 0, sizeof(expected));
        memcpy(expected + offset, bits, SIZE);
        assert_int_equal(runs_shift(&runs, (int64_t)offset), 0);
        expect_bits(&runs, expected, 2 * SIZE);
        assert_int_equal(runs_shift(&runs, -(int64_t)offset), 0);
        assert_true(runs_equal(&runs, &copy));
        runs_free(&runs);
        runs_free(&copy);
        runs_free(&clipped);
    }
}

static void shifting_stays_in_the_range_of_positions(void **state)
{
    (void)state;
    struct runs runs = {0};
    assert_int_equal(runs_shift(&runs, -1), 0);
    assert_int_equal(runs_append(&runs, 5, 7), 0);
    assert_int_equal(runs_append(&runs, UINT64_MAX - 10, UINT64_MAX - 2), 0);
    assert_int_equal(runs_shift(&runs, -6), -EOVERFLOW);
    assert_int_equal(runs_shift(&runs, 3), -EOVERFLOW);
    assert_int_equal(runs_shift(&runs, INT64_MIN), -EOVERFLOW);
    assert_int_equal(runs_at(&runs, 0).first, 5);
    assert_int_equal(runs_shift(&runs, 2), 0);
    assert_true(runs_at(&runs, 1).last == UINT64_MAX);
    assert_true(runs_contain(&runs, UINT64_MAX - 1));
    runs_free(&runs);
}

static void what_is_reserved_is_enough(void **state)
{
    (void)state;
    struct runs runs = {0};
    assert_int_equal(runs_reserve(&runs, SIZE_MAX), -ENOMEM);
    assert_int_equal(runs_reserve(&runs, 1000), 0);
    size_t bytes = runs_bytes(&runs);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(runs_append(&runs, 3 * i, 3 * i + 1), 0);
    assert_int_equal(runs_bytes(&runs), bytes);
    assert_int_equal(runs_append(&runs, 2998, 3500), 0); /* merges */
    assert_int_equal(runs.n, 1000);
    assert_int_equal(runs_append(&runs, 4000, 4000), 0);
    assert_int_equal(runs.n, 1000);
    struct runs copy = {0};
    assert_int_equal(runs_copy(&runs, &copy), 0);
    runs_trim(&runs);
    assert_true(runs_equal(&runs, &copy));
    runs_free(&copy);
    runs_free(&runs);
    runs_trim(&runs);
    assert_int_equal(runs_bytes(&runs), 0);
}

static void finding_and_ranking(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        bool bits[SIZE];
        random_bits(bits, SIZE);
        struct runs runs;
        from_bitmap(bits, SIZE, &runs);
        size_t run = 0;
        uint64_t rank = 0;
        for (uint64_t i = 0; i < SIZE; i++) {
            assert_int_equal(runs_contain(&runs, i), bits[i]);
            assert_int_equal(runs_rank(&runs, i), rank);
            assert_int_equal(runs_find(&runs, i), run);
            assert_int_equal(runs_find_from(&runs, random_below(run + 1), i), run);
            rank += bits[i];
            run += bits[i] && (i + 1 == SIZE || !bits[i + 1]);
        }
        assert_int_equal(runs_rank(&runs, UINT64_MAX), rank);
        assert_int_equal(runs_find(&runs, SIZE), runs.n);
        runs_free(&runs);
    }
}

static void walking_an_interval(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        bool bits[SIZE], seen[SIZE] = {0};
        random_bits(bits, SIZE);
        struct runs runs;
        from_bitmap(bits, SIZE, &runs);
        uint64_t first = random_below(SIZE + 10), last = random_below(SIZE + 10), before = first;
        struct runs_walk walk;
        struct run piece;
        runs_walk_begin(&walk, &runs, first, last);
        while (runs_walk(&walk, &piece)) {
            assert_true(piece.first >= before && piece.first < piece.last && piece.last <= last);
            assert_int_equal(piece.index, runs_rank(&runs, piece.first));
            memset(seen + piece.first, 1, piece.last - piece.first);
            before = piece.last + 1;
        }
        assert_false(runs_walk(&walk, &piece));
        for (size_t i = 0; i < SIZE; i++)
            assert_int_equal(seen[i], bits[i] && i >= first && i < last);
        runs_free(&runs);
    }
}

/* ---- Boxes ---- */

struct box_case {
    int rank;
    uint64_t dims[SFS_MAX_RANK], start[SFS_MAX_RANK], count[SFS_MAX_RANK], elements;
};

static void random_box(struct box_case *box)
{
    box->rank = random_below(20) == 0 ? 32 : (int)random_below(5);
    box->elements = 1;
    for (int i = 0; i < box->rank; i++) {
        uint64_t limit = 2000 / box->elements;
        box->dims[i] = 1 + random_below(box->rank == 32 && i % 4 > 0 ? 1 : limit < 12 ? limit : 12);
        box->elements *= box->dims[i];
        box->start[i] = random_below(box->dims[i]);
        if (random_below(3) == 0)
            box->start[i] = 0;
        box->count[i] = box->dims[i] - box->start[i];
        if (random_below(2))
            box->count[i] = random_below(box->count[i] + 1);
    }
}

/* The position of element i in the order of the box, or false if it lies outside. */
static bool in_box(const struct box_case *box, uint64_t i, uint64_t *offset)
{
    uint64_t scale = 1;
    *offset = 0;
    for (int axis = box->rank - 1; axis >= 0; axis--) {
        uint64_t coordinate = i % box->dims[axis];
        i /= box->dims[axis];
        if (coordinate < box->start[axis] || coordinate - box->start[axis] >= box->count[axis])
            return false;
        *offset += (coordinate - box->start[axis]) * scale;
        scale *= box->count[axis];
    }
    return true;
}

static void walking_a_box(void **state)
{
    (void)state;
    for (int round = 0; round < 5000; round++) {
        struct box_case box;
        struct runs runs, inside = {0}, whole = {0};
        random_box(&box);
        bool *bits = allocate(box.elements), *seen = allocate(box.elements);
        random_bits(bits, box.elements);
        from_bitmap(bits, box.elements, &runs);
        memset(seen, 0, box.elements);
        struct runs_box_walk walk;
        struct run piece;
        uint64_t offset, expected, before = 0;
        runs_box_walk_begin(&walk, &runs, box.rank, box.dims, box.start, box.count);
        while (runs_box_walk(&walk, &piece, &offset)) {
            assert_true(piece.first >= before && piece.first < piece.last);
            before = piece.last;
            for (uint64_t i = piece.first; i < piece.last; i++) {
                assert_true(in_box(&box, i, &expected) && bits[i] && !seen[i]);
                assert_int_equal(offset + (i - piece.first), expected);
                assert_int_equal(piece.index + (i - piece.first), runs_rank(&runs, i));
                seen[i] = true;
            }
        }
        for (uint64_t i = 0; i < box.elements; i++)
            assert_int_equal(seen[i], bits[i] && in_box(&box, i, &expected));
        assert_int_equal(runs_in_box(&runs, box.rank, box.dims, box.start, box.count, &inside), 0);
        expect_bits(&inside, seen, box.elements);

        assert_int_equal(runs_of_box(box.rank, box.dims, box.start, box.count, &whole), 0);
        for (uint64_t i = 0; i < box.elements; i++)
            seen[i] = in_box(&box, i, &expected);
        expect_bits(&whole, seen, box.elements);
        runs_free(&whole);
        runs_free(&inside);
        runs_free(&runs);
        free(bits);
        free(seen);
    }
}

/* What lies in the box comes in its order, and so often comes nothing. */
static void walks_that_find_nothing_come_back(void **state)
{
    (void)state;
    const uint64_t rows = 10 * RUNS_BOX_STEPS, dims[] = {rows, 3}, start[] = {0, 0};
    const uint64_t count[] = {rows, 1};
    struct runs runs = {0};
    struct runs_box_walk walk;
    struct run piece;
    uint64_t offset;
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t first = 3 * i + (i == rows / 2 ? 0 : 1);
        assert_int_equal(runs_append(&runs, first, first + 1), 0);
    }
    unsigned n = 0, n_empty = 0;
    runs_box_walk_begin(&walk, &runs, 2, dims, start, count);
    while (runs_box_walk_some(&walk, &piece, &offset)) {
        n_empty += piece.first == piece.last;
        n += piece.first != piece.last;
        assert_true(piece.first == piece.last ||
                    (piece.first == rows / 2 * 3 && offset == rows / 2));
    }
    assert_int_equal(n, 1);
    assert_in_range(n_empty, rows / RUNS_BOX_STEPS - 1, 3 * rows / RUNS_BOX_STEPS);
    runs_box_walk_begin(&walk, &runs, 2, dims, start, count);
    assert_true(runs_box_walk(&walk, &piece, &offset));
    assert_true(piece.first == rows / 2 * 3 && piece.last == piece.first + 1);
    assert_false(runs_box_walk(&walk, &piece, &offset));
    runs_free(&runs);
}

static void huge_boxes_with_few_elements_are_walked_at_once(void **state)
{
    (void)state;
    const uint64_t dims[] = {(uint64_t)1 << 30, (uint64_t)1 << 30, 4}, start[] = {0, 0, 1};
    const uint64_t count[] = {(uint64_t)1 << 30, (uint64_t)1 << 30, 2};
    struct runs runs = {0}, inside = {0};
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(runs_append(&runs, i << 52, (i << 52) + 3), 0);
    assert_int_equal(runs_in_box(&runs, 3, dims, start, count, &inside), 0);
    assert_int_equal(inside.n, 1000);
    assert_int_equal(inside.elements, 2000);
    assert_true(runs_at(&inside, 999).first == ((uint64_t)999 << 52) + 1);
    runs_free(&inside);
    runs_free(&runs);
}

TEST_MAIN(cmocka_unit_test(algebra_is_that_of_bitmaps),
          cmocka_unit_test(clipping_copying_and_shifting),
          cmocka_unit_test(shifting_stays_in_the_range_of_positions),
          cmocka_unit_test(what_is_reserved_is_enough), cmocka_unit_test(finding_and_ranking),
          cmocka_unit_test(walking_an_interval), cmocka_unit_test(parts_are_appended),
          cmocka_unit_test(walking_a_box), cmocka_unit_test(walks_that_find_nothing_come_back),
          cmocka_unit_test(huge_boxes_with_few_elements_are_walked_at_once))
