/* The store: what commits, crashes, failing disks and other programs leave. The linker puts
 * __wrap_pwrite and so on between the store and the system: there a crash is seen (both files are
 * copied as they are before the call) or an error is made. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "store/private.h"

#define PAGE  4096
#define PAGES 40

/* ---- Between the store and the system ---- */

static atomic_long until_event = -1;
static int event_error; /* 0: a crash */
static bool crashed;

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    unlink(to);
    FILE *in = fopen(from, "r");
    if (!in)
        return;
    FILE *out = fopen(to, "w");
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
    fclose(in);
}

/* Whether this call is the one that is to fail. */
static bool event(void)
{
    if (atomic_load(&until_event) < 0 || atomic_fetch_sub(&until_event, 1) != 0)
        return false;
    if (event_error) {
        errno = event_error;
        return true;
    }
    copy_file("a", "crash");
    copy_file("a.journal", "crash.journal");
    crashed = true;
    return false;
}

/* A signal ends each of so many calls once it has come to them. */
static long interruptions;

static bool is_interrupted(void)
{
    if (interruptions <= 0 || interruptions-- % 2 != 0)
        return false;
    errno = EINTR;
    return true;
}

#define WRAPPED __attribute__((visibility("default")))

ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);
int __real_ftruncate64(int fd, off_t n);
int __wrap_ftruncate64(int fd, off_t n);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, mode_t mode);
int __real_openat64(int folder, const char *name, int flags, ...);
int __wrap_openat64(int folder, const char *name, int flags, mode_t mode);

/* Of each piece that is written the disk takes so many bytes, and is full; 0: all. */
static size_t spilled_bytes;

WRAPPED ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    if (spilled_bytes > 0) {
        (void)__real_pwrite64(fd, bytes, spilled_bytes, at);
        errno = ENOSPC;
        return -1;
    }
    return event() || is_interrupted() ? -1 : __real_pwrite64(fd, bytes, n, at);
}

WRAPPED int __wrap_ftruncate64(int fd, off_t n)
{
    return event() || is_interrupted() ? -1 : __real_ftruncate64(fd, n);
}

/* What syncs of the data say; 0: they are done, and the file "disk" is what "a" was then. */
static int sync_error;
static bool has_disk;
static long syncs;

static int (*in_fsync)(int fd); /* what it says then */

static bool is_a(int fd)
{
    struct stat st, a;
    return stat("a", &a) == 0 && fstat(fd, &st) == 0 && st.st_ino == a.st_ino;
}

static bool is_synced(int fd)
{
    syncs++;
    errno = sync_error;
    if (sync_error || event() || is_interrupted())
        return false;
    if (has_disk && is_a(fd))
        copy_file("a", "disk");
    return true;
}

WRAPPED int __wrap_fdatasync(int fd)
{
    return is_synced(fd) ? __real_fdatasync(fd) : -1;
}

WRAPPED int __wrap_fsync(int fd)
{
    bool fails = is_a(fd) ? !is_synced(fd) : event() || is_interrupted();
    if (!fails && in_fsync)
        fails = (errno = in_fsync(fd)) != 0;
    return fails ? -1 : __real_fsync(fd);
}

/* Which of these calls fails, counted down; a negative number: none does. Where fstat is no function of libc (before
 * 2.33) it is not seen. */
static long until_fstat = -1;

int __real_fstat64(int fd, struct stat64 *st);
int __wrap_fstat64(int fd, struct stat64 *st);

WRAPPED int __wrap_fstat64(int fd, struct stat64 *st)
{
    bool fails = until_fstat >= 0 && until_fstat-- == 0;
    errno = EIO;
    return fails ? -1 : __real_fstat64(fd, st);
}

static bool removes_nothing;

WRAPPED int __wrap_unlinkat(int folder, const char *name, int flags)
{
    if (event())
        return -1;
    if (removes_nothing) {
        errno = EIO;
        return -1;
    }
    bool is_ended = is_interrupted();
    int result = __real_unlinkat(folder, name, flags); /* some do it, and say EINTR */
    errno = is_ended ? EINTR : errno;
    return is_ended ? -1 : result;
}

/* It is done, but said to have failed. */
static bool denies_renames;

static bool cannot_rename_to_free; /* without replacing, as many file systems of networks cannot */

WRAPPED int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (event())
        return -1;
    bool is_ended = is_interrupted();
    int result = __real_renameat(from_folder, from, to_folder, to);
    errno = is_ended ? EINTR : denies_renames ? EIO : errno;
    return is_ended || denies_renames ? -1 : result;
}

WRAPPED int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                             unsigned flags)
{
    int result =
        cannot_rename_to_free ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
    errno = cannot_rename_to_free ? EINVAL : denies_renames ? EIO : errno;
    return denies_renames ? -1 : result;
}

WRAPPED int __wrap_open64(const char *path, int flags, mode_t mode)
{
    return event() ? -1 : __real_open64(path, flags, mode);
}

WRAPPED int __wrap_openat64(int folder, const char *name, int flags, mode_t mode)
{
    return event() || is_interrupted() ? -1 : __real_openat64(folder, name, flags, mode);
}

/* What file systems without locks say; 0: this one has them. */
static int lock_error;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

WRAPPED int __wrap_flock(int fd, int operation)
{
    errno = lock_error;
    return lock_error ? -1 : __real_flock(fd, operation);
}

static int note_error; /* of making a note at the file; 0: it is made */

int __real_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags);
int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags);

WRAPPED int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
    errno = note_error;
    return note_error ? -1 : __real_fsetxattr(fd, name, value, n, flags);
}

static int writeback_error; /* of starting it; 0: it is started */

int __wrap_sync_file_range(int fd, off_t from, off_t n, unsigned flags);

WRAPPED int __wrap_sync_file_range(int fd, off_t from, off_t n, unsigned flags)
{
    (void)fd, (void)from, (void)n, (void)flags;
    errno = writeback_error;
    return writeback_error ? -1 : 0;
}

/* ---- States ---- */

/* What a state says of every byte: its value, or that it is free. */
struct model {
    uint64_t end;
    unsigned char bytes[2 * PAGES * PAGE];
    bool in_use[2 * PAGES * PAGE];
};

static void set(struct model *model, struct store *store, uint64_t address, size_t n)
{
    unsigned char *bytes = allocate(n);
    random_fill(bytes, n);
    assert_int_equal(store_write(store, address, bytes, n), 0);
    memcpy(model->bytes + address, bytes, n);
    free(bytes);
}

static uint64_t set_new(struct model *model, struct store *store, size_t n)
{
    uint64_t address;
    assert_int_equal(store_allocate(store, n, &address), 0);
    assert_true(address + n <= sizeof(model->bytes));
    for (size_t i = 0; i < n; i++) {
        assert_false(model->in_use[address + i]);
        model->in_use[address + i] = true;
    }
    if (address + n > model->end)
        model->end = address + n;
    set(model, store, address, n);
    return address;
}

static void unset(struct model *model, struct store *store, uint64_t address, size_t n)
{
    assert_int_equal(store_free(store, address, n), 0);
    memset(model->in_use + address, 0, n);
    while (model->end > 0 && !model->in_use[model->end - 1])
        model->end--;
}

static bool is_equal(struct store *store, const struct model *model)
{
    unsigned char *bytes = allocate(model->end);
    bool equal = store_size(store) >= model->end && store_read(store, 0, bytes, model->end) == 0;
    for (uint64_t i = 0; i < model->end && equal; i++)
        equal = !model->in_use[i] || bytes[i] == model->bytes[i];
    free(bytes);
    return equal;
}

static struct model before, after;

/* File "a" with PAGES pages, some of them free. */
static struct store *make_before(void)
{
    struct store *store;
    memset(&before, 0, sizeof(before));
    assert_int_equal(store_create("a", true, &store), 0);
    set_new(&before, store, PAGES * PAGE - 100);
    assert_int_equal(store_commit(store), 0);
    unset(&before, store, 3 * PAGE - 50, PAGE);
    unset(&before, store, 20 * PAGE, 2 * PAGE);
    assert_int_equal(store_commit(store), 0);
    after = before;
    return store;
}

/* Changes of every kind, not committed: old bytes, bytes across pages, space that was free, new
 * space behind the end, space given back in the middle. */
