/* Bytes of a store's file: read, written, synced, viewed; and its end. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/io.h"
#include "store/private.h"

#ifndef MADV_POPULATE_READ /* glibc < 2.35; Linux has it since 5.14 */
#define MADV_POPULATE_READ 22
#endif

#define PIECE_BYTES ((size_t)4 << 20) /* that are written at a time */

int directory_sync(const struct store *store)
{
    int error = TEMP_FAILURE_RETRY(fsync(store->folder)) < 0 ? -errno : 0;
    /* Some file systems cannot sync directories; their names are durable without it. */
    if (error == -EINVAL)
        error = 0;
    if (error)
        store_say(store, NULL, "cannot sync its directory: %s", strerror(-error));
    return error;
}

int file_read_at(struct store *store, uint64_t address, void *buffer, size_t n, size_t *done)
{
    int error = io_read_at(store->fd, address, buffer, n, done);
    if (error)
        atomic_fetch_add_explicit(&store->failed_reads, 1, memory_order_relaxed);
    return error;
}

int file_get(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
{
    size_t done;
    int error = file_read_at(store, address, buffer, n, &done);
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
        error = file_error(error);
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
 * error shows in the next sync, or only here. */
static void start_writeback(struct store *store, size_t n)
{
    store->unstarted += n;
    if (store->unstarted < WRITEBACK_BYTES)
        return;
    if (sync_file_range(store->fd, 0, 0, SYNC_FILE_RANGE_WRITE) < 0)
        store->write_again |=
            errno != EINVAL && errno != ESPIPE && errno != ENOSYS && errno != EPERM;
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
    if (!error && TEMP_FAILURE_RETRY(ftruncate(store->fd, (off_t)end)) < 0) {
        store_say(store, NULL, "cannot set its end: %s", strerror(errno));
        error = file_error(-errno);
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
    if (!error && TEMP_FAILURE_RETRY((all ? fsync : fdatasync)(store->fd)) < 0) {
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
        atomic_load(&store->lost_lock) || pages_touch(store, address, n) ||
        unsynced_touch(store, address, n))
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
