/* The cache's hash tables, its least-recently-used list, its memory and the way of a chunk into it.
 *
 *                    lookup says
 *   LOADING ──┬─ no such chunk ────────────────► ABSENT    reads as the fill value
 *             ├─ large and stored as it is ────► LOCATED   parts are read from the store
 *             ├─ read, decoded ────────────────► LOADED    copied from memory, or lent
 *             └─ failed ──► leaves the cache when the last who waited for it has seen the error
 *
 * Invariants, under cache->lock:
 *  - a chunk is in its dataset's table and in the LRU list, or it has failed and only those who
 *    pinned it know it;
 *  - a chunk with pins is not evicted; LOADING implies a pin;
 *  - used = sum of the bytes of all chunks, with their entries, and of reservations; it is counted
 *    before memory is allocated and until it is given back, so that pool_bytes never exceeds it by
 *    more than what the pool keeps for reuse;
 *  - busy = the part of it that belongs to elements of pinned chunks and to reservations. Who holds
 *    such a part never waits for memory, so that who finds busy > 0 may. */
#include "cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cache/pool.h"
#include "common/hash.h"
#include "layout/layout.h"
#include "store/store.h"

/* Chunks that are stored as they are and not larger than this are read whole, unless the cache is
 * so small that it would hold only a few of them. */
#define WHOLE_BYTES ((size_t)1 << 20)
#define WHOLE_SHARE 8

enum chunk_state { CHUNK_LOADING, CHUNK_ABSENT, CHUNK_LOCATED, CHUNK_LOADED, CHUNK_FAILED };

struct chunk {
    UT_hash_handle hh;         /* in its dataset's table, by scaled */
    struct chunk *prev, *next; /* LRU list, least recently used first */
    struct cache_dataset *dataset;
    enum chunk_state state;
    int error; /* CHUNK_FAILED */
    unsigned pins;
    size_t entry_bytes;   /* of this struct with its coordinates */
    size_t element_bytes; /* 0 unless CHUNK_LOADED */
    struct chunk_location location;
    void *elements; /* CHUNK_LOADED: the cache form */
    uint64_t scaled[];
};

struct cache_dataset {
    struct cache *cache;
    struct layout *layout;
    struct chunk *chunks; /* hash table; under cache->lock */
};

struct cache {
    size_t limit;
    struct pool pool;
    pthread_mutex_t lock;  /* guards what follows, and all chunks and tables */
    pthread_cond_t loaded; /* a chunk has left LOADING */
    pthread_cond_t freed;  /* busy has shrunk */
    struct chunk *lru;
    size_t used, busy;
    uint64_t n_chunks, hits, misses, evictions, decoded;
};

int cache_create(size_t limit, struct cache **out)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return -ENOMEM;
    cache->limit = limit;
    pool_init(&cache->pool, limit);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->loaded, NULL);
    pthread_cond_init(&cache->freed, NULL);
    *out = cache;
    return 0;
}

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    assert(!cache->lru && cache->used == 0 && cache->busy == 0);
    pool_destroy(&cache->pool);
    pthread_cond_destroy(&cache->freed);
    pthread_cond_destroy(&cache->loaded);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
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

static size_t entry_bytes(const struct cache_dataset *dataset)
{
    return sizeof(struct chunk) + (size_t)dataset->layout->rank * sizeof(uint64_t);
}

/* Takes a chunk without pins out of table and list. Its bytes stay counted until it is freed. */
static void unlink_chunk(struct cache *cache, struct chunk *chunk)
{
    assert(chunk->pins == 0);
    HASH_DELETE(hh, chunk->dataset->chunks, chunk);
    DL_DELETE(cache->lru, chunk);
    cache->n_chunks--;
}

/* Does not look at the chunk's dataset: it may have been closed since the chunk was unlinked. */
static void free_chunk(struct cache *cache, struct chunk *chunk)
{
    pool_put(&cache->pool, chunk->elements, chunk->element_bytes);
    pool_put(&cache->pool, chunk, chunk->entry_bytes);
}

void cache_close_dataset(struct cache_dataset *dataset)
{
    if (!dataset)
        return;
    struct cache *cache = dataset->cache;
    struct chunk *chunk, *next;
    pthread_mutex_lock(&cache->lock);
    HASH_ITER (hh, dataset->chunks, chunk, next) {
        unlink_chunk(cache, chunk);
        cache->used -= chunk->entry_bytes + chunk->element_bytes;
        free_chunk(cache, chunk);
    }
    pthread_cond_broadcast(&cache->freed);
    pthread_mutex_unlock(&cache->lock);
    free(dataset);
}