static void change(struct store *store)
{
    set(&after, store, 0, 48);
    set(&after, store, 6 * PAGE - 10, 20);
    set(&after, store, 9 * PAGE - 1, PAGE + 2);
    set_new(&after, store, PAGE);
    set_new(&after, store, 2 * PAGE - 7);
    set_new(&after, store, 3 * PAGE);
    uint64_t gone = set_new(&after, store, 100);
    unset(&after, store, 30 * PAGE, 1000);
    unset(&after, store, gone, 100);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---- Bytes and space ---- */

static void what_is_written_is_read_at_once_and_kept_by_a_commit(void **state)
{
    (void)state;
    struct store *store = make_before();
    assert_true(store_is_writable(store));
    change(store);
    assert_true(is_equal(store, &after));
    assert_int_equal(store_commit(store), 0);
    assert_true(is_equal(store, &after));
    assert_true(exists("a.journal")); /* until it is closed or settled */
    assert_int_equal(store_settle(store), 0);
    assert_false(exists("a.journal"));
    assert_int_equal(store_write(store, 2, "x", 1), 0);
    after.bytes[2] = 'x';
    assert_int_equal(store_commit(store), 0);
    assert_true(exists("a.journal"));
    store_close(store);
    assert_false(exists("a.journal"));
    assert_int_equal(store_open("a", &store), 0);
    assert_false(store_is_writable(store));
    assert_int_equal(store_size(store), after.end);
    assert_true(is_equal(store, &after));
    assert_int_equal(store_write(store, 0, "", 1), -EROFS);
    assert_int_equal(store_commit(store), -EROFS);
    store_close(store);
}

static void without_a_commit_the_file_stays_as_it_was(void **state)
{
    (void)state;
    struct store *store = make_before();
    change(store);
    struct store *copy;
    copy_file("a", "crash");
    assert_int_equal(store_open("crash", &copy), 0);
    assert_true(is_equal(copy, &before)); /* also while it is being changed */
    store_close(copy);
    store_close(store);
    assert_int_equal(store_open("a", &store), 0);
    assert_true(is_equal(store, &before));
    assert_int_equal(store_size(store), before.end);
    store_close(store);
}

static void random_changes_are_what_a_model_says(void **state)
{
    (void)state;
    struct store *store = make_before();
    for (int round = 0; round < 300; round++) {
        uint64_t at = random_below(after.end);
        size_t n = (size_t)random_between(1, 3 * PAGE);
        if (n > after.end - at)
            n = (size_t)(after.end - at);
        size_t used = 0;
        while (used < n && after.in_use[at + used])
            used++;
        switch (random_below(5)) {
        case 0:
            if (after.end < PAGES * PAGE)
                set_new(&after, store, n);
            break;
        case 1:
            if (used > 0)
                unset(&after, store, at, used);
            break;
        case 2:
            assert_int_equal(store_commit(store), 0);
            assert_int_equal(store_size(store), after.end);
            break;
        default:
            if (used > 0)
                set(&after, store, at, used);
        }
        assert_true(is_equal(store, &after));
    }
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_open_writable("a", &store), 0);
    assert_true(is_equal(store, &after));
    store_close(store);
}

static void space_is_used_again_only_after_the_commit_that_freed_it(void **state)
{
    (void)state;
    struct store *store = make_before();
    uint64_t address;
    assert_int_equal(store_commit(store), 0);
    unset(&after, store, 25 * PAGE, PAGE * 4);
    assert_int_equal(store_allocate(store, 4 * PAGE, &address), 0);
    assert_int_equal(address, before.end);
    assert_int_equal(store_free(store, address, 4 * PAGE), 0);
    assert_int_equal(store_allocate(store, 4 * PAGE, &address), 0); /* new space at once */
    assert_int_equal(address, before.end);
    assert_int_equal(store_free(store, address, 4 * PAGE), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_allocate(store, 4 * PAGE, &address), 0);
    assert_int_equal(address, 25 * PAGE);
    store_close(store);
}

/* Pieces behind the end are one write; others are where there is room. */
static void pieces_are_put_where_there_is_room(void **state)
{
    (void)state;
    struct store *store = make_before();
    struct store_piece pieces[30];
    unsigned char bytes[30][1200], there[1200];
    for (size_t i = 0; i < 30; i++) {
        random_fill(bytes[i], sizeof(bytes[i]));
        pieces[i] = (struct store_piece){.bytes = bytes[i], .n = 1 + i * 40};
    }
    event_error = EIO;
    atomic_store(&until_event, 1000);
    assert_int_equal(store_put(store, pieces, 30), 0);
    long writes = 1000 - atomic_exchange(&until_event, -1);
    assert_in_range(writes, 1,
                    5); /* two rooms, with pieces of others between, and behind the end */
    size_t behind = 0;
    for (size_t i = 0; i < 30; i++) {
        behind += pieces[i].address >= before.end;
        assert_int_equal(store_read(store, pieces[i].address, there, pieces[i].n), 0);
        assert_memory_equal(there, bytes[i], pieces[i].n);
        for (size_t j = 0; j < i; j++)
            assert_true(pieces[j].address + pieces[j].n <= pieces[i].address ||
                        pieces[i].address + pieces[i].n <= pieces[j].address);
    }
    assert_in_range(behind, 3, 12);
    assert_int_equal(store_put(store, pieces, 0), 0);
    store_close(store);
}

/* None of them has space then. */
static void pieces_that_cannot_be_written_have_no_space(void **state)
{
    (void)state;
    static const unsigned char bytes[PAGE];
    struct store *store = make_before();
    struct store_piece pieces[] = {{bytes, PAGE, 0}, {bytes, 5, 0}, {bytes, 0, 0}};
    uint64_t end = store_end(store);
    assert_int_equal(store_put(store, pieces, 3), -EINVAL); /* of nothing */
    assert_int_equal(store_end(store), end);
    event_error = ENOSPC;
    atomic_store(&until_event, 0);
    assert_int_equal(store_put(store, pieces, 2), -ENOSPC);
    atomic_store(&until_event, -1);
    assert_int_equal(store_end(store), end);
    store_close(store);
}

static void rewriting_over_and_over_does_not_make_the_file_grow(void **state)
{
    (void)state;
    struct store *store = make_before();
    uint64_t block = set_new(&after, store, 5 * PAGE), largest = 0;
    for (int i = 0; i < 50; i++) {
        uint64_t next = set_new(&after, store, 5 * PAGE);
        unset(&after, store, block, 5 * PAGE);
        block = next;
        set(&after, store, 0, 8); /* where it is */
        assert_int_equal(store_commit(store), 0);
        if (store_size(store) > largest)
            largest = store_size(store);
    }
    assert_true(largest <= before.end + 10 * PAGE);
    store_close(store);
}

static void free_space_at_the_end_shortens_the_file(void **state)
{
    (void)state;
    log_quietly();
    struct store *store = make_before();
    struct stat st;
    unset(&after, store, 30 * PAGE, before.end - 30 * PAGE);
    assert_int_equal(stat("a", &st), 0);
    assert_int_equal(st.st_size, before.end);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(stat("a", &st), 0);
    assert_int_equal(st.st_size, 30 * PAGE);
    assert_true(is_equal(store, &after));
    assert_int_equal(store_free(store, 0, 30 * PAGE), -EINVAL); /* parts of it are free already */
    store_close(store);
}

static void what_is_not_in_use_cannot_be_freed_or_written(void **state)
{
    (void)state;
    log_quietly();
    struct store *store = make_before();
    assert_int_equal(store_free(store, 20 * PAGE, 1), -EINVAL);
    assert_int_equal(store_free(store, 22 * PAGE - 1, 2), -EINVAL);
    assert_int_equal(store_free(store, 5 * PAGE, 0), -EINVAL);
    assert_int_equal(store_free(store, before.end - 1, 2), -EINVAL);
    assert_int_equal(store_free(store, UINT64_MAX, 2), -EINVAL);
    assert_int_equal(store_free(store, 22 * PAGE, 1), 0);
    assert_int_equal(store_free(store, 22 * PAGE, 1), -EINVAL);
    assert_int_equal(store_write(store, before.end, "", 1), -EINVAL);
    assert_int_equal(store_write(store, UINT64_MAX, "", 1), -EINVAL);
    uint64_t address;
    assert_int_equal(store_allocate(store, 0, &address), -EINVAL);
    assert_int_equal(store_allocate(store, UINT64_MAX, &address), -ENOSPC);
    store_close(store);
}

static void changed_bytes_are_not_lent_from_the_file(void **state)
{
    (void)state;
    struct store *store = make_before();
    store_close(store);
    assert_int_equal(store_open_writable("a", &store), 0);
    assert_memory_equal(store_view(store, PAGE, PAGE), before.bytes + PAGE, PAGE);
    assert_int_equal(store_write(store, PAGE + 7, "x", 1), 0);
    assert_null(store_view(store, PAGE, PAGE));
    assert_null(store_view(store, 0, 9 * PAGE));
    assert_non_null(store_view(store, 2 * PAGE, PAGE));
    assert_null(store_view(store, before.end - 1, 2));
    assert_int_equal(store_commit(store), 0);
    assert_null(store_view(store, PAGE, PAGE)); /* not synced yet */
    assert_int_equal(store_settle(store), 0);
    assert_memory_equal((const char *)store_view(store, PAGE, PAGE) + 7, "x", 1);
    store_close(store);
}

/* ---- Crashes ---- */

/* Opens what the crash left, first for reading, then twice for writing. Whether it is the new
 * state; if not, it is the old one. */
static bool state_after_crash(void)
{
    struct store *store;
    struct stat st, now;
    assert_int_equal(stat("crash", &st), 0);
    assert_int_equal(store_open("crash", &store), 0);
    bool new = is_equal(store, &after);
    assert_true(new || is_equal(store, &before));
    store_close(store);
    assert_int_equal(stat("crash", &now), 0);
    assert_int_equal(now.st_size, st.st_size);
    for (int i = 0; i < 2; i++) {
        copy_file("crash", "twice");
        copy_file("crash.journal", "twice.journal");
        assert_int_equal(store_open_writable(i ? "twice" : "crash", &store), 0);
        assert_true(is_equal(store, new ? &after : &before));
        assert_false(exists(i ? "twice.journal" : "crash.journal"));
        store_close(store);
    }
    return new;
}

