/* Memory blocks for chunks, kept for reuse: a fresh block of 8 MiB costs milliseconds of page
 * faults, a used one nothing, nor does one of memory that a thread with nothing else to do has
 * touched before (pool_prepare). Thread-safe.
 *
 * Blocks in use, blocks kept and memory prepared stay within the limit together as long as the
 * caller keeps those in use, with what it is about to get, within it: the others make room. */
#ifndef SPARSEFS_COMMON_MEMORY_POOL_H
#define SPARSEFS_COMMON_MEMORY_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define POOL_FREE_BLOCKS 64

struct pool {
    pthread_mutex_t lock; /* guards what follows */
    struct pool_block {
        void *memory;
        size_t size;
    } free[POOL_FREE_BLOCKS]; /* oldest first */
    size_t n_free;
    struct pool_block ready; /* prepared: a large block, or the next area */
    bool is_preparing;       /* some thread is at it */
    size_t wanted;           /* bytes of what may be wanted next; 0: nothing */
    size_t last;             /* bytes of the large block that was mapped last */
    char *area;              /* what is left of it was never used; blocks are cut from its front */
    size_t area_left;
    bool area_is_ready; /* it was prepared: what is left of it is counted */
    size_t bytes;       /* of all blocks, in use, free and prepared, and those that others count */
    size_t limit;       /* those not in use are given up where bytes would exceed it */
};

void pool_init(struct pool *pool, size_t limit);
void pool_destroy(struct pool *pool);

/* Another limit from now on. Blocks that are kept are given up as far as that takes. */
void pool_set_limit(struct pool *pool, size_t limit);

/* The size of the block that pool_get(n) gives: what to count. SIZE_MAX: there is none. */
size_t pool_block_size(size_t n);

/* A block of pool_block_size(n) bytes, its content undefined; NULL if there is no memory. */
void *pool_get(struct pool *pool, size_t n);

/* Takes back a block that pool_get(n) gave; NULL is nothing. */
void pool_put(struct pool *pool, void *memory, size_t n);

/* Whether memory may be wanted soon, and there is room for it: half of an area has been used, or a
 * large block of the same size was mapped twice. */
bool pool_wants(struct pool *pool);

/* Maps it and touches its pages, for which the lock is not held; nothing if it is not wanted. Where
 * others get the room meanwhile it is given up, but the limit is passed until that is seen, after
 * 2 MiB. */
void pool_prepare(struct pool *pool);

/* Counts, as if they were in a block, bytes that the caller has from elsewhere. */
void pool_count(struct pool *pool, size_t n);
void pool_uncount(struct pool *pool, size_t n);

/* Bytes in all blocks, in use and waiting for reuse, and those counted besides. */
size_t pool_bytes(struct pool *pool);

#endif
