/* Unfinished elements, and the first dim that is committed for them: a frame that is being written
 * for the first time must not be counted by others. Headers have the current dims, and the
 * committed ones while the store is committed. Nothing is stored outside of these: it would come
 * back when the dataset grows again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "dataset/private.h"
#include "layout/sparse.h"

struct sfs_unfinished {
    struct sfs_dataset *dataset;
    struct unfinished *elements;
    uint64_t end; /* of the first dim */
};

int sfs_begin_unfinished(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                         struct sfs_unfinished **out)
{
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    USING(dataset);
    struct box box = {.rank = slab->rank};
    if (!dataset->cache || slab->rank != dataset->layout.rank)
        return dataset->cache ? -EINVAL : -EOPNOTSUPP;
    for (int i = 0; i < box.rank; i++) {
        uint64_t end;
        if (__builtin_add_overflow(slab->start[i], slab->count[i], &end) || end > INT64_MAX)
            return -EINVAL;
        box.start[i] = slab->start[i];
        /* Chunks that reach over that edge are unfinished as a whole. */
        box.count[i] = i > 0 && end == dataset->layout.dims[i] ? INT64_MAX : slab->count[i];
    }
    struct sfs_unfinished *unfinished = calloc(1, sizeof(*unfinished));
    if (!unfinished)
        return -ENOMEM;
    *unfinished = (struct sfs_unfinished){dataset, NULL, slab->start[0] + slab->count[0]};
    int error = cache_begin_unfinished(dataset->cache, &box, &unfinished->elements);
    if (error) {
        free(unfinished);
        return error;
    }
    writing.file = NULL; /* until sfs_end_unfinished: what commits leave out needs the lock */
    *out = unfinished;
    return 0;
}

void sfs_end_unfinished(struct sfs_unfinished *unfinished)
{
    if (!unfinished)
        return;
    struct sfs_file *file = unfinished->dataset->file;
    atomic_uint_least64_t *finished = &unfinished->dataset->finished_end;
    uint64_t before = atomic_load(finished);
    while (before < unfinished->end &&
           !atomic_compare_exchange_weak(finished, &before, unfinished->end))
        ;
    cache_end_unfinished(unfinished->elements);
    free(unfinished);
    sfs_end_writing(file);
}

/* ---- Commits ---- */

/* Whether a commit can have another first dim. Not where dims decide how chunks at the edge are
 * stored, or chunks are stored whole that have others. */
static bool can_be_cut(const struct sfs_dataset *dataset)
{
    if (dataset->info.rank == 0)
        return false;
    if (!dataset->sparse)
        return dataset->info.layout == SFS_CHUNKED && dataset->layout.chunk_dims[0] == 1 &&
               !dataset->layout.unfiltered_edges;
    const struct dataset_header *header = &dataset->sparse->header;
    return !(header->filtered && header->layout.unfiltered_edges);
}

void unfinished_begin_commit(struct sfs_dataset *dataset, bool keeps_promises)
{
    if (!dataset->cache)
        return;
    uint64_t promised = keeps_promises ? atomic_load(&dataset->finished_end) : 0;
    uint64_t dim = dataset->layout.dims[0];
    bool cut = can_be_cut(dataset); /* else all of that dim is committed */
    cache_begin_commit(dataset->cache, cut ? dataset->committed_end : dim, promised,
                       cut ? dim : UINT64_MAX);
}

int unfinished_put_dims(struct sfs_dataset *dataset)
{
    uint64_t dims[SFS_MAX_RANK], end;
    if (!dataset->cache || !can_be_cut(dataset))
        return 0;
    memcpy(dims, dataset->layout.dims, sizeof(dims));
    end = cache_commit_end(dataset->cache);
    dims[0] = end < dims[0] ? end : dims[0];
    dataset->flush_end = dims[0];
    bool differs = dims[0] != dataset->layout.dims[0];
    if (!differs && !atomic_load(&dataset->header_differs))
        return 0;
    int error = dataset_put_dims(dataset, dims);
    if (error)
        return error;
    atomic_store(&dataset->header_differs, differs);
    if (differs) {
        dataset->next_differing = dataset->file->differing;
        dataset->file->differing = dataset;
    }
    return 0;
}

static void restore(struct sfs_dataset *dataset)
{
    atomic_store(&dataset->header_differs, dataset_put_dims(dataset, dataset->layout.dims) != 0);
}

/* One of which the header is as it was may be dropped at once; else the next commit tries again. */
void unfinished_restore(struct sfs_file *file)
{
    struct sfs_dataset *next;
    for (struct sfs_dataset *i = file->differing; i; i = next) {
        next = i->next_differing;
        restore(i);
    }
    file->differing = NULL;
}

/* Before anything is stored: libhdf5 takes no chunk outside of the dims that it has. */
void unfinished_restore_left(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    HASH_ITER (hh, file->datasets, dataset, next) {
        if (!atomic_load(&dataset->header_differs))
            continue;
        pthread_rwlock_wrlock(&file->commit_lock);
        restore(dataset);
        pthread_rwlock_unlock(&file->commit_lock);
    }
}

void unfinished_end_commit(struct sfs_dataset *dataset, bool is_committed)
{
    if (!dataset->cache)
        return;
    if (is_committed)
        dataset->committed_end = dataset->flush_end;
    cache_end_commit(dataset->cache);
}

void unfinished_cut_rows(struct sfs_dataset *dataset, uint64_t end)
{
    uint64_t before = atomic_load(&dataset->finished_end);
    while (before > end && !atomic_compare_exchange_weak(&dataset->finished_end, &before, end))
        ;
    if (dataset->committed_end > end)
        dataset->committed_end = end;
    if (dataset->flush_end > end)
        dataset->flush_end = end;
}