/* Commits changes whose journal stands then, with free space in one of its pages and in others. */
static void commit_some(struct store *store)
{
    change(store);
    assert_int_equal(store_commit(store), 0);
    set(&after, store, 30 * PAGE + 1500, 10);
    unset(&after, store, 15 * PAGE, 4 * PAGE);
    assert_int_equal(store_commit(store), 0);
    before = after;
}

static void change_again(struct store *store)
{
    assert_true(set_new(&after, store, 4 * PAGE) == 15 * PAGE);
    assert_true(set_new(&after, store, 900) / PAGE == 30);
    set(&after, store, 10 * PAGE + 7, 3 * PAGE);
    set_new(&after, store, 5 * PAGE);
    unset(&after, store, 25 * PAGE, 3 * PAGE);
}

/* standing: the journal of an earlier commit is there, whose pages are not synced yet. */
static void check_crashes(bool standing)
{
    long step = 0, old = 0;
    bool newer = false;
    event_error = 0;
    do {
        struct store *store = make_before();
        if (standing)
            commit_some(store);
        atomic_store(&until_event, step++);
        crashed = false;
        if (standing)
            change_again(store);
        else
            change(store);
        assert_int_equal(store_commit(store), 0);
        atomic_store(&until_event, -1);
        store_close(store);
        if (crashed) {
            bool new = state_after_crash();
            assert_true(new || !newer); /* never back again */
            newer = new;
            old += !new;
        }
    } while (crashed);
    assert_true(newer && old > 3 && step > 15);
}

static void a_crash_at_any_step_leaves_the_old_or_the_new_state(void **state)
{
    (void)state;
    log_quietly();
    check_crashes(false);
    check_crashes(true);
}

/* A copy of the state in which the journal is durable and nothing of it carried out. */
static void make_complete_journal(void)
{
    event_error = 0;
    for (long step = 0;; step++) {
        struct store *store = make_before();
        change(store);
        atomic_store(&until_event, step);
        assert_int_equal(store_commit(store), 0);
        atomic_store(&until_event, -1);
        store_close(store);
        copy_file("crash", "whole");
        copy_file("crash.journal", "whole.journal");
        if (state_after_crash())
            return;
    }
}

static void copy_whole(void)
{
    copy_file("whole", "crash");
    copy_file("whole.journal", "crash.journal");
}

static void a_journal_of_any_other_length_is_discarded(void **state)
{
    (void)state;
    make_complete_journal();
    struct stat st;
    struct store *store;
    assert_int_equal(stat("whole.journal", &st), 0);
    for (off_t n = 0; n <= st.st_size + 1; n += n < 400 || n > st.st_size - 20 ? 1 : 397) {
        copy_whole();
        assert_int_equal(truncate("crash.journal", n), 0);
        assert_int_equal(store_open_writable("crash", &store), 0);
        assert_true(is_equal(store, n == st.st_size || n == st.st_size + 1 ? &after : &before));
        assert_false(exists("crash.journal"));
        store_close(store);
    }
}

/* What cannot be looked at may be whole. */
static void a_journal_that_cannot_be_looked_at_is_kept(void **state)
{
    (void)state;
    log_quietly();
    make_complete_journal();
    bool reached;
    long step = 0;
    do {
        struct store *store;
        copy_whole();
        until_fstat = step++;
        int error = store_open_writable("crash", &store);
        reached = until_fstat < 0;
        until_fstat = -1;
        if (error)
            assert_int_equal(store_open_writable("crash", &store), 0);
        assert_true(is_equal(store, &after));
        store_close(store);
    } while (reached);
}

static long steps_wanted;

static bool is_wanted_no_more(void *context)
{
    (void)context;
    return steps_wanted-- <= 0;
}

/* Who opens the file may give up at any page: then the journal stays, and counts for the next one. */
static void a_journal_is_read_as_long_as_it_is_wanted(void **state)
{
    (void)state;
    make_complete_journal();
    struct store *store;
    for (int writable = 0; writable < 2; writable++) {
        int error = -EINTR;
        long step = 0;
        copy_whole();
        for (; error; step++) {
            steps_wanted = step;
            sfs_set_interrupt(is_wanted_no_more, NULL);
            error = (writable ? store_open_writable : store_open)("crash", &store);
            sfs_set_interrupt(NULL, NULL);
            assert_true(!error || error == -EINTR);
            assert_true(!error || exists("crash.journal"));
        }
        assert_true(step > 10 && is_equal(store, &after));
        store_close(store);
    }
}

/* Where in a journal its mark stands, which is not part of what it says; and its version. */
#define MARK        80
#define MARK_END    144
#define VERSION     8
#define VERSION_END 12

static void a_journal_with_a_wrong_byte_is_discarded(void **state)
{
    (void)state;
    log_quietly();
    make_complete_journal();
    struct stat st;
    struct store *store;
    assert_int_equal(stat("whole.journal", &st), 0);
    for (off_t at = 0; at < st.st_size; at += at < 400 || at > st.st_size - 20 ? 1 : 397) {
        copy_whole();
        unsigned char byte;
        int fd = open("crash.journal", O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)random_between(1, 255);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        const struct model *expected = MARK <= at && at < MARK_END ? &after : &before;
        if (VERSION <= at && at < VERSION_END) { /* which says how the rest is to be read */
            assert_int_equal(store_open("crash", &store), -EBUSY);
            assert_int_equal(store_open_writable("crash", &store), -EBUSY);
            assert_true(exists("crash.journal"));
            continue;
        }
        assert_int_equal(store_open("crash", &store), 0);
        assert_true(is_equal(store, expected));
        assert_true(exists("crash.journal")); /* a reader changes nothing */
        store_close(store);
        assert_int_equal(store_open_writable("crash", &store), 0);
        assert_true(is_equal(store, expected));
        assert_false(exists("crash.journal"));
        store_close(store);
    }
}

/* Pages that reached the disk in part, at the grain in which disks write. */
static void a_journal_half_carried_out_is_replayed(void **state)
{
    (void)state;
    make_complete_journal();
    for (int round = 0; round < 20; round++) {
        struct store *store;
        copy_whole();
        int fd = open("crash", O_RDWR);
        for (uint64_t at = 0; at < before.end; at += 512)
            if (random_below(2) && at + 512 <= after.end && at + 512 <= before.end &&
                memcmp(before.bytes + at, after.bytes + at, 512) != 0)
                assert_int_equal(pwrite(fd, after.bytes + at, 512, (off_t)at), 512);
        close(fd);
        assert_true(state_after_crash());
        assert_int_equal(store_open("crash", &store), 0);
        assert_int_equal(store_size(store), after.end);
        store_close(store);
    }
}

static void a_journal_of_another_file_is_refused_and_kept(void **state)
{
    (void)state;
    log_quietly();
    make_complete_journal();
    struct store *store;
    struct stat st;
    for (int i = 0; i < 3; i++) {
        copy_whole();
        int fd = open("crash", O_RDWR);
        switch (i) {
        case 0: /* a page of the journal was changed by someone else */
            assert_int_equal(pwrite(fd, "\xff\x01\xfe", 3, 100), 3);
            break;
        case 1: /* it is another file altogether: few pages are in the journal */
            for (uint64_t at = 10 * PAGE; at < before.end; at += PAGE)
                assert_int_equal(pwrite(fd, "other", 5, (off_t)at), 5);
            break;
        default:
            assert_int_equal(ftruncate(fd, PAGE), 0);
        }
        close(fd);
        copy_file("crash", "kept");
        assert_int_equal(store_open_writable("crash", &store), -EBUSY);
        assert_int_equal(store_open("crash", &store), -EBUSY);
        assert_int_equal(stat("crash.journal", &st), 0);
        assert_int_equal(system("cmp crash kept"), 0);
    }
    unlink("crash.journal");
}

static void others_write(uint64_t at, const char *bytes, size_t n)
{
    int fd = open("crash", O_RDWR);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    memcpy(after.bytes + at, bytes, n);
    close(fd);
}

static void expect_recovered(enum store_recovered how)
{
    struct store *store;
    assert_int_equal(store_open("crash", &store), 0);
    assert_true(is_equal(store, &after));
    store_close(store);
    assert_int_equal(store_open_writable("crash", &store), 0);
    assert_int_equal(store_recovered(store), how);
    assert_true(is_equal(store, &after));
    assert_false(exists("crash.journal"));
    store_close(store);
}

static void expect_refused(void)
{
    struct store *store;
    copy_file("crash", "kept");
    assert_int_equal(store_open("crash", &store), -EBUSY);
    assert_int_equal(store_open_writable("crash", &store), -EBUSY);
    assert_int_equal(system("cmp crash kept && cmp crash.journal whole.journal"), 0);
}

/* Leaves what a writer does that dies behind a commit of a change in page 12, or goes_on: when it
 * has begun with the next. */
