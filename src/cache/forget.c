/* Chunks that are dropped from memory: with what was written to them (forgotten), or only clean ones (evicted). */
#include "cache/private.h"

/* Whether a chunk lies outside of the dims. */
static bool is_outside(const struct layout *layout, const uint64_t *scaled)
{
    for (int i = 0; i < layout->rank; i++)
        if (layout->dims[i] == 0 || scaled[i] > (layout->dims[i] - 1) / layout->chunk_dims[i])
            return true;
    return false;
}

/* With the lock held: drops chunks that are neither changing nor being encoded; returns whether
 * these were all. */
static bool forget_idle(struct cache_dataset *dataset, bool only_outside)
{
    struct chunk *chunk, *next;
    bool all = true;
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        if (only_outside && !is_outside(dataset->layout, chunk->scaled))
            continue;
        bool idle = !chunk->changing && !chunk->encoding;
        all &= idle;
        if (idle) {
            chunk_pin(chunk);
            chunk_unlink(chunk);
            chunk_unpin(chunk);
        }
    }
    return all;
}

static void forget(struct cache_dataset *dataset, bool only_outside)
{
    struct cache *cache = dataset->cache;
    pthread_mutex_lock(&cache->lock);
    while (!forget_idle(dataset, only_outside))
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

void cache_forget_outside(struct cache_dataset *dataset)
{
    forget(dataset, true);
    unfinished_cut(dataset);
}

void cache_forget(struct cache_dataset *dataset)
{
    forget(dataset, false);
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
