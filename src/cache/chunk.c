/* Chunks in the cache: their table, lists and memory. Does no input or output, except where the
 * cache has no encoder threads. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "cache/private.h"

/* When memory is short an open chunk is condensed if that leaves no more than this share of it. */
#define CONDENSED_SHARE 8

#define LOOKED_AT 32 /* chunks, in search of one */

/* When the values of a chunk are evicted its selection stays, if it was asked for without values
 * and is no more than this share of both. */
#define SELECTION_SHARE 4

/* Room is left for as many encoders as fit into this share of the limit. */
#define ENCODE_SHARE 4

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
    policy_remove(cache, chunk);
    if (chunk->dirty)
        chunk_mark_clean(chunk);
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

/* An encoder that has the old chunk stores it without the new changes: these stay dirty. */
void chunk_mark_dirty(struct chunk *chunk, struct chunk *old)
{
    struct cache *cache = chunk->dataset->cache;
    bool keeps_place = old->dirty && !(old->encoding && old->encoding->chunk == old);
    if (keeps_place)
        chunk->dirty_since = old->dirty_since;
    else
        chunk->dirty_since = ++cache->changes;
    chunk->dirty = true;
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
    cache->dirty_bytes -= chunk->entry_bytes + chunk->form_bytes;
    DL_DELETE2(cache->dirty, chunk, dirty_prev, dirty_next);
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

/* ---- Memory ---- */

int chunk_check_bytes(const struct chunk *chunk, size_t bytes)
{
    const struct cache_dataset *dataset = chunk->dataset;
    return layout_check_bytes(dataset->layout, chunk->scaled, chunk->record.address, bytes,
                              dataset->cache->most_of_chunk);
}

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

bool chunk_is_free(const struct chunk *chunk)
{
    return chunk->pins == 0 && !chunk->changing && !chunk->encoding;
}

/* The chunk longest dirty that condensing makes much smaller, or NULL. */
static struct chunk *condensable(struct cache *cache)
{
    struct chunk *chunk;
    unsigned looked_at = 0;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (chunk->open && chunk_is_free(chunk) && chunk->dataset->layout->ops->is_sparse &&
            chunk->condensed_bytes < chunk->form_bytes / CONDENSED_SHARE)
            return chunk;
        if (++looked_at == LOOKED_AT)
            break;
    }
    return NULL;
}

/* Frees memory and its reservation of so many bytes. */
static void free_form(struct cache *cache, struct cache_form *form, struct chunk *chunk,
                      size_t bytes)
{
    cache->busy += bytes; /* counted as a reservation until it is freed */
    pthread_mutex_unlock(&cache->lock);
    form_free(form, &cache->pool);
    if (chunk)
        chunk_free(cache, chunk);
    pthread_mutex_lock(&cache->lock);
    unreserve(cache, bytes);
}

/* The RFC's evict_values. */
static bool evict_values(struct cache *cache, struct chunk *victim)
{
    struct cache_form *form = &victim->form, values = {0};
    if (!victim->is_asked || !form->has_defined || !(form->values || form->elements) ||
        victim->run_bytes * SELECTION_SHARE > victim->form_bytes)
        return false;
    form_move_values(form, &values);
    size_t before = victim->form_bytes;
    chunk_count(victim);
    victim->bare_bytes = victim->entry_bytes + victim->form_bytes;
    cache->bare_bytes += victim->bare_bytes;
    cache->used += before - victim->form_bytes;
    free_form(cache, &values, NULL, before - victim->form_bytes);
    return true;
}

static void evict(struct cache *cache, struct chunk *victim)
{
    if (evict_values(cache, victim))
        return;
    struct cache_form nothing = {0};
    policy_evicted(cache, victim);
    chunk_unlink(victim);
    cache->evictions++;
    free_form(cache, &nothing, victim, victim->entry_bytes + victim->form_bytes);
}

bool evict_clean(struct cache *cache)
{
    struct chunk *victim = policy_victim(cache);
    if (victim)
        evict(cache, victim);
    return victim;
}

/* Wakes an encoder, or writes the chunk back itself where there are none. */
static void make_clean(struct cache *cache, struct chunk *dirty)
{
    cache->waiting++;
    encoders_wake(cache);
    if (cache->n_encoders > 0)
        pthread_cond_wait(&cache->freed, &cache->lock);
    else
        (void)write_back(dirty,
                         false); /* it may have become pinned; an error stays with the chunk */
    cache->waiting--;
}

/* Memory that is left free for further encoders, so that writers do not fill it and chunks are
 * encoded in parallel. The first encoder's share (encode_room) is reserved in any case. */
static size_t room_of_encoders(const struct cache *cache)
{
    const struct encoding *encoding;
    size_t n = 0, most = cache->limit / ENCODE_SHARE, bytes = 0;
    if (cache->encode_room == 0)
        return 0;
    DL_COUNT(cache->encodings, encoding, n);
    if (n == 0)
        bytes = cache->encode_room;
    for (n = n ? n : 1; n < cache->most_encoders && bytes + cache->encode_room <= most; n++)
        bytes += cache->encode_room;
    return bytes;
}

bool make_room(struct cache *cache, size_t bytes)
{
    if (cache->used + bytes + room_of_encoders(cache) <= cache->limit)
        return false;
    struct chunk *victim;
    bool later;
    if (evict_clean(cache))
        return true;
    if ((victim = condensable(cache)))
        chunk_condense(victim); /* if there is no memory for that it is encoded */
    else if ((victim = encodable(cache, true, &later)))
        make_clean(cache, victim);
    else if (cache->busy > 0 || later)
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
