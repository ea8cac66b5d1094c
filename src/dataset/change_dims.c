/* Changing the dims of a dataset. Elements of a sparse one outside of the new dims are erased
 * first, so that they do not come back when it grows again; for others libhdf5 does that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/private.h"
#include "dataset/sequences.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"

/* The chunks that a change of dims affects. */
struct concerned {
    const struct sfs_dataset *dataset;
    const struct layout *layout;
    const uint64_t *dims; /* the new ones */
    struct chunk_list list;
};

static int note(struct concerned *chunks, const uint64_t *scaled)
{
    return chunk_list_add(&chunks->list, chunks->dataset, scaled);
}

/* Adds chunks that reach over the new dims. */
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

/* Adds edge chunks of the old dims that were stored without filters. */
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

/* Loads what cutting a chunk needs of it. */
static int prepare(struct sfs_dataset *dataset, const uint64_t *scaled, const uint64_t *dims)
{
    (void)dims;
    return cache_prepare(dataset->cache, scaled);
}

/* Deletes a chunk, stored or not; after an error it is as it was, or deleted. */
static int delete (struct sfs_dataset *dataset, const uint64_t *scaled, const uint64_t *dims)
{
    (void)dims;
    return cache_insert(dataset->cache, scaled, NULL);
}

static int flush(struct sfs_dataset *dataset, const uint64_t *scaled, const uint64_t *dims)
{
    (void)dims;
    return cache_flush_chunk(dataset->cache, scaled);
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

/* Publishes the new dims. */
static void take_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    size_t bytes = (size_t)dataset->info.rank * sizeof(*dims);
    if (dims[0] < dataset->info.dims[0])
        unfinished_cut_rows(dataset, dims[0]);
    memcpy(dataset->layout.dims, dims, bytes);
    memcpy(dataset->info.dims, dims, bytes);
    (void)box_product(dims, dataset->info.rank, 1, &dataset->info.elements); /* checked before */
    atomic_fetch_add(&dataset->use.extents, 1);
}

static int set_library_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct sfs_file *file = dataset->file;
    int error = hdf5_set_extent(file->hdf5, dataset->address, dims);
    if (error == -EIO)
        log_error("%s: %s: cannot change the dims: %s", sfs_path(file), dataset->path,
                  hdf5_error());
    return error;
}

int dataset_put_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct sfs_file *file = dataset->file;
    struct why why;
    if (!dataset->sparse)
        return set_library_dims(dataset, dims);
    int error = hard_link_end(file);
    if (error)
        return error;
    error = dataset_header_set_dims(file->store, &file->superblock,
                                    dataset_store_address(file, dataset->address),
                                    dataset->layout.rank, dims, &why);
    if (error && error != -ENOMEM)
        log_error("%s: %s: cannot change the dims: %s", sfs_path(file), dataset->path, why.text);
    return error == -EILSEQ ? -EIO : error;
}

static int set_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct sfs_file *file = dataset->file;
    size_t bytes = (size_t)dataset->layout.rank * sizeof(*dims);
    pthread_rwlock_wrlock(&file->commit_lock);
    int error = dataset_put_dims(dataset, dims);
    if (!error) {
        memcpy(dataset->sparse->header.dataspace.dims, dims, bytes);
        take_dims(dataset, dims);
    }
    pthread_rwlock_unlock(&file->commit_lock);
    return error;
}

/* The same of those that are changed, and perhaps not in the index yet. */
static int note_changed(struct sfs_dataset *dataset, struct concerned *chunks)
{
    uint64_t *scaled;
    size_t n;
    int error = cache_changed(dataset->cache, &scaled, &n);
    for (size_t i = 0; i < n && !error; i++)
        error = note_cut(chunks, scaled + i * (size_t)chunks->layout->rank, NULL);
    free(scaled);
    return error;
}

/* Whether nothing of a chunk lies inside the new dims. */
static bool is_outside(const struct concerned *chunks, const uint64_t *scaled)
{
    const struct layout *layout = chunks->layout;
    bool outside = false;
    for (int i = 0; i < layout->rank; i++)
        outside |= scaled[i] * layout->chunk_dims[i] >= chunks->dims[i];
    return outside;
}

/* Does this with those of the chunks that are outside, or with the others. */
static int with_each(struct sfs_dataset *dataset, const struct concerned *chunks, bool outside,
                     int (*action)(struct sfs_dataset *dataset, const uint64_t *scaled,
                                   const uint64_t *dims))
{
    int error = 0;
    for (size_t i = 0; i < chunks->list.n && !error; i++) {
        const uint64_t *scaled = chunks->list.scaled + i * (size_t)chunks->layout->rank;
        error = is_outside(chunks, scaled) == outside ? action(dataset, scaled, chunks->dims) : 0;
    }
    return error;
}

