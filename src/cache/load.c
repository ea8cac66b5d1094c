/* The way of a chunk into the cache: look-up, reading, decoding, and adding parts that were not
 * wanted before. Two who want the same part of one chunk load it once. */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "cache/private.h"
#include "common/size.h"
#include "store/store.h"

/* Chunks that are stored as they are and not larger than this are read whole, unless the cache is
 * so small that it would hold only a few of them. */
#define WHOLE_BYTES ((size_t)1 << 20)
#define WHOLE_SHARE 8

/* The packed form of a chunk is turned into the dense one, which is lent instead of rendered, where
 * that takes no more than this many times its memory and a small share of the cache. */
#define DENSE_TIMES 2
#define DENSE_SHARE 8

static bool is_read_whole(const struct cache *cache, const struct layout *layout)
{
    return layout->ops->decode || (layout->chunk_bytes <= WHOLE_BYTES &&
                                   layout->chunk_bytes <= cache->limit / WHOLE_SHARE);
}

/* Which parts decode has to add to what is there. */
static unsigned missing_parts(const struct cache_form *form, unsigned wanted)
{
    unsigned parts = 0;
    bool values = (wanted & (PART_VALUES | PART_PACKED)) && !form->elements;
    if (values && !form->has_values)
        parts |= PART_VALUES;
    if ((values || (wanted & (PART_DEFINED | PART_PACKED))) && !form->has_defined)
        parts |= PART_DEFINED;
    return parts;
}

static bool may_be_dense(const struct cache *cache, const struct layout *layout,
                         size_t packed_bytes)
{
    return layout->chunk_bytes <= size_product(DENSE_TIMES, packed_bytes) &&
           layout->chunk_bytes <= cache->limit / DENSE_SHARE;
}

/* Memory that the parts take at most, besides the stored bytes. */
static size_t most_bytes(const struct cache *cache, const struct layout *layout,
                         const struct chunk_record *record, unsigned missing)
{
    size_t dense = pool_block_size(layout->chunk_bytes);
    if (!layout->ops->decode)
        return dense;
    size_t bytes = layout->ops->decode_bytes(layout, record, missing);
    bool both = layout->ops->is_sparse && may_be_dense(cache, layout, bytes);
    return both ? size_sum(bytes, dense) : bytes;
}

static int read_and_decode(struct layout *layout, struct chunk *chunk, unsigned missing,
                           uint64_t offset, size_t n, struct pool *pool, struct cache_form *form)
{
    uint64_t address = chunk->record.address + offset;
    if (!layout->ops->decode) {
        int error = form_new_elements(layout, form, pool);
        if (!error)
            error = store_read(layout->store, address, form->elements, layout->chunk_bytes);
        if (!error)
            stored_note(chunk, offset, layout->chunk_bytes, form->elements);
        return error;
    }
    void *stored = n ? pool_get(pool, n) : NULL;
    int error = n && !stored ? -ENOMEM : 0;
    if (!error && n)
        error = store_read(layout->store, address, stored, n);
    if (!error && n)
        stored_note(chunk, offset, n, stored);
    if (!error)
        error =
            layout->ops->decode(layout, chunk->scaled, &chunk->record, missing, stored, pool, form);
    pool_put(pool, stored, n);
    return error;
}

/* Turns what was decoded into what is kept. */
static int settle(struct cache *cache, const struct layout *layout, unsigned wanted,
                  unsigned missing, struct cache_form *form)
{
    if (!layout->ops->is_sparse)
        return 0;
    if ((wanted & PART_PACKED) && !form->has_values)
        return form_add_values(layout, form, &cache->pool);
    if ((wanted & PART_PACKED) || !(missing & PART_VALUES) ||
        !may_be_dense(cache, layout, form_bytes(form)))
        return 0;

    if (form->value_size == layout->chunk_bytes) { /* all is defined: they are the same */
        form->elements = form->values;
        form->element_size = form->value_size;
    } else {
        int error = form_add_elements(layout, form, &cache->pool);
        if (error)
            return error;
        pool_put(&cache->pool, form->values, form->value_size);
    }
    form->values = NULL;
    form->value_size = 0;
    form->has_values = false;
    if ((missing & PART_DEFINED) && !(wanted & PART_DEFINED)) {
        runs_free(&form->defined);
        free(form->order);
        form->order = NULL;
        form->has_defined = false;
    }
    return 0;
}

