/* Files that may be written and are shared with who reads them until then: the lock, also where
 * somebody takes it while it is being changed; and many threads that write while others give it
 * back. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cache/cache.h"
#include "common/why.h"
#include "dataset/private.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define PATH  "shared"
#define BYTES 10000

static const struct store_opening shared = {.writable = true, .is_shared = true};

/* ---- Another program ---- */

static int other = -1;  /* the file, as it has it open */
static int other_takes; /* the lock that it takes as soon as ours is given away for another one */

static void (*in_flock)(void); /* called by the next flock */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    void (*hook)(void) = in_flock;
    in_flock = NULL;
    if (hook)
        hook();
    if (other_takes && fd != other) {
        assert_int_equal(__real_flock(fd, LOCK_UN), 0);
        assert_int_equal(__real_flock(other, other_takes | LOCK_NB), 0);
        other_takes = 0;
    }
    return __real_flock(fd, operation);
}

/* ---- What stands beside the file ---- */

struct journal_state;
static int look_error; /* that a look at the journal has */

int __real_journal_look(const struct store *store, struct journal_state *journal);
int __wrap_journal_look(const struct store *store, struct journal_state *journal);

int __wrap_journal_look(const struct store *store, struct journal_state *journal)
{
    return look_error ? look_error : __real_journal_look(store, journal);
}

static void other_opens(void)
{
    other = open(PATH, O_RDWR);
    assert_true(other >= 0);
}

static void other_closes(void)
{
    close(other);
    other = -1;
}

/* Whatever the clock says. */
static void other_changes(void)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(pwrite(other, "x", 1, 5000), 1);
    assert_int_equal(futimens(other, times), 0);
}

static bool other_may(int operation)
{
    int fd = open(PATH, O_RDONLY);
    bool may = __real_flock(fd, operation | LOCK_NB) == 0;
    close(fd);
    return may;
}

/* ---- Stores ---- */