static void leave_standing_journal(bool goes_on, struct stat *st)
{
    struct store *store = make_before();
    change(store);
    store_set_landmark(store, 8);
    assert_int_equal(store_commit(store), 0);
    set(&after, store, 13 * PAGE, 1);
    assert_int_equal(store_commit(store), 0);
    before = after;
    set(&after, store, 12 * PAGE, 10);
    assert_int_equal(store_commit(store), 0);
    if (goes_on) {
        struct model *next = allocate(sizeof(*next));
        *next = after;
        set_new(next, store, 5 * PAGE);
        free(next);
    }
    assert_int_equal(stat("a", st), 0);
    copy_file("a", "whole");
    copy_file("a.journal", "whole.journal");
    store_close(store);
}

static void put_back_page_12(void)
{
    int fd = open("crash", O_RDWR);
    assert_int_equal(pwrite(fd, before.bytes + 12 * PAGE, PAGE, 12 * PAGE), PAGE);
    close(fd);
}

/* What a writer leaves that dies between two commits is changed by other programs. */
static void a_journal_that_was_carried_out_is_forgotten_when_others_change_the_file(void **state)
{
    (void)state;
    log_quietly();
    struct stat st;
    leave_standing_journal(false, &st);
    copy_whole();
    expect_recovered(STORE_REPLAYED);

    copy_whole(); /* everything */
    for (uint64_t at = 7; at < after.end; at += PAGE)
        others_write(at, "other", 5);
    expect_recovered(STORE_CARRIED_OUT);

    leave_standing_journal(false, &st);
    copy_whole(); /* something new behind the end, and what tells of it */
    others_write(8, "other", 5);
    others_write(after.end, "appended", 8);
    memset(after.in_use + after.end, true, 8);
    after.end += 8;
    expect_recovered(STORE_CARRIED_OUT);

    copy_whole(); /* but the system was started anew, so that it may have been lost before */
    others_write(8, "other", 5);
    int fd = open("whole.journal", O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, MARK), 1);
    close(fd);
    copy_file("whole.journal", "crash.journal");
    expect_refused();
    unlink("crash.journal");
}

/* A file system may lose what was not synced while the system goes on, and its writer dies. */
static void what_was_lost_without_a_new_start_of_the_system_is_replayed(void **state)
{
    (void)state;
    log_quietly();
    struct stat st;
    leave_standing_journal(false, &st);
    copy_whole();
    put_back_page_12();
    assert_int_equal(utimensat(AT_FDCWD, "crash", (struct timespec[]){st.st_atim, st.st_mtim}, 0),
                     0);
    expect_recovered(STORE_REPLAYED);

    leave_standing_journal(true, &st); /* it has changed the file after the mark */
    copy_whole();
    put_back_page_12();
    expect_recovered(STORE_REPLAYED);
}

/* Either it was lost, or others have put it back. */
static void what_others_may_have_put_back_is_not_replayed(void **state)
{
    (void)state;
    log_quietly();
    const struct timespec tick = {.tv_nsec = 20000000}; /* of the file system's clock */
    struct stat st;
    for (int i = 0; i < 2; i++) {
        leave_standing_journal(i, &st);
        copy_whole();
        nanosleep(&tick, NULL);
        put_back_page_12();
        if (i)
            others_write(8, "other", 5);
        expect_refused();
    }
    unlink("crash.journal");
}

/* ---- Failing disks ---- */

/* Only this may fail unseen: marking the journal (asking for the boot id, whether it is ours, opening
 * it, writing), and asking whether followers hold the counter. */
#define UNSEEN 5

static void check_errors(int number, bool standing)
{
    long step = 0;
    int unseen[2] = {0};
    bool reached;
    do {
        for (int repeat = 0; repeat < 2; repeat++) {
            struct store *store = make_before();
            if (standing) {
                commit_some(store);
                change_again(store);
            } else {
                change(store);
            }
            event_error = number;
            atomic_store(&until_event, step);
            int error = store_commit(store);
            reached = atomic_load(&until_event) < 0;
            atomic_store(&until_event, -1);
            unseen[repeat] += reached && error == 0;
            assert_true(reached || error == 0);
            assert_true(is_equal(store, &after));
            if (repeat) {
                set(&after, store, 12 * PAGE + 1, PAGE);
                set(&after, store, 3 * PAGE, 10);
                set_new(&after, store, PAGE);
                assert_true(is_equal(store, &after));
                assert_int_equal(store_commit(store), 0);
                assert_true(is_equal(store, &after));
            }
            store_close(store);
            assert_int_equal(store_open_writable("a", &store), 0);
            assert_true(is_equal(store, &after) ||
                        (!repeat && reached && is_equal(store, &before)));
            store_close(store);
        }
        step++;
    } while (reached);
    assert_true(step > 8 && unseen[0] <= UNSEEN && unseen[1] <= UNSEEN);
}

static void an_error_at_any_step_is_reported_and_the_commit_can_be_repeated(void **state)
{
    (void)state;
    log_quietly();
    static const int errors[] = {ENOSPC, EIO};
    for (size_t i = 0; i < COUNT(errors); i++) {
        check_errors(errors[i], false);
        check_errors(errors[i], true);
    }
}

static void a_signal_does_not_end_a_commit(void **state)
{
    (void)state;
    struct store *store = make_before();
    for (int i = 0; i < 3; i++) {
        if (i == 0)
            change(store);
        else
            set(&after, store, (uint64_t)i * 7 * PAGE, 100);
        interruptions = 2000;
        assert_int_equal(store_commit(store), 0);
        assert_in_range(interruptions, 1, 1990);
        assert_true(is_equal(store, &after));
        interruptions = 2000;
        assert_int_equal(store_settle(store), 0);
        interruptions = 0;
    }
    store_close(store);
    assert_int_equal(store_open("a", &store), 0);
    assert_true(is_equal(store, &after));
    store_close(store);
}

static void a_signal_does_not_end_replacing(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) { /* whichever call of two it ends */
        struct store *store;
        char byte = (char)('a' + first), read;
        uint64_t at;
        assert_int_equal(store_create("replaced", true, &store), 0);
        assert_int_equal(store_allocate(store, 1, &at), 0);
        assert_int_equal(store_write(store, at, &byte, 1), 0);
        interruptions = 2000 + first;
        assert_int_equal(store_commit(store), 0);
        assert_in_range(interruptions, 1, 1999);
        interruptions = 0;
        store_close(store);
        assert_int_equal(store_open("replaced", &store), 0);
        assert_int_equal(store_read(store, at, &read, 1), 0);
        assert_int_equal(read, byte);
        store_close(store);
    }
}

/* ---- External raw data ---- */

#define RAW_FILES 65 /* one more than may be unsynced */

static struct store *raw_store;
static ino_t first_raw;
static atomic_bool is_syncing, is_synced_now, has_committed;
static int raw_error; /* of syncing the first file */

static int open_raw(int i)
{
    char name[16];
    snprintf(name, sizeof(name), "raw%d", i);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* The first file takes its time: a commit that does not wait for it ends meanwhile. Others write meanwhile. */
static int sync_slowly(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_ino != first_raw)
        return 0;
    assert_int_equal(pthread_mutex_trylock(&raw_store->raw_lock), 0);
    pthread_mutex_unlock(&raw_store->raw_lock);
    atomic_store(&is_syncing, true);
    for (int i = 0; i < 300 && !atomic_load(&has_committed); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&is_synced_now, true);
    return raw_error;
}

static void *commit_meanwhile(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&is_syncing))
        sched_yield();
    bool is_right = store_commit(raw_store) == -raw_error && atomic_load(&is_synced_now);
    atomic_store(&has_committed, true);
    return is_right ? NULL : raw_store;
}

/* error: of that. The commit tells of it, once, not the writer of another file. */
static void commit_while_syncing(int error)
{
    pthread_t thread;
    struct stat st;
    void *wrong;
    int last;
    raw_error = error;
    atomic_store(&is_syncing, false);
    atomic_store(&is_synced_now, false);
    atomic_store(&has_committed, false);
    raw_store = make_before();
    for (int i = 0; i < RAW_FILES - 1; i++)
        assert_int_equal(store_raw_written(raw_store, open_raw(i)), 0);
    assert_int_equal(stat("raw0", &st), 0);
    first_raw = st.st_ino;
    in_fsync = sync_slowly;
    start_thread(&thread, commit_meanwhile, NULL);
    assert_int_equal(store_raw_written(raw_store, open_raw(RAW_FILES - 1)), 0);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    in_fsync = NULL;
    assert_null(wrong);
    assert_int_equal(store_commit(raw_store), 0);
    assert_int_equal(store_raw_losses(raw_store, &last), error ? 1 : 0);
    assert_int_equal(last, -error);
    store_close(raw_store);
}

static void a_commit_waits_for_raw_data_that_another_thread_syncs(void **state)
{
    (void)state;
    log_quietly();
    commit_while_syncing(0);
    commit_while_syncing(EIO);
}

/* ---- Many pieces ---- */

