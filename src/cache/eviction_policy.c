/* Which chunk goes when memory is short.
 *
 *   first time ──► new ──── used longest ago ──► ghosts: only that it was here
 *                                                  │
 *                 main ◄── wanted again ───────────┘
 *
 * A chunk is used many times in a row, by the rows and frames that lie in it and by the pieces in
 * which the kernel asks for them: that says nothing of whether it is wanted later. So uses among
 * the new ones do not count. A chunk gets into the main queue when it is wanted again after it has
 * left the new ones. These go first as long as they have more than their share of the limit: what
 * is read once, however much it is, goes through that and leaves the rest alone (Johnson and
 * Shasha, "2Q", 1994; but both queues are in LRU order). The share is learnt from what comes back
 * and would still be there if its queue had been larger (Megiddo and Modha, "ARC", 2003).
 *
 * Besides there are LRU, which has one queue, and S3-FIFO (Yang and others, 2023), which counts
 * uses instead of moving chunks: bench/policies.c compares them.
 *
 * Dirty chunks belong to a queue and count in its size, but wait outside of it until they are clean, and then
 * enter its end: there may be millions of them, and none that can be stored now. */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "cache/private.h"

/* A chunk keeps its selection, if that was asked for, when its values are evicted, as long as all
 * such selections take no more than this share of the limit. */
#define BARE_SHARE 4

/* The part of the limit that new chunks have to themselves: at first, and at least (and at least so
 * much is left for the others). */
#define NEW_SHARE    2
#define LEAST_SHARE  8
#define S3_NEW_SHARE 10

#define MOST_USES 3 /* that S3-FIFO counts... */
#define MANY_USES 2 /* ...and by which a new chunk gets into the main queue */

#define MOST_MOVED 256 /* chunks, in search of a better one than has been found */

#define GHOST_LIMITS 4                 /* ghosts are of chunks that take so many times the limit */
#define GHOST_BYTES  ((size_t)8 << 10) /* of the limit for each */
#define LEAST_GHOSTS ((size_t)64)
#define MOST_GHOSTS  ((size_t)1 << 18)
#define GHOST_WAYS   4
#define GHOST_UNIT   64

/* A chunk that was evicted. */
struct ghost {
    uint32_t key;       /* 0: none */
    uint32_t units;     /* of memory that it had */
    uint64_t when : 63; /* bytes that had been evicted from its queue */
    uint64_t queue : 1;
};

int policy_init(struct cache *cache)
{
    size_t n = LEAST_GHOSTS;
    while (n < MOST_GHOSTS && n < cache->limit / GHOST_BYTES)
        n *= 2;
    cache->ghosts = calloc(n, sizeof(*cache->ghosts));
    cache->n_ghosts = n;
    cache->policy = SFS_POLICY_2Q;
    policy_set_limit(cache);
    return cache->ghosts ? 0 : -ENOMEM;
}

void policy_destroy(struct cache *cache)
{
    free(cache->ghosts);
}

void policy_set_limit(struct cache *cache)
{
    cache->new_share = cache->limit / NEW_SHARE;
}

/* ---- Ghosts ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Where a chunk's ghost may be, and its key there. */
static struct ghost *ghosts_of(const struct cache *cache, const struct chunk *chunk, uint32_t *key)
{
    uint64_t hash = mix(0, chunk->dataset->number);
    for (int i = 0; i < chunk->dataset->layout->rank; i++)
        hash = mix(hash, chunk->scaled[i]);
    *key = (uint32_t)(hash >> 32) | 1;
    return cache->ghosts + hash % (cache->n_ghosts / GHOST_WAYS) * GHOST_WAYS;
}

static uint64_t age_of(const struct cache *cache, const struct ghost *ghost)
{
    return ghost->key ? cache->ghost_clock[ghost->queue] - ghost->when : UINT64_MAX;
}

void policy_evicted(struct cache *cache, const struct chunk *chunk)
{
    uint32_t key;
    struct ghost *ghosts = ghosts_of(cache, chunk, &key), *oldest = ghosts;
    size_t bytes = chunk->entry_bytes + chunk->form_bytes, units = bytes / GHOST_UNIT;
    for (int i = 1; i < GHOST_WAYS; i++)
        if (age_of(cache, &ghosts[i]) > age_of(cache, oldest))
            oldest = &ghosts[i];
    cache->ghost_clock[chunk->queue] += bytes;
    *oldest = (struct ghost){.key = key,
                             .units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX,
                             .when = cache->ghost_clock[chunk->queue],
                             .queue = chunk->queue};
}

/* A chunk that comes back would still be cached if its queue had had the whole limit. */
static void learn(struct cache *cache, const struct ghost *ghost)
{
    size_t limit = cache->limit, least = limit / LEAST_SHARE, most = limit - least;
    size_t bytes = (size_t)ghost->units * GHOST_UNIT, share = cache->new_share;
    if (age_of(cache, ghost) + cache->queue_bytes[ghost->queue] > limit)
        return;
    if (ghost->queue == QUEUE_NEW)
        cache->new_share = share + bytes < most ? share + bytes : most;
    else
        cache->new_share = share > least + bytes ? share - bytes : least;
}

