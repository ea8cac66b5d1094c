/* Writing elements that only libhdf5 can write: of dense datasets whose chunks are not written through the
 * cache, and sequences. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/size.h"
#include "dataset/private.h"
#include "dataset/series.h"
#include "hdf5/hdf5.h"

int dataset_write_dense(struct sfs_dataset *dataset, const struct box *box, const void *elements)
{
    struct sfs_file *file = dataset->file;
    if (series_is_address(dataset->address))
        return -EOPNOTSUPP;
    int error = interrupt_rdlock(&file->commit_lock);
    if (error)
        return error;
    error = hdf5_write(file->hdf5, dataset->address, box->start, box->count, elements);
    pthread_rwlock_unlock(&file->commit_lock);
    if (error == -EIO || error == -EINVAL || error == -EOPNOTSUPP)
        log_error("%s: %s: cannot write: %s", sfs_path(file), dataset->path, hdf5_error());
    cache_forget(dataset->cache);
    return error;
}

/* ---- Elements of variable length that libhdf5 writes ---- */

#define MOST_AT_ONCE ((size_t)32 << 20) /* bytes, if it is more than one element */

/* What sequences have, one after the other. */
static int join_sequences(const struct sfs_sequence *sequences, size_t n, size_t base_size,
                          uint64_t **lengths, char **bytes, size_t *bytes_n)
{
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all = size_sum(all, size_product(size_of(sequences[i].n), base_size));
    *lengths = calloc(n, sizeof(**lengths));
    *bytes = all < SIZE_MAX / 2 ? malloc(all + 1) : NULL;
    *bytes_n = all;
    if (!*lengths || !*bytes)
        return -ENOMEM;
    char *to = *bytes;
    for (size_t i = 0; i < n; i++) {
        size_t here = (size_t)sequences[i].n * base_size;
        if (here > 0)
            memcpy(to, sequences[i].elements, here);
        (*lengths)[i] = sequences[i].n;
        to += here;
    }
    return 0;
}

static int write_sequences(struct sfs_dataset *dataset, const struct box *box,
                           const struct sfs_sequence *sequences, size_t n)
{
    struct sfs_file *file = dataset->file;
    const struct sfs_type *type = &dataset->info.type;
    uint64_t *lengths;
    char *bytes;
    size_t bytes_n;
    int error = join_sequences(sequences, n, type->is_string ? 1 : type->base->size, &lengths,
                               &bytes, &bytes_n);
    if (!error)
        error = interrupt_rdlock(&file->commit_lock);
    if (!error) {
        error = hdf5_write_sequences(file->hdf5, dataset->address, box->start, box->count,
                                     &(struct hdf5_sequences){lengths, bytes, bytes_n});
        pthread_rwlock_unlock(&file->commit_lock);
    }
    free(lengths);
    free(bytes);
    if (error == -EIO || error == -EINVAL || error == -EOPNOTSUPP || error == -EFBIG)
        log_error("%s: %s: cannot write: %s", sfs_path(file), dataset->path, hdf5_error());
    return error;
}

static size_t bytes_of(const struct sfs_dataset *dataset, const struct sfs_sequence *sequences,
                       size_t n)
{
    const struct sfs_type *type = &dataset->info.type;
    size_t bytes = size_product(n, sizeof(*sequences));
    for (size_t i = 0; i < n; i++)
        bytes = size_sum(
            bytes, size_product(size_of(sequences[i].n), type->is_string ? 1 : type->base->size));
    return bytes;
}

/* In halves along the first axis that can be cut, where it is too much for one call. */
int dataset_write_dense_sequences(struct sfs_dataset *dataset, const struct box *box,
                                  const struct sfs_sequence *sequences)
{
    uint64_t n;
    int axis = 0;
    struct box half = *box;
    if (series_is_address(dataset->address))
        return -EOPNOTSUPP;
    if (!box_product(box->count, box->rank, 1, &n) || n > SIZE_MAX / sizeof(*sequences))
        return -EINVAL;
    while (axis < box->rank && box->count[axis] < 2)
        axis++;
    if (n == 0)
        return 0;
    if (axis == box->rank || bytes_of(dataset, sequences, (size_t)n) <= MOST_AT_ONCE)
        return write_sequences(dataset, box, sequences, (size_t)n);
    half.count[axis] = box->count[axis] / 2;
    int error = dataset_write_dense_sequences(dataset, &half, sequences);
    size_t done = (size_t)(n / box->count[axis] * half.count[axis]);
    half.start[axis] += half.count[axis];
    half.count[axis] = box->count[axis] - half.count[axis];
    return error ? error : dataset_write_dense_sequences(dataset, &half, sequences + done);
}
