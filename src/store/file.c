/* The store's file: opening it under the lock that libhdf5 takes, reading, writing, closing. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/io.h"
#include "common/log.h"
#include "store/lock_holder.h"
#include "store/private.h"

#ifndef MADV_POPULATE_READ /* glibc < 2.35; Linux has it since 5.14 */
#define MADV_POPULATE_READ 22
#endif

#define PIECE_BYTES ((size_t)4 << 20) /* that are written at a time */

bool file_may_lock(void)
{
    const char *setting = getenv("HDF5_USE_FILE_LOCKING");
    return !setting || (strcmp(setting, "FALSE") != 0 && strcmp(setting, "0") != 0);
}

int file_try_lock(int fd, int operation)
{
    int error;
    do
        error = flock(fd, operation | LOCK_NB) < 0 ? -errno : 0;
    while (error == -EINTR);
    return error;
}

void file_refuse(const struct store *store, int operation)
{
    char who[HOLDER_TEXT];
    holder_describe(store->fd, store->path, who);
    store_say(store, NULL, "another program has it open%s%s",
              operation == LOCK_SH ? " for writing" : "", who);
}

/* Locks by the rules in the HDF5 1.10.7 release notes. A conversion that fails loses the lock. */
int file_take_lock(struct store *store, int operation)
{
    const char *setting = getenv("HDF5_USE_FILE_LOCKING"), *path = store->path;
    int fd = store->fd;
    if (!file_may_lock())
        return 0;
    bool must_lock = setting && (!strcmp(setting, "TRUE") || !strcmp(setting, "1"));
    int error = file_try_lock(fd, operation);
    if (error == -EWOULDBLOCK)
        error = holder_outlive(fd, path, operation);
    atomic_store(&store->lock, error ? 0 : operation);
    switch (error) {
    case 0:
        return 0;
    case -EWOULDBLOCK:
        return -EBUSY;
    case -ENOSYS:
    case -EOPNOTSUPP:
    case -ENOLCK:
        if (!must_lock)
            return 0;
        /* fall through */
    default:
        store_say(store, NULL, "cannot lock: %s", strerror(-error));
        return error;
    }
}

static int lock_file(struct store *store, int operation)
{
    int error = file_take_lock(store, operation);
    if (error == -EBUSY)
        file_refuse(store, operation);
    return error;
}

int file_lock(struct store *store)
{
    return lock_file(store, store->writable && !store->is_shared ? LOCK_EX : LOCK_SH);
}

enum sfs_lock store_lock(const struct store *store)
{
    int lock = atomic_load(&store->lock);
    return lock == LOCK_EX ? SFS_LOCK_EXCLUSIVE : lock ? SFS_LOCK_SHARED : SFS_LOCK_NONE;
}

void file_init_lock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

struct store *file_new(const char *path, bool writable)
{
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return NULL;
    store->fd = -1;
    store->folder = -1;
    store->sought_folder = -1;
    store->standing.marked = -1;
    store->spill = -1;
    store->hold = -1;
    store->writable = writable;
    pthread_rwlock_init(&store->pages_lock, NULL);
    file_init_lock(&store->unsynced_lock);
    pthread_mutex_init(&store->change, NULL);
    pthread_mutex_init(&store->hold_lock, NULL);
    pthread_mutex_init(&store->folder_lock, NULL);
    pthread_mutex_init(&store->raw_lock, NULL);
    store->path = strdup(path);
    if (!store->path) {
        store_close(store);
        return NULL;
    }
    return store;
}

int file_open(struct store *store)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer; it has no effect on files. */
    int access = store->writable ? O_RDWR : O_RDONLY;
    store->fd = store->found ? store_found_open(store->found, access)
                             : open(store->path, access | O_CLOEXEC | O_NONBLOCK);
    if (store->fd < 0 || fstat(store->fd, &store->st) < 0) {
        int error = errno == EISDIR ? -EINVAL : -errno;
        store_say(store, NULL, "%s", strerror(errno));
        return error;
    }
    if (!S_ISREG(store->st.st_mode)) {
        store_say(store, NULL, "not a regular file");
        return -EINVAL;
    }
    int error = store->is_following ? 0 : file_lock(store);
    if (error)
        return error;
    /* The file may have grown or shrunk before the lock was taken. */
    if (fstat(store->fd, &store->st) < 0)
        return -errno;
    store->committed_end = (uint64_t)store->st.st_size;
    atomic_store(&store->end, store->committed_end);
    error = place_find(store);
    store->found = NULL;
    return error;
}

