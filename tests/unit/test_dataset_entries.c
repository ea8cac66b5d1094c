/* Names and inode numbers of frames. */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/dataset_entries.h"
#include "fs/frame_names.h"
#include "fs/inode.h"

static const unsigned directories[] = {ENTRY_FRAMES,   ENTRY_RAW_DIR,    ENTRY_NPY_DIR,
                                       ENTRY_TIFF_DIR, ENTRY_VALUES_DIR, ENTRY_NPZ_DIR,
                                       ENTRY_PNG_DIR,  ENTRY_CBF_DIR};

static void every_name_leads_back_to_its_frame(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 10, 11, 999999, 1000000, 1000001, 10000000};
    for (size_t d = 0; d < COUNT(directories); d++) {
        const struct frame_names *series = frame_names_in(directories[d]);
        for (size_t c = 0; c < COUNT(counts); c++) {
            for (uint64_t first = 0; first < 2; first++) {
                int width = frame_name_width(series, counts[c], first);
                for (int k = 0; k < 200; k++) {
                    uint64_t frame = k == 0 ? 0 : k == 1 ? counts[c] - 1 : random_below(counts[c]);
                    unsigned which = (unsigned)random_below(series->n_views);
                    char name[FRAME_NAME_BYTES], expected[FRAME_NAME_BYTES];
                    uint64_t number;
                    enum view_kind view;
                    frame_name_format(series, which, frame + first, width, name);
                    snprintf(expected, sizeof(expected), "%0*" PRIu64 "%s",
                             series->padded ? width : 1, frame + first, series->suffix[which]);
                    assert_string_equal(name, expected);
                    assert_true(frame_name_parse(series, name, 0, &number, &view));
                    assert_int_equal(number, frame + first);
                    assert_int_equal(view, series->view[which]);
                }
            }
        }
    }
}

static void padding_is_to_the_last_number_and_at_least_6(void **state)
{
    (void)state;
    static const struct {
        uint64_t frames, first;
        int width;
    } cases[] = {
        {0, 0, 6},       {0, 1, 6},        {1, 0, 6},        {10, 1, 6},
        {999999, 0, 6},  {999999, 1, 6},   {1000000, 0, 6},  {1000000, 1, 7},
        {1000001, 0, 7}, {10000000, 0, 7}, {10000000, 1, 8}, {UINT64_C(10000000000), 0, 10},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(
            frame_name_width(frame_names_in(ENTRY_RAW_DIR), cases[i].frames, cases[i].first),
            cases[i].width);
        assert_int_equal(
            frame_name_width(frame_names_in(ENTRY_FRAMES), cases[i].frames, cases[i].first), 1);
    }
}

static void any_padding_is_accepted(void **state)
{
    (void)state;
    static const char *const names[] = {"42.raw", "042.raw", "000042.raw",
                                        "0000000000000000000000000000000000042.raw"};
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t d = 0; d < 2; d++) {
            uint64_t number = 0;
            enum view_kind view = VIEW_KINDS;
            assert_true(
                frame_name_parse(frame_names_in(directories[d]), names[i], 0, &number, &view));
            assert_int_equal(number, 42);
            assert_int_equal(view, VIEW_RAW);
        }
    }
}

static void the_largest_numbers_fit(void **state)
{
    (void)state;
    const struct frame_names *series = frame_names_in(ENTRY_VALUES_DIR);
    char name[FRAME_NAME_BYTES];
    uint64_t number;
    enum view_kind view;
    frame_name_format(series, 0, UINT64_MAX, 20, name);
    assert_string_equal(name, "18446744073709551615.values");
    assert_true(frame_name_parse(series, name, 0, &number, &view));
    assert_int_equal(number, UINT64_MAX);
    assert_true(frame_name_parse(series, "12.values", 12, &number, &view));
    assert_int_equal(number, 0);
    assert_false(frame_name_parse(series, "11.values", 12, &number, &view));
    assert_false(frame_name_parse(series, "18446744073709551616.values", 0, &number, &view));
    assert_false(frame_name_parse(series, "99999999999999999999.values", 0, &number, &view));
    assert_false(frame_name_parse(series, "100000000000000000000000.values", 0, &number, &view));
}