/* ---- Exclusive lock must be held below this line, except where said ---- */

static void pin(struct cache *cache, struct chunk *chunk)
{
    if (chunk->pins++ == 0)
        cache->busy += chunk->element_bytes;
}

/* Frees the chunk if it has failed and this was its last pin. */
static void unpin(struct cache *cache, struct chunk *chunk)
{
    if (--chunk->pins > 0)
        return;
    cache->busy -= chunk->element_bytes;
    if (chunk->state == CHUNK_FAILED) {
        cache->used -= chunk->entry_bytes;
        free_chunk(cache, chunk);
    }
    pthread_cond_broadcast(&cache->freed);
}

/* The least recently used chunk that nobody uses, or NULL. */
static struct chunk *evictable(struct cache *cache)
{
    struct chunk *chunk;
    DL_FOREACH (cache->lru, chunk) {
        if (chunk->pins == 0)
            return chunk;
    }
    return NULL;
}

static void unreserve(struct cache *cache, size_t bytes)
{
    cache->used -= bytes;
    cache->busy -= bytes;
    pthread_cond_broadcast(&cache->freed);
}

/* Drops the lock while it frees. */
static void evict(struct cache *cache, struct chunk *victim)
{
    size_t bytes = victim->entry_bytes + victim->element_bytes;
    unlink_chunk(cache, victim);
    cache->evictions++;
    cache->busy += bytes; /* a reservation until it is freed */
    pthread_mutex_unlock(&cache->lock);
    free_chunk(cache, victim);
    pthread_mutex_lock(&cache->lock);
    unreserve(cache, bytes);
}

/* If there is no room for bytes that are about to be allocated, evicts one chunk or waits until
 * those who use the memory have given some back, without the lock, and returns true: look again.
 * The caller must hold no busy bytes. */
static bool make_room(struct cache *cache, size_t bytes)
{
    if (cache->used + bytes <= cache->limit)
        return false;
    struct chunk *victim = evictable(cache);
    if (victim)
        evict(cache, victim);
    else if (cache->busy > 0)
        pthread_cond_wait(&cache->freed, &cache->lock);
    else
        return false; /* larger than the cache and alone */
    return true;
}

/* Counts bytes for a chunk's elements and what decoding them needs, after making room. */
static void reserve(struct cache *cache, size_t bytes)
{
    while (make_room(cache, bytes))
        ;
    cache->used += bytes;
    cache->busy += bytes;
}

/* ---- The lock is not held below this line ---- */

static bool is_read_whole(const struct cache *cache, const struct layout *layout)
{
    return layout->ops->decode || (layout->chunk_bytes <= WHOLE_BYTES &&
                                   layout->chunk_bytes <= cache->limit / WHOLE_SHARE);
}

