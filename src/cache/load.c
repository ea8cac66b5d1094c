/* From the store to a cached chunk: look-up, reading, decoding, and adding parts later. Two threads
 * that want the same part of one chunk load it once. */
#include <errno.h>
#include <stdlib.h>

#include "cache/private.h"
#include "common/cpu_limit.h"
#include "common/interrupt.h"
#include "common/size.h"
#include "store/store.h"

/* Chunks that are stored as they are, and are not larger than this, are read whole, unless the
 * cache could hold only a few of them. */
#define WHOLE_BYTES ((size_t)1 << 20)
#define WHOLE_SHARE 8

static bool is_read_whole(const struct cache *cache, const struct layout *layout)
{
    return layout->ops->decode || (layout->chunk_bytes <= WHOLE_BYTES &&
                                   layout->chunk_bytes <= cache->limit / WHOLE_SHARE);
}

/* The parts that decode has to add to a form. */
static unsigned missing_parts(const struct layout *layout, const struct cache_form *form,
                              unsigned wanted)
{
    unsigned parts = 0;
    bool values = (wanted & (PART_VALUES | PART_PACKED)) && !form->elements;
    if (values && !form->has_values)
        parts |= layout->slots ? PART_VALUES | PART_HEAP : PART_VALUES;
    if ((values || (wanted & (PART_DEFINED | PART_PACKED))) && !form->has_defined)
        parts |= PART_DEFINED;
    return parts;
}

/* An upper bound for the memory of the parts, without the stored bytes. */
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

/* Moves the new parts into a form; the lock is held. Readers of the old parts do not look at these
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
        form->heap = made->heap;
        form->heap_size = made->heap_size;
        form->has_values = true;
    }
    form->order = made->order;
    if (form->has_values || form->elements) { /* no longer needed */
        form->is_reordered |= form->order != NULL;
        free(form->order);
        form->order = NULL;
    }
}

/* Frees the parts of `made` that are not in `form`. */
static void discard(struct cache *cache, const struct cache_form *form, struct cache_form *made)
{
    if (form->elements)
        made->elements = NULL;
    if (form->has_defined) {
        made->defined = (struct runs){0};
        made->order = NULL;
    }
    if (form->has_values)
        made->values = made->heap = NULL;
    form_free(made, &cache->pool);
}

/* ---- The steps of loading ---- */

int loading_plan(struct loading *loading, struct chunk *chunk, unsigned wanted)
{
    struct cache *cache = chunk->dataset->cache;
    struct layout *layout = chunk->dataset->layout;
    unsigned missing = missing_parts(layout, &chunk->form, wanted);
    uint64_t offset = 0, n = chunk->record.size;
    if (layout->ops->stored)
        layout->ops->stored(layout, &chunk->record, missing, &offset, &n);
    if (!layout->ops->decode)
        n = layout->chunk_bytes;
    *loading = (struct loading){.chunk = chunk,
                                .wanted = wanted,
                                .missing = missing,
                                .offset = offset,
                                .n = (size_t)n,
                                .made = chunk->form};
    size_t bytes = most_bytes(cache, layout, &chunk->record, missing);
    if (layout->ops->decode && n)
        bytes = size_sum(bytes, pool_block_size(size_of(n)));
    int error = chunk_check_bytes(chunk, bytes);
    loading->bytes = error ? 0 : bytes;
    return error;
}

int loading_get(struct loading *loading)
{
    struct layout *layout = loading->chunk->dataset->layout;
    struct pool *pool = &loading->chunk->dataset->cache->pool;
    if (!layout->ops->decode) {
        int error = form_new_elements(layout, &loading->made, pool);
        loading->stored = loading->made.elements;
        return error;
    }
    if (loading->n == 0 || loading->missing == 0)
        return 0;
    loading->stored = pool_get(pool, loading->n);
    return loading->stored ? 0 : -ENOMEM;
}

int loading_read(struct loading *loading)
{
    struct chunk *chunk = loading->chunk;
    if (!loading->stored)
        return 0;
    return store_read(chunk->dataset->layout->store, loading_address(loading), loading->stored,
                      loading->n);
}