/* In memory, where pieces are read one by one. */
static void a_piece_may_lie_behind_its_vector(void **state)
{
    (void)state;
    static unsigned char bytes[2 * PAGE];
    struct {
        struct store_vector vector;
        unsigned char behind[16];
    } here;
    unsigned char first[16];
    struct store_image how = {.name = "image"};
    struct store *store;
    random_fill(bytes, sizeof(bytes));
    memset(&here.behind, 0, sizeof(here.behind));
    assert_ptr_equal(here.vector.unwanted + STORE_GAP, here.behind);
    assert_int_equal(store_open_image(bytes, sizeof(bytes), &how, &store), 0);
    store_vector_begin(&here.vector, store);
    assert_int_equal(store_vector_add(&here.vector, 0, first, sizeof(first)), 0);
    assert_int_equal(
        store_vector_add(&here.vector, sizeof(first) + STORE_GAP, here.behind, sizeof(here.behind)),
        0);
    assert_int_equal(store_vector_end(&here.vector), 0);
    assert_memory_equal(first, bytes, sizeof(first));
    assert_memory_equal(here.behind, bytes + sizeof(first) + STORE_GAP, sizeof(here.behind));
    store_close(store);
}

static bool is_snapshot(struct store_snapshot *snapshot, const struct model *model)
{
    unsigned char *bytes = allocate(model->end);
    bool equal = store_snapshot_size(snapshot) == model->end &&
                 store_snapshot_read(snapshot, 0, bytes, model->end) == 0;
    for (uint64_t i = 0; i < model->end && equal; i++)
        equal = bytes[i] == (model->in_use[i] ? model->bytes[i] : 0);
    free(bytes);
    return equal;
}

/* Neither a commit that fails half-way, nor the one that carries it out then, changes it. */
static void a_snapshot_stays_as_it_is_when_commits_fail(void **state)
{
    (void)state;
    log_quietly();
    bool reached;
    long step = 0;
    do {
        struct store *store = make_before();
        struct store_snapshot *old, *new;
        assert_int_equal(store_snapshot_open(store, &old), 0);
        change(store);
        event_error = EIO;
        atomic_store(&until_event, step++);
        store_commit(store);
        reached = atomic_load(&until_event) < 0;
        atomic_store(&until_event, -1);
        assert_true(is_snapshot(old, &before));
        int error = store_snapshot_open(store, &new);
        assert_true(error == 0 || (reached && error == -EIO));
        struct model seen = error || is_snapshot(new, &after) ? after : before;
        set(&after, store, 12 * PAGE + 1, PAGE);
        set(&after, store, 6 * PAGE, 10);
        assert_int_equal(store_commit(store), 0);
        assert_true(is_equal(store, &after));
        assert_true(is_snapshot(old, &before));
        if (!error) {
            assert_true(is_snapshot(new, &seen));
            store_snapshot_close(new);
        }
        store_snapshot_close(old);
        store_close(store);
    } while (reached);
    assert_true(step > 10);
}

/* After a failed commit, more changes and a crash: nothing of them counts. */
static void a_crash_after_a_failed_commit_leaves_a_whole_state(void **state)
{
    (void)state;
    log_quietly();
    bool reached;
    long step = 0;
    do {
        struct store *store = make_before();
        change(store);
        event_error = EIO;
        atomic_store(&until_event, step++);
        store_commit(store);
        reached = atomic_load(&until_event) < 0;
        atomic_store(&until_event, -1);
        uint64_t address;
        char junk[2 * PAGE];
        memset(junk, 0x55, sizeof(junk));
        assert_int_equal(store_write(store, 2 * PAGE, junk, PAGE / 2), 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(store_allocate(store, i < 2 ? 900 : sizeof(junk), &address), 0);
            assert_int_equal(store_write(store, address, junk, i < 2 ? 900 : sizeof(junk)), 0);
        }
        copy_file("a", "crash");
        copy_file("a.journal", "crash.journal");
        state_after_crash();
        store_close(store);
    } while (reached);
}

/* The journal of a commit that failed may be whole, and is replayed then: so the file must be as the journal says. */
static void a_file_whose_journal_could_not_be_removed_is_opened(void **state)
{
    (void)state;
    log_quietly();
    bool reached;
    long step = 0, left = 0;
    do {
        struct store *store = make_before();
        change(store);
        event_error = EIO;
        atomic_store(&until_event, step++);
        removes_nothing = true;
        int error = store_commit(store);
        reached = atomic_load(&until_event) < 0;
        atomic_store(&until_event, -1);
        store_close(store);
        removes_nothing = false;
        left += error && exists("a.journal");
        assert_int_equal(store_open_writable("a", &store), 0);
        assert_true(is_equal(store, &after) || (error && is_equal(store, &before)));
        store_close(store);
    } while (reached);
    assert_true(left > 1);
}

static long folders_synced;

static int count_folder(int fd)
{
    (void)fd;
    folders_synced++;
    return 0;
}

/* Its name is durable before the commit is, also where the new one has the inode of that which was removed. */
static void a_journal_that_others_have_removed_is_named_anew(void **state)
{
    (void)state;
    log_quietly();
    struct store *store = make_before();
    commit_some(store);
    assert_int_equal(unlink("a.journal"), 0);
    change_again(store);
    in_fsync = count_folder;
    folders_synced = 0;
    assert_int_equal(store_commit(store), 0);
    in_fsync = NULL;
    assert_true(folders_synced > 0);
    store_close(store);
}

/* It says where the journal is, if the file is moved. */
static void a_note_that_cannot_be_made_is_tried_again(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EDQUOT, ENOMEM, EIO};
    struct store *store = make_before();
    if (fsetxattr(store->fd, "user.test", "x", 1, 0) < 0)
        skip();
    for (size_t i = 0; i < COUNT(errors); i++) {
        for (int again = 0; again < 2; again++) {
            note_error = again ? 0 : errors[i];
            set(&after, store, 0, 1);
            assert_int_equal(store_commit(store), 0);
            assert_int_equal(fgetxattr(store->fd, "user.sparsefs.place", NULL, 0) > 0, again);
        }
        store_close(store);
        assert_int_equal(store_open_writable("a", &store), 0);
    }
    store_close(store);
}

static void a_full_disk_is_reported_and_nothing_is_lost(void **state)
{
    (void)state;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    struct store *store = make_before();
    const struct rlimit full = {(PAGES + 2) * PAGE, RLIM_INFINITY};
    const struct rlimit enough = {RLIM_INFINITY, RLIM_INFINITY};
    char *bytes = calloc(PAGES, PAGE);
    uint64_t address;
    setrlimit(RLIMIT_FSIZE, &full);
    assert_int_equal(store_allocate(store, PAGES * PAGE, &address), 0);
    assert_int_equal(store_write(store, address, bytes, PAGES * PAGE), -ENOSPC);
    assert_int_equal(store_free(store, address, PAGES * PAGE), 0);
    for (uint64_t i = 0; i < PAGES; i++) /* their journal is longer than the file */
        if (after.in_use[i * PAGE] && after.in_use[i * PAGE + 1])
            set(&after, store, i * PAGE, 2);
    set(&after, store, 5, PAGES / 2 * PAGE - 5);
    unset(&after, store, 0, 1);
    const struct rlimit fuller = {10 * PAGE, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &fuller);
    assert_int_equal(store_commit(store), -ENOSPC);
    assert_true(is_equal(store, &after));
    setrlimit(RLIMIT_FSIZE, &enough);
    struct store *copy;
    assert_false(exists("a.journal"));
    copy_file("a", "crash");
    assert_int_equal(store_open("crash", &copy), 0);
    assert_true(is_equal(copy, &before));
    store_close(copy);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_open("a", &store), 0);
    assert_true(is_equal(store, &after));
    store_close(store);
    free(bytes);
}

#define MANY ((size_t)100 << 20)

static void many_changes_do_not_fill_the_memory(void **state)
{
    (void)state;
    struct store *store;
    uint64_t address, *words = allocate(PAGE), found;
    event_error = 0;
    assert_int_equal(store_create("many", true, &store), 0);
    assert_int_equal(store_allocate(store, MANY, &address), 0);
    memset(words, 1, PAGE);
    for (uint64_t at = 0; at < MANY; at += PAGE)
        assert_int_equal(store_write(store, at, words, PAGE), 0);
    assert_int_equal(store_commit(store), 0);
    size_t little = memory_in_use();
    for (int round = 0; round < 2; round++) /* what was put aside is changed too */
        for (uint64_t at = 0; at < MANY; at += PAGE) {
            words[0] = at + (uint64_t)round;
            assert_int_equal(store_write(store, at + 8, words, 8), 0);
        }
    assert_true(memory_in_use() - little < MANY * 3 / 4);
    for (int round = 0; round < 2; round++) {
        for (uint64_t at = 0; at < MANY; at += 7 * PAGE) {
            assert_int_equal(store_read(store, at + 8, &found, 8), 0);
            assert_int_equal(found, at + 1);
            assert_int_equal(store_read(store, at + 16, &found, 8), 0);
            assert_int_equal(found, 0x0101010101010101);
        }
        if (round == 0)
            assert_int_equal(store_commit(store), 0);
    }
    assert_true(memory_in_use() - little < MANY / 10);
    store_close(store);
    assert_int_equal(store_open("many", &store), 0);
    assert_int_equal(store_read(store, MANY - PAGE + 8, &found, 8), 0);
    assert_int_equal(found, MANY - PAGE + 1);
    store_close(store);
    unlink("many");
    free(words);
}

/* ---- What the kernel loses ---- */

