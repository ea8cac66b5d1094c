/* When frames were written: exactly for some, never too early for any. */
#include "support.h"

#include "fs/frame_times.h"

#define MANY_DATASETS 70000 /* more than are known */

static const struct timespec long_ago = {.tv_sec = 1000};

static time_t seconds(struct times *times, uint64_t object, uint64_t frame)
{
    struct stat st = {.st_mtim = long_ago, .st_atim = long_ago};
    times_apply(times, object, frame, &st);
    return st.st_mtim.tv_sec;
}

static void only_what_was_written_is_new(void **state)
{
    (void)state;
    struct times *times;
    time_t begin = time(NULL);
    assert_int_equal(times_create(&times), 0);
    assert_int_equal(seconds(times, 1, 5), long_ago.tv_sec);
    times_note(times, 1, 5, 7, TIMES_KEEP_NONE);
    for (uint64_t frame = 0; frame < 20; frame++) {
        if (frame >= 5 && frame <= 7)
            assert_true(seconds(times, 1, frame) >= begin);
        else
            assert_int_equal(seconds(times, 1, frame), long_ago.tv_sec);
        assert_int_equal(seconds(times, 2, frame), long_ago.tv_sec);
    }
    assert_true(seconds(times, 1, TIMES_ANY_FRAME) >= begin);
    assert_int_equal(seconds(times, 2, TIMES_ANY_FRAME), long_ago.tv_sec);
    times_destroy(times);
}

static void a_later_time_stays(void **state)
{
    (void)state;
    struct times *times;
    struct timespec future = {.tv_sec = time(NULL) + 1000, .tv_nsec = 3};
    assert_int_equal(times_create(&times), 0);
    times_note(times, 1, 5, 5, TIMES_KEEP_NONE);
    struct stat st = {.st_mtim = future, .st_atim = long_ago};
    times_apply(times, 1, 5, &st);
    assert_int_equal(st.st_mtim.tv_sec, future.tv_sec);
    assert_int_equal(st.st_mtim.tv_nsec, future.tv_nsec);
    assert_true(st.st_atim.tv_sec > long_ago.tv_sec);
    times_destroy(times);
}

/* More frames than are remembered: none of those that were written looks old. */
static void what_is_forgotten_is_not_old(void **state)
{
    (void)state;
    struct times *times;
    time_t begin = time(NULL);
    assert_int_equal(times_create(&times), 0);
    for (uint64_t frame = 0; frame < 50000; frame++)
        times_note(times, 1, frame, frame, TIMES_KEEP_NONE);
    for (uint64_t frame = 0; frame < 50000; frame++)
        assert_true(seconds(times, 1, frame) >= begin);
    assert_int_equal(seconds(times, 2, 0), long_ago.tv_sec);
    times_note(times, 2, 0, UINT64_MAX - 1, TIMES_KEEP_NONE); /* at once */
    assert_true(seconds(times, 2, (uint64_t)1 << 33) >= begin);
    times_destroy(times);
    times_destroy(NULL);
}