static struct store *open_shared(void)
{
    struct store *store;
    unsigned char bytes[BYTES];
    int fd = open(PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    memset(bytes, 7, sizeof(bytes));
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    close(fd);
    assert_int_equal(store_open_as(PATH, &shared, &store), 0);
    assert_true(store_is_writable(store) && store_is_shared(store));
    assert_int_equal(store_lock(store), SFS_LOCK_SHARED);
    return store;
}

static bool is_there(const char *name)
{
    return access(name, F_OK) == 0;
}

static int read_byte(struct store *store)
{
    unsigned char byte = 0;
    int error = store_read(store, 5000, &byte, 1);
    return error ? error : byte;
}

static void nothing_is_written_before(void **state)
{
    (void)state;
    struct stat before, after;
    uint64_t address;
    struct store *store = open_shared();
    assert_int_equal(stat(PATH, &before), 0);
    /* libhdf5 does so when it opens a file */
    assert_int_equal(store_write(store, 0, "mark", 4), 0);
    assert_int_equal(store_allocate(store, 5000, &address), 0);
    assert_int_equal(store_write(store, address, "mark", 4), 0);
    assert_int_equal(stat(PATH, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_false(is_there(PATH ".commits") || is_there(PATH ".journal"));
    assert_true(other_may(LOCK_SH));
    assert_false(other_may(LOCK_EX));
    store_close(store);
    assert_int_equal(stat(PATH, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

static void writing_begins_and_ends(void **state)
{
    (void)state;
    char bytes[4];
    struct store *store = open_shared();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_begin_writing(store), 0);
        assert_int_equal(store_begin_writing(store), 0);
        assert_int_equal(store_lock(store), SFS_LOCK_EXCLUSIVE);
        assert_true(is_there(PATH ".commits"));
        assert_false(other_may(LOCK_SH));
        memset(bytes, '0' + i, 4);
        assert_int_equal(store_write(store, 100, bytes, 4), 0);
        assert_int_equal(store_commit(store), 0);
        assert_true(is_there(PATH ".journal"));
        assert_int_equal(store_end_writing(store), 0);
        assert_int_equal(store_lock(store), SFS_LOCK_SHARED);
        assert_true(other_may(LOCK_SH));
        assert_false(is_there(PATH ".commits") || is_there(PATH ".journal"));
        int fd = open(PATH, O_RDONLY);
        assert_int_equal(pread(fd, bytes, 4, 100), 4);
        close(fd);
        assert_int_equal(bytes[3], '0' + i);
    }
    store_close(store);
}

/* What was free when the last writer closed it is used by this one while the image is read. */
static void an_image_from_before_stays_as_it_is(void **state)
{
    (void)state;
    struct store_snapshot *image;
    unsigned char before[BYTES], after[BYTES];
    uint64_t address;
    struct store *store = open_shared();
    assert_int_equal(store_begin_writing(store), 0);
    assert_int_equal(store_free(store, 3000, 2000), 0);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    if (getxattr(PATH, "user.sparsefs.free", NULL, 0) < 0)
        skip();
    assert_int_equal(store_open_as(PATH, &shared, &store), 0);
    assert_int_equal(store_snapshot_open(store, &image), 0);
    assert_int_equal(store_snapshot_read(image, 0, before, BYTES), 0);
    assert_true(before[2999] == 7 && before[3000] == 0 && before[4999] == 0 && before[5000] == 7);
    assert_int_equal(store_begin_writing(store), 0);
    assert_int_equal(store_allocate(store, 1500, &address), 0);
    assert_int_equal(address, 3000);
    memset(after, 9, 1500);
    assert_int_equal(store_write(store, address, after, 1500), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_read(image, 0, after, BYTES), 0);
    assert_memory_equal(after, before, BYTES);
    store_snapshot_close(image);
    store_close(store);
}

static void who_cannot_end_writing_is_still_a_writer(void **state)
{
    (void)state;
    struct store *store = open_shared();
    assert_int_equal(store_begin_writing(store), 0);
    assert_int_equal(store_write(store, 100, "text", 4), 0);
    assert_int_equal(store_commit(store), 0);
    look_error = -EIO;
    int error = store_end_writing(store);
    look_error = 0;
    assert_int_equal(error, -EIO);
    assert_false(store_is_shared(store));
    assert_int_equal(store_lock(store), SFS_LOCK_EXCLUSIVE);
    assert_true(is_there(PATH ".commits")); /* by which others know that there is one */
    assert_int_equal(store_write(store, 100, "more", 4), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_end_writing(store), 0);
    assert_true(store_is_shared(store));
    assert_false(is_there(PATH ".commits") || is_there(PATH ".journal"));
    store_close(store);
}

static void a_reader_comes_in_between(void **state)
{
    (void)state;
    struct store *store = open_shared();
    other_opens();
    other_takes = LOCK_SH;
    assert_int_equal(store_begin_writing(store), -EBUSY);
    assert_true(store_is_shared(store));
    assert_int_equal(store_lock(store), SFS_LOCK_SHARED);
    assert_int_equal(read_byte(store), 7);
    assert_false(is_there(PATH ".commits"));
    other_closes();
    assert_int_equal(store_begin_writing(store), 0);
    store_close(store);
}

static void a_writer_comes_in_between(void **state)
{
    (void)state;
    struct store *store = open_shared();
    other_opens();
    other_takes = LOCK_EX;
    assert_int_equal(store_begin_writing(store), -EBUSY);
    assert_int_equal(store_lock(store), SFS_LOCK_NONE);
    assert_int_equal(read_byte(store), 7);
    assert_int_equal(store_share(store), -EBUSY);
    other_closes(); /* it has changed nothing */
    assert_int_equal(store_share(store), 0);
    assert_int_equal(store_lock(store), SFS_LOCK_SHARED);
    assert_int_equal(store_begin_writing(store), 0);
    store_close(store);
}

static void a_writer_who_came_in_between_has_written(void **state)
{
    (void)state;
    for (int also_shares = 0; also_shares < 2; also_shares++) {
        struct store *store = open_shared();
        assert_non_null(store_view(store, 5000, 1));
        other_opens();
        other_takes = LOCK_EX;
        assert_int_equal(store_begin_writing(store), -EBUSY);
        other_changes();
        assert_int_equal(read_byte(store), -ESTALE);
        assert_null(store_view(store, 5000, 1));
        other_closes();
        if (also_shares)
            assert_int_equal(store_share(store), 0);
        assert_int_equal(store_begin_writing(store), -EBUSY);
        assert_int_equal(read_byte(store), -ESTALE);
        assert_null(store_view(store, 5000, 1));
        assert_int_equal(store_share(store), 0);
        assert_int_equal(read_byte(store), -ESTALE);
        assert_false(is_there(PATH ".commits"));
        store_close(store);
    }
}

static void it_comes_when_writing_has_ended(void **state)
{
    (void)state;
    struct store *store = open_shared();
    assert_int_equal(store_begin_writing(store), 0);
    other_opens();
    other_takes = LOCK_EX;
    assert_int_equal(store_end_writing(store), 0);
    assert_int_equal(store_lock(store), SFS_LOCK_NONE);
    other_changes();
    other_closes();
    assert_int_equal(read_byte(store), -ESTALE);
    assert_int_equal(store_begin_writing(store), -EBUSY);
    store_close(store);
}

static void its_name_has_another_file_by_now(void **state)
{
    (void)state;
    struct store *store = open_shared();
    assert_int_equal(rename(PATH, "moved"), 0);
    assert_int_equal(close(open(PATH, O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(close(open(PATH ".journal", O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(store_begin_writing(store), 0);
    assert_true(is_there("moved.commits"));
    assert_false(is_there(PATH ".commits"));
    store_close(store);
    assert_int_equal(unlink(PATH ".journal"), 0);
}

static void a_journal_is_carried_out_first(void **state)
{
    (void)state;
    struct store *store = open_shared(), *again;
    assert_int_equal(store_begin_writing(store), 0);
    assert_int_equal(store_write(store, 5000, "\3", 1), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(link(PATH ".journal", "kept"), 0);
    store_close(store);
    assert_int_equal(rename("kept", PATH ".journal"), 0);
    assert_int_equal(store_open_as(PATH, &shared, &again), 0);
    assert_true(store_is_shared(again));
    assert_false(is_there(PATH ".journal") || is_there(PATH ".commits"));
    assert_int_equal(store_lock(again), SFS_LOCK_SHARED);
    assert_int_equal(read_byte(again), 3);
    store_close(again);
}

/* ---- Threads ---- */

static struct store *begun;
static pthread_t second;
static _Atomic(pid_t) second_is;

static void *begin_second(void *nothing)
{
    (void)nothing;
    atomic_store(&second_is, (pid_t)syscall(SYS_gettid));
    return (void *)(intptr_t)store_begin_writing(begun);
}

/* It comes while the first one takes the lock, and waits for that. */
static void start_second(void)
{
    start_thread(&second, begin_second, NULL);
    while (atomic_load(&second_is) == 0)
        sched_yield();
    wait_until_it_sleeps(atomic_load(&second_is));
}

static void of_two_threads_only_one_begins(void **state)
{
    (void)state;
    void *error;
    begun = open_shared();
    in_flock = start_second;
    assert_int_equal(store_begin_writing(begun), 0);
    assert_int_equal(pthread_join(second, &error), 0);
    assert_null(error);
    assert_int_equal(store_writings(begun), 1);
    assert_int_equal(store_lock(begun), SFS_LOCK_EXCLUSIVE);
    store_close(begun);
}

#define THREADS 4
#define ROWS    64
#define COLUMNS 32
#define ROUNDS  30

static struct sfs_file *file;
static struct sfs_dataset *dataset;
static atomic_bool is_over;

static void make_file_of(uint64_t max_rows)
{
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {max_rows, COLUMNS},
                                        .chunk_dims = {1, COLUMNS}};
    const struct sfs_options replace = {.replace = true};
    void *type;
    assert_int_equal(sfs_create("x.h5", &replace, &file), 0);
    assert_int_equal(sfs_type_encode("uint16", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
    free(type);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void make_file(void)
{
    make_file_of(ROWS);
}

static void open_file(const struct sfs_options *options)
{
    uint64_t address;
    assert_int_equal(sfs_open("x.h5", options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
}

static int write_row(uint64_t row, uint16_t value)
{
    uint16_t values[COLUMNS];
    const struct sfs_slab slab = {.rank = 2, .start = {row}, .count = {1, COLUMNS}};
    for (int i = 0; i < COLUMNS; i++)
        values[i] = value;
    return sfs_write(dataset, &slab, values);
}

static void *write_rows(void *first)
{
    intptr_t failed = 0;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (uint64_t row = (uintptr_t)first; row < ROWS; row += THREADS)
            failed |= write_row(row, (uint16_t)(round * 100 + row)) != 0;
        if (round % 4 == 0)
            failed |= sfs_flush(file) != 0;
    }
    return (void *)failed; /* NULL: all went well */
}

static void *flush_always(void *nothing)
{
    intptr_t failed = 0;
    while (!atomic_load(&is_over))
        failed |= sfs_flush(file) != 0 || sfs_settle(file) != 0;
    (void)nothing;
    return (void *)failed;
}

static void *share_always(void *nothing)
{
    intptr_t times = 0;
    while (!atomic_load(&is_over) || !times)
        times += sfs_share(file) == 0;
    (void)nothing;
    return (void *)times;
}

static void many_threads_write_while_it_is_given_back(void **state)
{
    (void)state;
    pthread_t writer[THREADS], sharer, flusher;
    const struct sfs_options options = {.writable = true, .share = true};
    void *failed, *times;
    make_file();
    open_file(&options);
    atomic_store(&is_over, false);
    start_thread(&sharer, share_always, NULL);
    start_thread(&flusher, flush_always, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        start_thread(&writer[i], write_rows, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(writer[i], &failed), 0);
        assert_null(failed);
    }
    while (sfs_lock(file) != SFS_LOCK_SHARED)
        ;
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(sharer, &times), 0);
    assert_true((intptr_t)times > 0);
    assert_int_equal(pthread_join(flusher, &failed), 0);
    assert_null(failed);
    sfs_dataset_close(dataset);
    sfs_discard(file); /* there is nothing that is not in the file */

    open_file(NULL);
    for (uint64_t row = 0; row < ROWS; row++) {
        uint16_t values[COLUMNS];
        const struct sfs_slab slab = {.rank = 2, .start = {row}, .count = {1, COLUMNS}};
        assert_int_equal(sfs_read(dataset, &slab, 0, values, sizeof(values)), 0);
        for (int i = 0; i < COLUMNS; i++)
            assert_int_equal(values[i], ROUNDS * 100 + row);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void who_said_that_he_writes_keeps_it(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true, .share = true};
    make_file();
    open_file(&options);
    assert_int_equal(sfs_lock(file), SFS_LOCK_SHARED);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_settle(file), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_SHARED);
    assert_int_equal(sfs_begin_writing(file), 0);
    assert_int_equal(sfs_begin_writing(file), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_EXCLUSIVE);
    assert_int_equal(sfs_share(file), -EBUSY);
    sfs_end_writing(file);
    assert_int_equal(sfs_share(file), -EBUSY);
    sfs_end_writing(file);
    assert_int_equal(sfs_share(file), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_SHARED);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static uint16_t value_after_reopening(uint64_t row)
{
    uint16_t value;
    const struct sfs_slab one = {.rank = 2, .start = {row}, .count = {1, 1}};
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    open_file(NULL);
    assert_int_equal(sfs_read(dataset, &one, 0, &value, sizeof(value)), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    return value;
}

static void what_is_unfinished_keeps_it(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true, .share = true};
    const struct sfs_slab slab = {.rank = 2, .start = {5}, .count = {1, COLUMNS}};
    struct sfs_unfinished *unfinished;
    make_file();
    open_file(&options);
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_EXCLUSIVE);
    assert_int_equal(write_row(5, 7), 0);
    assert_int_equal(sfs_share(file), -EBUSY);
    assert_int_equal(sfs_lock(file), SFS_LOCK_EXCLUSIVE);
    sfs_end_unfinished(unfinished);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_share(file), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_SHARED);
    assert_int_equal(value_after_reopening(5), 7);
}

static void what_a_commit_leaves_in_memory_keeps_it(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true, .share = true};
    const struct box box = {.rank = 2, .start = {5}, .count = {1, INT64_MAX}};
    struct unfinished *unfinished;
    make_file();
    open_file(&options);
    assert_int_equal(cache_begin_unfinished(dataset->cache, &box, &unfinished), 0);
    assert_int_equal(write_row(5, 7), 0);
    assert_int_equal(sfs_share(file), -EBUSY);
    cache_end_unfinished(unfinished);
    assert_int_equal(sfs_share(file), 0);
    assert_int_equal(value_after_reopening(5), 7);
}

static void what_cannot_be_written_is_not_unfinished(void **state)
{
    (void)state;
    const struct sfs_slab slab = {.rank = 2, .count = {1, COLUMNS}};
    struct sfs_unfinished *unfinished;
    make_file();
    open_file(NULL);
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), -EROFS);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void who_did_not_open_it_to_share_keeps_it(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true};
    make_file();
    open_file(&options);
    assert_int_equal(sfs_share(file), 0);
    assert_int_equal(sfs_lock(file), SFS_LOCK_EXCLUSIVE);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static int nothing_is_told(void *context, const struct sfs_chunk_info *info)
{
    (void)context, (void)info;
    return 0;
}

/* Not damage: what is read is of another state. */
static void what_others_have_changed_is_stale_in_every_call(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true, .share = true};
    const struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    struct sfs_defined defined;
    uint64_t elements;
    make_file_of(SFS_UNLIMITED); /* the index is not read as a whole when it is opened */
    open_file(&options);
    for (uint64_t row = 0; row < ROWS; row++)
        assert_int_equal(write_row(row, 1), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);

    open_file(&options);
    unsigned errors = log_errors();
    other = open("x.h5", O_RDWR);
    assert_true(other >= 0);
    other_takes = LOCK_EX;
    assert_int_equal(sfs_begin_writing(file), -EBUSY);
    assert_int_equal(log_errors(), errors + 1);
    other_changes();
    assert_int_equal(sfs_count_defined(dataset, &all, &elements), -ESTALE);
    assert_int_equal(sfs_get_defined(dataset, &all, &defined), -ESTALE);
    assert_int_equal(sfs_chunk_iterate(dataset, nothing_is_told, NULL), -ESTALE);
    assert_int_equal(log_errors(), errors + 1);
    other_closes();
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* ---- Why it cannot be opened ---- */

static void a_reason_is_taken_until_it_is_open(void **state)
{
    (void)state;
    struct why why = {""};
    struct store_opening how = shared;
    struct store *store;
    char byte;
    how.why = &why;
    store_close(open_shared());
    unsigned errors = log_errors();
    assert_int_equal(store_open_as("absent", &how, &store), -ENOENT);
    assert_string_equal(why.text, "absent: No such file or directory");
    other = open(PATH, O_RDWR);
    assert_int_equal(__real_flock(other, LOCK_EX), 0);
    assert_int_equal(store_open_as(PATH, &how, &store), -EBUSY);
    assert_non_null(strstr(why.text, PATH ": another program has it open"));
    close(other);
    other = -1;
    assert_int_equal(store_open_as(PATH, &how, &store), 0);
    assert_int_equal(store_read(store, BYTES, &byte, 1), -EIO);
    assert_non_null(strstr(why.text, "beyond the end"));
    assert_int_equal(log_errors(), errors);
    store_opened(store);
    why.text[0] = '\0';
    assert_int_equal(store_read(store, BYTES, &byte, 1), -EIO);
    assert_int_equal(log_errors(), errors + 1);
    assert_string_equal(why.text, "");
    store_close(store);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written_before),
        cmocka_unit_test(writing_begins_and_ends),
        cmocka_unit_test(an_image_from_before_stays_as_it_is),
        cmocka_unit_test(who_cannot_end_writing_is_still_a_writer),
        cmocka_unit_test(a_reader_comes_in_between),
        cmocka_unit_test(a_writer_comes_in_between),
        cmocka_unit_test(a_writer_who_came_in_between_has_written),
        cmocka_unit_test(it_comes_when_writing_has_ended),
        cmocka_unit_test(its_name_has_another_file_by_now),
        cmocka_unit_test(a_journal_is_carried_out_first),
        cmocka_unit_test(of_two_threads_only_one_begins),
        cmocka_unit_test(many_threads_write_while_it_is_given_back),
        cmocka_unit_test(who_said_that_he_writes_keeps_it),
        cmocka_unit_test(what_is_unfinished_keeps_it),
        cmocka_unit_test(what_a_commit_leaves_in_memory_keeps_it),
        cmocka_unit_test(what_cannot_be_written_is_not_unfinished),
        cmocka_unit_test(who_did_not_open_it_to_share_keeps_it),
        cmocka_unit_test(what_others_have_changed_is_stale_in_every_call),
        cmocka_unit_test(a_reason_is_taken_until_it_is_open),
    };
    log_quietly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
