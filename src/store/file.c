/* The store over a file that is only read: pread under the lock that libhdf5 takes. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"

struct store {
    int fd;
    char *path;
    bool writable;
    struct stat st; /* as of opening */
    atomic_uint_fast64_t size;
    const char *map; /* the whole file; NULL: not mapped */
    atomic_uint_fast64_t reads;
    atomic_uint_fast64_t bytes_read;
};

/* The rules for locks are those of the HDF5 1.10.7 release notes. */
static int take_lock(int fd, const char *path, int kind)
{
    const char *setting = getenv("HDF5_USE_FILE_LOCKING");
    if (setting && (!strcmp(setting, "FALSE") || !strcmp(setting, "0")))
        return 0;
    bool must_lock = setting && (!strcmp(setting, "TRUE") || !strcmp(setting, "1"));

    while (flock(fd, kind | LOCK_NB) < 0) {
        switch (errno) {
        case EINTR:
            continue;
        case EWOULDBLOCK:
            log_error("%s: another program has it open for writing", path);
            return -EBUSY;
        case ENOSYS:
        case EOPNOTSUPP:
        case ENOLCK:
            if (!must_lock)
                return 0;
            /* fall through */
        default: {
            int error = -errno;
            log_error("%s: cannot lock: %s", path, strerror(-error));
            return error;
        }
        }
    }
    return 0;
}

static int open_with(const char *path, int flags, struct store **out)
{
    int error;
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    store->fd = -1;
    store->path = strdup(path);
    if (!store->path) {
        error = -ENOMEM;
        goto failed;
    }
    /* O_NONBLOCK: opening a FIFO must not wait for its writer; it has no effect on files. */
    store->fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    if (store->fd < 0 || fstat(store->fd, &store->st) < 0) {
        error = -errno;
        log_error("%s: %s", path, strerror(errno));
        goto failed;
    }
    if (!S_ISREG(store->st.st_mode)) {
        error = -EINVAL;
        log_error("%s: not a regular file", path);
        goto failed;
    }
    store->writable = (flags & O_ACCMODE) == O_RDWR;
    atomic_init(&store->size, (uint64_t)store->st.st_size);
    error = take_lock(store->fd, path, store->writable ? LOCK_EX : LOCK_SH);
    if (error)
        goto failed;
    if (store->writable) {
        *out = store;
        return 0;
    }
    void *map = mmap(NULL, (size_t)store->st.st_size, PROT_READ, MAP_SHARED, store->fd, 0);
    if (map != MAP_FAILED)
        store->map = map;
    *out = store;
    return 0;

failed:
    store_close(store);
    return error;
}

int store_open(const char *path, struct store **store)
{
    return open_with(path, O_RDONLY, store);
}

int store_open_writable(const char *path, struct store **store)
{
    return open_with(path, O_RDWR, store);
}

int store_create(const char *path, struct store **store)
{
    return open_with(path, O_RDWR | O_CREAT | O_EXCL, store);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    if (store->map)
        munmap((void *)store->map, (size_t)store->st.st_size);
    if (store->fd >= 0)
        close(store->fd);
    free(store->path);
    free(store);
}

const char *store_path(const struct store *store)
{
    return store->path;
}

uint64_t store_size(const struct store *store)
{
    return atomic_load(&store->size);
}

int store_stat(const struct store *store, struct stat *st)
{
    return fstat(store->fd, st) < 0 ? -errno : 0;
}

int store_statvfs(const struct store *store, struct statvfs *st)
{
    return fstatvfs(store->fd, st) < 0 ? -errno : 0;
}

int store_read(struct store *store, uint64_t address, void *buffer, size_t n)
{
    uint64_t end;
    if (__builtin_add_overflow(address, (uint64_t)n, &end) || end > store_size(store)) {
        log_error("%s: %zu bytes at address %llu lie beyond the end of the file", store->path, n,
                  (unsigned long long)address);
        return -EIO;
    }
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(store->fd, (char *)buffer + done, n - done, (off_t)(address + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            log_error("%s: cannot read %zu bytes at address %llu: %s", store->path, n,
                      (unsigned long long)address, got ? strerror(errno) : "the file has shrunk");
            return -EIO;
        }
        done += (size_t)got;
    }
    atomic_fetch_add_explicit(&store->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->bytes_read, n, memory_order_relaxed);
    return 0;
}

int store_write(struct store *store, uint64_t address, const void *bytes, size_t n)
{
    uint64_t end;
    if (__builtin_add_overflow(address, (uint64_t)n, &end) || end > store_size(store))
        return -EIO;
    for (size_t done = 0; done < n;) {
        ssize_t put =
            pwrite(store->fd, (const char *)bytes + done, n - done, (off_t)(address + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put ? -errno : -EIO;
        done += (size_t)put;
    }
    return 0;
}

int store_allocate(struct store *store, uint64_t n, uint64_t *address)
{
    uint64_t size = store_size(store), end;
    if (__builtin_add_overflow(size, n, &end) || end > INT64_MAX)
        return -EFBIG;
    if (ftruncate(store->fd, (off_t)end) < 0)
        return -errno;
    atomic_store(&store->size, end);
    *address = size;
    return 0;
}

/* The space is not used again. */
int store_free(struct store *store, uint64_t address, uint64_t n)
{
    uint64_t end;
    return __builtin_add_overflow(address, n, &end) || end > store_size(store) ? -EINVAL : 0;
}

int store_commit(struct store *store)
{
    return fdatasync(store->fd) < 0 ? -errno : 0;
}

const void *store_view(struct store *store, uint64_t address, size_t n)
{
    uint64_t end;
    if (!store->map || __builtin_add_overflow(address, (uint64_t)n, &end) ||
        end > store_size(store))
        return NULL;
    /* The pages are found at once instead of one by one while they are copied. Where the kernel
     * cannot do that they are found one by one. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)(store->map + address) & ~(page - 1);
    uintptr_t last = (uintptr_t)(store->map + address + n);
    madvise((void *)first, last - first, MADV_POPULATE_READ);
    atomic_fetch_add_explicit(&store->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->bytes_read, n, memory_order_relaxed);
    return store->map + address;
}

bool store_is_same(const struct store *a, const struct store *b)
{
    return a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino;
}

void store_counters(const struct store *store, uint64_t *reads, uint64_t *bytes)
{
    *reads = atomic_load_explicit(&store->reads, memory_order_relaxed);
    *bytes = atomic_load_explicit(&store->bytes_read, memory_order_relaxed);
}
