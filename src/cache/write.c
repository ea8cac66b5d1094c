/* Writing chunks: changes go into the cache, where the chunk becomes dirty; from there it is
 * written to the store when the cache is flushed or its memory is needed. */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "cache/private.h"

/* Memory for the encoded chunk is counted without waiting for it: who writes back may be doing so
 * to make room. */
int write_back(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    struct layout *layout = chunk->dataset->layout;
    struct encoded encoded = {0};
    struct chunk_record record = chunk->record;
    size_t bytes = layout->ops->encode_bytes(layout, &chunk->form);
    chunk->changing = true;
    chunk_pin(chunk);
    reserve_now(cache, bytes);
    pthread_mutex_unlock(&cache->lock);

    bool is_empty = chunk->form.defined.elements == 0;
    int error =
        is_empty ? 0
                 : layout->ops->encode(layout, chunk->scaled, &chunk->form, &cache->pool, &encoded);
    if (!error)
        error = layout->ops->insert(layout, chunk->scaled, is_empty ? NULL : &encoded, &record);
    pool_put(&cache->pool, encoded.bytes, encoded.room);

    pthread_mutex_lock(&cache->lock);
    unreserve(cache, bytes);
    chunk->write_error = error;
    if (error)
        cache->write_error = error;
    if (!error) {
        chunk->record = record;
        chunk_mark_clean(chunk);
    }
    chunk->changing = false;
    pthread_cond_broadcast(&cache->changed);
    chunk_unpin(chunk);
    return error;
}

/* ---- Changing what is in the cache ---- */

/* A change of one chunk: positions get values, or become undefined (values NULL). */
struct change {
    const struct runs *positions;
    const void *values;
    bool whole; /* nothing of what was there stays */
};

/* Memory of the form that a change makes, of a chunk whose own form has old_bytes. */
static size_t change_bytes(const struct layout *layout, const struct change *change,
                           size_t old_bytes)
{
    size_t bytes = old_bytes + runs_bytes(change->positions);
    if (change->values)
        bytes += pool_block_size((size_t)change->positions->elements * layout->element_size);
    return bytes;
}

/* Pins a chunk with the parts that a change needs and marks it as changing. A chunk that is written
 * as a whole need not be read. */
static int begin_change(struct cache_dataset *dataset, const uint64_t *scaled,
                        const struct change *change, struct chunk **out)
{
    struct cache *cache = dataset->cache;
    unsigned parts = change->whole ? 0 : PART_PACKED;
    for (;;) {
        struct chunk *chunk;
        int error = chunk_acquire(dataset, scaled, parts, &chunk);
        if (error)
            return error;
        pthread_mutex_lock(&cache->lock);
        bool gone = chunk->gone, mine = !gone && !chunk->changing;
        if (mine)
            chunk->changing = true;
        else
            chunk_unpin(chunk); /* a pin must not keep memory while this thread waits */
        if (!mine && !gone)
            pthread_cond_wait(&cache->changed, &cache->lock);
        pthread_mutex_unlock(&cache->lock);
        if (mine) {
            *out = chunk;
            return 0;
        }
    }
}

/* Puts a form into the place of a changing chunk, as a new dirty chunk. On error the form is freed
 * and the old chunk is as it was. */
static int replace(struct cache_dataset *dataset, struct chunk *old, struct cache_form *form)
{
    struct cache *cache = dataset->cache;
    struct chunk *fresh = chunk_new(dataset, old->scaled);
    if (fresh && chunk_link(fresh) < 0) {
        cache->used -= fresh->entry_bytes;
        chunk_free(cache, fresh);
        fresh = NULL;
    }
    if (!fresh) {
        form_free(form, &cache->pool);
        return -ENOMEM;
    }
    fresh->state = CHUNK_LOADED;
    fresh->record = old->record;
    fresh->form = *form;
    chunk_count(fresh, form_bytes(form));
    chunk_mark_dirty(fresh, old);
    chunk_unlink(old);
    return 0;
}