/* Makes the parts of a changing chunk that are missing, in a copy of its form. The copy shares what
 * was there before: on error only what is new is freed. */
static int make_parts(struct cache *cache, struct chunk *chunk, unsigned wanted,
                      struct cache_form *form)
{
    struct layout *layout = chunk->dataset->layout;
    unsigned missing = missing_parts(form, wanted);
    uint64_t offset = 0, n = chunk->record.size;
    if (layout->ops->stored)
        layout->ops->stored(layout, &chunk->record, missing, &offset, &n);
    int error = 0;
    if (missing || !layout->ops->decode)
        error = read_and_decode(layout, chunk, missing, offset, (size_t)n, &cache->pool, form);
    return error ? error : settle(cache, layout, wanted, missing, form);
}

/* Takes over what is new in a form; the lock is held. Readers of the old parts do not look at these
 * members. */
static void install(struct cache_form *form, const struct cache_form *made)
{
    if (!form->elements && made->elements) {
        form->element_size = made->element_size;
        form->elements = made->elements;
    }
    if (!form->has_defined && made->has_defined) {
        form->defined = made->defined;
        form->has_defined = true;
    }
    if (!form->has_values && made->has_values) {
        form->values = made->values;
        form->value_size = made->value_size;
        form->has_values = true;
    }
    form->order = made->order;
    if (form->has_values || form->elements) { /* it has served */
        free(form->order);
        form->order = NULL;
    }
}

/* Frees what is in made and not in form. */
static void discard(struct cache *cache, const struct cache_form *form, struct cache_form *made)
{
    if (form->elements)
        made->elements = NULL;
    if (form->has_defined) {
        made->defined = (struct runs){0};
        made->order = NULL;
    }
    if (form->has_values)
        made->values = NULL;
    form_free(made, &cache->pool);
}

/* Adds parts to a chunk that this thread has marked as changing and has not pinned. */
static int add_parts(struct cache *cache, struct chunk *chunk, unsigned wanted)
{
    struct layout *layout = chunk->dataset->layout;
    unsigned missing = missing_parts(&chunk->form, wanted);
    uint64_t offset, n = chunk->record.size;
    if (layout->ops->stored)
        layout->ops->stored(layout, &chunk->record, missing, &offset, &n);
    size_t bytes = most_bytes(cache, layout, &chunk->record, missing);
    if (layout->ops->decode && n)
        bytes = size_sum(bytes, pool_block_size(size_of(n)));
    int error = chunk_check_bytes(chunk, bytes);
    bytes = error ? 0 : bytes;
    pthread_mutex_lock(&cache->lock);
    reserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);

    struct cache_form made = chunk->form;
    if (!error)
        error = make_parts(cache, chunk, wanted, &made);
    if (error)
        discard(cache, &chunk->form, &made);

    pthread_mutex_lock(&cache->lock);
    chunk_pin(chunk);
    if (!error) {
        install(&chunk->form, &made);
        chunk_count(chunk);
        cache->decoded++;
    }
    unreserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* Takes a chunk that this thread has just put into the table out of LOADING. */
