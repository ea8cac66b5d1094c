/* Objects of one file in another, and links. Sparse datasets are copied chunk by chunk by those who
 * want that: libhdf5 cannot. */
#include <errno.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/private.h"
#include "dataset/references.h"
#include "dataset/series.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

static int failed(const struct sfs_file *file, const char *path, int error)
{
    if (error && error != -ENOMEM && error != STORE_MOVED)
        log_error("%s: %s: cannot create it: %s", sfs_path(file), path,
                  error == -EOPNOTSUPP ? "user-defined links cannot be made" : hdf5_error());
    return error;
}

typedef int (*copy_function)(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);

static int copy_once(struct sfs_file *to, const char *path, struct sfs_file *from, uint64_t address,
                     copy_function copy)
{
    FOLLOWED(from);
    int error = library_current(from);
    if (error)
        return error;
    pthread_rwlock_rdlock(&to->commit_lock);
    error = copy(to->hdf5, path, from->hdf5, address);
    pthread_rwlock_unlock(&to->commit_lock);
    return failed(to, path, error);
}

static int copy_group(struct sfs_file *to, const char *path, struct sfs_file *from,
                      uint64_t address)
{
    uint64_t copy = sfs_root(to);
    int error = 0;
    if (strcmp(path, "/") != 0) {
        error = follow_end_copy(from, copy_once(to, path, from, address, hdf5_copy_group));
        if (!error)
            error = sfs_find(to, sfs_root(to), path, &copy);
    }
    return error ? error : sfs_attributes_copy(to, copy, from, address);
}

int sfs_object_copy(struct sfs_file *to, const char *path, struct sfs_file *from, uint64_t address)
{
    enum sfs_object_type type;
    WRITING(to);
    if (writing.error)
        return writing.error;
    int error = sfs_object_type(from, address, &type); /* libhdf5 knows the state then */
    if (error)
        return error;
    if (series_is_address(address))
        return -EOPNOTSUPP;
    if (type == SFS_GROUP)
        return copy_group(to, path, from, address);
    if (from->follows && !store_is_live(from->store)) {
        log_error(
            "%s: libhdf5 does not bear that a file moves on while it copies from it: copy from "
            "an image",
            sfs_path(from));
        return -EOPNOTSUPP;
    }
    return follow_end_copy(from, copy_once(to, path, from, address, hdf5_copy_object));
}

static int copy_references(struct sfs_file *to, const char *path, struct sfs_file *from,
                           uint64_t address, const struct sfs_moved *moved, size_t n)
{
    FOLLOWED(from);
    int error = library_current(from);
    if (error)
        return error;
    pthread_rwlock_rdlock(&to->commit_lock);
    error = hdf5_copy_references(to->hdf5, path, from->hdf5, address, moved, n);
    pthread_rwlock_unlock(&to->commit_lock);
    return failed(to, path, error);
}

/* Of a sparse dataset, which libhdf5 cannot open. Attributes that are references were left out. */
static int copy_own_references(struct sfs_file *to, const char *path, struct sfs_dataset *from,
                               const struct sfs_moved *moved, size_t n)
{
    struct sfs_dataset *copy;
    uint64_t address;
    if (!references_are_in(from))
        return 0;
    int error = sfs_find(to, sfs_root(to), path, &address);
    if (!error)
        error = sfs_dataset_open(to, address, path, &copy);
    if (error)
        return error;
    error = references_copy(copy, from, moved, n);
    if (!error)
        error = sfs_flush_dataset(copy, false);
    sfs_dataset_close(copy);
    return error;
}

/* Opens an object that is a sparse dataset; NULL: it is not. */
static int open_sparse(struct sfs_file *file, uint64_t address, const char *path,
                       struct sfs_dataset **dataset)
{
    enum sfs_object_type type;
    *dataset = NULL;
    int error = sfs_object_type(file, address, &type);
    if (error || type != SFS_DATASET || series_is_address(address))
        return error;
    if (sfs_dataset_open(file, address, path, dataset)) /* whatever it is, libhdf5 may copy it */
        return 0;
    if (!(*dataset)->sparse) {
        sfs_dataset_close(*dataset);
        *dataset = NULL;
    }
    return 0;
}

int sfs_references_copy(struct sfs_file *to, const char *path, struct sfs_file *from,
                        uint64_t address, const struct sfs_moved *moved, size_t n)
{
    struct sfs_dataset *sparse;
    WRITING(to);
    if (writing.error)
        return writing.error;
    int error = open_sparse(from, address, path, &sparse);
    if (error)
        return error;
    if (sparse) {
        error = copy_own_references(to, path, sparse, moved, n);
        sfs_dataset_close(sparse);
        return error;
    }
    error = follow_begin_copy(from);
    if (!error)
        error = copy_references(to, path, from, address, moved, n);
    return follow_end_copy(from, error);
}

int sfs_link_create(struct sfs_file *file, const char *path, const struct sfs_link *link)
{
    WRITING(file);
    if (writing.error)
        return writing.error;
    if (link->type == SFS_LINK_HARD)
        return hard_link_create(file, path, link);
    int error = interrupt_rdlock(&file->commit_lock);
    if (error)
        return error;
    error = hdf5_create_link(file->hdf5, path, link, NULL);
    pthread_rwlock_unlock(&file->commit_lock);
    return failed(file, path, error);
}
