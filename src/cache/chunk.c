/* Chunks in the cache: their table and lists. */
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
    if (chunk->passing && !chunk->gone && !chunk->dirty && chunk_is_free(chunk)) {
        chunk_unlink(chunk);
        cache->evictions++;
    }
    if (chunk->gone) {
        cache->used -= chunk->entry_bytes + chunk->form_bytes;
        chunk_free(cache, chunk);
    }
    pthread_cond_broadcast(&cache->freed);
}

/* The chunk is no longer counted as bare. */
static void forget_bare(struct chunk *chunk)
{
    chunk->dataset->cache->bare_bytes -= chunk->bare_bytes;
    chunk->bare_bytes = 0;
}

void chunk_unlink(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    forget_bare(chunk);
    HASH_DELETE(hh, chunk->dataset->chunks, chunk);
    if (chunk->dirty)
        chunk_mark_clean(chunk);
    policy_remove(cache, chunk);
    chunk->gone = true;
    cache->n_chunks--;
}

void chunk_free(struct cache *cache, struct chunk *chunk)
{
    pool_uncount(&cache->pool, chunk->run_bytes);
    form_free(&chunk->form, &cache->pool);
    pool_put(&cache->pool, chunk, chunk->entry_bytes);
}

struct chunk *chunk_find(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct chunk *chunk;
    HASH_FIND(hh, dataset->chunks, scaled, (size_t)dataset->layout->rank * sizeof(*scaled), chunk);
    return chunk;
}

size_t chunk_entry_bytes(const struct cache_dataset *dataset)
{
    return sizeof(struct chunk) + (size_t)dataset->layout->rank * sizeof(uint64_t);
}

struct chunk *chunk_new(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    size_t bytes = chunk_entry_bytes(dataset);
    struct chunk *chunk = pool_get(&cache->pool, bytes);
    if (!chunk)
        return NULL;
    memset(chunk, 0, bytes);
    chunk->dataset = dataset;
    chunk->state = CHUNK_LOADING;
    chunk->epoch = dataset->epoch;
    chunk->entry_bytes = bytes;
    memcpy(chunk->scaled, scaled, (size_t)dataset->layout->rank * sizeof(*scaled));
    cache->used += bytes;
    return chunk;
}

void chunk_drop(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    cache->used -= chunk->entry_bytes + chunk->form_bytes;
    chunk_free(cache, chunk);
}

int chunk_link(struct chunk *chunk, const struct chunk *old)
{
    struct cache_dataset *dataset = chunk->dataset;
    struct cache *cache = dataset->cache;
    size_t key_bytes = (size_t)dataset->layout->rank * sizeof(*chunk->scaled);
    HASH_ADD_KEYPTR(hh, dataset->chunks, chunk->scaled, key_bytes, chunk);
    if (hash_failed())
        return -ENOMEM;
    policy_add(cache, chunk, old);
    cache->n_chunks++;
    return 0;
}

static void count_dirty(struct cache_dataset *dataset, int more)
{
    dataset->n_dirty += (size_t)more;
    dataset->cache->n_dirty += (size_t)more;
    if (dataset->held)
        dataset->cache->n_dirty_held += (size_t)more;
}

/* An encoder that has the old chunk stores it without the new changes: these stay dirty. */
void chunk_mark_dirty(struct chunk *chunk, struct chunk *old)
{
    struct cache *cache = chunk->dataset->cache;
    count_dirty(chunk->dataset, !old->dirty);
    bool keeps_place = old->dirty && !(old->encoding && old->encoding->chunk == old);
    if (keeps_place)
        chunk->dirty_since = old->dirty_since;
    else
        chunk->dirty_since = ++cache->changes;
    chunk->dirty = true;
    policy_dirty(cache, chunk);
    cache->dirty_bytes += chunk->entry_bytes + chunk->form_bytes;
    if (keeps_place)
        DL_REPLACE_ELEM2(cache->dirty, old, chunk, dirty_prev, dirty_next);
    else
        DL_APPEND2(cache->dirty, chunk, dirty_prev, dirty_next);
    if (old->dirty && !keeps_place)
        DL_DELETE2(cache->dirty, old, dirty_prev, dirty_next);
    if (old->dirty)
        cache->dirty_bytes -= old->entry_bytes + old->form_bytes;
    old->dirty = false;
    size_t room = encode_estimate(chunk), most = cache->limit / 4;
    room = room < most ? room : most;
    if (cache->encode_room < room)
        cache->encode_room = room;
}

void chunk_mark_clean(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    chunk->dirty = false;
    count_dirty(chunk->dataset, -1);
    cache->dirty_bytes -= chunk->entry_bytes + chunk->form_bytes;
    DL_DELETE2(cache->dirty, chunk, dirty_prev, dirty_next);
    policy_clean(cache, chunk);
    if (!cache->dirty)
        cache->encode_room = 0;
}

void chunk_still_dirty(struct chunk *chunk, uint64_t since)
{
    struct cache *cache = chunk->dataset->cache;
    struct chunk *other;
    DL_DELETE2(cache->dirty, chunk, dirty_prev, dirty_next);
    chunk->dirty_since = since;
    DL_FOREACH2 (cache->dirty, other, dirty_next) {
        if (other->dirty_since > since)
            break;
    }
    if (other)
        DL_PREPEND_ELEM2(cache->dirty, other, chunk, dirty_prev, dirty_next);
    else
        DL_APPEND2(cache->dirty, chunk, dirty_prev, dirty_next);
}

void chunk_dirty_again(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    DL_DELETE2(cache->dirty, chunk, dirty_prev, dirty_next);
    chunk->dirty_since = ++cache->changes;
    DL_APPEND2(cache->dirty, chunk, dirty_prev, dirty_next);
}

void chunk_count(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    size_t bytes = form_bytes(&chunk->form), runs = runs_bytes(&chunk->form.defined);
    forget_bare(chunk);
    cache->used += bytes - chunk->form_bytes;
    policy_resized(cache, chunk, bytes - chunk->form_bytes);
    if (chunk->pins > 0)
        cache->busy += bytes - chunk->form_bytes;
    if (chunk->dirty)
        cache->dirty_bytes += bytes - chunk->form_bytes;
    if (chunk->run_bytes != runs) {
        pool_uncount(&cache->pool, chunk->run_bytes);
        pool_count(&cache->pool, runs);
    }
    chunk->form_bytes = bytes;
    chunk->used_bytes = form_used_bytes(&chunk->form);
    chunk->run_bytes = runs;
}

void chunk_end_change(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    chunk->changing = false;
    pthread_cond_broadcast(&cache->changed);
    pthread_cond_broadcast(&cache->freed);
}