int loading_decode(struct loading *loading)
{
    struct chunk *chunk = loading->chunk;
    struct layout *layout = chunk->dataset->layout;
    struct cache *cache = chunk->dataset->cache;
    int error = 0;
    if (loading->stored)
        revalidate_note(chunk, loading->offset, loading->n, loading->stored);
    const struct decoding decoding = {chunk->scaled,   &chunk->record, loading->missing,
                                      loading->stored, &cache->pool,   &loading->made};
    cpu_limit_begin();
    if (layout->ops->decode && loading->missing)
        error = layout->ops->decode(layout, &decoding);
    cpu_limit_end();
    if (error == -ETIMEDOUT)
        error = layout_takes_too_long(layout, chunk->scaled, chunk->record.address);
    return error ? error
                 : choose_form(cache, layout, loading->wanted, loading->missing, &loading->made);
}

void loading_end(struct loading *loading, int error)
{
    struct chunk *chunk = loading->chunk;
    struct cache *cache = chunk->dataset->cache;
    if (chunk->dataset->layout->ops->decode)
        pool_put(&cache->pool, loading->stored, loading->n);
    if (error)
        discard(cache, &chunk->form, &loading->made);
    pthread_mutex_lock(&cache->lock);
    chunk_pin(chunk);
    if (!error) {
        install(&chunk->form, &loading->made);
        chunk_count(chunk);
        cache->decoded++;
    }
    unreserve_loading(cache, loading);
    pthread_mutex_unlock(&cache->lock);
    if (pool_wants(&cache->pool))
        workers_offer(cache->workers, &cache->preparing, 1);
}

int loading_do(struct loading *loading, int error)
{
    struct cache *cache = loading->chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    int interrupted = reserve_loading(cache, loading);
    pthread_mutex_unlock(&cache->lock);
    error = error ? error : interrupted;
    if (!error)
        error = loading_get(loading);
    if (!error)
        error = loading_read(loading);
    if (!error)
        error = loading_decode(loading);
    loading_end(loading, error);
    return error;
}

static int add_parts(struct chunk *chunk, unsigned wanted)
{
    struct loading loading;
    int error = loading_plan(&loading, chunk, wanted);
    return loading_do(&loading, error);
}

/* A large number of values that are stored as they are is not read whole. */
static bool is_read_in_parts(struct chunk *chunk)
{
    const struct layout *layout = chunk->dataset->layout;
    uint64_t bytes;
    return layout->ops->values_at &&
           layout->ops->values_at(layout, chunk->scaled, &chunk->record, &chunk->values_address,
                                  &bytes) &&
           (bytes > WHOLE_BYTES || bytes > chunk->dataset->cache->limit / WHOLE_SHARE);
}

/* Resolves PART_SOME for this chunk. */
static unsigned parts_of(const struct chunk *chunk, unsigned parts)
{
    if (parts & PART_SOME)
        parts = (parts & ~PART_SOME) | (chunk->in_parts ? PART_DEFINED : PART_VALUES);
    return parts;
}

int chunk_look_up(struct chunk *chunk, unsigned *parts, enum chunk_state *state)
{
    struct layout *layout = chunk->dataset->layout;
    int error = layout->ops->lookup(layout, chunk->scaled, &chunk->record);
    *state = CHUNK_LOCATED;
    if (!error && !chunk->record.exists)
        *state = CHUNK_ABSENT;
    else if (!error && is_read_whole(chunk->dataset->cache, layout))
        *state = CHUNK_LOADED;
    if (!error && *state == CHUNK_LOADED)
        chunk->in_parts = is_read_in_parts(chunk);
    *parts = parts_of(chunk, *parts);
    return error;
}

void chunk_loaded(struct chunk *chunk, enum chunk_state state, int error)
{
    struct cache *cache = chunk->dataset->cache;
    chunk->state = error ? CHUNK_FAILED : state;
    chunk->error = error;
    chunk->changing = false;
    cache->loading--;
    if (error) /* the next reader tries again */
        chunk_unlink(chunk);
    pthread_cond_broadcast(&cache->changed);
}

