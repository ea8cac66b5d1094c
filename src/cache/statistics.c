/* What the cache holds, and how often chunks were found in it, decoded, evicted and encoded. */
#include <utlist.h>

#include "cache/cache.h"
#include "cache/private.h"

/* Bytes that a chunk would take after condensing. */
static size_t used_bytes(const struct chunk *chunk)
{
    bool shrinks = chunk->open && chunk->dataset->layout->ops->is_sparse;
    return chunk->entry_bytes + (shrinks && chunk->condensed_bytes < chunk->used_bytes
                                     ? chunk->condensed_bytes
                                     : chunk->used_bytes);
}

static uint64_t all_used_bytes(const struct cache *cache)
{
    const struct chunk *chunk;
    uint64_t bytes = 0;
    for (int i = 0; i < QUEUES; i++) {
        DL_FOREACH (cache->queues[i], chunk) {
            bytes += used_bytes(chunk);
        }
    }
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        bytes += used_bytes(chunk);
    }
    return bytes;
}

void cache_statistics(struct cache *cache, struct sfs_statistics *statistics)
{
    pthread_mutex_lock(&cache->lock);
    statistics->cache_limit = cache->limit;
    statistics->cache_bytes = pool_bytes(&cache->pool);
    statistics->cache_bytes_used = all_used_bytes(cache);
    struct chunk *chunk;
    statistics->chunks_left = 0;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        statistics->chunks_left += chunk->failed > 0;
    }
    statistics->cache_chunks = cache->n_chunks;
    statistics->cache_hits = cache->hits;
    statistics->cache_misses = cache->misses;
    statistics->cache_evictions = cache->evictions;
    statistics->chunks_decoded = cache->decoded;
    statistics->cache_dirty_bytes = cache->dirty_bytes;
    statistics->chunks_encoded = cache->encoded;
    pthread_mutex_unlock(&cache->lock);
}
