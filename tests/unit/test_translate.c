/* Regular selections of virtual datasets, against every element one by one. */
#include "support.h"

#include <string.h>

#include "dataset/virtual_axes.h"

static void elements_of_an_axis(void **state)
{
    (void)state;
    static const struct hdf5_axis axes[] = {
        {0, 1, 1, 1}, {3, 4, 1, 4}, {2, 5, 4, 3}, {7, 2, 9, 1}, {1, 3, 5, 2}};
    for (size_t i = 0; i < COUNT(axes); i++) {
        const struct hdf5_axis *axis = &axes[i];
        uint64_t n = 0;
        for (uint64_t x = 0; x < 60; x++) {
            assert_int_equal(axis_before(axis, x), n);
            uint64_t at = x < axis->start ? 0 : x - axis->start;
            bool is_in = x >= axis->start && at / axis->stride < axis->count &&
                         at % axis->stride < axis->block;
            if (is_in) {
                assert_int_equal(axis_at(axis, n), x);
                assert_int_equal(axis_adjacent(axis, n), axis->block - at % axis->stride);
                n++;
            }
        }
        assert_int_equal(axis_size(axis), n);
    }
}

static void axes_without_end(void **state)
{
    (void)state;
    struct hdf5_axis frames = {5, 4, SFS_UNLIMITED, 2}, rows = {5, 1, 1, SFS_UNLIMITED};
    struct hdf5_axis together = {5, 2, SFS_UNLIMITED, 2}, numbered = together;
    assert_int_equal(axis_size(&frames), SFS_UNLIMITED);
    assert_int_equal(axis_before(&frames, 13), 4);
    assert_int_equal(axis_at(&frames, 1000001), 5 + 500000 * 4 + 1);
    assert_int_equal(axis_at(&frames, UINT64_MAX / 2), UINT64_MAX);
    assert_true(axis_simplify(&rows, false) && axis_simplify(&together, false));
    assert_memory_equal(&rows, &together, sizeof(rows));
    assert_int_equal(axis_size(&rows), SFS_UNLIMITED);
    assert_int_equal(axis_adjacent(&rows, 77), SFS_UNLIMITED);
    assert_int_equal(axis_before(&rows, 105), 100);
    assert_true(axis_simplify(&numbered, true));
    assert_int_equal(numbered.count, SFS_UNLIMITED);
    assert_int_equal(numbered.block, 2);
    struct hdf5_axis vast = {0, UINT64_MAX / 2, 5, UINT64_MAX / 2}, spread = vast;
    spread.block--;
    assert_false(axis_simplify(&vast, false));
    assert_false(axis_simplify(&spread, false));
}

static struct hdf5_slab slab(int rank, struct hdf5_axis *axis)
{
    return (struct hdf5_slab){.rank = rank, .axis = axis};
}

static void axes_of_one_element_do_not_matter(void **state)
{
    (void)state;
    struct hdf5_axis shown[] = {{4, 1, 1, 1}, {0, 3, 5, 1}, {7, 1, 1, 1}, {2, 8, 1, 8}};
    struct hdf5_axis source[] = {{1, 1, 5, 1}, {6, 2, 4, 2}, {9, 1, 1, 1}};
    struct hdf5_slab of_shown = slab(4, shown), of_source = slab(3, source);
    struct translation translation;
    assert_true(translation_make(&translation, &of_shown, &of_source));
    static const int pairs[] = {1, 3, -1}, sources[] = {-1, 0, -1, 1};
    assert_memory_equal(translation.pair, pairs, sizeof(pairs));
    assert_memory_equal(translation.source_of, sources, sizeof(sources));
    source[0].count = 4;
    assert_false(translation_make(&translation, &of_shown, &of_source));
    source[0].count = 1;
    assert_false(translation_make(&translation, &of_shown, &of_source));
}

static void boxes_are_translated(void **state)
{
    (void)state;
    /* Every third row from 1 on shows rows in pairs, columns as they are. */
    struct hdf5_axis shown[] = {{1, 3, 6, 1}, {2, 8, 1, 8}};
    struct hdf5_axis source[] = {{0, 4, 3, 2}, {5, 8, 1, 8}};
    struct hdf5_slab of_shown = slab(2, shown), of_source = slab(2, source);
    struct translation translation;
    struct box box = {2, {2, 4}, {9, 100}}, there, here;
    assert_true(translation_make(&translation, &of_shown, &of_source));
    assert_true(translation_want(&translation, &box)); /* rows 4, 7 and 10 */
    assert_int_equal(translation.first[0], 1);
    assert_int_equal(translation.end[0], 4);
    assert_int_equal(translation_elements(&translation), 3 * 6);
    assert_int_equal(translation_adjacent(&translation, 0, 1), 1);
    assert_int_equal(translation_adjacent(&translation, 1, 2), 6);
    translation_boxes(&translation, translation.first, translation.end, &there, &here);
    assert_int_equal(there.start[0], 4);
    assert_int_equal(there.count[0], 7);
    assert_int_equal(here.start[0], 1);
    assert_int_equal(here.count[0], 5); /* rows 1, 4 and 5 */
    assert_int_equal(here.start[1], 7);
    assert_int_equal(here.count[1], 6);

    const uint64_t all[] = {10, 13}, some[] = {5, 12}, none[] = {1, 13};
    assert_false(translation_clip(&translation, all));
    assert_true(translation_clip(&translation, some));
    assert_int_equal(translation.end[0], 3);
    assert_int_equal(translation.end[1], 7);
    assert_true(translation_clip(&translation, none));
    assert_int_equal(translation_elements(&translation), 0);
    box.start[0] = 5;
    box.count[0] = 2;
    assert_false(translation_want(&translation, &box));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_of_an_axis),
        cmocka_unit_test(axes_without_end),
        cmocka_unit_test(axes_of_one_element_do_not_matter),
        cmocka_unit_test(boxes_are_translated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
