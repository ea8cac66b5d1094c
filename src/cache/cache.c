/* What the cache does for those above: opening, reading, lending, and what is defined. */
#include "cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cache/private.h"
#include "layout/piece.h"
#include "store/store.h"

int cache_create(size_t limit, unsigned n_workers, struct cache **out)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return -ENOMEM;
    int error = workers_create(n_workers, &cache->workers);
    if (error) {
        free(cache);
        return error;
    }
    cache->limit = limit;
    pool_init(&cache->pool, limit);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->changed, NULL);
    pthread_cond_init(&cache->freed, NULL);
    *out = cache;
    return 0;
}

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    workers_destroy(cache->workers);
    assert(!cache->lru && cache->used == 0 && cache->busy == 0);
    pool_destroy(&cache->pool);
    pthread_cond_destroy(&cache->freed);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
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
    *out = dataset;
    return 0;
}

void cache_close_dataset(struct cache_dataset *dataset)
{
    if (!dataset)
        return;
    struct cache *cache = dataset->cache;
    struct chunk *chunk, *next;
    pthread_mutex_lock(&cache->lock);
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        assert(chunk->pins == 0 && !chunk->changing);
        chunk_unlink(chunk);
        cache->used -= chunk->entry_bytes + chunk->form_bytes;
        chunk_free(cache, chunk);
    }
    pthread_cond_broadcast(&cache->freed);
    pthread_mutex_unlock(&cache->lock);
    free(dataset);
}

struct located_read {
    const struct chunk *chunk;
    char *buffer;
};

static int read_row(void *context, size_t in_buffer, size_t in_chunk, size_t bytes)
{
    const struct located_read *read = context;
    return store_read(read->chunk->dataset->layout->store, read->chunk->record.address + in_chunk,
                      read->buffer + in_buffer, bytes);
}

static int read_piece(struct cache_dataset *dataset, const struct box *box,
                      const struct piece *piece, char *buffer)
{
    const struct layout *layout = dataset->layout;
    struct chunk *chunk;
    int error = chunk_acquire(dataset, piece->scaled, PART_VALUES, &chunk);
    if (error)
        return error;
    if (chunk->state == CHUNK_LOADED)
        form_read(layout, &chunk->form, piece->count, piece->in_chunk, buffer, box->count,
                  piece->in_box);
    else if (chunk->state == CHUNK_LOCATED)
        error = box_each_row(layout->rank, piece->count, layout->element_size, box->count,
                             piece->in_box, layout->chunk_dims, piece->in_chunk, read_row,
                             &(struct located_read){chunk, buffer});
    else
        box_fill(layout->rank, piece->count, layout->element_size, buffer, box->count,
                 piece->in_box, layout->info->fill);
    chunk_release(chunk);
    return error;
}

int cache_read(struct cache_dataset *dataset, const struct box *box, void *buffer)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    int error = 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece))
        error = read_piece(dataset, box, &piece, buffer);
    return error;
}

int cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
               struct chunk **out)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    uint64_t position;
    if (!piece_first(layout, box, &piece) || !piece_is_all(layout, box, &piece) ||
        !box_is_contiguous(layout->rank, piece.count, layout->chunk_dims, piece.in_chunk,
                           &position))
        return 0;

    struct chunk *chunk;
    int error = chunk_acquire(dataset, piece.scaled, PART_VALUES, &chunk);
    if (error)
        return error;
    uint64_t offset = position * layout->element_size;
    if (chunk->state == CHUNK_LOADED)
        *bytes = chunk->form.elements ? (const char *)chunk->form.elements + offset : NULL;
    else if (chunk->state == CHUNK_LOCATED)
        *bytes = store_view(layout->store, chunk->record.address + offset,
                            (size_t)box_elements(box) * layout->element_size);
    else
        *bytes = NULL;
    if (!*bytes) {
        chunk_release(chunk);
        return 0;
    }
    *out = chunk;
    return 1;
}

void cache_return(struct chunk *chunk)
{
    chunk_release(chunk);
}

int cache_pin(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
              const struct cache_form **form, struct chunk **out)
{
    struct chunk *chunk;
    int error = chunk_acquire(dataset, scaled, parts, &chunk);
    if (error)
        return error;
    *form = chunk->state == CHUNK_LOADED ? &chunk->form : NULL;
    *out = chunk;
    return 0;
}

void cache_statistics(struct cache *cache, struct sfs_statistics *statistics)
{
    pthread_mutex_lock(&cache->lock);
    statistics->cache_limit = cache->limit;
    statistics->cache_bytes = pool_bytes(&cache->pool);
    statistics->cache_chunks = cache->n_chunks;
    statistics->cache_hits = cache->hits;
    statistics->cache_misses = cache->misses;
    statistics->cache_evictions = cache->evictions;
    statistics->chunks_decoded = cache->decoded;
    pthread_mutex_unlock(&cache->lock);
}
