/* What the cache does for those above: opening, reading, lending, and what is defined. */
#include "cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cache/private.h"
#include "chunk/chunks_of_box.h"
#include "common/thread_pool.h"
#include "store/store.h"

static void prepare(void *cache)
{
    pool_prepare(&((struct cache *)cache)->pool);
}

int cache_create(size_t limit, unsigned n_workers, struct cache **out)
{
    struct cache *cache = calloc(1, sizeof(*cache) + n_workers * sizeof(*cache->encoder));
    if (!cache)
        return -ENOMEM;
    int error = workers_create(n_workers, &cache->workers);
    if (error) {
        free(cache);
        return error;
    }
    atomic_init(&cache->limit, limit);
    error = policy_init(cache);
    if (error) {
        workers_destroy(cache->workers);
        free(cache);
        return error;
    }
    cache->most_of_chunk = SIZE_MAX;
    cache->most_encoders = n_workers;
    pool_init(&cache->pool, limit);
    cache->preparing = (struct pastime){.run = prepare, .context = cache};
    for (int i = 0; i < STRIPES; i++)
        pthread_rwlock_init(&cache->stripes[i], NULL);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->changed, NULL);
    pthread_cond_init(&cache->freed, NULL);
    pthread_cond_init(&cache->wanted, NULL);
    *out = cache;
    return 0;
}

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    encoders_end(cache);
    workers_cancel(cache->workers, &cache->preparing);
    workers_destroy(cache->workers);
    assert(!cache->queues[QUEUE_NEW] && !cache->queues[QUEUE_MAIN] &&
           cache->queue_bytes[QUEUE_NEW] == 0 && cache->queue_bytes[QUEUE_MAIN] == 0 &&
           !cache->dirty && cache->used == 0 && cache->busy == 0 && cache->dirty_bytes == 0);
    policy_destroy(cache);
    pool_destroy(&cache->pool);
    pthread_cond_destroy(&cache->wanted);
    pthread_cond_destroy(&cache->freed);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    for (int i = 0; i < STRIPES; i++)
        pthread_rwlock_destroy(&cache->stripes[i]);
    free(cache);
}

void cache_set_policy(struct cache *cache, enum sfs_policy policy)
{
    if (policy != SFS_POLICY_DEFAULT)
        cache->policy = policy;
}

struct workers *cache_workers(struct cache *cache)
{
    return cache->workers;
}

int cache_open_dataset(struct cache *cache, struct layout *layout, struct cache_dataset **out)
{
    struct cache_dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return -ENOMEM;
    dataset->cache = cache;
    dataset->layout = layout;
    dataset->commit_end = UINT64_MAX;
    pthread_mutex_lock(&cache->lock);
    dataset->number = ++cache->n_datasets;
    pthread_mutex_unlock(&cache->lock);
    *out = dataset;
    return 0;
}

void cache_close_dataset(struct cache_dataset *dataset)
{
    if (!dataset)
        return;
    cache_forget(dataset);     /* waits for the encoders */
    cache_end_commit(dataset); /* the dataset no longer takes part in it */
    free(dataset);
}

bool cache_holds(struct cache_dataset *dataset, const uint64_t *scaled)
{
    pthread_mutex_lock(&dataset->cache->lock);
    bool holds = chunk_find(dataset, scaled) != NULL;
    pthread_mutex_unlock(&dataset->cache->lock);
    return holds;
}

bool cache_fetch(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk;
    pthread_mutex_lock(&cache->lock);
    bool holds = chunk_find(dataset, scaled) != NULL;
    bool idle = cache->loading < cache->most_encoders;
    pthread_mutex_unlock(&cache->lock);
    if (holds || !idle)
        return holds;
    if (chunk_acquire(dataset, scaled, PART_SOME, &chunk) == 0)
        chunk_release(chunk);
    return true;
}

/* The address of a chunk's elements if all of them are in memory without gaps, else NULL. */
static const char *elements_of(const struct chunk *chunk)
{
    const struct cache_form *form = &chunk->form;
    if (chunk_is_open(chunk) || chunk_is_in_parts(chunk))
        return NULL;
    if (form->elements)
        return form->elements;
    bool is_full = form->values && form->value_size == chunk->dataset->layout->chunk_bytes;
    return is_full ? form->values : NULL;
}

int cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
               struct chunk **out)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    uint64_t position;
    *out = NULL;
    if (!piece_first(layout, box, &piece) || !piece_is_all(layout, box, &piece) ||
        !box_is_contiguous(layout->rank, piece.count, layout->chunk_dims, piece.in_chunk,
                           &position))
        return 0;

    struct chunk *chunk;
    int error = chunk_acquire(dataset, piece.scaled, PART_SOME, &chunk);
    if (error)
        return error;
    *out = chunk;
    uint64_t offset = position * layout->element_size;
    const char *elements = chunk->state == CHUNK_LOADED ? elements_of(chunk) : NULL;
    if (elements)
        *bytes = elements + offset;
    else if (chunk->state == CHUNK_LOCATED)
        *bytes = store_view(layout->store, chunk->record.address + offset,
                            (size_t)box_elements(box) * layout->element_size);
    else
        *bytes = NULL;
    return *bytes != NULL;
}

