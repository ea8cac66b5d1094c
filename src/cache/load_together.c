/* Reading boxes of one dataset or many: they are cut into pieces that lie in one chunk each, and chunks that are
 * not there are looked up, read and decoded together, by several threads. */
#include <errno.h>
#include <stdlib.h>

#include "cache/private.h"
#include "chunk/chunks_of_box.h"
#include "common/interrupt.h"
#include "common/size.h"
#include "common/thread_pool.h"
#include "store/store.h"

#define LOADED_TOGETHER 8
#define LOADED_SHARE    4 /* chunks that are loaded together take at most this share of the limit */
#define RESERVED_SHARE  2 /* and with all that decoding them takes, this */

/* ---- Chunks that are loaded together ---- */

struct wish {
    const struct cache_read *read;
    struct piece piece;
    struct chunk *chunk; /* pinned, once it is loaded; NULL: it was there, or is read alone */
    enum chunk_state state;
    int error;
    bool loads, is_read;
    struct loading loading;
};

/* Large: not set to zeros for every small read. */
struct group {
    struct cache *cache;
    size_t n;
    struct wish wish[LOADED_TOGETHER];
};

/* Whether workers are idle: if other threads are decoding they have the workers already. */
static bool is_worth_it(struct group *group)
{
    struct cache *cache = group->cache;
    struct wish *first = &group->wish[0];
    if (group->n < 2)
        return false;
    pthread_mutex_lock(&cache->lock);
    bool is_worth_it = cache->busy == 0 && !chunk_find(first->read->dataset, first->piece.scaled);
    pthread_mutex_unlock(&cache->lock);
    return is_worth_it;
}

/* Adds the missing chunks to their tables, to be loaded by this thread; none if it is interrupted. */
static void add_chunks(struct group *group)
{
    struct cache *cache = group->cache;
    size_t room = 0;
    for (size_t i = 0; i < group->n; i++)
        room += chunk_entry_bytes(group->wish[i].read->dataset);
    pthread_mutex_lock(&cache->lock);
    int more;
    while ((more = make_room(cache, room)) > 0)
        ;
    for (size_t i = 0; i < group->n && !more; i++) {
        struct wish *wish = &group->wish[i];
        struct cache_dataset *dataset = wish->read->dataset;
        if (!chunk_find(dataset, wish->piece.scaled))
            wish->chunk = chunk_add(dataset, wish->piece.scaled, wish->read->passing);
    }
    pthread_mutex_unlock(&cache->lock);
}

/* Plans what is to be read; returns the memory that it takes. */
static size_t plan(struct group *group)
{
    size_t bytes = 0;
    for (size_t i = 0; i < group->n; i++) {
        struct wish *wish = &group->wish[i];
        unsigned parts = PART_SOME;
        if (!wish->chunk)
            continue;
        wish->error = chunk_look_up(wish->chunk, &parts, &wish->state);
        wish->loads = !wish->error && wish->state == CHUNK_LOADED;
        if (!wish->loads)
            continue;
        wish->error = loading_plan(&wish->loading, wish->chunk, parts);
        bytes = size_sum(bytes, wish->loading.bytes);
    }
    return bytes;
}

static int compare_places(const void *a, const void *b)
{
    const struct loading *left = *(const struct loading *const *)a,
                         *right = *(const struct loading *const *)b;
    const struct store *left_store = left->chunk->dataset->layout->store,
                       *right_store = right->chunk->dataset->layout->store;
    if (left_store != right_store)
        return left_store < right_store ? -1 : 1;
    uint64_t left_at = loading_address(left), right_at = loading_address(right);
    return left_at < right_at ? -1 : left_at > right_at;
}

/* Vectored reading of what is adjacent. If that fails chunks are read one by one, as each may have
 * an error of its own. */
static void read_together(struct loading **loadings, size_t n)
{
    struct store_vector vector;
    int error = 0;
    qsort(loadings, n, sizeof(*loadings), compare_places);
    for (size_t i = 0; i < n; i++) {
        struct store *store = loadings[i]->chunk->dataset->layout->store;
        if (i == 0 || store != vector.store) {
            if (i > 0 && !error)
                error = store_vector_end(&vector);
            store_vector_begin(&vector, store);
        }
        if (!error)
            error = store_vector_add(&vector, loading_address(loadings[i]), loadings[i]->stored,
                                     loadings[i]->n);
    }
    if (n > 0 && !error)
        error = store_vector_end(&vector);
    for (size_t i = 0; i < n && error; i++)
        loadings[i]->error = loading_read(loadings[i]);
}

static void read_group(struct group *group)
{
    struct loading *loadings[LOADED_TOGETHER];
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++) {
        struct wish *wish = &group->wish[i];
        if (!wish->chunk || !wish->loads || wish->error)
            continue;
        wish->error = loading_get(&wish->loading);
        if (!wish->error && wish->loading.stored)
            loadings[n++] = &wish->loading;
    }
    read_together(loadings, n);
}

