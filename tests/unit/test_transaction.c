/* What libhdf5's process changes in one call: all of it or nothing, and only where it may. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/worker/transaction.h"
#include "store/store.h"

#define BYTES ((size_t)64 << 10)
#define LARGE ((size_t)256 << 10)

struct fixture {
    struct store *store;
    struct transaction *transaction;
};

static int begin(void **state)
{
    static struct fixture fixture;
    const struct store_image how = {.name = "image", .copy = true, .writable = true};
    char *bytes = allocate(BYTES);
    memset(bytes, 'a', BYTES);
    int error = store_open_image(bytes, BYTES, &how, &fixture.store);
    free(bytes);
    if (error)
        return error;
    store_tell_own(fixture.store);
    *state = &fixture;
    return transaction_create(fixture.store, &fixture.transaction);
}

static int end(void **state)
{
    struct fixture *fixture = *state;
    transaction_destroy(fixture->transaction);
    return store_close(fixture->store);
}

static void expect_bytes(const struct fixture *fixture, uint64_t address, const char *bytes)
{
    char found[64];
    assert_int_equal(store_read(fixture->store, address, found, strlen(bytes)), 0);
    assert_memory_equal(found, bytes, strlen(bytes));
}

static void expect_seen(const struct fixture *fixture, uint64_t address, const char *bytes)
{
    char found[64];
    assert_int_equal(transaction_read(fixture->transaction, address, found, strlen(bytes)), 0);
    assert_memory_equal(found, bytes, strlen(bytes));
}

static void test_nothing_is_there_before_all_is(void **state)
{
    const struct fixture *fixture = *state;
    assert_true(transaction_is_empty(fixture->transaction));
    assert_int_equal(transaction_write(fixture->transaction, 4094, "wxyz", 4), 0);
    assert_int_equal(transaction_write(fixture->transaction, 4095, "X", 1), 0);
    assert_false(transaction_is_empty(fixture->transaction));
    expect_seen(fixture, 4093, "awXyza");
    expect_bytes(fixture, 4093, "aaaaaa");
    transaction_take(fixture->transaction);
    expect_bytes(fixture, 4093, "awXyza");
    assert_true(transaction_is_empty(fixture->transaction));
    assert_int_equal(transaction_put_taken(fixture->transaction), 0);
}

static void test_what_is_dropped_leaves_nothing(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address, again, size = store_end(fixture->store);
    char *bytes = allocate(LARGE);
    memset(bytes, 'b', LARGE);
    assert_int_equal(transaction_write(fixture->transaction, 0, "wxyz", 4), 0);
    assert_int_equal(transaction_free(fixture->transaction, 100, 50), 0);
    assert_int_equal(transaction_allocate(fixture->transaction, LARGE, &address), 0);
    assert_int_equal(transaction_write(fixture->transaction, address, bytes, LARGE), 0);
    expect_seen(fixture, address, "bbbb");
    transaction_drop(fixture->transaction);
    assert_true(transaction_is_empty(fixture->transaction));
    expect_bytes(fixture, 0, "aaaa");
    assert_int_equal(store_check_lent(fixture->store, 100, 50), 0); /* it was not freed */
    assert_int_equal(store_end(fixture->store), size);
    assert_int_equal(store_allocate(fixture->store, LARGE, &again), 0);
    assert_int_equal(again, address);
    free(bytes);
}

/* The small one is of the same space as the large one before and after it. */
static void test_the_last_write_counts(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address;
    char *bytes = allocate(LARGE);
    memset(bytes, 'b', LARGE);
    assert_int_equal(transaction_allocate(fixture->transaction, LARGE, &address), 0);
    assert_int_equal(transaction_write(fixture->transaction, address, bytes, LARGE), 0);
    assert_int_equal(transaction_write(fixture->transaction, address + 5000, "c", 1), 0);
    expect_seen(fixture, address + 4999, "bcb");
    assert_int_equal(transaction_write(fixture->transaction, address, bytes, LARGE), 0);
    expect_seen(fixture, address + 4999, "bbb");
    transaction_take(fixture->transaction);
    expect_bytes(fixture, address + 4999, "bbb");
    free(bytes);
}

static void test_bytes_beside_it_are_others(void **state)
{
    const struct fixture *fixture = *state;
    assert_int_equal(transaction_write(fixture->transaction, 10, "x", 1), 0);
    assert_int_equal(store_write(fixture->store, 9, "9", 1), 0);
    assert_int_equal(store_write(fixture->store, 11, "1", 1), 0);
    expect_seen(fixture, 9, "9x1");
    transaction_take(fixture->transaction);
    expect_bytes(fixture, 9, "9x1");
}

