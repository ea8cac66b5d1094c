/* Large blocks come from mmap in steps that let chunks of nearly equal size share them; small ones
 * are left to malloc, which is good at them. */
#include "cache/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_BLOCK ((size_t)64 << 10)
#define HUGE_PAGE   ((size_t)2 << 20)

/* Takes free block i out of the list. The lock must be held. */
static struct pool_block remove_block(struct pool *pool, size_t i)
{
    struct pool_block block = pool->free[i];
    pool->n_free--;
    memmove(&pool->free[i], &pool->free[i + 1], (pool->n_free - i) * sizeof(*pool->free));
    pool->free_bytes -= block.size;
    return block;
}

static void *take_free(struct pool *pool, size_t size)
{
    void *memory = NULL;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = pool->n_free; i-- > 0 && !memory;)
        if (pool->free[i].size == size)
            memory = remove_block(pool, i).memory;
    pthread_mutex_unlock(&pool->lock);
    return memory;
}

/* Gives free blocks back to the system, oldest first, until `bytes` of them are gone. */
static void shrink(struct pool *pool, size_t bytes)
{
    for (size_t gone = 0; gone < bytes;) {
        struct pool_block oldest = {0};
        pthread_mutex_lock(&pool->lock);
        if (pool->n_free > 0)
            oldest = remove_block(pool, 0);
        pthread_mutex_unlock(&pool->lock);
        if (!oldest.memory)
            return;
        munmap(oldest.memory, oldest.size);
        gone += oldest.size;
    }
}

void pool_trim(struct pool *pool, size_t most)
{
    size_t bytes = pool_free_bytes(pool);
    if (bytes > most)
        shrink(pool, bytes - most);
}

void pool_init(struct pool *pool)
{
    memset(pool, 0, sizeof(*pool));
    pthread_mutex_init(&pool->lock, NULL);
}

void pool_destroy(struct pool *pool)
{
    shrink(pool, SIZE_MAX);
    pthread_mutex_destroy(&pool->lock);
}

size_t pool_block_size(size_t n)
{
    if (n <= SMALL_BLOCK)
        return n ? n : 1;
    size_t step = n >= 4 * HUGE_PAGE ? HUGE_PAGE : SMALL_BLOCK;
    return (n + step - 1) / step * step;
}

void *pool_get(struct pool *pool, size_t n)
{
    size_t size = pool_block_size(n);
    if (size <= SMALL_BLOCK)
        return malloc(size);
    void *memory = take_free(pool, size);
    if (memory)
        return memory;
    shrink(pool, size); /* used and free memory together must not grow while some is free */
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (size >= HUGE_PAGE)
        madvise(memory, size, MADV_HUGEPAGE); /* a wish: it works without */
    return memory;
}

void pool_put(struct pool *pool, void *memory, size_t n)
{
    size_t size = pool_block_size(n);
    if (!memory || size <= SMALL_BLOCK) {
        free(memory);
        return;
    }
    struct pool_block oldest = {0};
    pthread_mutex_lock(&pool->lock);
    if (pool->n_free == POOL_FREE_BLOCKS)
        oldest = remove_block(pool, 0);
    pool->free[pool->n_free++] = (struct pool_block){memory, size};
    pool->free_bytes += size;
    pthread_mutex_unlock(&pool->lock);
    if (oldest.memory)
        munmap(oldest.memory, oldest.size);
}

size_t pool_free_bytes(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = pool->free_bytes;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}