static int load(struct cache *cache, struct chunk *chunk, unsigned parts)
{
    struct layout *layout = chunk->dataset->layout;
    int error = layout->ops->lookup(layout, chunk->scaled, &chunk->record);
    enum chunk_state state = CHUNK_LOCATED;
    if (!error && !chunk->record.exists)
        state = CHUNK_ABSENT;
    else if (!error && is_read_whole(cache, layout))
        state = CHUNK_LOADED;
    bool more = state == CHUNK_LOADED && parts != 0;
    if (more)
        error = add_parts(cache, chunk, parts);

    pthread_mutex_lock(&cache->lock);
    if (!more)
        chunk_pin(chunk);
    chunk->state = error ? CHUNK_FAILED : state;
    chunk->error = error;
    chunk->changing = false;
    cache->loading--;
    if (error) /* the next reader tries again */
        chunk_unlink(chunk);
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* Adds parts to a LOADED chunk that this thread has marked as changing. */
static int load_more(struct cache *cache, struct chunk *chunk, unsigned parts)
{
    int error = add_parts(cache, chunk, parts);
    pthread_mutex_lock(&cache->lock);
    chunk->changing = false;
    cache->loading--;
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* With the lock held: makes a new chunk, marked as changing, in room that was made for it. */
static struct chunk *add_chunk(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk = chunk_new(dataset, scaled);
    if (chunk && chunk_link(chunk, NULL) < 0) {
        chunk_drop(chunk);
        return NULL;
    }
    if (chunk) {
        chunk->changing = true;
        cache->misses++;
        cache->loading++;
    }
    return chunk;
}

/* With the lock held: whether a chunk that was found has all parts, or has failed, and is pinned.
 * If not, this thread is to load them, and has marked the chunk as changing; or it has waited for
 * another, and is to look for the chunk again. */
enum found { FOUND_READY, FOUND_TO_LOAD, FOUND_CHANGED };

static enum found wait_for_parts(struct cache *cache, struct chunk *chunk, unsigned parts)
{
    if (chunk->state == CHUNK_LOADING) {
        /* Its form is empty: the pin holds no memory that its loader may be waiting for. */
        chunk_pin(chunk);
        while (chunk->state == CHUNK_LOADING)
            pthread_cond_wait(&cache->changed, &cache->lock);
        if (chunk->state == CHUNK_FAILED)
            return FOUND_READY;
        chunk_unpin(chunk);
        return FOUND_CHANGED;
    }
    /* An open one has all parts, and its form may be looked at only under its stripe. */
    if (chunk->state != CHUNK_LOADED || chunk->open || form_has(&chunk->form, parts)) {
        chunk_pin(chunk);
        return FOUND_READY;
    }
    if (chunk->changing) {
        pthread_cond_wait(&cache->changed, &cache->lock);
        return FOUND_CHANGED;
    }
    chunk->changing = true;
    cache->loading++;
    return FOUND_TO_LOAD;
}

/* With the lock held: a chunk is what is stored now, or gone; or another thread has seen to that.
 */
static int make_sure(struct cache *cache, struct chunk *chunk)
{
    if (!chunk->changing)
        return stored_compare(cache, chunk);
    pthread_cond_wait(&cache->changed, &cache->lock);
    return 0;
}

int chunk_acquire(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
                  struct chunk **out)
{
    struct cache *cache = dataset->cache;
    size_t room = sizeof(struct chunk) + sizeof(*scaled) * (size_t)dataset->layout->rank;
    struct chunk *chunk;
    enum found found = FOUND_CHANGED;
    bool is_new = false, is_hit = false;
    int error = 0;
    pthread_mutex_lock(&cache->lock);
    while (found == FOUND_CHANGED) {
        while (!(chunk = chunk_find(dataset, scaled)) && make_room(cache, room))
            ;
        is_new = !chunk;
        if (is_new)
            break;
        if (chunk->epoch != dataset->epoch && chunk->state != CHUNK_LOADING) {
            error = make_sure(cache, chunk);
            if (error)
                break;
            continue;
        }
        cache->hits += !is_hit;
        is_hit = true;
        policy_touch(cache, chunk);
        found = wait_for_parts(cache, chunk, parts);
    }
    if (error) {
        pthread_mutex_unlock(&cache->lock);
        return error;
    }
    if (is_new)
        chunk = add_chunk(dataset, scaled);
    if (chunk && parts == PART_DEFINED)
        chunk->is_asked = true;
    pthread_mutex_unlock(&cache->lock);
    if (!chunk)
        return -ENOMEM;

    error = is_new                   ? load(cache, chunk, parts)
            : found == FOUND_TO_LOAD ? load_more(cache, chunk, parts)
                                     : chunk->error;
    if (error)
        chunk_release(chunk);
    else
        *out = chunk;
    return error;
}

bool chunk_is_read_whole(const struct cache_dataset *dataset)
{
    return is_read_whole(dataset->cache, dataset->layout);
}

pthread_rwlock_t *chunk_stripe(const struct chunk *chunk)
{
    return &chunk->dataset->cache->stripes[(uintptr_t)chunk / 64 % STRIPES];
}

bool chunk_is_open(const struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    if (!chunk->was_open)
        return false;
    pthread_mutex_lock(&cache->lock);
    bool open = chunk->open;
    pthread_mutex_unlock(&cache->lock);
    return open;
}

void chunk_release(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
}
