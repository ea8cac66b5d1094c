/* The invariants of cache/private.h that can be seen in the tables and lists. */
#include <utlist.h>

#include "cache/private.h"
#include "common/invariants.h"

#define SHARE 16 /* chunks that are looked at for each call, on average */

struct sums {
    size_t queue_bytes[QUEUES], bare, dirty, pinned;
    uint64_t chunks, n_dirty;
};

static void check_chunk(struct chunk *chunk, struct sums *sums)
{
    size_t counted = chunk->entry_bytes + chunk->form_bytes;
    SANE(!chunk->gone && chunk->is_queued == !chunk->dirty);
    SANE(chunk_find(chunk->dataset, chunk->scaled) == chunk);
    SANE(chunk->state != CHUNK_LOADING || chunk->changing);
    SANE(chunk->state != CHUNK_FAILED);
    SANE(!chunk->open || chunk->dirty);
    SANE(!chunk->dirty || chunk->state == CHUNK_LOADED);
    SANE(!chunk->encoding || chunk->state == CHUNK_LOADED);
    sums->queue_bytes[chunk->queue] += counted;
    sums->chunks++;
    sums->bare += chunk->bare_bytes;
    sums->pinned += chunk->pins > 0 ? chunk->form_bytes : 0;
    sums->n_dirty += chunk->dirty;
    sums->dirty += chunk->dirty ? counted : 0;
}

static void check_queue(const struct cache *cache, enum queue queue, struct sums *sums)
{
    struct chunk *chunk;
    DL_FOREACH (cache->queues[queue], chunk) {
        SANE(chunk->queue == queue && !chunk->dirty);
        check_chunk(chunk, sums);
    }
}

static void check_dirty(const struct cache *cache, struct sums *sums)
{
    struct chunk *chunk;
    uint64_t since = 0;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        SANE(chunk->dirty);
        SANE(chunk->dirty_since > since);
        since = chunk->dirty_since;
        check_chunk(chunk, sums);
    }
    SANE(cache->n_dirty == sums->n_dirty && cache->n_dirty_held <= sums->n_dirty);
    SANE(since <= cache->changes);
    SANE(cache->dirty || cache->encode_room == 0);
}

void cache_check(struct cache *cache)
{
    struct sums sums = {0};
    if (!SANITY || ++cache->checks % (1 + cache->n_chunks / SHARE) != 0)
        return;
    for (enum queue queue = 0; queue < QUEUES; queue++)
        check_queue(cache, queue, &sums);
    check_dirty(cache, &sums);
    for (enum queue queue = 0; queue < QUEUES; queue++)
        SANE(sums.queue_bytes[queue] == cache->queue_bytes[queue]);
    SANE(sums.chunks == cache->n_chunks);
    SANE(sums.bare == cache->bare_bytes);
    SANE(sums.dirty == cache->dirty_bytes);
    SANE(cache->queue_bytes[QUEUE_NEW] + cache->queue_bytes[QUEUE_MAIN] <= cache->used);
    SANE(sums.pinned <= cache->busy && cache->busy <= cache->used);
}
