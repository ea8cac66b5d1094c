/* Chunks in the cache: their table, lists and memory. No input or output here, but for evicting a
 * dirty chunk. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "cache/private.h"

void chunk_pin(struct chunk *chunk)
{
    if (chunk->pins++ == 0)
        chunk->dataset->cache->busy += chunk->form_bytes;
}

void chunk_unpin(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    if (--chunk->pins > 0)
        return;
    cache->busy -= chunk->form_bytes;
    if (chunk->gone) {
        cache->used -= chunk->entry_bytes + chunk->form_bytes;
        chunk_free(cache, chunk);
    }
    pthread_cond_broadcast(&cache->freed);
}

void chunk_unlink(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    HASH_DELETE(hh, chunk->dataset->chunks, chunk);
    DL_DELETE(cache->lru, chunk);
    if (chunk->dirty)
        chunk_mark_clean(chunk);
    chunk->gone = true;
    cache->n_chunks--;
}

void chunk_free(struct cache *cache, struct chunk *chunk)
{
    form_free(&chunk->form, &cache->pool);
    pool_put(&cache->pool, chunk, chunk->entry_bytes);
}

struct chunk *chunk_find(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct chunk *chunk;
    HASH_FIND(hh, dataset->chunks, scaled, (size_t)dataset->layout->rank * sizeof(*scaled), chunk);
    return chunk;
}

static size_t entry_bytes(const struct cache_dataset *dataset)
{
    return sizeof(struct chunk) + (size_t)dataset->layout->rank * sizeof(uint64_t);
}

struct chunk *chunk_new(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    size_t bytes = entry_bytes(dataset);
    struct chunk *chunk = pool_get(&cache->pool, bytes);
    if (!chunk)
        return NULL;
    memset(chunk, 0, bytes);
    chunk->dataset = dataset;
    chunk->state = CHUNK_LOADING;
    chunk->entry_bytes = bytes;
    memcpy(chunk->scaled, scaled, (size_t)dataset->layout->rank * sizeof(*scaled));
    cache->used += bytes;
    return chunk;
}

int chunk_link(struct chunk *chunk)
{
    struct cache_dataset *dataset = chunk->dataset;
    struct cache *cache = dataset->cache;
    size_t key_bytes = (size_t)dataset->layout->rank * sizeof(*chunk->scaled);
    HASH_ADD_KEYPTR(hh, dataset->chunks, chunk->scaled, key_bytes, chunk);
    if (hash_failed())
        return -ENOMEM;
    DL_APPEND(cache->lru, chunk);
    cache->n_chunks++;
    return 0;
}

void chunk_mark_dirty(struct chunk *chunk, struct chunk *old)
{
    struct cache *cache = chunk->dataset->cache;
    chunk->dirty = true;
    if (old->dirty) {
        chunk->dirty_since = old->dirty_since;
        old->dirty = false;
        DL_REPLACE_ELEM2(cache->dirty, old, chunk, dirty_prev, dirty_next);
    } else {
        chunk->dirty_since = ++cache->changes;
        DL_APPEND2(cache->dirty, chunk, dirty_prev, dirty_next);
    }
}

void chunk_mark_clean(struct chunk *chunk)
{
    chunk->dirty = false;
    DL_DELETE2(chunk->dataset->cache->dirty, chunk, dirty_prev, dirty_next);
}

void chunk_count(struct chunk *chunk, size_t form_bytes)
{
    struct cache *cache = chunk->dataset->cache;
    cache->used += form_bytes - chunk->form_bytes;
    if (chunk->pins > 0)
        cache->busy += form_bytes - chunk->form_bytes;
    chunk->form_bytes = form_bytes;
}

/* ---- Memory ---- */

void reserve_now(struct cache *cache, size_t bytes)
{
    cache->used += bytes;
    cache->busy += bytes;
}

void unreserve(struct cache *cache, size_t bytes)
{
    cache->used -= bytes;
    cache->busy -= bytes;
    pthread_cond_broadcast(&cache->freed);
}

/* The least recently used chunk that nobody uses, or NULL. One that could not be written to the
 * store is left alone: who flushes learns why. */
static struct chunk *evictable(struct cache *cache)
{
    struct chunk *chunk;
    DL_FOREACH (cache->lru, chunk) {
        if (chunk->pins == 0 && !chunk->changing && !(chunk->dirty && chunk->write_error))
            return chunk;
    }
    return NULL;
}

static void evict(struct cache *cache, struct chunk *victim)
{
    size_t bytes = victim->entry_bytes + victim->form_bytes;
    chunk_unlink(victim);
    cache->evictions++;
    cache->busy += bytes; /* a reservation until it is freed */
    pthread_mutex_unlock(&cache->lock);
    chunk_free(cache, victim);
    pthread_mutex_lock(&cache->lock);
    unreserve(cache, bytes);
}

bool make_room(struct cache *cache, size_t bytes)
{
    if (cache->used + bytes <= cache->limit)
        return false;
    struct chunk *victim = evictable(cache);
    if (victim && victim->dirty)
        (void)write_back(victim); /* it may have been used meanwhile; an error stays with it */
    else if (victim)
        evict(cache, victim);
    else if (cache->busy > 0)
        pthread_cond_wait(&cache->freed, &cache->lock);
    else
        return false; /* larger than the cache and alone */
    return true;
}

void reserve(struct cache *cache, size_t bytes)
{
    while (make_room(cache, bytes))
        ;
    reserve_now(cache, bytes);
}
