/* Which writes are doubtful: of what was invalidated a short while ago, and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "fs/overtaken_reads.h"

#define INODE  ((uint64_t)5 << 40 | 7 << 6 | 12)
#define OTHER  ((uint64_t)5 << 40 | 8 << 6 | 12)
#define MEGA   ((uint64_t)1 << 20)
#define FAR    (MEGA << 20)
#define PIECES 64

static void only_what_was_invalidated_and_read(void **state)
{
    (void)state;
    struct recent *recent = recent_create();
    assert_non_null(recent);
    assert_false(recent_is_doubtful(recent, INODE, 0, MEGA));
    recent_read(recent, INODE, FAR, 2 * MEGA);
    assert_false(recent_is_doubtful(recent, INODE, FAR, MEGA));
    recent_end_forgetting(recent, INODE);
    for (uint64_t piece = 0; piece < PIECES; piece++)
        assert_true(recent_is_doubtful(recent, INODE, FAR + piece * 2 * MEGA / PIECES, 1));
    assert_false(recent_is_doubtful(recent, INODE, 0, MEGA));
    assert_false(recent_is_doubtful(recent, INODE, FAR + 3 * MEGA, MEGA));
    assert_false(recent_is_doubtful(recent, OTHER, FAR, MEGA));
    recent_destroy(recent);
}

static void also_if_it_is_read_later(void **state)
{
    (void)state;
    struct recent *recent = recent_create();
    assert_non_null(recent);
    recent_begin_forgetting(recent, INODE, 0, 0);
    assert_false(recent_is_doubtful(recent, INODE, FAR, 10));
    recent_read(recent, INODE, FAR - 100, 101);
    assert_true(recent_is_doubtful(recent, INODE, FAR, 10));
    recent_destroy(recent);
    recent_destroy(NULL);
}

/* Until the clock has moved on what comes later cannot be told from what came before. */
static void pass_time(void)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec == begin.tv_sec && now.tv_nsec == begin.tv_nsec);
}

static void not_if_all_of_it_was_forgotten_since(void **state)
{
    (void)state;
    struct recent *recent = recent_create();
    assert_non_null(recent);
    recent_begin_forgetting(recent, INODE, 0, 0);
    recent_read(recent, INODE, FAR, MEGA);
    pass_time();
    recent_begin_forgetting(recent, INODE, FAR + 1, MEGA);
    assert_true(recent_is_doubtful(recent, INODE, FAR, 10));
    assert_false(recent_is_doubtful(recent, INODE, FAR + MEGA / 2, 10));
    assert_true(recent_is_doubtful(recent, INODE, FAR, MEGA));
    recent_read(recent, INODE, FAR + MEGA / 2, 10);
    assert_true(recent_is_doubtful(recent, INODE, FAR + MEGA / 2, 10));
    pass_time();
    recent_begin_forgetting(recent, INODE, 0, 0);
    assert_false(recent_is_doubtful(recent, INODE, FAR, MEGA));
    recent_destroy(recent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_invalidated_and_read),
        cmocka_unit_test(also_if_it_is_read_later),
        cmocka_unit_test(not_if_all_of_it_was_forgotten_since),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
