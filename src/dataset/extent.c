/* Changing the dims of a sparse dataset. What lies outside of the new dims is erased first, so that
 * it does not come back when the dataset grows again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/log.h"
#include "dataset/private.h"
#include "layout/sparse.h"

/* The chunks that a change concerns: n times rank scaled coordinates. */
struct concerned {
    const struct layout *layout;
    const uint64_t *dims; /* the new ones */
    uint64_t *scaled;
    size_t n, capacity;
};

static int note(struct concerned *chunks, const uint64_t *scaled)
{
    size_t rank = (size_t)chunks->layout->rank;
    if (chunks->n == chunks->capacity) {
        size_t capacity = chunks->capacity + chunks->capacity / 2 + 64;
        uint64_t *grown = reallocarray(chunks->scaled, capacity, rank * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        chunks->scaled = grown;
        chunks->capacity = capacity;
    }
    memcpy(chunks->scaled + chunks->n++ * rank, scaled, rank * sizeof(*scaled));
    return 0;
}

/* Chunks that reach over the new dims. */
static int note_cut(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct concerned *chunks = context;
    (void)record;
    for (int i = 0; i < chunks->layout->rank; i++) {
        uint64_t end = scaled[i] * chunks->layout->chunk_dims[i] + chunks->layout->chunk_dims[i];
        if (end > chunks->dims[i] && chunks->dims[i] < chunks->layout->dims[i])
            return note(chunks, scaled);
    }
    return 0;
}

/* Chunks that reach over the old dims and were stored without filters for that. */
static int note_edge(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct concerned *chunks = context;
    (void)record;
    return layout_is_edge(chunks->layout, scaled) ? note(chunks, scaled) : 0;
}

int dataset_outside(const struct layout *layout, const uint64_t *scaled, const uint64_t *dims,
                    struct runs *outside, bool *whole)
{
    static const uint64_t origin[SFS_MAX_RANK];
    uint64_t kept[SFS_MAX_RANK];
    struct runs inside = {0};
    *whole = false;
    for (int i = 0; i < layout->rank; i++) {
        uint64_t start = scaled[i] * layout->chunk_dims[i];
        uint64_t left = dims[i] > start ? dims[i] - start : 0;
        kept[i] = left < layout->chunk_dims[i] ? left : layout->chunk_dims[i];
        *whole |= left == 0;
    }
    runs_init(outside);
    int error = runs_append(outside, 0, layout->chunk_bytes / layout->element_size);
    if (!error && !*whole)
        error = runs_of_box(layout->rank, layout->chunk_dims, origin, kept, &inside);
    if (!error && !*whole)
        error = runs_difference(outside, &inside, outside);
    runs_free(&inside);
    return error;
}

/* Erases what of a chunk lies outside of the new dims. */
static int erase_outside(struct sfs_dataset *dataset, const uint64_t *scaled, const uint64_t *dims)
{
    struct runs outside;
    bool whole;
    int error = dataset_outside(&dataset->layout, scaled, dims, &outside, &whole);
    if (!error)
        error = cache_erase(dataset->cache, scaled, &outside, whole);
    runs_free(&outside);
    return error;
}

/* Marks a chunk as changed, so that it is stored again. */
static int touch(struct sfs_dataset *dataset, const uint64_t *scaled)
{
    struct runs nothing = {0};
    return cache_write(dataset->cache, scaled, &nothing, "", false);
}

static int set_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct sfs_file *file = dataset->file;
    struct layout *layout = &dataset->layout;
    struct why why;
    size_t bytes = (size_t)layout->rank * sizeof(*dims);
    pthread_rwlock_wrlock(&file->commit_lock);
    int error = dataset_header_set_dims(file->store, &file->superblock, dataset->address,
                                        layout->rank, dims, &why);
    if (!error) {
        memcpy(dataset->sparse->header.dataspace.dims, dims, bytes);
        memcpy(layout->dims, dims, bytes);
        memcpy(dataset->info.dims, dims, bytes);
        (void)box_product(dims, layout->rank, 1, &dataset->info.elements); /* checked before */
    }
    pthread_rwlock_unlock(&file->commit_lock);
    if (error && error != -ENOMEM)
        log_error("%s: %s: cannot change the dims: %s", sfs_path(file), dataset->path, why.text);
    return error == -EILSEQ ? -EIO : error;
}

int sfs_set_extent(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct layout *layout = &dataset->layout;
    struct concerned chunks = {.layout = layout, .dims = dims};
    bool shrinks = false;
    uint64_t elements;
    if (!dataset->sparse)
        return -EOPNOTSUPP;
    if (!sfs_is_writable(dataset->file))
        return -EROFS;
    for (int i = 0; i < layout->rank; i++) {
        if (dims[i] > dataset->info.max_dims[i])
            return -EINVAL;
        shrinks |= dims[i] < layout->dims[i];
    }
    if (!box_product(dims, layout->rank, 1, &elements))
        return -EINVAL;
    size_t rank = (size_t)layout->rank;
    bool edges =
        dataset->sparse->header.filtered && dataset->sparse->header.layout.unfiltered_edges;
    /* What is stored without filters at an edge is stored by the dims: not while they change. */
    cache_hold(dataset->cache);
    int error = cache_flush(dataset->file->cache, dataset->cache); /* the index is to know all */
    if (!error && edges)
        error = layout_each_chunk(layout, note_edge, &chunks);
    for (size_t i = 0; i < chunks.n && !error; i++)
        error = touch(dataset, chunks.scaled + i * rank);
    chunks.n = 0;
    if (!error && shrinks)
        error = layout_each_chunk(layout, note_cut, &chunks);
    for (size_t i = 0; i < chunks.n && !error; i++)
        error = erase_outside(dataset, chunks.scaled + i * rank, dims);
    free(chunks.scaled);
    if (!error && shrinks && !edges) /* chunks outside are deleted while the index knows them */
        error = cache_flush(dataset->file->cache, dataset->cache);
    if (!error)
        error = set_dims(dataset, dims);
    if (!error && edges)
        error = cache_flush(dataset->file->cache, dataset->cache);
    if (!error && shrinks)
        cache_forget_outside(dataset->cache);
    cache_let_go(dataset->cache);
    return error;
}