/* Whether a chunk has recently been evicted from the new queue. The ghost is removed. */
static bool take_ghost(struct cache *cache, const struct chunk *chunk)
{
    uint32_t key;
    struct ghost *ghosts = ghosts_of(cache, chunk, &key);
    for (int i = 0; i < GHOST_WAYS; i++) {
        struct ghost *ghost = &ghosts[i];
        if (ghost->key != key)
            continue;
        learn(cache, ghost);
        bool is_back =
            ghost->queue == QUEUE_NEW && age_of(cache, ghost) / GHOST_LIMITS <= cache->limit;
        *ghost = (struct ghost){0};
        return is_back;
    }
    return false;
}

/* ---- Queues ---- */

static void enter(struct cache *cache, struct chunk *chunk)
{
    DL_APPEND(cache->queues[chunk->queue], chunk);
    chunk->is_queued = true;
}

static void leave(struct cache *cache, struct chunk *chunk)
{
    if (chunk->is_queued)
        DL_DELETE(cache->queues[chunk->queue], chunk);
    chunk->is_queued = false;
}

static void move(struct cache *cache, struct chunk *chunk, enum queue queue)
{
    size_t bytes = chunk->entry_bytes + chunk->form_bytes;
    leave(cache, chunk);
    cache->queue_bytes[chunk->queue] -= bytes;
    chunk->queue = queue;
    cache->queue_bytes[queue] += bytes;
    enter(cache, chunk);
}

void policy_add(struct cache *cache, struct chunk *chunk, const struct chunk *old)
{
    enum queue queue = QUEUE_MAIN;
    if (old)
        queue = old->queue;
    else if (cache->policy != SFS_POLICY_LRU && (chunk->passing || !take_ghost(cache, chunk)))
        queue = QUEUE_NEW;
    chunk->uses = old ? old->uses : 0;
    chunk->queue = queue;
    cache->queue_bytes[queue] += chunk->entry_bytes + chunk->form_bytes;
    enter(cache, chunk);
}

void policy_remove(struct cache *cache, struct chunk *chunk)
{
    leave(cache, chunk);
    cache->queue_bytes[chunk->queue] -= chunk->entry_bytes + chunk->form_bytes;
}

void policy_dirty(struct cache *cache, struct chunk *chunk)
{
    leave(cache, chunk);
}

void policy_clean(struct cache *cache, struct chunk *chunk)
{
    enter(cache, chunk);
}

void policy_touch(struct cache *cache, struct chunk *chunk)
{
    if (cache->policy == SFS_POLICY_S3_FIFO)
        chunk->uses += chunk->uses < MOST_USES;
    else if (chunk->is_queued)
        move(cache, chunk, chunk->queue);
}

void policy_resized(struct cache *cache, const struct chunk *chunk, size_t bytes)
{
    if (!chunk->gone)
        cache->queue_bytes[chunk->queue] += bytes;
}

/* ---- Eviction ---- */

/* S3-FIFO: a used chunk is spared once per use, or is promoted to the main queue. */
static bool is_spared(struct cache *cache, struct chunk *chunk)
{
    unsigned least = chunk->queue == QUEUE_NEW ? MANY_USES : 1;
    if (cache->policy != SFS_POLICY_S3_FIFO || chunk->uses < least)
        return false;
    chunk->uses = chunk->queue == QUEUE_NEW ? 0 : chunk->uses - 1;
    move(cache, chunk, QUEUE_MAIN);
    return true;
}

/* Bare chunks, of which only the selection is left, are evicted last, until there are too many. They and those that
 * cannot be evicted are moved to the end of their queue, so that they are not looked at each time. Those are few
 * (in use just now), these may be very many: with one found, no more than MOST_MOVED are looked at. */
static struct chunk *evictable_in(struct cache *cache, enum queue queue, bool *spared)
{
    struct chunk *chunk, *next, *moved = NULL, *bare = NULL;
    unsigned n_moved = 0;
    bool takes_bare = cache->bare_bytes > cache->limit / BARE_SHARE;
    DL_FOREACH_SAFE (cache->queues[queue], chunk, next) {
        if (chunk == moved)
            break;
        bool is_evictable = chunk_is_free(chunk);
        if (is_evictable && is_spared(cache, chunk)) {
            *spared = true;
            continue;
        }
        if (is_evictable && (chunk->bare_bytes == 0 || takes_bare))
            return chunk;
        if (is_evictable && !bare)
            bare = chunk;
        moved = moved ? moved : chunk;
        move(cache, chunk, queue);
        if (++n_moved >= MOST_MOVED && bare)
            break;
    }
    return bare;
}

static enum queue first_queue(const struct cache *cache)
{
    size_t share =
        cache->policy == SFS_POLICY_S3_FIFO ? cache->limit / S3_NEW_SHARE : cache->new_share;
    return cache->queue_bytes[QUEUE_NEW] > share ? QUEUE_NEW : QUEUE_MAIN;
}

/* Bare chunks of one queue are evicted after the other chunks of both. */
struct chunk *policy_victim(struct cache *cache)
{
    struct chunk *victim = NULL, *bare = NULL;
    bool spared = true;
    while (spared && !victim) {
        spared = false;
        enum queue first = first_queue(cache);
        victim = evictable_in(cache, first, &spared);
        if (!victim || victim->bare_bytes > 0) {
            bare = victim;
            victim = evictable_in(cache, first == QUEUE_NEW ? QUEUE_MAIN : QUEUE_NEW, &spared);
        }
        if (!victim)
            victim = bare;
    }
    return victim;
}
