/* Objects of one file in another, and links. Sparse datasets are copied chunk by chunk by those who
 * want that: libhdf5 cannot. */
#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "dataset/private.h"
#include "hdf5/hdf5.h"

static int failed(const struct sfs_file *file, const char *path, int error)
{
    if (error && error != -ENOMEM)
        log_error("%s: %s: cannot create it: %s", sfs_path(file), path,
                  error == -EOPNOTSUPP ? "user-defined links cannot be made" : hdf5_error());
    return error;
}

static int copy_group(struct sfs_file *to, const char *path, struct sfs_file *from,
                      uint64_t address)
{
    uint64_t copy = sfs_root(to);
    bool is_root = !strcmp(path, "/");
    pthread_rwlock_rdlock(&to->commit_lock);
    int error = is_root ? 0 : hdf5_copy_group(to->hdf5, path, from->hdf5, address);
    pthread_rwlock_unlock(&to->commit_lock);
    if (error)
        return failed(to, path, error);
    if (!is_root)
        error = sfs_find(to, sfs_root(to), path, &copy);
    return error ? error : sfs_attributes_copy(to, copy, from, address);
}

int sfs_object_copy(struct sfs_file *to, const char *path, struct sfs_file *from, uint64_t address)
{
    enum sfs_object_type type;
    if (!sfs_is_writable(to))
        return -EROFS;
    int error = sfs_object_type(from, address, &type);
    if (error)
        return error;
    if (type == SFS_GROUP)
        return copy_group(to, path, from, address);
    pthread_rwlock_rdlock(&to->commit_lock);
    error = hdf5_copy_object(to->hdf5, path, from->hdf5, address);
    pthread_rwlock_unlock(&to->commit_lock);
    return failed(to, path, error);
}

int sfs_references_copy(struct sfs_file *to, const char *path, struct sfs_file *from,
                        uint64_t address, const struct sfs_moved *moved, size_t n)
{
    if (!sfs_is_writable(to))
        return -EROFS;
    pthread_rwlock_rdlock(&to->commit_lock);
    int error = hdf5_copy_references(to->hdf5, path, from->hdf5, address, moved, n);
    pthread_rwlock_unlock(&to->commit_lock);
    return failed(to, path, error);
}

int sfs_link_create(struct sfs_file *file, const char *path, const struct sfs_link *link)
{
    if (!sfs_is_writable(file))
        return -EROFS;
    pthread_rwlock_rdlock(&file->commit_lock);
    int error = hdf5_create_link(file->hdf5, path, link);
    pthread_rwlock_unlock(&file->commit_lock);
    return failed(file, path, error);
}