static void what_is_not_a_number_and_a_suffix_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",       ".raw",    "+1.raw",  " 1.raw", "1.rawx",       "-1.raw",   "1",       "1.",
        "1.RAW",  "1.ra",    "0x1.raw", "1 .raw", "1.raw ",       "1.npy",    "1e3.raw", "a.raw",
        "1..raw", "1.0.raw", "raw",     "1.tif",  "\xd9\xa1.raw", "1.values", ".",       ".."};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        uint64_t number = 7;
        enum view_kind view = VIEW_KINDS;
        assert_false(frame_name_parse(frame_names_in(ENTRY_FRAMES), wrong[i], 0, &number, &view));
        assert_int_equal(number, 7);
        assert_int_equal(view, VIEW_KINDS);
    }
}

static void only_directories_of_frames_are_series(void **state)
{
    (void)state;
    for (unsigned entry = 0; entry < ENTRY_VIEW + VIEW_KINDS; entry++) {
        bool is_series = entry == ENTRY_ZARR_DIR; /* whose names are other ones */
        for (size_t d = 0; d < COUNT(directories); d++)
            is_series |= entry == directories[d];
        assert_int_equal(frame_names_in(entry) != NULL, is_series);
        assert_int_equal(entry_names(entry) != NULL,
                         entry == ENTRY_NODE || entry == ENTRY_CSR_DIR || entry == ENTRY_ZARR_DIR);
    }
}

static void inode_numbers_lead_back_to_what_they_stand_for(void **state)
{
    (void)state;
    for (int round = 0; round < 100000; round++) {
        struct inode inode = {
            .node = (uint32_t)(round % 7 ? random_below(INODE_MAX_NODES) : INODE_MAX_NODES - 1),
            .frame = round % 5 ? random_below(INODE_MAX_FRAMES) : INODE_MAX_FRAMES - 1,
            .entry = (unsigned)random_between(ENTRY_NODE, ENTRY_VIEW + VIEW_KINDS - 1),
        };
        struct inode again = inode_unpack(inode_pack(inode));
        assert_int_equal(again.node, inode.node);
        assert_int_equal(again.frame, inode.frame);
        assert_int_equal(again.entry, inode.entry);

        uint64_t number = random_next();
        assert_int_equal(inode_pack(inode_unpack(number)), number);
    }
}

static void the_root_is_inode_1(void **state)
{
    (void)state;
    assert_int_equal(inode_pack((struct inode){.entry = ENTRY_NODE}), 1);
    struct inode root = inode_unpack(1);
    assert_int_equal(root.node, 0);
    assert_int_equal(root.frame, 0);
    assert_int_equal(root.entry, ENTRY_NODE);
    assert_false(inode_is_view(root));
}

static void views_are_entries_of_their_own(void **state)
{
    (void)state;
    for (enum view_kind kind = 0; kind < VIEW_KINDS; kind++) {
        struct inode inode = {.node = 3, .entry = ENTRY_VIEW + kind};
        assert_true(inode_is_view(inode));
        assert_int_equal(inode_view(inode_unpack(inode_pack(inode))), kind);
    }
}

TEST_MAIN(cmocka_unit_test(every_name_leads_back_to_its_frame),
          cmocka_unit_test(padding_is_to_the_last_number_and_at_least_6),
          cmocka_unit_test(any_padding_is_accepted), cmocka_unit_test(the_largest_numbers_fit),
          cmocka_unit_test(what_is_not_a_number_and_a_suffix_is_refused),
          cmocka_unit_test(only_directories_of_frames_are_series),
          cmocka_unit_test(inode_numbers_lead_back_to_what_they_stand_for),
          cmocka_unit_test(the_root_is_inode_1), cmocka_unit_test(views_are_entries_of_their_own))
