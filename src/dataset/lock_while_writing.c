/* The lock of a writer on files that are opened with options->share: it is taken by the first
 * change and given back when all is in the file. */
#include <errno.h>

#include "cache/cache.h"
#include "dataset/private.h"
#include "store/store.h"

/* users is incremented before is_writer is read, and is_writer cleared before users is read: one of
 * the two threads sees the other. */
int sfs_begin_writing(struct sfs_file *file)
{
    if (!sfs_is_writable(file))
        return -EROFS;
    atomic_fetch_add(&file->writing.users, 1);
    if (atomic_load(&file->writing.is_writer))
        return 0;
    pthread_mutex_lock(&file->writing.lock);
    int error = atomic_load(&file->writing.is_writer) ? 0 : store_begin_writing(file->store);
    if (!error)
        atomic_store(&file->writing.is_writer, true);
    pthread_mutex_unlock(&file->writing.lock);
    if (error)
        atomic_fetch_sub(&file->writing.users, 1);
    return error;
}

struct writer writing_begin(struct sfs_file *file)
{
    int error = sfs_begin_writing(file);
    return (struct writer){.file = error ? NULL : file, .error = error};
}

void writing_end(struct writer *writing)
{
    if (writing->file)
        atomic_fetch_sub(&writing->file->writing.users, 1);
}

/* Changes may be on their way to the file: the lock is held until they are. */
bool writing_hold(struct sfs_file *file)
{
    if (!store_is_writable(file->store))
        return false;
    atomic_fetch_add(&file->writing.users, 1);
    if (atomic_load(&file->writing.is_writer))
        return true;
    pthread_mutex_lock(&file->writing.lock);
    bool has_begun = atomic_load(&file->writing.is_writer);
    pthread_mutex_unlock(&file->writing.lock);
    if (!has_begun)
        sfs_end_writing(file);
    return has_begun;
}

void sfs_end_writing(struct sfs_file *file)
{
    atomic_fetch_sub(&file->writing.users, 1);
}

/* Holds `writing.lock` while everything is brought into the file. */
static int give_back(struct sfs_file *file)
{
    int left, error = -EBUSY;
    atomic_store(&file->writing.is_writer, false);
    if (atomic_load(&file->writing.users) == 0) {
        error = file_flush(file, true, &left);
        if (!error)
            error = left;
        if (!error && cache_has_changes(file->cache, file->store))
            error = -EBUSY; /* nothing would store them without the lock */
        if (!error)
            error = store_end_writing(file->store);
    }
    if (error)
        atomic_store(&file->writing.is_writer, true);
    return error;
}

int sfs_share(struct sfs_file *file)
{
    if (!file->writing.can_end)
        return 0;
    pthread_mutex_lock(&file->writing.lock);
    int error = atomic_load(&file->writing.is_writer) ? give_back(file) : store_share(file->store);
    pthread_mutex_unlock(&file->writing.lock);
    return error;
}

enum sfs_lock sfs_lock(const struct sfs_file *file)
{
    return store_lock(file->store);
}