/* Erases what lies outside of smaller dims. On a full disk it may be what was to make the dataset larger that takes
 * all memory, and cannot be stored: chunks outside are deleted before any is needed for changes, which needs neither
 * memory for elements nor space, and nothing else has to be stored. One by one: each is as it was or deleted when there
 * is an error, and never what was stored before the last change. What stays in part is read before that: if it cannot
 * be, nothing is lost. */
static int cut(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct layout *layout = &dataset->layout;
    struct concerned chunks = {.dataset = dataset, .layout = layout, .dims = dims};
    int error = note_changed(dataset, &chunks);
    if (!error)
        error = layout_each_chunk(layout, NULL, note_cut, &chunks);
    if (!error)
        error = with_each(dataset, &chunks, false, prepare);
    UNINTERRUPTED();
    if (!error)
        error = with_each(dataset, &chunks, true, delete);
    if (!error)
        error = with_each(dataset, &chunks, false, erase_outside);
    if (!error && !layout->unfiltered_edges && /* else they are stored by the new dims */
        cache_flush(dataset->file->cache, dataset->cache))
        dataset->was_cut |= with_each(dataset, &chunks, false, flush) != 0;
    chunk_list_free(&chunks.list);
    return error;
}

static int change_sparse(struct sfs_dataset *dataset, const uint64_t *dims)
{
    struct layout *layout = &dataset->layout;
    struct concerned chunks = {.dataset = dataset, .layout = layout, .dims = dims};
    bool shrinks = false;
    int error = hard_link_look(dataset->file, dataset->address); /* before anything is erased */
    if (error)
        return error;
    for (int i = 0; i < layout->rank; i++)
        shrinks |= dims[i] < layout->dims[i];
    size_t rank = (size_t)layout->rank;
    bool edges = layout->unfiltered_edges;
    /* Edge chunks without filters are stored by the dims: none is stored while these change, and no commit has some
     * of those dims and some of these. Nor has one smaller dims without what was cut for them. */
    if (edges || shrinks)
        file_hold_commits(dataset->file);
    cache_hold(dataset->cache);
    if (edges) /* the index must have all chunks */
        error = cache_flush(dataset->file->cache, dataset->cache);
    if (!error && edges)
        error = layout_each_chunk(layout, NULL, note_edge, &chunks);
    for (size_t i = 0; i < chunks.list.n && !error; i++)
        error = touch(dataset, chunks.list.scaled + i * rank);
    chunk_list_free(&chunks.list);
    if (!error && shrinks)
        error = cut(dataset, dims);
    if (!error)
        error = set_dims(dataset, dims);
    if (!error && edges) /* what cannot be stored keeps commits from these dims */
        (void)cache_flush(dataset->file->cache, dataset->cache);
    if (!error && shrinks)
        cache_forget_outside(dataset->cache);
    cache_let_go(dataset->cache);
    if (edges || shrinks)
        file_let_commits(dataset->file);
    return error;
}

/* undoes: nothing was outside of these dims before. */
static int change_dense(struct sfs_dataset *dataset, const uint64_t *dims, bool undoes)
{
    struct sfs_file *file = dataset->file;
    bool shrinks = false;
    for (int i = 0; i < dataset->info.rank; i++)
        shrinks |= dims[i] < dataset->info.dims[i];
    /* What is stored of what is there. */
    bool stays = dataset->cache && !dataset->layout.unfiltered_edges && !shrinks;
    /* A full disk has no room for what is to go. What is stored of a chunk must not come back if this fails. */
    if (dataset->cache && shrinks)
        cache_forget_beyond(dataset->cache, dims, !undoes);
    int error = dataset->cache && !stays ? cache_flush(file->cache, dataset->cache) : 0;
    if (error)
        return error;
    pthread_rwlock_wrlock(&file->commit_lock);
    error = set_library_dims(dataset, dims);
    if (!error)
        take_dims(dataset, dims);
    pthread_rwlock_unlock(&file->commit_lock);
    if (dataset->cache && !stays) /* edge chunks may be stored in another way now */
        cache_forget(dataset->cache);
    return error;
}

