/* Chunks that are dropped from memory: with what was written to them (forgotten), or only clean ones (evicted). */
#include "cache/private.h"

/* Whether a chunk lies outside of some dims. */
static bool is_outside(const struct layout *layout, const uint64_t *scaled, const uint64_t *dims)
{
    for (int i = 0; i < layout->rank; i++)
        if (dims[i] == 0 || scaled[i] > (dims[i] - 1) / layout->chunk_dims[i])
            return true;
    return false;
}

/* With the lock held: drops chunks that are neither changing nor being encoded, and outside of these dims, if they are
 * not NULL; only_new: those that are not stored; returns whether these were all. */
static bool forget_idle(struct cache_dataset *dataset, const uint64_t *dims, bool only_new)
{
    struct chunk *chunk, *next;
    bool all = true;
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        if (dims && !is_outside(dataset->layout, chunk->scaled, dims))
            continue;
        bool idle = !chunk->changing && !chunk->encoding;
        all &= idle;
        if (idle && !(only_new && chunk->record.exists)) {
            chunk_pin(chunk);
            chunk_unlink(chunk);
            chunk_unpin(chunk);
        }
    }
    return all;
}

static void forget(struct cache_dataset *dataset, const uint64_t *dims, bool only_new)
{
    struct cache *cache = dataset->cache;
    pthread_mutex_lock(&cache->lock);
    while (!forget_idle(dataset, dims, only_new))
        pthread_cond_wait(&cache->changed, &cache->lock);
    pthread_mutex_unlock(&cache->lock);
}

void forget_chunk(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk;
    while ((chunk = chunk_find(dataset, scaled)) && (chunk->changing || chunk->encoding))
        pthread_cond_wait(&cache->changed, &cache->lock);
    if (!chunk)
        return;
    chunk_pin(chunk);
    chunk_unlink(chunk);
    chunk_unpin(chunk);
}

void cache_evict(struct cache_dataset *dataset)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk, *next;
    pthread_mutex_lock(&cache->lock);
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        if (!chunk_is_free(chunk) || chunk->dirty)
            continue;
        chunk_pin(chunk);
        chunk_unlink(chunk);
        chunk_unpin(chunk);
        cache->evictions++;
    }
    pthread_mutex_unlock(&cache->lock);
}

void cache_forget_beyond(struct cache_dataset *dataset, const uint64_t *dims, bool only_new)
{
    forget(dataset, dims, only_new);
}

void cache_forget_outside(struct cache_dataset *dataset)
{
    forget(dataset, dataset->layout->dims, false);
    unfinished_cut(dataset);
}

void cache_forget(struct cache_dataset *dataset)
{
    forget(dataset, NULL, false);
    unfinished_cut(dataset);
}

void cache_hold(struct cache_dataset *dataset)
{
    struct cache *cache = dataset->cache;
    pthread_mutex_lock(&cache->lock);
    if (dataset->held++ == 0)
        cache->n_dirty_held += dataset->n_dirty;
    pthread_mutex_unlock(&cache->lock);
}

void cache_let_go(struct cache_dataset *dataset)
{
    struct cache *cache = dataset->cache;
    pthread_mutex_lock(&cache->lock);
    if (--dataset->held == 0)
        cache->n_dirty_held -= dataset->n_dirty;
    encoders_wake(cache);
    pthread_cond_broadcast(&cache->freed);
    pthread_mutex_unlock(&cache->lock);
}