static int change_chunk(struct cache_dataset *dataset, const uint64_t *scaled,
                        const struct change *change)
{
    struct cache *cache = dataset->cache;
    struct layout *layout = dataset->layout;
    struct chunk *chunk;
    size_t reserved = change_bytes(layout, change, 0);
    pthread_mutex_lock(&cache->lock);
    while (make_room(cache, reserved))
        ;
    /* What cannot be written must not fill the memory. */
    int error = cache->used + reserved > cache->limit ? cache->write_error : 0;
    pthread_mutex_unlock(&cache->lock);
    if (error)
        return error;
    error = begin_change(dataset, scaled, change, &chunk);
    if (error)
        return error;

    bool exists = chunk->state == CHUNK_LOADED;
    const struct cache_form *old = exists && !change->whole ? &chunk->form : NULL;
    pthread_mutex_lock(&cache->lock);
    reserved = change_bytes(layout, change, old ? chunk->form_bytes : 0);
    reserve_now(cache, reserved);
    pthread_mutex_unlock(&cache->lock);

    struct cache_form form = {0};
    if (change->values)
        error = form_write(layout, old, change->positions, change->values, &cache->pool, &form);
    else if (exists)
        error = form_erase(layout, old, change->positions, &cache->pool, &form);

    pthread_mutex_lock(&cache->lock);
    if (!error && (change->values || exists))
        error = replace(dataset, chunk, &form);
    unreserve(cache, reserved);
    chunk->changing = false;
    pthread_cond_broadcast(&cache->changed);
    chunk_unpin(chunk);
    while (make_room(cache, 0)) /* what was counted without waiting */
        ;
    pthread_mutex_unlock(&cache->lock);
    return error;
}

int cache_write(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                const void *values, bool whole)
{
    struct change change = {positions, values, whole};
    return change_chunk(dataset, scaled, &change);
}

int cache_erase(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                bool whole)
{
    struct change change = {positions, NULL, whole};
    return change_chunk(dataset, scaled, &change);
}

int cache_insert(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct encoded *encoded)
{
    struct cache *cache = dataset->cache;
    struct layout *layout = dataset->layout;
    struct change change = {.whole = true};
    struct chunk *chunk;
    int error = begin_change(dataset, scaled, &change, &chunk);
    if (error)
        return error;
    struct chunk_record record = chunk->record;
    error = layout->ops->insert(layout, scaled, encoded, &record);

    pthread_mutex_lock(&cache->lock);
    if (!error) /* what was cached of it is no longer so */
        chunk_unlink(chunk);
    chunk->changing = false;
    pthread_cond_broadcast(&cache->changed);
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* ---- Flushing ---- */

/* With the lock held: the dirty chunk of the dataset (NULL: of any) that was changed first, if that
 * was not after `last`. */
static struct chunk *next_dirty(struct cache *cache, const struct cache_dataset *dataset,
                                uint64_t last)
{
    struct chunk *chunk;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (chunk->dirty_since > last)
            break;
        if (!dataset || chunk->dataset == dataset)
            return chunk;
    }
    return NULL;
}

/* Chunks that become dirty meanwhile are left for the next flush: this one ends though others write
 * on and on. */
int cache_flush(struct cache *cache, struct cache_dataset *dataset)
{
    int error = 0;
    struct chunk *chunk;
    pthread_mutex_lock(&cache->lock);
    uint64_t last = cache->changes; /* others may go on changing chunks */
    while (!error && (chunk = next_dirty(cache, dataset, last))) {
        if (chunk->changing)
            pthread_cond_wait(&cache->changed, &cache->lock);
        else
            error = write_back(chunk);
    }
    if (!error && !dataset)
        cache->write_error = 0;
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* Whether a chunk has nothing inside of the dims. */
static bool is_outside(const struct layout *layout, const uint64_t *scaled)
{
    for (int i = 0; i < layout->rank; i++)
        if (layout->dims[i] == 0 || scaled[i] > (layout->dims[i] - 1) / layout->chunk_dims[i])
            return true;
    return false;
}

/* With the lock held: forgets the chunks that nobody is loading or changing; returns whether there
 * were no others. */
static bool forget_idle(struct cache_dataset *dataset, bool only_outside)
{
    struct chunk *chunk, *next;
    bool all = true;
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        if (only_outside && !is_outside(dataset->layout, chunk->scaled))
            continue;
        all &= !chunk->changing;
        if (chunk->changing)
            continue;
        chunk_pin(chunk);
        chunk_unlink(chunk);
        chunk_unpin(chunk);
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

void cache_forget_outside(struct cache_dataset *dataset)
{
    forget(dataset, true);
}

void cache_forget(struct cache_dataset *dataset)
{
    forget(dataset, false);
}