static void test_space_is_freed_at_the_end(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address;
    assert_int_equal(transaction_allocate(fixture->transaction, 100, &address), 0);
    transaction_take(fixture->transaction);
    assert_int_equal(transaction_free(fixture->transaction, address, 100), 0);
    assert_int_equal(store_check_lent(fixture->store, address, 100), 0);
    transaction_take(fixture->transaction);
    assert_int_equal(store_check_lent(fixture->store, address, 100), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, address, "x", 1), -EACCES);
    assert_int_equal(transaction_free(fixture->transaction, address, 100), -EACCES);
}

static void test_what_is_ours_is_not_touched(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t ours, theirs;
    assert_int_equal(store_allocate(fixture->store, 100, &ours), 0);
    assert_int_equal(transaction_allocate(fixture->transaction, 100, &theirs), 0);
    assert_int_equal(transaction_write(fixture->transaction, theirs, "x", 1), 0);
    assert_int_equal(transaction_write(fixture->transaction, ours, "x", 1), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, ours - 1, "xx", 2), -EACCES);
    assert_int_equal(transaction_free(fixture->transaction, ours, 100), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, UINT64_MAX, "xx", 2), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, store_size(fixture->store), "x", 1),
                     -EACCES);
    store_hand_over(fixture->store, ours + 20, 30);
    assert_int_equal(transaction_write(fixture->transaction, ours + 19, "x", 1), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, ours + 20, "x", 1), 0);
    assert_int_equal(transaction_write(fixture->transaction, ours + 50, "x", 1), -EACCES);
    assert_int_equal(store_free(fixture->store, ours, 100), 0); /* in one piece all the same */
    transaction_drop(fixture->transaction);
}

/* As far as it is in use, and nobody's yet. */
static void test_what_is_claimed_is_not_touched(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t ours, size = store_size(fixture->store);
    assert_int_equal(store_allocate(fixture->store, 100, &ours), 0);
    assert_int_equal(store_free(fixture->store, 2000, 100), 0);
    assert_int_equal(store_claim(fixture->store, 1000, 3000), 0);
    assert_int_equal(store_claim(fixture->store, 900, 200), 0);
    assert_int_equal(store_claim(fixture->store, ours - 10, UINT64_MAX), 0);
    assert_int_equal(store_claim(fixture->store, UINT64_MAX, UINT64_MAX), 0);
    for (uint64_t address = 900; address < 4000; address += 50) {
        assert_int_equal(transaction_write(fixture->transaction, address, "x", 1), -EACCES);
        assert_int_equal(transaction_free(fixture->transaction, address, 1), -EACCES);
    }
    assert_int_equal(transaction_write(fixture->transaction, 899, "xx", 2), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, 3999, "xx", 2), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, size - 10, "x", 1), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, 899, "x", 1), 0);
    assert_int_equal(transaction_write(fixture->transaction, 4000, "x", 1), 0);
    transaction_drop(fixture->transaction);
}