void cache_return(struct chunk *chunk)
{
    chunk_release(chunk);
}

void cache_return_last(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    bool is_idle = chunk->pins == 1 && !chunk->changing && !chunk->encoding;
    if (is_idle && !chunk->gone && !chunk->dirty) {
        chunk_unlink(chunk);
        cache->evictions++;
    }
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
}

/* Replaces a pinned open chunk by a private copy of it, which is in no table. *out is NULL if the
 * chunk has just been condensed. */
static int copy_open(struct chunk *chunk, unsigned parts, struct chunk **out)
{
    struct cache_dataset *dataset = chunk->dataset;
    struct cache *cache = dataset->cache;
    struct cache_form form = {0};
    pthread_rwlock_t *stripe = chunk_stripe(chunk);
    pthread_rwlock_rdlock(stripe);
    bool is_open = chunk->form.is_open;
    int error = is_open ? form_copy(dataset->layout, &chunk->form, parts, &cache->pool, &form) : 0;
    pthread_rwlock_unlock(stripe);

    *out = NULL;
    pthread_mutex_lock(&cache->lock);
    struct chunk *copy = is_open && !error ? chunk_new(dataset, chunk->scaled) : NULL;
    if (copy) {
        copy->state = CHUNK_LOADED;
        copy->gone = true;
        copy->form = form;
        chunk_pin(copy);
        chunk_count(copy);
        *out = copy;
    }
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
    if (is_open && !error && !copy) {
        form_free(&form, &cache->pool);
        error = -ENOMEM;
    }
    return error;
}

int cache_pin(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
              const struct cache_form **form, struct chunk **out)
{
    struct chunk *chunk = NULL;
    while (!chunk) {
        int error = chunk_acquire(dataset, scaled, parts, &chunk);
        if (!error && chunk_is_open(chunk))
            error = copy_open(chunk, parts, &chunk);
        if (error)
            return error;
    }
    *form = chunk->state == CHUNK_LOADED ? &chunk->form : NULL;
    *out = chunk;
    return 0;
}

/* ---- What is changed and not stored yet ---- */

/* The number of defined elements of a pinned chunk that is LOADED and dirty. */
static uint64_t count_defined(struct chunk *chunk)
{
    if (!chunk->was_open)
        return chunk->form.defined.elements;
    pthread_rwlock_rdlock(chunk_stripe(chunk));
    uint64_t n = chunk->form.is_open ? chunk->form.n_defined : chunk->form.defined.elements;
    pthread_rwlock_unlock(chunk_stripe(chunk));
    return n;
}

bool cache_defined_count(struct cache_dataset *dataset, const uint64_t *scaled, uint64_t *n)
{
    struct cache *cache = dataset->cache;
    pthread_mutex_lock(&cache->lock);
    struct chunk *chunk = chunk_find(dataset, scaled);
    bool known = chunk && chunk->dirty;
    if (known)
        chunk_pin(chunk);
    pthread_mutex_unlock(&cache->lock);
    if (!known)
        return false;
    *n = count_defined(chunk);
    chunk_release(chunk);
    return true;
}

int cache_changed(struct cache_dataset *dataset, uint64_t **scaled, size_t *n)
{
    struct cache *cache = dataset->cache;
    size_t rank = (size_t)dataset->layout->rank, count = 0;
    struct chunk *chunk;
    pthread_mutex_lock(&cache->lock);
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        count += chunk->dataset == dataset;
    }
    uint64_t *list = reallocarray(NULL, count ? count : 1, rank * sizeof(*list));
    *n = 0;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (list && chunk->dataset == dataset)
            memcpy(list + rank * (*n)++, chunk->scaled, rank * sizeof(*list));
    }
    pthread_mutex_unlock(&cache->lock);
    *scaled = list;
    return list ? 0 : -ENOMEM;
}

static void uncount_scratch(struct cache *cache, size_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->used -= pool_block_size(bytes);
    pthread_cond_broadcast(&cache->freed);
    pthread_mutex_unlock(&cache->lock);
}

/* Scratch memory is not counted as busy: its holder may wait for memory. */
int cache_scratch(struct cache *cache, size_t bytes, void **memory)
{
    pthread_mutex_lock(&cache->lock);
    int more;
    while ((more = make_room(cache, pool_block_size(bytes))) > 0)
        ;
    if (!more)
        cache->used += pool_block_size(bytes);
    pthread_mutex_unlock(&cache->lock);
    *memory = NULL;
    if (more)
        return more;
    *memory = pool_get(&cache->pool, bytes);
    if (!*memory)
        uncount_scratch(cache, bytes);
    return *memory ? 0 : -ENOMEM;
}

void cache_scratch_return(struct cache *cache, void *memory, size_t bytes)
{
    if (!memory)
        return;
    pool_put(&cache->pool, memory, bytes);
    uncount_scratch(cache, bytes);
}