/* Reads and decodes a chunk that exists into newly allocated memory. */
static int load_elements(struct cache *cache, struct chunk *chunk)
{
    struct layout *layout = chunk->dataset->layout;
    size_t stored_bytes = layout->ops->decode ? (size_t)chunk->location.size : 0;
    size_t element_bytes = pool_block_size(layout->chunk_bytes);
    size_t working_bytes = (stored_bytes ? pool_block_size(stored_bytes) : 0) +
                           (layout->scratch_bytes ? pool_block_size(layout->scratch_bytes) : 0);
    pthread_mutex_lock(&cache->lock);
    reserve(cache, element_bytes + working_bytes);
    pthread_mutex_unlock(&cache->lock);

    void *elements = pool_get(&cache->pool, layout->chunk_bytes);
    void *stored = stored_bytes ? pool_get(&cache->pool, stored_bytes) : NULL;
    void *scratch = layout->scratch_bytes ? pool_get(&cache->pool, layout->scratch_bytes) : NULL;
    int error = 0;
    if (!elements || (stored_bytes && !stored) || (layout->scratch_bytes && !scratch))
        error = -ENOMEM;
    else if (!layout->ops->decode)
        error = store_read(layout->store, chunk->location.address, elements, layout->chunk_bytes);
    else if (stored_bytes)
        error = store_read(layout->store, chunk->location.address, stored, stored_bytes);
    if (!error && layout->ops->decode)
        error =
            layout->ops->decode(layout, chunk->scaled, &chunk->location, stored, scratch, elements);

    pool_put(&cache->pool, stored, stored_bytes);
    pool_put(&cache->pool, scratch, layout->scratch_bytes);
    if (error)
        pool_put(&cache->pool, elements, layout->chunk_bytes);

    pthread_mutex_lock(&cache->lock);
    if (error) {
        unreserve(cache, element_bytes + working_bytes);
    } else {
        /* From now on the elements are counted with the chunk, which is pinned and so busy. */
        unreserve(cache, working_bytes);
        chunk->element_bytes = element_bytes;
        chunk->elements = elements;
        cache->decoded++;
    }
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* Takes a chunk that this thread has just put into the table out of LOADING. */
static void load(struct cache *cache, struct chunk *chunk)
{
    struct layout *layout = chunk->dataset->layout;
    int error = layout->ops->lookup(layout, chunk->scaled, &chunk->location);
    enum chunk_state state = CHUNK_LOCATED;
    if (!error && !chunk->location.exists) {
        state = CHUNK_ABSENT;
    } else if (!error && is_read_whole(cache, layout)) {
        error = load_elements(cache, chunk);
        state = CHUNK_LOADED;
    }

    pthread_mutex_lock(&cache->lock);
    chunk->state = error ? CHUNK_FAILED : state;
    chunk->error = error;
    if (error) { /* the next reader tries again */
        HASH_DELETE(hh, chunk->dataset->chunks, chunk);
        DL_DELETE(cache->lru, chunk);
        cache->n_chunks--;
    }
    pthread_cond_broadcast(&cache->loaded);
    pthread_mutex_unlock(&cache->lock);
}

static void release(struct cache *cache, struct chunk *chunk)
{
    pthread_mutex_lock(&cache->lock);
    unpin(cache, chunk);
    pthread_mutex_unlock(&cache->lock);
}

static struct chunk *find_chunk(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct chunk *chunk;
    HASH_FIND(hh, dataset->chunks, scaled, (size_t)dataset->layout->rank * sizeof(*scaled), chunk);
    return chunk;
}

/* Makes a new LOADING chunk, pinned, in table and list, in room that was made for it. Called and
 * returns with the lock held. */
static struct chunk *add_chunk(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    size_t bytes = entry_bytes(dataset);
    size_t key_bytes = (size_t)dataset->layout->rank * sizeof(*scaled);
    struct chunk *chunk = pool_get(&cache->pool, bytes);
    if (!chunk)
        return NULL;
    memset(chunk, 0, bytes);
    chunk->dataset = dataset;
    chunk->state = CHUNK_LOADING;
    chunk->entry_bytes = bytes;
    memcpy(chunk->scaled, scaled, key_bytes);
    HASH_ADD_KEYPTR(hh, dataset->chunks, chunk->scaled, key_bytes, chunk);
    if (hash_failed()) {
        pool_put(&cache->pool, chunk, bytes);
        return NULL;
    }
    DL_APPEND(cache->lru, chunk);
    cache->used += bytes;
    cache->n_chunks++;
    cache->misses++;
    pin(cache, chunk);
    return chunk;
}

/* Finds a chunk or loads it; *out is pinned and ABSENT, LOCATED or LOADED. */
static int acquire(struct cache_dataset *dataset, const uint64_t *scaled, struct chunk **out)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk;

    pthread_mutex_lock(&cache->lock);
    while (!(chunk = find_chunk(dataset, scaled)) && make_room(cache, entry_bytes(dataset)))
        ;
    if (chunk) {
        cache->hits++;
        pin(cache, chunk);
        DL_DELETE(cache->lru, chunk);
        DL_APPEND(cache->lru, chunk);
        while (chunk->state == CHUNK_LOADING)
            pthread_cond_wait(&cache->loaded, &cache->lock);
    } else {
        chunk = add_chunk(dataset, scaled);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!chunk)
        return -ENOMEM;

    if (chunk->state == CHUNK_LOADING)
        load(cache, chunk);
    if (chunk->state == CHUNK_FAILED) {
        int error = chunk->error;
        release(cache, chunk);
        return error;
    }
    *out = chunk;
    return 0;
}

/* A piece of a box that lies in one chunk. */
struct piece {
    uint64_t scaled[SFS_MAX_RANK];
    uint64_t in_chunk[SFS_MAX_RANK];  /* start, in the chunk's elements */
    uint64_t in_buffer[SFS_MAX_RANK]; /* start, in the box's elements */
    uint64_t count[SFS_MAX_RANK];
};