/* It is given to anybody again, and is his then. */
static void test_what_was_claimed_is_freed(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address;
    assert_int_equal(store_claim(fixture->store, 1000, 3000), 0);
    assert_int_equal(store_free(fixture->store, 2000, 500), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_int_equal(transaction_allocate(fixture->transaction, 500, &address), 0);
    assert_int_equal(address, 2000);
    assert_int_equal(transaction_write(fixture->transaction, address, "x", 1), 0);
    assert_int_equal(transaction_write(fixture->transaction, 1999, "x", 1), -EACCES);
    assert_int_equal(transaction_write(fixture->transaction, 2500, "x", 1), -EACCES);
    transaction_drop(fixture->transaction);
    assert_int_equal(store_allocate(fixture->store, 500, &address), 0);
    assert_int_equal(address, 2000);
    assert_int_equal(store_check_lent(fixture->store, address, 500), -EACCES);
}

/* What a snapshot held when a damaged file had it claimed. */
static void test_kept_from_libhdf5_that_is_free(void **state)
{
    const struct fixture *fixture = *state;
    struct store_snapshot *snapshot;
    uint64_t address;
    assert_int_equal(store_snapshot_open(fixture->store, &snapshot), 0);
    assert_int_equal(store_free(fixture->store, 2000, 500), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_int_equal(store_claim(fixture->store, 1000, 3000), 0);
    store_snapshot_close(snapshot);
    assert_int_equal(transaction_allocate(fixture->transaction, 500, &address), 0);
    assert_int_equal(address, 2000);
    assert_int_equal(transaction_write(fixture->transaction, address, "x", 1), 0);
    transaction_drop(fixture->transaction);
    assert_int_equal(store_allocate(fixture->store, 500, &address), 0);
    assert_int_equal(address, 2000);
}

struct claimer {
    struct store *store;
    int error;
    unsigned calls;
};

static int claim(void *context)
{
    struct claimer *claimer = context;
    claimer->calls++;
    if (interrupt_check() < 0)
        return -EINTR;
    return claimer->error ? claimer->error : store_claim(claimer->store, 1000, 3000);
}

static bool wants_to_end(void *context)
{
    (void)context;
    return true;
}

/* By the end of the call somebody else may have found it to be his. */
static void test_claimed_after_it_was_written(void **state)
{
    const struct fixture *fixture = *state;
    struct claimer claimer = {.store = fixture->store};
    store_set_claimer(fixture->store, claim, &claimer);
    assert_int_equal(transaction_write(fixture->transaction, 999, "x", 1), 0);
    sfs_set_interrupt(wants_to_end,
                      NULL); /* libhdf5 has made the change: it is not dropped at once */
    assert_int_equal(transaction_check(fixture->transaction), 0);
    sfs_set_interrupt(NULL, NULL);
    transaction_take(fixture->transaction);
    expect_bytes(fixture, 999, "xa");
    assert_int_equal(claimer.calls, 1);

    assert_int_equal(store_free(fixture->store, 1000, 3000), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    uint64_t address;
    assert_int_equal(store_allocate_lent(fixture->store, 3000, &address), 0);
    assert_int_equal(address, 1000);
    assert_int_equal(transaction_write(fixture->transaction, 3990, "yy", 2), 0);
    assert_int_equal(transaction_check(fixture->transaction), -EACCES);
    transaction_drop(fixture->transaction);
    expect_bytes(fixture, 3990, "aa");
}

static void test_freed_before_it_was_claimed(void **state)
{
    const struct fixture *fixture = *state;
    struct claimer claimer = {.store = fixture->store};
    store_set_claimer(fixture->store, claim, &claimer);
    assert_int_equal(transaction_free(fixture->transaction, 3990, 20), 0);
    assert_int_equal(transaction_check(fixture->transaction), -EACCES);
    transaction_drop(fixture->transaction);
    claimer.error = -EIO;
    assert_int_equal(transaction_write(fixture->transaction, 5000, "x", 1), 0);
    assert_int_equal(transaction_check(fixture->transaction), -EIO);
    transaction_drop(fixture->transaction);
}

/* Freed twice, it may be somebody else's by the second time. */
static void test_what_is_freed_twice(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address;
    assert_int_equal(transaction_allocate(fixture->transaction, 100, &address), 0);
    transaction_take(fixture->transaction);
    assert_int_equal(transaction_free(fixture->transaction, address, 100), 0);
    assert_int_equal(transaction_free(fixture->transaction, address, 100), 0);
    transaction_take(fixture->transaction);
    uint64_t one, two;
    assert_int_equal(store_allocate(fixture->store, 100, &one), 0);
    assert_int_equal(store_allocate(fixture->store, 100, &two), 0);
    assert_int_not_equal(one, two);
}

static unsigned n_lines;

static void count_line(int level, const char *line)
{
    (void)level, (void)line;
    n_lines++;
}

static void test_freeing_again_and_again_does_not_fill_the_log(void **state)
{
    const struct fixture *fixture = *state;
    n_lines = 0;
    sfs_set_log(count_line, LOG_DEBUG);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(transaction_free(fixture->transaction, 100, 50), 0);
    transaction_take(fixture->transaction);
    assert_int_equal(n_lines, 1);
    log_quietly();
}

#define MOST_FREE ((uint64_t)1 << 20) /* src/store/space.c */

/* Memory for each place is limited; what is lost is one line. */
static void test_free_space_in_very_many_places(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address, beside;
    n_lines = 0;
    assert_int_equal(transaction_allocate(fixture->transaction, 3 * MOST_FREE, &address), 0);
    transaction_take(fixture->transaction);
    sfs_set_log(count_line, LOG_DEBUG);
    for (uint64_t i = 0; i < MOST_FREE + 1000; i++)
        assert_int_equal(transaction_free(fixture->transaction, address + 2 * i, 1), 0);
    transaction_take(fixture->transaction);
    log_quietly();
    assert_int_equal(n_lines, 1);
    uint64_t far = address + 2 * MOST_FREE + 10000;
    assert_int_equal(store_free_lent(fixture->store, far, 1), -EFBIG);
    assert_int_equal(store_check_lent(fixture->store, far, 1), 0);
    assert_int_equal(store_free_lent(fixture->store, address + 1, 1), 0); /* which joins two */
    beside = address + 2 * (MOST_FREE + 10);
    assert_int_equal(store_check_lent(fixture->store, beside, 1), 0); /* lost, and whole */
    assert_int_equal(store_free_lent(fixture->store, far, 1), 0);
}

/* However many pieces it was allocated in. */
static void test_large_writes_into_what_was_allocated_long_before(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t address, other;
    char *bytes = allocate(LARGE);
    memset(bytes, 'b', LARGE);
    assert_int_equal(transaction_allocate(fixture->transaction, LARGE, &address), 0);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(transaction_allocate(fixture->transaction, 1, &other), 0);
    assert_int_equal(transaction_write(fixture->transaction, address, bytes, LARGE), 0);
    expect_seen(fixture, address + LARGE - 4, "bbbb");
    transaction_take(fixture->transaction);
    expect_bytes(fixture, address + LARGE - 4, "bbbb");
    free(bytes);
}

/* A file cannot become larger than its disk, nor larger than any file there: else nothing could be written any
 * more. */
static void test_space_that_no_disk_has(void **state)
{
    (void)state;
    struct fixture file;
    struct stat st;
    uint64_t address, before = 0;
    int any = open("any", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(store_create("file", true, &file.store), 0);
    store_tell_own(file.store);
    assert_int_equal(transaction_create(file.store, &file.transaction), 0);
    assert_int_equal(transaction_allocate(file.transaction, 100, &address), 0);
    assert_int_equal(transaction_write(file.transaction, address, "before", 6), 0);
    transaction_take(file.transaction);
    assert_int_equal(transaction_allocate(file.transaction, (uint64_t)1 << 62, &before), -ENOSPC);
    assert_int_equal(transaction_allocate(file.transaction, UINT64_MAX, &before), -ENOSPC);
    uint64_t part = store_room(file.store) / 2 + ((uint64_t)1 << 30);
    int error = 0;
    for (int i = 0; i < 4 && !error; i++)
        error = transaction_allocate(file.transaction, part, &before);
    assert_int_equal(error, -ENOSPC);
    transaction_drop(file.transaction);
    if (lseek(any, (off_t)1 << 62, SEEK_SET) < 0) /* not where files may be so large */
        assert_int_equal(store_allocate(file.store, (uint64_t)1 << 62, &before), -EFBIG);
    close(any);
    assert_int_equal(transaction_allocate(file.transaction, 100, &before), 0);
    assert_int_equal(transaction_write(file.transaction, before, "behind", 6), 0);
    transaction_take(file.transaction);
    assert_int_equal(store_commit(file.store), 0);
    assert_int_equal(stat("file", &st), 0);
    assert_in_range(st.st_size, 200, 4096);
    expect_bytes(&file, address, "before");
    transaction_destroy(file.transaction);
    assert_int_equal(store_close(file.store), 0);
}

static uint64_t room = UINT64_MAX; /* on the disk, as the test wants it; UINT64_MAX: as it is */

uint64_t __real_store_room(const struct store *store);
uint64_t __wrap_store_room(const struct store *store);
uint64_t __wrap_store_room(const struct store *store)
{
    return room == UINT64_MAX ? __real_store_room(store) : room;
}

/* What is not much is not compared with the room on the disk: it may have taken more than there was. */
static void test_much_after_more_than_there_was_room_for(void **state)
{
    const struct fixture *fixture = *state;
    const uint64_t much = (uint64_t)65 << 20, some = (uint64_t)1 << 20;
    uint64_t address;
    room = some;
    assert_int_equal(transaction_allocate(fixture->transaction, much, &address), -ENOSPC);
    for (int i = 0; i < 3; i++)
        assert_int_equal(transaction_allocate(fixture->transaction, some, &address), 0);
    assert_int_equal(transaction_allocate(fixture->transaction, much, &address), -ENOSPC);
    transaction_drop(fixture->transaction);
    room = UINT64_MAX;
    assert_int_equal(transaction_allocate(fixture->transaction, some, &address), 0);
    transaction_drop(fixture->transaction);
}

static int all_tests(void)
{
    log_quietly();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_there_before_all_is, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_dropped_leaves_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_the_last_write_counts, begin, end),
        cmocka_unit_test_setup_teardown(test_bytes_beside_it_are_others, begin, end),
        cmocka_unit_test_setup_teardown(test_space_is_freed_at_the_end, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_ours_is_not_touched, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_claimed_is_not_touched, begin, end),
        cmocka_unit_test_setup_teardown(test_what_was_claimed_is_freed, begin, end),
        cmocka_unit_test_setup_teardown(test_kept_from_libhdf5_that_is_free, begin, end),
        cmocka_unit_test_setup_teardown(test_claimed_after_it_was_written, begin, end),
        cmocka_unit_test_setup_teardown(test_freed_before_it_was_claimed, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_freed_twice, begin, end),
        cmocka_unit_test_setup_teardown(test_freeing_again_and_again_does_not_fill_the_log, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_free_space_in_very_many_places, begin, end),
        cmocka_unit_test_setup_teardown(test_large_writes_into_what_was_allocated_long_before,
                                        begin, end),
        cmocka_unit_test(test_space_that_no_disk_has),
        cmocka_unit_test_setup_teardown(test_much_after_more_than_there_was_room_for, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