/* The kernel drops all that it took for written. */
static void lose_pages(void)
{
    char bytes[PAGE];
    int to = open("a", O_RDWR), disk = open("disk", O_RDONLY);
    struct stat st;
    assert_int_equal(fstat(to, &st), 0);
    for (off_t at = 0; at < st.st_size; at += PAGE) {
        size_t n = st.st_size - at < PAGE ? (size_t)(st.st_size - at) : PAGE;
        memset(bytes, 0, sizeof(bytes));
        assert_true(pread(disk, bytes, n, at) >= 0);
        assert_int_equal(__real_pwrite64(to, bytes, n, at), n);
    }
    close(to);
    close(disk);
}

/* New bytes, also such as are freed again, and the pages of the commit before. */
static void what_a_failed_sync_has_lost_is_written_again(void **state)
{
    (void)state;
    log_quietly();
    char freed[PAGE], found[PAGE];
    for (int again = 0; again < 2; again++) {
        struct store *store = make_before();
        has_disk = true;
        set(&after, store, 0, 1);
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_settle(store), 0);
        set(&after, store, 10 * PAGE + 7, 3 * PAGE);
        unset(&after, store, 15 * PAGE, 4 * PAGE);
        assert_int_equal(store_commit(store), 0); /* whose pages are not synced */
        uint64_t gone = set_new(&after, store, PAGE);
        set_new(&after, store, 2 * PAGE - 9);
        set_new(&after, store, 5 * PAGE);
        memcpy(freed, after.bytes + gone, PAGE);
        set(&after, store, 30 * PAGE + 1500, 10);
        sync_error = EIO;
        for (int i = 0; i <= again; i++)
            assert_int_equal(store_commit(store), -EIO);
        assert_int_equal(store_settle(store), -EIO);
        sync_error = 0;
        lose_pages();
        assert_true(is_equal(store, &after));
        unset(&after, store, gone, PAGE);
        set(&after, store, 11 * PAGE - 3, 5);
        has_disk = false;
        assert_int_equal(store_commit(store), 0);
        int fd = open("a", O_RDONLY);
        assert_int_equal(pread(fd, found, PAGE, (off_t)gone), PAGE);
        close(fd);
        assert_memory_equal(found, freed, PAGE); /* as the journal has summed it up */
        copy_file("a", "crash");
        copy_file("a.journal", "crash.journal");
        store_close(store);
        before = after;
        assert_true(state_after_crash());
    }
}

/* The journal waits to be carried out, which fails once more. */
static void what_carrying_out_a_journal_has_lost_is_written_again(void **state)
{
    (void)state;
    log_quietly();
    bool reached, waited = false;
    long step = 0;
    do {
        struct store *store = make_before();
        has_disk = true;
        set(&after, store, 0, 1);
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_settle(store), 0);
        change(store);
        event_error = EIO;
        atomic_store(&until_event, step++);
        bool failed = store_commit(store) != 0;
        reached = atomic_load(&until_event) < 0;
        atomic_store(&until_event, -1);
        set_new(&after, store, 5 * PAGE);
        sync_error = EIO;
        waited |= failed && exists("a.journal");
        assert_int_equal(store_commit(store), -EIO);
        sync_error = 0;
        has_disk = false;
        lose_pages();
        assert_true(is_equal(store, &after));
        assert_int_equal(store_commit(store), 0);
        assert_true(is_equal(store, &after));
        store_close(store);
        assert_int_equal(store_open("a", &store), 0);
        assert_true(is_equal(store, &after));
        store_close(store);
    } while (reached);
    assert_true(waited);
}

/* Early, so that a sync has less to do: that may not tell of it. */
static void what_a_failed_writeback_has_lost_is_written_again(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, ENOSYS};
    for (size_t i = 0; i < COUNT(errors); i++) {
        struct store *store = make_before();
        unsigned char *bytes = allocate(WRITEBACK_BYTES), *found = allocate(WRITEBACK_BYTES);
        uint64_t address;
        random_fill(bytes, WRITEBACK_BYTES);
        has_disk = true;
        set(&after, store, 0, 1);
        assert_int_equal(store_commit(store), 0);
        has_disk = false;
        assert_int_equal(store_allocate(store, WRITEBACK_BYTES, &address), 0);
        writeback_error = errors[i];
        assert_int_equal(store_write(store, address, bytes, WRITEBACK_BYTES), 0);
        writeback_error = 0;
        assert_int_equal(store->write_again, errors[i] != ENOSYS);
        if (store->write_again)
            lose_pages();
        assert_int_equal(store_commit(store), 0);
        store_close(store);
        assert_int_equal(store_open("a", &store), 0);
        assert_int_equal(store_read(store, address, found, WRITEBACK_BYTES), 0);
        assert_memory_equal(found, bytes, WRITEBACK_BYTES);
        store_close(store);
        free(bytes);
        free(found);
    }
}

static void what_is_not_synced_does_not_fill_the_memory(void **state)
{
    (void)state;
    log_quietly();
    struct store *store;
    uint64_t address, *words = allocate(PAGE), found;
    size_t little = memory_in_use();
    event_error = 0;
    assert_int_equal(store_create("many", true, &store), 0);
    assert_int_equal(store_allocate(store, MANY, &address), 0);
    memset(words, 1, PAGE);
    uint64_t at = 0;
    sync_error = EIO;
    for (int error = 0; !error; at += error ? 0 : PAGE) {
        words[0] = at;
        error = store_write(store, at, words, PAGE);
        assert_true(at < MANY && (!error || error == -EIO));
    }
    uint64_t most = at;
    assert_int_equal(store_write_or_keep(store, at, words, PAGE), 0);
    assert_int_equal(store_write(store, at, words, PAGE), -EIO);
    sync_error = 0;
    syncs = 0;
    for (; at < MANY; at += PAGE) {
        words[0] = at;
        assert_int_equal(store_write(store, at, words, PAGE), 0);
        assert_true(memory_in_use() - little < most + most / 8);
    }
    assert_int_equal(syncs, (MANY - 1) / most);
    for (at = 0; at < MANY; at += PAGE) {
        assert_int_equal(store_read(store, at, &found, 8), 0);
        assert_int_equal(found, at);
    }
    store_close(store);
    free(words);
}

/* A structure that reaches over two pages, of which the second one cannot be read. */
static void what_cannot_be_kept_whole_is_not_changed(void **state)
{
    (void)state;
    log_quietly();
    char found[8];
    uint64_t at = 10 * PAGE - 8;
    struct store *store = make_before();
    int fd = open("a", O_RDWR);
    assert_int_equal(__real_ftruncate64(fd, 10 * PAGE + 100), 0);
    assert_int_equal(store_write_or_keep(store, at, "0123456789abcdef", 16), -EIO);
    assert_int_equal(store_read(store, at, found, 8), 0);
    assert_memory_equal(found, before.bytes + at, 8);
    close(fd);
    store_close(store);
}

/* The only file that this process has open and that has no name. */
static int open_spilled(void)
{
    char path[64], to[256];
    for (int fd = 3; fd < 100; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = '\0';
        if (strstr(to, " (deleted)"))
            return open(path, O_RDWR);
    }
    return -1;
}

/* A store that has committed a 1 in each of many pages, and then a 2 that was put aside, but for the first ones; and
 * the file where that is. */
static struct store *put_many_aside(int *fd)
{
    struct store *store;
    uint64_t address;
    assert_int_equal(store_create("many", true, &store), 0);
    assert_int_equal(store_allocate(store, MANY, &address), 0);
    for (uint64_t word = 1; word <= 2; word++) {
        for (uint64_t at = 0; at < MANY; at += PAGE)
            assert_int_equal(store_write(store, at, &word, 8), 0);
        if (word == 1)
            assert_int_equal(store_commit(store), 0);
    }
    *fd = open_spilled();
    if (*fd < 0) { /* the file system has no files without a name: all are in memory */
        store_close(store);
        skip();
    }
    return store;
}

static void changes_that_were_put_aside_and_lost_are_not_committed(void **state)
{
    (void)state;
    log_quietly();
    int fd;
    uint64_t word;
    struct store *store = put_many_aside(&fd);
    assert_int_equal(__real_ftruncate64(fd, 0), 0);
    assert_int_equal(__real_ftruncate64(fd, MANY), 0);
    close(fd);
    assert_int_equal(store_read(store, 0, &word, 8), 0);
    assert_int_equal(word, 2);
    assert_int_equal(store_read(store, MANY - PAGE, &word, 8), -EIO);
    assert_int_equal(store_write(store, MANY - PAGE + 8, &word, 8), -EIO);
    assert_int_equal(store_commit(store), -EIO);
    store_close(store);
    assert_int_equal(store_open("many", &store), 0);
    for (uint64_t at = 0; at < MANY; at += PAGE) {
        assert_int_equal(store_read(store, at, &word, 8), 0);
        assert_int_equal(word, 1);
    }
    store_close(store);
    unlink("many");
}

/* What a write that fails has put there is of that write. */
static void changes_that_were_put_aside_stay_when_the_disk_is_full(void **state)
{
    (void)state;
    log_quietly();
    int fd;
    uint64_t found;
    struct store *store = put_many_aside(&fd);
    close(fd);
    char page[PAGE];
    memset(page, 7, sizeof(page));
    for (int whole = 0; whole < 2; whole++) {
        size_t n = whole ? sizeof(page) : 8;
        spilled_bytes = 100;
        assert_int_equal(store_write(store, MANY - (whole + 1) * PAGE, page, n), -ENOSPC);
        spilled_bytes = 0;
        assert_int_equal(store_read(store, MANY - (whole + 1) * PAGE, &found, 8), 0);
        assert_int_equal(found, 2);
    }
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_open("many", &store), 0);
    for (uint64_t at = 0; at < MANY; at += PAGE) {
        assert_int_equal(store_read(store, at, &found, 8), 0);
        assert_int_equal(found, 2);
    }
    store_close(store);
    unlink("many");
}

