/* When frames were written: exactly for some, never too early for any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs/times.h"

static const struct timespec long_ago = {.tv_sec = 1000};

static time_t seconds(struct times *times, uint64_t object, uint64_t frame)
{
    struct timespec time = long_ago;
    times_raise(times, object, frame, &time);
    return time.tv_sec;
}

static void only_what_was_written_is_new(void **state)
{
    (void)state;
    struct times *times;
    time_t begin = time(NULL);
    assert_int_equal(times_create(&times), 0);
    assert_int_equal(seconds(times, 1, 5), long_ago.tv_sec);
    times_note(times, 1, 5, 7);
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
    times_note(times, 1, 5, 5);
    struct timespec time = future;
    times_raise(times, 1, 5, &time);
    assert_int_equal(time.tv_sec, future.tv_sec);
    assert_int_equal(time.tv_nsec, future.tv_nsec);
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
        times_note(times, 1, frame, frame);
    for (uint64_t frame = 0; frame < 50000; frame++)
        assert_true(seconds(times, 1, frame) >= begin);
    assert_int_equal(seconds(times, 2, 0), long_ago.tv_sec);
    times_note(times, 2, 0, UINT64_MAX - 1); /* at once */
    assert_true(seconds(times, 2, (uint64_t)1 << 33) >= begin);
    times_destroy(times);
    times_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_written_is_new),
        cmocka_unit_test(a_later_time_stays),
        cmocka_unit_test(what_is_forgotten_is_not_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