/* Until the frame is written again, alone or among many. */
static void what_was_set_is_kept(void **state)
{
    (void)state;
    const struct timespec set = {.tv_sec = 17, .tv_nsec = 3}, read = {.tv_sec = 19};
    struct times *times;
    assert_int_equal(times_create(&times), 0);
    for (uint64_t frame = 0; frame < 40000; frame++) {
        times_note(times, 1, frame, frame, TIMES_KEEP_NONE);
        times_set(times, 1, frame, &read, &set);
    }
    times_set(times, 2, 7, &read, &set); /* never written here */
    times_set(times, 2, TIMES_ANY_FRAME, &read, &set);
    for (uint64_t frame = 0; frame < 40000; frame++) {
        struct stat st = {.st_mtim = long_ago};
        times_apply(times, 1, frame, &st);
        assert_int_equal(st.st_mtim.tv_sec, 17);
        assert_int_equal(st.st_mtim.tv_nsec, 3);
        assert_int_equal(st.st_atim.tv_sec, 19);
    }
    assert_int_equal(seconds(times, 2, 7), 17);
    assert_int_equal(seconds(times, 2, TIMES_ANY_FRAME), 17);
    assert_int_equal(seconds(times, 2, 8), long_ago.tv_sec);

    times_note(times, 2, 8, 8, TIMES_KEEP_NONE);
    assert_int_equal(seconds(times, 2, 7), 17);
    assert_true(seconds(times, 2, TIMES_ANY_FRAME) > long_ago.tv_sec);
    times_note(times, 1, 30, 31, TIMES_KEEP_NONE);
    assert_int_equal(seconds(times, 1, 29), 17);
    assert_true(seconds(times, 1, 30) > long_ago.tv_sec);
    times_note(times, 1, 29, 29, TIMES_KEEP_SET);
    times_note(times, 1, 0, 40000, TIMES_KEEP_SET);
    assert_int_equal(seconds(times, 1, 29), 17);
    times_unset(times, 1, 28);
    assert_true(seconds(times, 1, 28) > long_ago.tv_sec);
    times_note(times, 1, 0, 40000, TIMES_KEEP_NONE);
    assert_true(seconds(times, 1, 29) > long_ago.tv_sec);
    times_set(times, 1, 29, &read, &set);
    assert_int_equal(seconds(times, 1, 29), 17);
    for (uint64_t last = 40; last <= 40000; last += 39960) {
        times_set(times, 1, 29, &read, &set);
        times_set(times, 1, TIMES_ANY_FRAME, &read, &set);
        times_note(times, 1, 0, last, TIMES_KEEP_OF_ALL);
        assert_true(seconds(times, 1, 29) > long_ago.tv_sec);
        assert_int_equal(seconds(times, 1, TIMES_ANY_FRAME), 17);
    }
    times_destroy(times);
}

static void what_is_set_is_bounded(void **state)
{
    (void)state;
    const struct timespec set = {.tv_sec = 17};
    const uint64_t most = (uint64_t)1 << 18;
    struct times *times;
    assert_int_equal(times_create(&times), 0);
    for (uint64_t frame = 0; frame < most + 10; frame++)
        times_set(times, 1, frame, &set, &set);
    assert_int_equal(seconds(times, 1, most - 1), 17);
    assert_int_equal(seconds(times, 1, most), long_ago.tv_sec);
    times_note(times, 1, 5, 5, TIMES_KEEP_NONE);
    times_set(times, 1, most, &set, &set);
    assert_int_equal(seconds(times, 1, most), 17);
    times_destroy(times);
}

static void write_many_datasets(struct times *times, uint64_t first)
{
    for (uint64_t i = 0; i < MANY_DATASETS; i++)
        times_note(times, first + i, 0, 0, TIMES_KEEP_NONE);
}

static void datasets_do_not_fill_the_memory(void **state)
{
    (void)state;
    struct times *times;
    const struct timespec past = {.tv_sec = 2000};
    time_t begin = time(NULL);
    assert_int_equal(times_create(&times), 0);
    times_note(times, 1, 5, 5, TIMES_KEEP_NONE);
    times_set(times, 1, 5, &past, &past);
    assert_int_equal(seconds(times, 1, 5), past.tv_sec);
    write_many_datasets(times, 2);
    size_t before = memory_in_use();
    write_many_datasets(times, 2 + MANY_DATASETS);
    assert_in_range(memory_in_use(), before - before / 10, before + before / 10);
    assert_true(seconds(times, 1, 5) >= begin); /* forgotten, and not old */
    times_note(times, 1, 6, 6, TIMES_KEEP_NONE);
    assert_true(seconds(times, 1, 5) >= begin);
    unsigned new = 0;
    for (uint64_t i = 0; i < 1000; i++)
        new += seconds(times, 1 << 20 | i, 0) != long_ago.tv_sec;
    assert_in_range(new, 0, 200); /* of those that were never written */
    times_destroy(times);
}

TEST_MAIN(cmocka_unit_test(only_what_was_written_is_new), cmocka_unit_test(a_later_time_stays),
          cmocka_unit_test(what_is_forgotten_is_not_old), cmocka_unit_test(what_was_set_is_kept),
          cmocka_unit_test(what_is_set_is_bounded),
          cmocka_unit_test(datasets_do_not_fill_the_memory))