/* ---- Opening ---- */

static bool counter_exists(const struct store *store)
{
    struct stat st;
    return fstatat(store->folder, place_entry(store->counter), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Followers must see a counter before the first byte is written. Where no counter can be made no
 * journal can be made either, and nothing could be committed. */
int file_begin_counter(struct store *store)
{
    int error = counter_advance(store);
    bool is_refused = error == -EACCES || error == -EPERM;
    if (error == -EISDIR || (is_refused && counter_exists(store))) {
        store_say(store, NULL, "it cannot be written: %s is in the way: move it away",
                  store->counter);
        return is_refused ? error : -EPERM;
    }
    if (is_refused || error == -EROFS) {
        store_say(store, NULL, "it cannot be written: no journal can be made in its directory: %s",
                  strerror(-error));
        return error;
    }
    if (error)
        log_info("%s: cannot write %s, for those who follow: %s", store->path, store->counter,
                 strerror(-error));
    return 0;
}

/* Under a shared lock. A journal that must be carried out is left to those who open the file. */
static int begin_shared(struct store *store, bool *has_journal)
{
    if (faccessat(store->folder, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int error = -errno;
        store_say(store, NULL, "it cannot be written: no journal can be made in its directory: %s",
                  strerror(-error));
        return error;
    }
    if (store->journal)
        journal_choose(store);
    int error = share_look(store, &store->seen);
    *has_journal = store->seen.journal.exists;
    return error;
}

/* Under an exclusive lock. */
static int begin_alone(struct store *store)
{
    int error = store->writable ? file_begin_counter(store) : 0;
    if (!error && store->journal)
        error = journal_recover(store);
    if (!error && store->writable) {
        place_forget_note(store);
        free_space_take(store);
    }
    return error;
}

static int open_store(const char *path, const struct store_opening *how, struct store **out)
{
    bool has_journal = false;
    struct store *store = file_new(path, how->writable);
    if (!store)
        return -ENOMEM;
    store->found = how->found;
    store->is_shared = how->is_shared;
    store->why = how->why;
    int error = file_open(store);
    if (!error)
        error = how->is_shared ? begin_shared(store, &has_journal) : begin_alone(store);
    if (!error && has_journal) {
        store_close(store);
        const struct store_opening alone = {.found = how->found, .writable = true, .why = how->why};
        error = open_store(path, &alone, out);
        if (!error && (error = store_end_writing(*out)) < 0)
            store_close(*out);
        return error;
    }
    if (error) {
        store_close(store);
        return error;
    }
    store->file_end = store->committed_end;
    if (fstat(store->fd, &store->st) == 0) {
        void *map = mmap(NULL, (size_t)store->st.st_size, PROT_READ, MAP_SHARED, store->fd, 0);
        if (map != MAP_FAILED)
            store->map = map;
    }
    *out = store;
    return 0;
}

int store_open(const char *path, struct store **store)
{
    return open_store(path, &(struct store_opening){0}, store);
}

int store_open_writable(const char *path, struct store **store)
{
    return open_store(path, &(struct store_opening){.writable = true}, store);
}

int store_open_as(const char *path, const struct store_opening *how, struct store **store)
{
    return how->follows ? follow_open(path, how, store) : open_store(path, how, store);
}

struct why *store_why(const struct store *store)
{
    return store->why;
}

void store_opened(struct store *store)
{
    store->why = NULL;
}

void store_say(const struct store *store, struct why *why, const char *format, ...)
{
    struct why phrase;
    va_list arguments;
    va_start(arguments, format);
    why_take(why ? why : &phrase, format, arguments);
    va_end(arguments);
    if (!why)
        why_say(store->why, "%s: %s", store->path, phrase.text);
}

int store_open_reader(const char *name, const struct store_reader *reader, struct store **out)
{
    struct store *store = file_new(name, reader->write != NULL);
    if (!store)
        return -ENOMEM;
    store->reader = *reader;
    store_renew_reader(store, reader);
    *out = store;
    return 0;
}

void store_renew_reader(struct store *store, const struct store_reader *reader)
{
    store->st = (struct stat){.st_dev = (dev_t)reader->device, .st_ino = (ino_t)reader->inode};
    store->committed_end = store->file_end = reader->size;
    store->is_following = reader->follows;
    store->is_live = reader->follows && reader->is_live;
    atomic_store(&store->end, reader->size);
}

void store_resize_reader(struct store *store, uint64_t size)
{
    atomic_store(&store->end, size);
}

bool store_has_reader(const struct store *store)
{
    return store->reader.read;
}

/* What was written behind the committed end is discarded. */
static void discard(struct store *store)
{
    if (store->temporary)
        unlinkat(store->folder, place_entry(store->temporary), 0);
    else if (store->writable && store->written)
        (void)file_set_end(store, store->committed_end);
}

static void end_journal(struct store *store)
{
    if (!store->writable || store->unapplied)
        return;
    if (store->standing.stands)
        (void)place_follow(store); /* so that a journal that was moved is ended, too */
    if (settle(store) < 0)
        log_warning("%s: its journal stays beside it: it will be replayed", store->path);
    else if (store->is_noted)
        place_forget_note(store);
}

int store_close(struct store *store)
{
    if (!store)
        return 0;
    int error = store->image ? image_destroy(store) : 0;
    if (store->reader.close)
        store->reader.close(store->reader.context);
    if (store->map && !store->image)
        munmap((void *)store->map, (size_t)store->st.st_size);
    if (store->fd >= 0) {
        if (!store->is_shared) {
            discard(store);
            end_journal(store);
            if (store->writable)
                free_space_note(store);
            counter_remove(store);
        }
        close(store->fd);
    }
    if (store->hold >= 0)
        close(store->hold);
    unsynced_raw_forget(store);
    pages_clear(store);
    unsynced_clear(store, UINT64_MAX);
    unsynced_trim(store);
    extents_clear(&store->free);
    extents_clear(&store->pending);
    extents_clear(&store->fresh);
    extents_clear(&store->own);
    pthread_mutex_destroy(&store->hold_lock);
    pthread_mutex_destroy(&store->change);
    pthread_rwlock_destroy(&store->unsynced_lock);
    pthread_rwlock_destroy(&store->pages_lock);
    neighbour_forget(store);
    free(store->temporary);
    free(store->reach.files);
    journal_forget_mark(store);
    place_close(store);
    pthread_mutex_destroy(&store->folder_lock);
    free(store->path);
    free(store);
    return error;
}

enum store_recovered store_recovered(const struct store *store)
{
    return store->recovered;
}

bool store_is_writable(const struct store *store)
{
    return store->writable;
}

const char *store_path(const struct store *store)
{
    return store->path;
}

int store_rename(struct store *store, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(store->path);
    store->path = copy;
    return 0;
}

uint64_t store_size(const struct store *store)
{
    struct stat st;
    if (store->is_live && store->reader.end)
        return store->reader.end(store->reader.context);
    if (store->is_live && fstat(store->fd, &st) == 0)
        return (uint64_t)st.st_size;
    return atomic_load_explicit(&store->end, memory_order_acquire);
}

int store_stat(const struct store *store, struct stat *st)
{
    if (!store->image)
        return fstat(store->fd, st) < 0 ? -errno : 0;
    *st = store->st;
    st->st_size = (off_t)store_size(store);
    st->st_blocks = (blkcnt_t)(st->st_size / 512 + (st->st_size % 512 != 0));
    return 0;
}

int store_statvfs(const struct store *store, struct statvfs *st)
{
    if (!store->image)
        return fstatvfs(store->fd, st) < 0 ? -errno : 0;
    *st = (struct statvfs){.f_bsize = PAGE_BYTES,
                           .f_frsize = PAGE_BYTES,
                           .f_blocks = store_size(store) / PAGE_BYTES + 1,
                           .f_namemax = 255};
    return 0;
}

int directory_sync(const struct store *store)
{
    int error = fsync(store->folder) < 0 ? -errno : 0;
    /* Some file systems cannot sync directories; their names are durable without it. */
    if (error == -EINVAL)
        error = 0;
    if (error)
        store_say(store, NULL, "cannot sync its directory: %s", strerror(-error));
    return error;
}

int file_get(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
{
    size_t done;
    int error = io_read_at(store->fd, address, buffer, n, &done);
    if (!error && done == n)
        return 0;
    if (!error && store->writable && address + done >= atomic_load(&store->committed_end)) {
        memset((char *)buffer + done, 0, n - done);
        return 0;
    }
    store_say(store, why, "cannot read %zu bytes at address %llu: %s", n,
              (unsigned long long)address, error ? strerror(-error) : "the file has shrunk");
    return -EIO;
}

int file_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
{
    if (store->image) {
        image_read(store->image, address, buffer, n);
        return 0;
    }
    if (store->reader.read)
        return store->reader.read(store->reader.context, address, buffer, n);
    if (store->is_following)
        return follow_read(store, address, buffer, n, why);
    int error = atomic_load_explicit(&store->n_unsynced, memory_order_acquire) == 0
                    ? file_get(store, address, buffer, n, why)
                    : unsynced_read(store, address, buffer, n, why);
    /* The file may have been changed by the holder of the lock just now. */
    return atomic_load(&store->lost_lock) && !store_is_as_shared(store) ? -ESTALE : error;
}

/* A file that cannot grow concerns all that is in it: -ENOSPC, as -EFBIG is an error of one
 * dataset. */
static int disk_error(int number)
{
    return number == EFBIG ? -ENOSPC : -number;
}

int file_check_end(struct store *store)
{
    struct stat st;
    if (fstat(store->fd, &st) < 0)
        return -errno;
    bool is_cut = (uint64_t)st.st_size < store->file_end;
    if (is_cut && !store->is_cut)
        store_say(store, NULL,
                  "it was cut short by another program: of %llu bytes %llu are left; nothing is "
                  "committed to it any more",
                  (unsigned long long)store->file_end, (unsigned long long)st.st_size);
    store->is_cut = is_cut;
    return is_cut ? -EIO : 0;
}

int store_check_end(struct store *store)
{
    pthread_mutex_lock(&store->change);
    int error = store->image ? 0 : file_check_end(store);
    pthread_mutex_unlock(&store->change);
    return error;
}

/* Nothing is written behind the end of a file that was cut short: that would hide the loss. */
int file_put(struct store *store, uint64_t address, const void *bytes, size_t n, size_t *done)
{
    *done = 0;
    int error = file_check_end(store);
    if (!error)
        error = journal_mark_passed(store);
    if (error)
        return error;
    error = io_write_at(store->fd, address, bytes, n, done);
    if (error) {
        store_say(store, NULL, "cannot write %zu bytes at address %llu: %s", n,
                  (unsigned long long)address, strerror(-error));
        error = disk_error(-error);
    }
    if (*done > 0 && address + *done > store->file_end)
        store->file_end = address + *done;
    return error;
}

/* Bounds the memory for unsynced pages. */
static int make_room(struct store *store, size_t n)
{
    size_t there = atomic_load(&store->n_unsynced);
    return there > 0 && there + n / PAGE_BYTES > MOST_UNSYNCED ? file_sync(store, false) : 0;
}

/* Starts writeback early, so that a sync, during which all writers wait, has little left to do. An
 * error shows in the next sync. */
static void start_writeback(struct store *store, size_t n)
{
    store->unstarted += n;
    if (store->unstarted < WRITEBACK_BYTES)
        return;
    (void)sync_file_range(store->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    store->unstarted = 0;
}

static int write_piece(struct store *store, uint64_t address, const char *bytes, size_t n,
                       bool or_keep)
{
    size_t done = 0;
    int error = file_check_end(store); /* what was cut off cannot be read either */
    if (!error)
        error = make_room(store, n);
    if (error && !or_keep)
        return error;
    error = unsynced_note(store, address, bytes, n);
    bool is_noted = !error;
    if (!error)
        error = file_put(store, address, bytes, n, &done);
    if (!error) {
        start_writeback(store, n);
        return 0;
    }
    if (is_noted && or_keep) {
        store->write_again = true;
        return 0;
    }
    /* The kernel may have taken a part of the page in which it stopped. */
    uint64_t from = address + done;
    if (done > 0)
        from += (PAGE_BYTES - from % PAGE_BYTES) % PAGE_BYTES;
    store->write_again |= unsynced_revoke(store, from, address + n) || from != address + done;
    return error;
}

int file_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep)
{
    const char *from = bytes;
    int error = 0;
    if (store->image) {
        image_write(store->image, address, bytes, n);
        return 0;
    }
    for (size_t part; n > 0 && !error; n -= part) {
        part = n < PIECE_BYTES ? n : PIECE_BYTES;
        error = write_piece(store, address, from, part, or_keep);
        address += part;
        from += part;
    }
    return error;
}

int file_set_end(struct store *store, uint64_t end)
{
    int error = file_check_end(store);
    if (!error)
        error = journal_mark_passed(store);
    if (!error && ftruncate(store->fd, (off_t)end) < 0) {
        store_say(store, NULL, "cannot set its end: %s", strerror(errno));
        error = disk_error(errno);
    }
    if (error)
        return error;
    store->file_end = end;
    unsynced_cut(store, end);
    return 0;
}

/* Unsynced pages behind the end in use are not written again: there may be no room for them, and
 * the file will end before them. */
int file_sync(struct store *store, bool all)
{
    uint64_t end = UINT64_MAX;
    int error = 0;
    if (store->write_again) {
        uint64_t in_use = end_in_use(store);
        end = in_use > store->committed_end ? in_use : store->committed_end;
        error = unsynced_write_again(store, end);
    }
    if (!error && (all ? fsync : fdatasync)(store->fd) < 0) {
        error = -errno;
        store_say(store, NULL, "cannot sync it: %s", strerror(-error));
        /* The kernel's cached pages are dropped: whoever reads the file next must see what the disk
         * has. */
        (void)posix_fadvise(store->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (!error)
        unsynced_clear(store, end);
    store->write_again = error || (store->write_again && atomic_load(&store->n_unsynced) > 0);
    return error;
}

int store_read_why(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
{
    uint64_t end;
    if (__builtin_add_overflow(address, (uint64_t)n, &end) || end > store_size(store)) {
        int error = store->is_following ? follow_check(store) : 0;
        if (error)
            return error;
        store_say(store, why, "%zu bytes at address %llu lie beyond the end of the file", n,
                  (unsigned long long)address);
        return -EIO;
    }
    int error = atomic_load_explicit(&store->n_pages, memory_order_acquire) == 0
                    ? file_read(store, address, buffer, n, why)
                    : pages_read(store, address, buffer, n, why);
    if (!error && store->is_following)
        error = follow_check(store);
    if (error)
        return error;
    atomic_fetch_add_explicit(&store->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->bytes_read, n, memory_order_relaxed);
    return 0;
}

int store_read(struct store *store, uint64_t address, void *buffer, size_t n)
{
    return store_read_why(store, address, buffer, n, NULL);
}

const void *store_view(struct store *store, uint64_t address, size_t n)
{
    uint64_t end;
    if (!store->map || __builtin_add_overflow(address, (uint64_t)n, &end) ||
        end > (uint64_t)store->st.st_size || end > store_size(store) ||
        pages_touch(store, address, n) || unsynced_touch(store, address, n))
        return NULL;
    /* Maps all pages at once instead of one fault each, where the kernel can. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)(store->map + address) & ~(page - 1);
    uintptr_t last = (uintptr_t)(store->map + address + n);
    if (!store->image)
        madvise((void *)first, last - first, MADV_POPULATE_READ);
    atomic_fetch_add_explicit(&store->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->bytes_read, n, memory_order_relaxed);
    return store->map + address;
}

bool store_is_same(const struct store *a, const struct store *b)
{
    if (a->image || b->image)
        return a == b;
    return a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino;
}

void store_counters(const struct store *store, uint64_t *reads, uint64_t *bytes)
{
    *reads = atomic_load_explicit(&store->reads, memory_order_relaxed);
    *bytes = atomic_load_explicit(&store->bytes_read, memory_order_relaxed);
}

uint64_t store_commits(const struct store *store)
{
    return atomic_load_explicit(&store->commits, memory_order_relaxed);
}
