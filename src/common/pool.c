/* Large blocks come from mmap in steps that let chunks of nearly equal size share them; small ones
 * are left to malloc, which is good at them. Those between are cut from areas, one behind the
 * other, so that they lie on huge pages, too: to touch a page first takes the kernel about as long
 * as to decode it. */
#include "common/pool.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_BLOCK ((size_t)64 << 10)
#define HUGE_PAGE   ((size_t)2 << 20)
#define AREA        (8 * HUGE_PAGE)

/* Takes free block i out of the list. The lock must be held. */
static struct pool_block remove_block(struct pool *pool, size_t i)
{
    struct pool_block block = pool->free[i];
    pool->n_free--;
    memmove(&pool->free[i], &pool->free[i + 1], (pool->n_free - i) * sizeof(*pool->free));
    return block;
}

/* The free block of this size that was used last, or NULL. The lock must be held. */
static void *take_free(struct pool *pool, size_t size)
{
    for (size_t i = pool->n_free; i-- > 0;)
        if (pool->free[i].size == size)
            return remove_block(pool, i).memory;
    return NULL;
}

static void unmap(const struct pool_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        munmap(blocks[i].memory, blocks[i].size);
}

void pool_init(struct pool *pool, size_t limit)
{
    memset(pool, 0, sizeof(*pool));
    pool->limit = limit;
    pthread_mutex_init(&pool->lock, NULL);
}

void pool_destroy(struct pool *pool)
{
    unmap(pool->free, pool->n_free);
    if (pool->area_left > 0)
        munmap(pool->area, pool->area_left);
    pthread_mutex_destroy(&pool->lock);
}

size_t pool_block_size(size_t n)
{
    if (n <= SMALL_BLOCK)
        return n ? n : 1;
    size_t step = n >= 4 * HUGE_PAGE ? HUGE_PAGE : SMALL_BLOCK;
    return n <= SIZE_MAX - step ? (n + step - 1) / step * step : SIZE_MAX;
}

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* A mapping that begins where a huge page can. */
static void *map_aligned(size_t size)
{
    char *memory = size < SIZE_MAX - HUGE_PAGE ? map(size + HUGE_PAGE) : NULL;
    if (!memory)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(memory, before);
    if (before < HUGE_PAGE)
        munmap(memory + before + size, HUGE_PAGE - before);
    madvise(memory + before, size, MADV_HUGEPAGE); /* a wish: it works without */
    return memory + before;
}

/* Takes a block from the area, or from a new one. The lock must be held. */
static void *cut(struct pool *pool, size_t size)
{
    if (pool->area_left < size) {
        char *area = map_aligned(AREA);
        if (!area)
            return map(size);
        if (pool->area_left > 0)
            munmap(pool->area, pool->area_left);
        pool->area = area;
        pool->area_left = AREA;
    }
    void *block = pool->area;
    pool->area += size;
    pool->area_left -= size;
    return block;
}

/* A block from the system. */
static void *allocate(struct pool *pool, size_t size)
{
    if (size <= SMALL_BLOCK)
        return malloc(size);
    if (size > AREA / 2)
        return map_aligned(size);
    pthread_mutex_lock(&pool->lock);
    void *block = cut(pool, size);
    pthread_mutex_unlock(&pool->lock);
    return block;
}

/* Adds bytes within the limit, if that can be done without some free blocks: those are given up.
 * Returns their number. The lock must be held. */
static size_t add_bytes(struct pool *pool, size_t bytes, struct pool_block *given_up)
{
    size_t n = 0;
    while (pool->n_free > 0 && pool->bytes + bytes > pool->limit) {
        given_up[n] = remove_block(pool, 0);
        pool->bytes -= given_up[n++].size;
    }
    pool->bytes += bytes;
    return n;
}

void *pool_get(struct pool *pool, size_t n)
{
    size_t size = pool_block_size(n);
    struct pool_block given_up[POOL_FREE_BLOCKS];
    size_t n_given_up = 0;
    if (size == SIZE_MAX)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    void *memory = take_free(pool, size);
    if (!memory)
        n_given_up = add_bytes(pool, size, given_up);
    pthread_mutex_unlock(&pool->lock);
    if (memory)
        return memory;

    unmap(given_up, n_given_up);
    memory = allocate(pool, size);
    if (!memory) {
        pthread_mutex_lock(&pool->lock);
        pool->bytes -= size;
        pthread_mutex_unlock(&pool->lock);
    }
    return memory;
}

void pool_put(struct pool *pool, void *memory, size_t n)
{
    if (!memory)
        return;
    struct pool_block block = {memory, pool_block_size(n)};
    bool small = block.size <= SMALL_BLOCK;
    struct pool_block given_up = {0};
    pthread_mutex_lock(&pool->lock);
    if (small || pool->bytes > pool->limit) {
        given_up = block;
    } else {
        if (pool->n_free == POOL_FREE_BLOCKS)
            given_up = remove_block(pool, 0);
        pool->free[pool->n_free++] = block;
    }
    pool->bytes -= given_up.size;
    pthread_mutex_unlock(&pool->lock);
    if (small)
        free(memory);
    else if (given_up.memory)
        unmap(&given_up, 1);
}

void pool_set_limit(struct pool *pool, size_t limit)
{
    struct pool_block given_up[POOL_FREE_BLOCKS];
    pthread_mutex_lock(&pool->lock);
    pool->limit = limit;
    size_t n_given_up = add_bytes(pool, 0, given_up);
    pthread_mutex_unlock(&pool->lock);
    unmap(given_up, n_given_up);
}

void pool_count(struct pool *pool, size_t n)
{
    struct pool_block given_up[POOL_FREE_BLOCKS];
    pthread_mutex_lock(&pool->lock);
    size_t n_given_up = add_bytes(pool, n, given_up);
    pthread_mutex_unlock(&pool->lock);
    unmap(given_up, n_given_up);
}

void pool_uncount(struct pool *pool, size_t n)
{
    pthread_mutex_lock(&pool->lock);
    pool->bytes -= n;
    pthread_mutex_unlock(&pool->lock);
}

size_t pool_bytes(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = pool->bytes;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}
