/* The memory limit: counting, evicting, and waiting for memory. Does no input or output, except where
 * the cache has no encoder threads. */
#include <errno.h>
#include <utlist.h>

#include "cache/private.h"
#include "common/interrupt.h"

#define LOOKED_AT 32 /* chunks, in search of one */

/* When the values of a chunk are evicted its selection stays, if it was asked for without values
 * and is no more than this share of both. */
#define SELECTION_SHARE 4

/* Room is left for as many encoders as fit into this share of the limit. */
#define ENCODE_SHARE 4

/* What others may use of the limit beside a chunk that takes all of it while it is loaded. */
#define OTHERS_SHARE 4

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
        if (chunk_is_free(chunk) && is_worth_condensing(chunk))
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

/* The RFC's evict_values: not of values that only an order which is forgotten puts in their places. */
static bool evict_values(struct cache *cache, struct chunk *victim)
{
    struct cache_form *form = &victim->form, values = {0};
    if (!victim->is_asked || !form->has_defined || form->is_reordered ||
        !(form->values || form->elements) ||
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

/* Wakes an encoder, or writes the chunk back itself where there are none. -EINTR. */
static int make_clean(struct cache *cache, struct chunk *dirty)
{
    int error = 0;
    cache->waiting++;
    encoders_wake(cache);
    if (cache->n_encoders > 0)
        error = interrupt_wait(&cache->freed, &cache->lock);
    else
        (void)write_back(dirty,
                         false); /* it may have become pinned; an error stays with the chunk */
    cache->waiting--;
    return error;
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

/* The most that one chunk takes while it is loaded and others have their share. */
static size_t most_beside_others(const struct cache *cache)
{
    return cache->limit - cache->limit / OTHERS_SHARE;
}

/* What counts against the limit. */
static size_t used_of_limit(const struct cache *cache)
{
    size_t large = cache->large ? cache->large->bytes : 0, most = most_beside_others(cache);
    return cache->used - (large > most ? large - most : 0);
}

int make_room(struct cache *cache, size_t bytes)
{
    if (used_of_limit(cache) + bytes + room_of_encoders(cache) <= cache->limit)
        return 0;
    struct chunk *victim;
    int error = 0;
    bool later;
    if (evict_clean(cache))
        return 1;
    if ((victim = condensable(cache)))
        chunk_condense(victim); /* if there is no memory for that it is encoded */
    else if ((victim = encodable(cache, true, &later)))
        error = make_clean(cache, victim);
    else if (cache->busy > 0 || later)
        error = interrupt_wait(&cache->freed, &cache->lock);
    else
        return 0; /* larger than the cache and alone */
    return error ? error : 1;
}

int reserve(struct cache *cache, size_t bytes)
{
    int more;
    while ((more = make_room(cache, bytes)) > 0)
        ;
    reserve_now(cache, bytes);
    return more;
}

int reserve_loading(struct cache *cache, const struct loading *loading)
{
    int error = reserve(cache, loading->bytes);
    if (!error && !cache->large && loading->bytes > most_beside_others(cache)) {
        cache->large = loading;
        pthread_cond_broadcast(&cache->freed); /* others that wait have their share from now on */
    }
    return error;
}

void unreserve_loading(struct cache *cache, const struct loading *loading)
{
    if (cache->large == loading)
        cache->large = NULL;
    unreserve(cache, loading->bytes);
}

/* ---- The limits ---- */

void cache_limit_chunks(struct cache *cache, size_t most)
{
    cache->most_of_chunk = most;
}

size_t cache_chunk_limit(const struct cache *cache)
{
    return cache->most_of_chunk;
}

size_t cache_limit(const struct cache *cache)
{
    return cache->limit;
}

void cache_set_limit(struct cache *cache, size_t limit)
{
    pthread_mutex_lock(&cache->lock);
    cache->limit = limit;
    policy_set_limit(cache);
    while (cache->used > limit && evict_clean(cache))
        ;
    encoders_wake(cache);
    pthread_cond_broadcast(&cache->freed); /* waiting threads may have room now */
    pool_set_limit(&cache->pool, limit);
    pthread_mutex_unlock(&cache->lock);
}
