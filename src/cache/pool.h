/* Memory blocks for chunks, kept for reuse: a fresh block of 8 MiB costs milliseconds of page
 * faults, a used one nothing. Thread-safe. */
#ifndef SPARSEFS_CACHE_POOL_H
#define SPARSEFS_CACHE_POOL_H

#include <pthread.h>
#include <stddef.h>

#define POOL_FREE_BLOCKS 64

struct pool {
    pthread_mutex_t lock; /* guards what follows */
    struct pool_block {
        void *memory;
        size_t size;
    } free[POOL_FREE_BLOCKS]; /* oldest first */
    size_t n_free;
    size_t free_bytes;
};

void pool_init(struct pool *pool);
void pool_destroy(struct pool *pool);

/* The size of the block that pool_get(n) gives: what to count. */
size_t pool_block_size(size_t n);

/* A block of pool_block_size(n) bytes, its content undefined; NULL if there is no memory. */
void *pool_get(struct pool *pool, size_t n);

/* Takes back a block that pool_get(n) gave; NULL is nothing. */
void pool_put(struct pool *pool, void *memory, size_t n);

/* Gives free blocks back to the system, oldest first, until at most `most` bytes of them are kept. */
void pool_trim(struct pool *pool, size_t most);

/* Bytes in blocks that wait for reuse. pool_get never lets used and free bytes together grow as long
 * as this is not 0. */
size_t pool_free_bytes(struct pool *pool);

#endif