struct located_read {
    const struct chunk *chunk;
    char *buffer;
};

static int read_row(void *context, size_t in_buffer, size_t in_chunk, size_t bytes)
{
    const struct located_read *read = context;
    return store_read(read->chunk->dataset->layout->store, read->chunk->location.address + in_chunk,
                      read->buffer + in_buffer, bytes);
}

static int read_piece(struct cache_dataset *dataset, const struct box *box,
                      const struct piece *piece, char *buffer)
{
    const struct layout *layout = dataset->layout;
    struct chunk *chunk;
    int error = acquire(dataset, piece->scaled, &chunk);
    if (error)
        return error;
    if (chunk->state == CHUNK_LOADED)
        box_copy(layout->rank, piece->count, layout->element_size, buffer, box->count,
                 piece->in_buffer, chunk->elements, layout->chunk_dims, piece->in_chunk);
    else if (chunk->state == CHUNK_LOCATED)
        error = box_each_row(layout->rank, piece->count, layout->element_size, box->count,
                             piece->in_buffer, layout->chunk_dims, piece->in_chunk, read_row,
                             &(struct located_read){chunk, buffer});
    else
        box_fill(layout->rank, piece->count, layout->element_size, buffer, box->count,
                 piece->in_buffer, layout->info->fill);
    release(dataset->cache, chunk);
    return error;
}

/* The part of box in the chunk at piece->scaled, which it touches. */
static void cut_piece(const struct layout *layout, const struct box *box, struct piece *piece)
{
    for (int i = 0; i < layout->rank; i++) {
        uint64_t chunk_start = piece->scaled[i] * layout->chunk_dims[i];
        uint64_t start = box->start[i] > chunk_start ? box->start[i] : chunk_start;
        uint64_t left_in_box = box->start[i] + box->count[i] - start;
        uint64_t left_in_chunk = layout->chunk_dims[i] - (start - chunk_start);
        piece->in_chunk[i] = start - chunk_start;
        piece->in_buffer[i] = start - box->start[i];
        piece->count[i] = left_in_box < left_in_chunk ? left_in_box : left_in_chunk;
    }
}

int cache_read(struct cache_dataset *dataset, const struct box *box, void *buffer)
{
    const struct layout *layout = dataset->layout;
    uint64_t first[SFS_MAX_RANK], last[SFS_MAX_RANK];
    struct piece piece;
    for (int i = 0; i < layout->rank; i++) {
        if (box->count[i] == 0)
            return 0;
        first[i] = piece.scaled[i] = box->start[i] / layout->chunk_dims[i];
        last[i] = (box->start[i] + box->count[i] - 1) / layout->chunk_dims[i];
    }
    for (;;) {
        cut_piece(layout, box, &piece);
        int error = read_piece(dataset, box, &piece, buffer);
        if (error)
            return error;
        int axis = layout->rank - 1;
        while (axis >= 0 && piece.scaled[axis] == last[axis]) {
            piece.scaled[axis] = first[axis];
            axis--;
        }
        if (axis < 0)
            return 0;
        piece.scaled[axis]++;
    }
}

int cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
               struct chunk **out)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    uint64_t position;
    for (int i = 0; i < layout->rank; i++)
        piece.scaled[i] = box->start[i] / layout->chunk_dims[i];
    cut_piece(layout, box, &piece);
    if (memcmp(piece.count, box->count, (size_t)layout->rank * sizeof(*piece.count)) != 0 ||
        !box_is_contiguous(layout->rank, piece.count, layout->chunk_dims, piece.in_chunk,
                           &position))
        return 0;

    struct chunk *chunk;
    int error = acquire(dataset, piece.scaled, &chunk);
    if (error)
        return error;
    uint64_t offset = position * layout->element_size;
    if (chunk->state == CHUNK_LOADED)
        *bytes = (const char *)chunk->elements + offset;
    else if (chunk->state == CHUNK_LOCATED)
        *bytes = store_view(layout->store, chunk->location.address + offset,
                            (size_t)box_elements(box) * layout->element_size);
    else
        *bytes = NULL;
    if (!*bytes) {
        release(dataset->cache, chunk);
        return 0;
    }
    *out = chunk;
    return 1;
}

void cache_return(struct cache_dataset *dataset, struct chunk *chunk)
{
    release(dataset->cache, chunk);
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