#define ENOUGH ((size_t)40 << 20) /* for pages on the disk */

/* Of a structure that reaches over two pages, the disk takes the first one or none. */
static void what_was_put_aside_and_must_be_kept_is_kept_whole(void **state)
{
    (void)state;
    log_quietly();
    const uint64_t at[] = {ENOUGH - PAGE - 8, ENOUGH - 5 * PAGE - 8};
    struct store *store;
    uint64_t address, word = 1;
    char found[16];
    assert_int_equal(store_create("many", true, &store), 0);
    assert_int_equal(store_allocate(store, ENOUGH, &address), 0);
    for (uint64_t i = 0; i < ENOUGH; i += PAGE)
        assert_int_equal(store_write(store, i, &word, 8), 0);
    assert_int_equal(store_commit(store), 0);
    for (uint64_t i = 0; i < ENOUGH; i += PAGE)
        assert_int_equal(store_write(store, i + 8, &word, 8), 0);
    int fd = open_spilled();
    if (fd < 0) { /* as above */
        store_close(store);
        skip();
    }
    close(fd);
    event_error = ENOSPC;
    for (int taken = 0; taken < 2; taken++) {
        atomic_store(&until_event, taken);
        assert_int_equal(store_write_or_keep(store, at[taken], "0123456789abcdef", 16), 0);
        assert_true(atomic_load(&until_event) < 0);
        assert_int_equal(store_read(store, at[taken], found, 16), 0);
        assert_memory_equal(found, "0123456789abcdef", 16);
    }
    for (uint64_t i = 0; i < ENOUGH; i += PAGE) /* all others are where they were */
        assert_int_equal(store_write(store, i + 16, &word, 8), 0);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_open("many", &store), 0);
    for (int taken = 0; taken < 2; taken++) {
        assert_int_equal(store_read(store, at[taken], found, 16), 0);
        assert_memory_equal(found, "0123456789abcdef", 16);
    }
    for (uint64_t i = 0; i < ENOUGH; i += PAGE) {
        uint64_t words[3];
        assert_int_equal(store_read(store, i, words, sizeof(words)), 0);
        assert_true(words[0] == 1 || i == at[0] + 8 || i == at[1] + 8);
        assert_true(words[1] == 1 && words[2] == 1);
    }
    store_close(store);
    unlink("many");
}

/* ---- New stores and locks ---- */

static int count_temporaries(void)
{
    FILE *list = popen("ls -A . | grep -c '^\\.new\\.'", "r");
    int n = -1;
    assert_int_equal(fscanf(list, "%d", &n), 1);
    pclose(list);
    return n;
}

static void a_new_store_appears_with_its_first_commit(void **state)
{
    (void)state;
    struct store *store;
    uint64_t address;
    assert_int_equal(store_create("new", false, &store), 0);
    assert_string_equal(store_path(store), "new");
    assert_int_equal(store_size(store), 0);
    assert_int_equal(store_allocate(store, 3, &address), 0);
    assert_int_equal(address, 0);
    assert_int_equal(store_write(store, 0, "abc", 3), 0);
    assert_false(exists("new"));
    assert_int_equal(count_temporaries(), 1);
    store_close(store);
    assert_int_equal(count_temporaries(), 0);
    assert_false(exists("new"));

    assert_int_equal(store_create("new", false, &store), 0);
    assert_int_equal(store_allocate(store, 3, &address), 0);
    assert_int_equal(store_write(store, 0, "abc", 3), 0);
    assert_int_equal(store_commit(store), 0);
    assert_true(exists("new"));
    assert_int_equal(count_temporaries(), 0);
    store_close(store);
    assert_int_equal(system("printf abc | cmp - new"), 0);
}

/* Whatever the calls say that have given it: nothing is written in place any more. */
static void a_file_that_has_its_name_is_committed(void **state)
{
    (void)state;
    log_quietly();
    for (int i = 0; i < 3; i++) {
        struct store *store;
        uint64_t address;
        unlink("new");
        assert_int_equal(store_create("new", i == 2, &store), 0);
        assert_int_equal(store_allocate(store, 3, &address), 0);
        assert_int_equal(store_write(store, 0, "abc", 3), 0);
        cannot_rename_to_free = removes_nothing = i == 0;
        denies_renames = i > 0;
        assert_int_equal(store_commit(store), 0);
        cannot_rename_to_free = removes_nothing = denies_renames = false;
        assert_int_equal(count_temporaries(), i == 0);
        assert_int_equal(store_write(store, 0, "xyz", 3), 0);
        assert_int_equal(system("printf abc | cmp - new"), 0);
        assert_int_equal(store_commit(store), 0);
        store_close(store);
        assert_int_equal(system("printf xyz | cmp - new && rm -f .new.*"), 0);
        assert_int_equal(store_open_writable("new", &store), 0);
        store_close(store);
    }
}

static void a_file_is_replaced_only_if_that_is_wanted(void **state)
{
    (void)state;
    log_quietly();
    struct store *store, *other;
    assert_int_equal(store_create("b", true, &store), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_create("b", false, &other), -EEXIST);
    assert_int_equal(store_create("b", true, &other), -EBUSY);
    store_close(store);
    assert_int_equal(store_create("c", false, &store), 0);
    assert_int_equal(system("echo x > c"), 0);
    assert_int_equal(store_commit(store), -EEXIST);
    assert_int_equal(system("echo x | cmp - c"), 0);
    unlink("c");
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_create("missing/c", true, &store), -ENOENT);
    assert_int_equal(store_create(".", true, &store), -EEXIST);
}

