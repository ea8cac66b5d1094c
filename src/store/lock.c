/* The lock of a store's file, as libhdf5 takes it (flock). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "store/lock_holder.h"
#include "store/private.h"

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
