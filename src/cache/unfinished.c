/* Elements that are unfinished: which dirty chunks a commit leaves in the cache for them, and what
 * it leaves out of others. What grows while a commit is under way counts as unfinished for it, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "cache/private.h"

/* In its dataset's list until it has ended and no running commit has seen it. */
struct unfinished {
    struct unfinished *prev, *next;
    struct cache_dataset *dataset;
    struct box box;
    bool is_seen; /* by the running commit, which must leave out all of it or nothing */
    bool has_ended;
};

int cache_begin_unfinished(struct cache_dataset *dataset, const struct box *box,
                           struct unfinished **out)
{
    struct unfinished *unfinished = calloc(1, sizeof(*unfinished));
    if (!unfinished)
        return -ENOMEM;
    unfinished->dataset = dataset;
    unfinished->box = *box;
    pthread_mutex_lock(&dataset->cache->lock);
    unfinished->is_seen = dataset->commit_end != UINT64_MAX;
    DL_APPEND(dataset->unfinished, unfinished);
    pthread_mutex_unlock(&dataset->cache->lock);
    *out = unfinished;
    return 0;
}

/* The lock must be held. */
static void drop(struct unfinished *unfinished)
{
    DL_DELETE(unfinished->dataset->unfinished, unfinished);
    free(unfinished);
}

void cache_end_unfinished(struct unfinished *unfinished)
{
    struct cache *cache = unfinished->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    unfinished->has_ended = true;
    if (!unfinished->is_seen)
        drop(unfinished);
    pthread_mutex_unlock(&cache->lock);
}

void cache_begin_commit(struct cache_dataset *dataset, uint64_t from, uint64_t promised,
                        uint64_t all)
{
    struct unfinished *unfinished;
    uint64_t end = all;
    pthread_mutex_lock(&dataset->cache->lock);
    DL_FOREACH (dataset->unfinished, unfinished) {
        uint64_t first = unfinished->box.start[0];
        unfinished->is_seen = true;
        if (first >= from && first < end)
            end = first;
    }
    end = end < promised ? promised : end;
    end = end < from ? from : end;
    dataset->commit_end = end > all || dataset->stored_end > end ? all : end;
    pthread_mutex_unlock(&dataset->cache->lock);
}

uint64_t cache_commit_end(struct cache_dataset *dataset)
{
    pthread_mutex_lock(&dataset->cache->lock);
    uint64_t end = dataset->stored_end > dataset->commit_end ? UINT64_MAX : dataset->commit_end;
    pthread_mutex_unlock(&dataset->cache->lock);
    return end;
}

void cache_end_commit(struct cache_dataset *dataset)
{
    struct unfinished *unfinished, *next;
    pthread_mutex_lock(&dataset->cache->lock);
    dataset->commit_end = UINT64_MAX;
    DL_FOREACH_SAFE (dataset->unfinished, unfinished, next) {
        unfinished->is_seen = false;
        if (unfinished->has_ended)
            drop(unfinished);
    }
    pthread_mutex_unlock(&dataset->cache->lock);
}

/* ---- Which part of a chunk; the lock is held ---- */

static struct box box_of(const struct chunk *chunk)
{
    const struct layout *layout = chunk->dataset->layout;
    struct box box = {.rank = layout->rank};
    for (int i = 0; i < layout->rank; i++) {
        box.count[i] = layout->chunk_dims[i];
        box.start[i] = chunk->scaled[i] * layout->chunk_dims[i];
    }
    return box;
}

/* What the running commit must leave out, as a box. */
static struct box behind_commit(const struct cache_dataset *dataset)
{
    struct box box = {.rank = dataset->layout->rank, .start = {dataset->commit_end}};
    for (int i = 0; i < box.rank; i++)
        box.count[i] = INT64_MAX;
    return box;
}

static enum unfinished_share share_of(const struct box *chunk, const struct box *unfinished)
{
    struct box common;
    if (!box_intersect(chunk, unfinished, &common))
        return UNFINISHED_NOTHING;
    for (int i = 0; i < chunk->rank; i++)
        if (common.count[i] != chunk->count[i])
            return UNFINISHED_PART;
    return UNFINISHED_ALL;
}

enum unfinished_share unfinished_share(const struct chunk *chunk)
{
    const struct cache_dataset *dataset = chunk->dataset;
    if (!dataset->unfinished && dataset->commit_end == UINT64_MAX)
        return UNFINISHED_NOTHING;
    const struct box box = box_of(chunk), behind = behind_commit(dataset);
    enum unfinished_share most = UNFINISHED_NOTHING, share;
    const struct unfinished *unfinished;
    if (dataset->commit_end != UINT64_MAX)
        most = share_of(&box, &behind);
    DL_FOREACH (dataset->unfinished, unfinished) {
        share = share_of(&box, &unfinished->box);
        most = share > most ? share : most;
    }
    return most;
}

static void note_stored(struct cache_dataset *dataset, uint64_t end)
{
    pthread_mutex_lock(&dataset->cache->lock);
    if (dataset->stored_end < end)
        dataset->stored_end = end;
    pthread_mutex_unlock(&dataset->cache->lock);
}

void unfinished_stored(struct chunk *chunk, const struct cache_form *form)
{
    const struct layout *layout = chunk->dataset->layout;
    const struct runs *defined = &form->defined;
    uint64_t rows = layout->chunk_dims[0], last = rows - 1;
    if (layout->ops->is_sparse && defined->n == 0)
        return;
    if (layout->ops->is_sparse) {
        const struct sfs_interval *entry = &defined->entries[defined->n - 1];
        last = (entry->first + defined->elements - entry->index - 1) /
               (layout->chunk_bytes / layout->element_size / rows);
    }
    note_stored(chunk->dataset, chunk->scaled[0] * rows + last + 1);
}

void unfinished_stored_whole(struct chunk *chunk)
{
    const struct layout *layout = chunk->dataset->layout;
    uint64_t end = (chunk->scaled[0] + 1) * layout->chunk_dims[0];
    note_stored(chunk->dataset, end < layout->dims[0] ? end : layout->dims[0]);
}

void unfinished_cut(struct cache_dataset *dataset)
{
    pthread_mutex_lock(&dataset->cache->lock);
    if (dataset->stored_end > dataset->layout->dims[0])
        dataset->stored_end = dataset->layout->dims[0];
    pthread_mutex_unlock(&dataset->cache->lock);
}

static int add_positions(const struct layout *layout, const struct box *chunk,
                         const struct box *unfinished, struct runs *positions)
{
    struct box common;
    struct runs box = {0};
    if (!box_intersect(chunk, unfinished, &common))
        return 0;
    for (int i = 0; i < layout->rank; i++)
        common.start[i] -= chunk->start[i];
    int error = runs_of_box(layout->rank, layout->chunk_dims, common.start, common.count, &box);
    if (!error)
        error = runs_union(positions, &box, positions);
    runs_free(&box);
    return error;
}

int unfinished_positions(const struct chunk *chunk, struct runs *positions)
{
    const struct cache_dataset *dataset = chunk->dataset;
    const struct box box = box_of(chunk), behind = behind_commit(dataset);
    const struct unfinished *unfinished;
    int error = 0;
    if (dataset->commit_end != UINT64_MAX)
        error = add_positions(dataset->layout, &box, &behind, positions);
    DL_FOREACH (dataset->unfinished, unfinished) {
        if (!error)
            error = add_positions(dataset->layout, &box, &unfinished->box, positions);
    }
    return error ? error : runs_intersection(positions, &chunk->form.defined, positions);
}