static int decode_one(void *context, size_t i)
{
    struct wish *wish = &((struct group *)context)->wish[i];
    if (!wish->chunk || !wish->loads || wish->error)
        return 0;
    wish->error = wish->loading.error;
    if (!wish->error)
        wish->error = loading_decode(&wish->loading);
    return 0; /* the others continue */
}

/* Ends LOADING of all chunks; each is pinned, and released if it has failed. */
static void end_loading_group(struct group *group)
{
    struct cache *cache = group->cache;
    for (size_t i = 0; i < group->n; i++)
        if (group->wish[i].chunk && group->wish[i].loads)
            loading_end(&group->wish[i].loading, group->wish[i].error);
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < group->n; i++) {
        struct wish *wish = &group->wish[i];
        if (!wish->chunk)
            continue;
        if (!wish->loads)
            chunk_pin(wish->chunk);
        chunk_loaded(wish->chunk, wish->state, wish->error);
        if (!wish->error)
            continue;
        chunk_unpin(wish->chunk);
        wish->chunk = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
}

/* Reads a piece out of a chunk that is loaded and pinned. */
static int read_wish(struct wish *wish)
{
    int error = read_pinned(wish->chunk, &wish->piece, wish->read);
    wish->is_read = !error;
    return error == -EAGAIN ? 0 : error;
}

/* If loading chunks together takes too much memory they are loaded one by one: a thread with pins
 * must not wait for memory. */
static void load_one_by_one(struct group *group)
{
    struct cache *cache = group->cache;
    for (size_t i = 0; i < group->n; i++) {
        struct wish *wish = &group->wish[i];
        if (!wish->chunk)
            continue;
        if (wish->loads)
            wish->error = loading_do(&wish->loading, wish->error);
        pthread_mutex_lock(&cache->lock);
        if (!wish->loads)
            chunk_pin(wish->chunk);
        chunk_loaded(wish->chunk, wish->state, wish->error);
        pthread_mutex_unlock(&cache->lock);
        if (!wish->error)
            wish->error = read_wish(wish);
        chunk_release(wish->chunk);
        wish->chunk = NULL;
    }
}

/* Vectored look-up, reading and decoding of chunks. This thread waits for memory before it has any
 * pins. */
static void load_group(struct group *group)
{
    struct cache *cache = group->cache;
    add_chunks(group);
    size_t bytes = plan(group);
    if (bytes > cache->limit / RESERVED_SHARE) {
        load_one_by_one(group);
        return;
    }
    pthread_mutex_lock(&cache->lock);
    int error = reserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    for (size_t i = 0; i < group->n && error; i++)
        if (!group->wish[i].error)
            group->wish[i].error = error;
    read_group(group);
    (void)workers_each(cache->workers, group->n, decode_one, group);
    end_loading_group(group);
}

/* Pinned chunks first: a thread with pins must not wait for memory. */
static int read_wishes(struct group *group)
{
    int error = 0;
    for (size_t i = 0; i < group->n; i++) {
        struct wish *wish = &group->wish[i];
        if (!wish->chunk)
            continue;
        if (!error)
            error = read_wish(wish);
        chunk_release(wish->chunk);
    }
    for (size_t i = 0; i < group->n && !error; i++) {
        struct wish *wish = &group->wish[i];
        error = wish->error;
        if (!error && !wish->is_read)
            error = read_piece(wish->read, &wish->piece);
    }
    return error;
}

/* ---- All pieces ---- */

struct progress {
    const struct cache_read *reads;
    size_t n;
    struct piece piece; /* the next one, of the first of reads; n 0: there is none */
};

static void skip_empty(struct progress *progress)
{
    while (progress->n > 0 &&
           !piece_first(progress->reads->dataset->layout, progress->reads->box, &progress->piece)) {
        progress->reads++;
        progress->n--;
    }
}

static void advance(struct progress *progress)
{
    if (piece_next(progress->reads->dataset->layout, progress->reads->box, &progress->piece))
        return;
    progress->reads++;
    progress->n--;
    skip_empty(progress);
}

static void take_group(struct group *group, struct progress *progress)
{
    size_t most = group->cache->limit / LOADED_SHARE, bytes = 0;
    group->n = 0;
    while (progress->n > 0 && group->n < LOADED_TOGETHER) {
        bytes = size_sum(bytes, progress->reads->dataset->layout->chunk_bytes);
        if (group->n > 0 && bytes > most)
            break;
        struct wish *wish = &group->wish[group->n++];
        wish->read = progress->reads;
        wish->piece = progress->piece;
        wish->chunk = NULL;
        wish->error = 0;
        wish->loads = wish->is_read = false;
        wish->loading.error = 0;
        advance(progress);
    }
}

int cache_read_many(struct cache *cache, const struct cache_read *reads, size_t n)
{
    struct progress progress = {.reads = reads, .n = n};
    struct group group;
    int error = 0;
    group.cache = cache;
    skip_empty(&progress);
    while (progress.n > 0 && !error) {
        take_group(&group, &progress);
        if (is_worth_it(&group))
            load_group(&group);
        error = read_wishes(&group);
        if (!error && progress.n > 0) /* there may be very many */
            error = interrupt_check();
    }
    return error;
}