/* Also when that happens while the new one is being made, by programs without locks, too. */
static void what_was_changed_since_is_not_replaced(void **state)
{
    (void)state;
    log_quietly();
    struct store *store;
    struct stat known;
    assert_int_equal(system("echo precious > d"), 0);
    assert_int_equal(stat("d", &known), 0);
    assert_int_equal(create_in_place_of("d", &known, &store), 0);
    assert_int_equal(system("echo valuable > d"), 0);
    assert_int_equal(store_commit(store), -EBUSY);
    assert_int_equal(system("echo valuable | cmp - d"), 0);
    store_close(store);
    assert_int_equal(create_in_place_of("d", &known, &store), -EBUSY);
    assert_int_equal(stat("d", &known), 0);
    assert_int_equal(create_in_place_of("d", &known, &store), 0);
    int fd = open("d", O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(store_commit(store), -EBUSY);
    close(fd);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(stat("d", &known), 0);
    assert_int_equal(known.st_size, 0);
}

/* Whatever the umask is; of its group, too, or that sees no more than others. */
static void what_replaces_a_file_has_its_mode(void **state)
{
    (void)state;
    static const gid_t group = 1;
    struct store *store;
    struct stat st;
    bool is_root = geteuid() == 0;
    for (int i = 0; i < 2; i++) {
        mode_t mode = i ? 0604 : 0640;
        assert_int_equal(system("echo precious > d"), 0);
        assert_int_equal(is_root ? chown("d", 0, group) : 0, 0);
        assert_int_equal(chmod("d", mode), 0);
        mode_t mask = umask(i ? 077 : 0);
        assert_int_equal(
            i ? create_in_place_of("d", NULL, &store) : store_create("d", true, &store), 0);
        umask(mask);
        assert_int_equal(store_commit(store), 0);
        store_close(store);
        assert_int_equal(stat("d", &st), 0);
        assert_int_equal(st.st_mode & 0777, mode);
        assert_int_equal(st.st_gid, is_root ? group : getegid());
    }
}

/* What a lock(2) of this operation gets while the store is open. */
static bool can_lock(const char *path, int operation)
{
    int fd = open(path, O_RDWR);
    bool locked = flock(fd, operation | LOCK_NB) == 0;
    close(fd);
    return locked;
}

static void a_writer_is_alone(void **state)
{
    (void)state;
    log_quietly();
    struct store *store = make_before(), *other;
    assert_int_equal(store_open_writable("a", &other), -EBUSY);
    assert_int_equal(store_open("a", &other), -EBUSY);
    assert_false(can_lock("a", LOCK_SH));
    store_close(store);
    assert_int_equal(store_open("a", &store), 0);
    assert_int_equal(store_open_writable("a", &other), -EBUSY);
    store_close(store);
    assert_int_equal(store_open_writable("a", &store), 0);
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    assert_int_equal(store_open("a", &other), 0);
    unsetenv("HDF5_USE_FILE_LOCKING");
    store_close(other);
    store_close(store);
    assert_true(can_lock("a", LOCK_EX));
    assert_int_equal(store_open_writable("missing", &store), -ENOENT);
    assert_int_equal(store_open_writable(".", &store), -EINVAL);
}

/* As libhdf5 has it: without locks files are opened all the same, unless the environment says that
 * there must be one. */
static void file_systems_without_locks_are_no_error_unless_that_is_wanted(void **state)
{
    (void)state;
    log_quietly();
    const int errors[] = {ENOSYS, EOPNOTSUPP, ENOLCK};
    struct store *store, *other;
    store_close(make_before());
    for (size_t i = 0; i < COUNT(errors); i++) {
        lock_error = errors[i];
        assert_int_equal(store_open_writable("a", &store), 0);
        assert_int_equal(store_open("a", &other), 0);
        store_close(other);
        store_close(store);
        setenv("HDF5_USE_FILE_LOCKING", "TRUE", 1);
        assert_int_equal(store_open_writable("a", &store), -errors[i]);
        assert_int_equal(store_open("a", &store), -errors[i]);
        assert_int_equal(store_create("new", true, &store), -errors[i]);
        assert_int_equal(count_temporaries(), 0);
        setenv("HDF5_USE_FILE_LOCKING", "BEST_EFFORT", 1);
        assert_int_equal(store_create("new", true, &store), 0);
        assert_int_equal(store_create("new", true, &other), 0);
        assert_int_equal(count_temporaries(), 2); /* nobody can tell that the first is in use */
        store_close(other);
        store_close(store);
        unsetenv("HDF5_USE_FILE_LOCKING");
    }
    lock_error = 0;
}

/* What SIGKILL leaves of a new file is gone when the next of that name is made. */
static void unfinished_new_files_are_removed(void **state)
{
    (void)state;
    log_quietly();
    struct store *store, *other;
    assert_int_equal(store_create("new", true, &store), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(store_create("new", true, &other) != 0);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(count_temporaries(), 2);
    assert_int_equal(store_create("new", true, &other), 0);
    assert_int_equal(count_temporaries(), 2); /* this one and that of the one still open */
    assert_int_equal(store_remove_temporaries(store), 0);
    store_close(other);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(count_temporaries(), 0);
}

static void the_journal_stands_beside_the_file_and_not_beside_a_link(void **state)
{
    (void)state;
    log_quietly();
    make_complete_journal();
    assert_int_equal(mkdir("links", 0700), 0);
    assert_int_equal(symlink("../whole", "links/link"), 0);
    struct store *store;
    assert_int_equal(store_open("links/link", &store), 0);
    assert_true(is_equal(store, &after));
    store_close(store);
}

/* ---- Threads ---- */

static atomic_bool is_over;

/* Every page holds one number all over, whoever writes; a reader that sees two saw half a write. */
static void *read_pages(void *context)
{
    struct store *store = context;
    uint64_t *words = allocate(PAGE);
    random_seed(1);
    long wrong = 0;
    while (!atomic_load(&is_over)) {
        uint64_t page = random_below(8);
        wrong += store_read(store, page * PAGE, words, PAGE) != 0;
        for (size_t i = 0; i < PAGE / 8;
             i++) /* its number stays, whatever is committed meanwhile */
            wrong += words[i] != page;
    }
    free(words);
    return (void *)wrong;
}

static void readers_see_what_they_should_while_others_write_and_commit(void **state)
{
    (void)state;
    struct store *store;
    uint64_t address, words[PAGE / 8];
    pthread_t threads[2];
    assert_int_equal(store_create("t", true, &store), 0);
    assert_int_equal(store_allocate(store, 16 * PAGE, &address), 0);
    for (uint64_t page = 0; page < 16; page++) {
        for (size_t i = 0; i < COUNT(words); i++)
            words[i] = page;
        assert_int_equal(store_write(store, page * PAGE, words, PAGE), 0);
    }
    assert_int_equal(store_commit(store), 0);
    atomic_store(&is_over, false);
    for (int i = 0; i < 2; i++)
        start_thread(&threads[i], read_pages, store);
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t page = random_below(16);
        for (size_t i = 0; i < COUNT(words); i++)
            words[i] = page;
        assert_int_equal(store_write(store, page * PAGE, words, PAGE), 0);
        if (round % 3 == 0)
            assert_int_equal(store_commit(store), 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    store_close(store);
}

#define BLOCKS 200

/* Blocks of its own that nobody else may be given. */
static void *use_space(void *context)
{
    struct store *store = context;
    uint64_t addresses[BLOCKS], value = (uint64_t)(uintptr_t)addresses;
    for (int i = 0; i < BLOCKS; i++) {
        if (store_allocate(store, sizeof(value), &addresses[i]) ||
            store_write(store, addresses[i], &value, sizeof(value)))
            return store; /* fails the test: anything but NULL */
        if (i % 5 == 4 && store_free(store, addresses[i - 4], sizeof(value)))
            return store;
        if (i % 50 == 49 && store_commit(store))
            return store;
    }
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t found;
        if (i % 5 != 0 && (store_read(store, addresses[i], &found, 8) || found != value))
            return store;
    }
    return NULL;
}

static void two_threads_share_space_and_commits(void **state)
{
    (void)state;
    struct store *store;
    pthread_t threads[2];
    assert_int_equal(store_create("s", true, &store), 0);
    for (int i = 0; i < 2; i++)
        start_thread(&threads[i], use_space, store);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    store_close(store);
}

TEST_MAIN(cmocka_unit_test(what_is_written_is_read_at_once_and_kept_by_a_commit),
          cmocka_unit_test(without_a_commit_the_file_stays_as_it_was),
          cmocka_unit_test(random_changes_are_what_a_model_says),
          cmocka_unit_test(space_is_used_again_only_after_the_commit_that_freed_it),
          cmocka_unit_test(pieces_are_put_where_there_is_room),
          cmocka_unit_test(pieces_that_cannot_be_written_have_no_space),
          cmocka_unit_test(rewriting_over_and_over_does_not_make_the_file_grow),
          cmocka_unit_test(free_space_at_the_end_shortens_the_file),
          cmocka_unit_test(what_is_not_in_use_cannot_be_freed_or_written),
          cmocka_unit_test(changed_bytes_are_not_lent_from_the_file),
          cmocka_unit_test(a_crash_at_any_step_leaves_the_old_or_the_new_state),
          cmocka_unit_test(a_journal_of_any_other_length_is_discarded),
          cmocka_unit_test(a_journal_is_read_as_long_as_it_is_wanted),
          cmocka_unit_test(a_journal_with_a_wrong_byte_is_discarded),
          cmocka_unit_test(a_journal_half_carried_out_is_replayed),
          cmocka_unit_test(a_journal_that_cannot_be_looked_at_is_kept),
          cmocka_unit_test(a_journal_of_another_file_is_refused_and_kept),
          cmocka_unit_test(a_journal_that_was_carried_out_is_forgotten_when_others_change_the_file),
          cmocka_unit_test(what_was_lost_without_a_new_start_of_the_system_is_replayed),
          cmocka_unit_test(what_others_may_have_put_back_is_not_replayed),
          cmocka_unit_test(an_error_at_any_step_is_reported_and_the_commit_can_be_repeated),
          cmocka_unit_test(a_signal_does_not_end_a_commit),
          cmocka_unit_test(a_signal_does_not_end_replacing),
          cmocka_unit_test(a_commit_waits_for_raw_data_that_another_thread_syncs),
          cmocka_unit_test(a_piece_may_lie_behind_its_vector),
          cmocka_unit_test(a_snapshot_stays_as_it_is_when_commits_fail),
          cmocka_unit_test(a_crash_after_a_failed_commit_leaves_a_whole_state),
          cmocka_unit_test(a_file_whose_journal_could_not_be_removed_is_opened),
          cmocka_unit_test(a_journal_that_others_have_removed_is_named_anew),
          cmocka_unit_test(a_note_that_cannot_be_made_is_tried_again),
          cmocka_unit_test(a_full_disk_is_reported_and_nothing_is_lost),
          cmocka_unit_test(many_changes_do_not_fill_the_memory),
          cmocka_unit_test(what_a_failed_sync_has_lost_is_written_again),
          cmocka_unit_test(what_carrying_out_a_journal_has_lost_is_written_again),
          cmocka_unit_test(what_a_failed_writeback_has_lost_is_written_again),
          cmocka_unit_test(what_is_not_synced_does_not_fill_the_memory),
          cmocka_unit_test(what_cannot_be_kept_whole_is_not_changed),
          cmocka_unit_test(what_was_put_aside_and_must_be_kept_is_kept_whole),
          cmocka_unit_test(changes_that_were_put_aside_and_lost_are_not_committed),
          cmocka_unit_test(changes_that_were_put_aside_stay_when_the_disk_is_full),
          cmocka_unit_test(a_new_store_appears_with_its_first_commit),
          cmocka_unit_test(a_file_that_has_its_name_is_committed),
          cmocka_unit_test(a_file_is_replaced_only_if_that_is_wanted),
          cmocka_unit_test(what_was_changed_since_is_not_replaced),
          cmocka_unit_test(what_replaces_a_file_has_its_mode), cmocka_unit_test(a_writer_is_alone),
          cmocka_unit_test(file_systems_without_locks_are_no_error_unless_that_is_wanted),
          cmocka_unit_test(unfinished_new_files_are_removed),
          cmocka_unit_test(the_journal_stands_beside_the_file_and_not_beside_a_link),
          cmocka_unit_test(readers_see_what_they_should_while_others_write_and_commit),
          cmocka_unit_test(two_threads_share_space_and_commits))