/* Takes a chunk that this thread has just put into the table out of LOADING. */
static int load(struct cache *cache, struct chunk *chunk, unsigned parts)
{
    enum chunk_state state;
    int error = chunk_look_up(chunk, &parts, &state);
    bool more = !error && state == CHUNK_LOADED && parts != 0;
    if (more)
        error = add_parts(chunk, parts);
    pthread_mutex_lock(&cache->lock);
    if (!more)
        chunk_pin(chunk);
    chunk_loaded(chunk, state, error);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* Adds parts to a LOADED chunk that this thread has marked as changing. */
static int load_more(struct cache *cache, struct chunk *chunk, unsigned parts)
{
    int error = add_parts(chunk, parts);
    pthread_mutex_lock(&cache->lock);
    chunk->changing = false;
    cache->loading--;
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

struct chunk *chunk_add(struct cache_dataset *dataset, const uint64_t *scaled, bool passing)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk = chunk_new(dataset, scaled);
    if (chunk)
        chunk->passing = passing;
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

/* With the lock held, for a chunk that was found. READY: it is pinned, and has all parts or has
 * failed. TO_LOAD: it is marked as changing, and this thread has to load the parts. CHANGED: this
 * thread has waited for another one, and has to look the chunk up again. -EINTR: it is not pinned. */
enum found { FOUND_READY, FOUND_TO_LOAD, FOUND_CHANGED };

static int wait_for_parts(struct cache *cache, struct chunk *chunk, unsigned parts,
                          enum found *found)
{
    int error = 0;
    *found = FOUND_READY;
    if (chunk->state == CHUNK_LOADING) {
        /* Its form is empty, so the pin holds no memory that its loader may wait for. */
        chunk_pin(chunk);
        while (!error && chunk->state == CHUNK_LOADING)
            error = interrupt_wait(&cache->changed, &cache->lock);
        if (!error && chunk->state == CHUNK_FAILED)
            return 0;
        chunk_unpin(chunk);
        *found = FOUND_CHANGED;
        return error;
    }
    /* An open chunk has all parts, and its form must be read under its stripe only. */
    if (chunk->state != CHUNK_LOADED || chunk->open ||
        form_has(&chunk->form, parts_of(chunk, parts))) {
        chunk_pin(chunk);
        return 0;
    }
    if (chunk->changing) {
        *found = FOUND_CHANGED;
        return interrupt_wait(&cache->changed, &cache->lock);
    }
    chunk->changing = true;
    cache->loading++;
    *found = FOUND_TO_LOAD;
    return 0;
}

/* With the lock held: revalidates a chunk of an older epoch, which may be gone then; or waits for
 * the thread that is doing so. */
static int make_sure(struct cache *cache, struct chunk *chunk)
{
    if (!chunk->changing)
        return revalidate(cache, chunk);
    return interrupt_wait(&cache->changed, &cache->lock);
}

/* What has failed for another thread because nobody wanted it there any more is wanted here. */
static bool has_given_up(const struct chunk *chunk)
{
    return chunk->state == CHUNK_FAILED && chunk->error == -EINTR && interrupt_check() == 0;
}

int chunk_acquire(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
                  struct chunk **out)
{
    struct cache *cache = dataset->cache;
    size_t room = chunk_entry_bytes(dataset);
    struct chunk *chunk;
    bool passing = parts & PASSING;
    parts &= ~(unsigned)PASSING;
    enum found found = FOUND_CHANGED;
    bool is_new = false, is_hit = false;
    int error = 0;
    pthread_mutex_lock(&cache->lock);
    uint64_t epoch = dataset->epoch;
    while (found == FOUND_CHANGED) {
        int more = 0;
        while (!(chunk = chunk_find(dataset, scaled)) && (more = make_room(cache, room)) > 0)
            ;
        is_new = !chunk;
        error = is_new ? more : 0;
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
        if (!passing) {
            chunk->passing = false;
            policy_touch(cache, chunk);
        }
        error = wait_for_parts(cache, chunk, parts, &found);
        if (error)
            break;
        /* Others may have begun to load it before it was outdated. */
        if (found == FOUND_READY && (chunk->epoch < epoch || has_given_up(chunk))) {
            chunk_unpin(chunk);
            found = FOUND_CHANGED;
        }
    }
    if (error) {
        pthread_mutex_unlock(&cache->lock);
        return error;
    }
    if (is_new)
        chunk = chunk_add(dataset, scaled, passing);
    if (chunk && parts == PART_DEFINED)
        chunk->is_asked = true;
    pthread_mutex_unlock(&cache->lock);
    if (!chunk)
        return -ENOMEM;

    error = is_new                   ? load(cache, chunk, parts)
            : found == FOUND_TO_LOAD ? load_more(cache, chunk, parts_of(chunk, parts))
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
    cache_check(cache);
    pthread_mutex_unlock(&cache->lock);
}