/* Growing to where nothing could be written. */
static int check_room(const struct sfs_dataset *dataset, const uint64_t *dims)
{
    const struct layout *layout = &dataset->layout;
    uint64_t last[SFS_MAX_RANK];
    bool grows = false;
    if (!layout->ops) /* of elements with pointers, which are not written */
        return 0;
    for (int i = 0; i < dataset->info.rank; i++) {
        if (dims[i] == 0)
            return 0;
        grows |= dims[i] > dataset->info.dims[i];
        last[i] = (dims[i] - 1) / layout->chunk_dims[i];
    }
    return grows ? layout_check_room(layout, last) : 0;
}

/* Erases what is outside of smaller dims, for which chunks are stored. */
static int check_elements(const struct sfs_dataset *dataset, const uint64_t *dims)
{
    if (!dataset->sparse || !dataset->info.type.has_pointers || sequences_are_read(dataset))
        return 0;
    for (int i = 0; i < dataset->info.rank; i++) {
        if (dims[i] >= dataset->info.dims[i])
            continue;
        log_error("%s: %s: elements of such a datatype cannot be erased, so the dims can only grow",
                  sfs_path(dataset->file), dataset->path);
        return -EOPNOTSUPP;
    }
    return 0;
}

/* undoes: these dims were changed by the same call, and no other one has seen it. */
static int change_dims(struct sfs_dataset *dataset, const uint64_t *dims, bool undoes)
{
    const struct sfs_dataset_info *info = &dataset->info;
    uint64_t elements;
    if (info->layout != SFS_SPARSE && info->layout != SFS_CHUNKED)
        return -EOPNOTSUPP;
    for (int i = 0; i < info->rank; i++)
        if (dims[i] > info->max_dims[i])
            return -EINVAL;
    if (!box_product(dims, info->rank, 1, &elements))
        return -EINVAL;
    if (memcmp(dims, info->dims, (size_t)info->rank * sizeof(*dims)) == 0)
        return 0;
    int error = check_elements(dataset, dims);
    if (!error)
        error = check_room(dataset, dims);
    if (error)
        return error;
    return dataset->sparse ? change_sparse(dataset, dims) : change_dense(dataset, dims, undoes);
}

int sfs_set_extent(struct sfs_dataset *dataset, const uint64_t *dims)
{
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    GETTING_ALONE(dataset);
    if (alone_error)
        return alone_error;
    return change_dims(dataset, dims, false);
}

/* The maximum of these dims and the dataset's, per axis. */
static void at_least(const struct sfs_dataset *dataset, const uint64_t *dims, uint64_t *larger)
{
    for (int i = 0; i < dataset->info.rank; i++)
        larger[i] = dims[i] > dataset->info.dims[i] ? dims[i] : dataset->info.dims[i];
}

int sfs_extend(struct sfs_dataset *dataset, const uint64_t *dims)
{
    uint64_t larger[SFS_MAX_RANK];
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    GETTING_ALONE(dataset);
    if (alone_error)
        return alone_error;
    at_least(dataset, dims, larger);
    return change_dims(dataset, larger, false);
}

int sfs_make_room(struct sfs_dataset *dataset, uint64_t bytes)
{
    struct cache *cache = dataset->file->cache;
    size_t most = cache_limit(cache);
    return cache_make_room(cache, bytes < most ? (size_t)bytes : most);
}

/* Bytes at one index of the first axis, but no more than half of what the cache may take. */
static size_t bytes_of_slab(const struct sfs_dataset *dataset, const uint64_t *dims)
{
    size_t most = cache_limit(dataset->file->cache) / 2, bytes = dataset->info.type.size;
    for (int i = 1; i < dataset->info.rank; i++)
        if (__builtin_mul_overflow(bytes, dims[i], &bytes) || bytes > most)
            return most;
    return bytes < most ? bytes : most;
}

int sfs_extend_with(struct sfs_dataset *dataset, const uint64_t *dims, int (*action)(void *context),
                    void *context)
{
    uint64_t larger[SFS_MAX_RANK], before[SFS_MAX_RANK];
    struct call call;
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    GETTING_ALONE(dataset);
    if (alone_error)
        return alone_error;
    at_least(dataset, dims, larger);
    memcpy(before, dataset->info.dims, sizeof(before));
    /* On a full disk going back needs the room that the action did not get. */
    int error = sfs_make_room(dataset, bytes_of_slab(dataset, larger));
    if (!error)
        error = change_dims(dataset, larger, false);
    if (error)
        return error;
    alone_call_begin(&dataset->use, &call);
    error = action(context);
    alone_call_end(&call);
    UNINTERRUPTED();
    int undone = error ? change_dims(dataset, before, true) : 0;
    if (undone)
        log_error("%s: %s: the dims stay extended although nothing could be written: %s",
                  sfs_path(dataset->file), dataset->path, strerror(-undone));
    return error;
}
