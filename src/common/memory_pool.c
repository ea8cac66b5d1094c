/* Large blocks come from mmap in steps that let chunks of nearly equal size share them; small ones
 * are left to malloc, which is good at them. Those between are cut from areas, one behind the
 * other, so that they lie on huge pages, too: to touch a page first takes the kernel about as long
 * as to decode it. */
#include "common/memory_pool.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_BLOCK ((size_t)64 << 10)
#define HUGE_PAGE   ((size_t)2 << 20)
#define PAGE        ((size_t)4 << 10) /* at the least */
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
        if (blocks[i].memory)
            munmap(blocks[i].memory, blocks[i].size);
}

/* What is left of the area. The lock must be held. */
static struct pool_block remove_area(struct pool *pool)
{
    struct pool_block left = {pool->area_left > 0 ? pool->area : NULL, pool->area_left};
    if (pool->area_is_ready)
        pool->bytes -= left.size;
    pool->area = NULL;
    pool->area_left = 0;
    pool->area_is_ready = false;
    return left;
}

/* What was prepared. The lock must be held. */
static struct pool_block remove_ready(struct pool *pool)
{
    struct pool_block ready = pool->ready;
    pool->bytes -= ready.size;
    pool->ready = (struct pool_block){0};
    return ready;
}

void pool_init(struct pool *pool, size_t limit)
{
    memset(pool, 0, sizeof(*pool));
    pool->limit = limit;
    pthread_mutex_init(&pool->lock, NULL);
}

void pool_destroy(struct pool *pool)
{
    struct pool_block others[] = {remove_ready(pool), remove_area(pool)};
    unmap(pool->free, pool->n_free);
    unmap(others, 2);
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

/* Makes a mapping of AREA bytes the area. The lock must be held. */
static void set_area(struct pool *pool, char *memory, bool is_ready)
{
    struct pool_block left = remove_area(pool);
    unmap(&left, 1);
    pool->area = memory;
    pool->area_left = AREA;
    pool->area_is_ready = is_ready;
    pool->bytes += is_ready ? AREA : 0;
}

/* A block from the area, which has room for it. The lock must be held. */
static void *cut(struct pool *pool, size_t size)
{
    void *block = pool->area;
    pool->area += size;
    pool->area_left -= size;
    return block;
}

/* A block of memory that was prepared, and is counted already, or NULL. The lock must be held. */
static void *take_ready(struct pool *pool, size_t size)
{
    if (size <= SMALL_BLOCK)
        return NULL;
    if (size > AREA / 2) {
        if (pool->ready.size != size)
            return NULL;
        void *memory = remove_ready(pool).memory;
        pool->bytes += size;
        pool->wanted = size;
        return memory;
    }
    if (pool->area_left < size && pool->ready.size == AREA) {
        set_area(pool, remove_ready(pool).memory, true);
        pool->wanted = AREA;
    }
    return pool->area_is_ready && pool->area_left >= size ? cut(pool, size) : NULL;
}

/* A block from the system, or cut from what came from it. */
static void *allocate(struct pool *pool, size_t size)
{
    if (size <= SMALL_BLOCK)
        return malloc(size);
    if (size > AREA / 2)
        return map_aligned(size);
    pthread_mutex_lock(&pool->lock);
    char *area = pool->area_left < size || pool->area_is_ready ? map_aligned(AREA) : NULL;
    if (area)
        set_area(pool, area, false);
    bool has_room = !pool->area_is_ready && pool->area_left >= size;
    void *block = has_room ? cut(pool, size) : map(size);
    pthread_mutex_unlock(&pool->lock);
    return block;
}

/* What is given up for other memory: prepared first. */
struct given_up {
    struct pool_block block[POOL_FREE_BLOCKS + 2];
    size_t n;
};

/* Adds bytes within the limit, if that can be done without memory that is not in use: that is given
 * up. The lock must be held. */
static void add_bytes(struct pool *pool, size_t bytes, struct given_up *given_up)
{
    given_up->n = 0;
    if (pool->bytes + bytes > pool->limit)
        given_up->block[given_up->n++] = remove_ready(pool);
    if (pool->bytes + bytes > pool->limit && pool->area_is_ready)
        given_up->block[given_up->n++] = remove_area(pool);
    while (pool->n_free > 0 && pool->bytes + bytes > pool->limit) {
        struct pool_block block = remove_block(pool, 0);
        pool->bytes -= block.size;
        given_up->block[given_up->n++] = block;
    }
    pool->bytes += bytes;
}

/* A block of this size is mapped: another one may be. The lock must be held. */
static void expect(struct pool *pool, size_t size)
{
    if (size > AREA / 2) {
        pool->wanted = size == pool->last ? size : 0;
        pool->last = size;
    } else if (size > SMALL_BLOCK) {
        pool->wanted = AREA;
    }
}

void *pool_get(struct pool *pool, size_t n)
{
    size_t size = pool_block_size(n);
    struct given_up given_up = {.n = 0};
    if (size == SIZE_MAX)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    void *memory = take_free(pool, size);
    if (!memory)
        memory = take_ready(pool, size);
    if (!memory) {
        add_bytes(pool, size, &given_up);
        expect(pool, size);
    }
    pthread_mutex_unlock(&pool->lock);
    if (memory)
        return memory;

    unmap(given_up.block, given_up.n);
    memory = allocate(pool, size);
    if (!memory)
        pool_uncount(pool, size);
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
    struct given_up given_up;
    pthread_mutex_lock(&pool->lock);
    pool->limit = limit;
    add_bytes(pool, 0, &given_up);
    pthread_mutex_unlock(&pool->lock);
    unmap(given_up.block, given_up.n);
}

/* The lock must be held. */
static bool wants(const struct pool *pool)
{
    bool is_soon = pool->wanted > 0 && (pool->wanted != AREA || pool->area_left < AREA / 2);
    return is_soon && !pool->is_preparing && !pool->ready.memory && pool->bytes <= pool->limit &&
           pool->wanted <= pool->limit - pool->bytes;
}

bool pool_wants(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool is_wanted = wants(pool);
    pthread_mutex_unlock(&pool->lock);
    return is_wanted;
}

/* Others may have taken the room meanwhile. */
static bool has_room(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool has = pool->bytes <= pool->limit;
    pthread_mutex_unlock(&pool->lock);
    return has;
}

void pool_prepare(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct pool_block block = {NULL, wants(pool) ? pool->wanted : 0};
    pool->bytes += block.size;
    pool->wanted = 0;
    pool->is_preparing |= block.size > 0;
    pthread_mutex_unlock(&pool->lock);
    if (block.size == 0)
        return;

    block.memory = map_aligned(block.size);
    bool is_wanted = block.memory;
    for (size_t i = 0; i < block.size && is_wanted; i += HUGE_PAGE) {
        for (size_t k = i; k < block.size && k < i + HUGE_PAGE; k += PAGE)
            ((volatile char *)block.memory)[k] = 0;
        is_wanted = has_room(pool);
    }

    pthread_mutex_lock(&pool->lock);
    pool->is_preparing = false;
    bool is_kept = is_wanted && !pool->ready.memory && pool->bytes <= pool->limit;
    if (is_kept)
        pool->ready = block;
    else
        pool->bytes -= block.size;
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        unmap(&block, 1);
}

void pool_count(struct pool *pool, size_t n)
{
    struct given_up given_up;
    pthread_mutex_lock(&pool->lock);
    add_bytes(pool, n, &given_up);
    pthread_mutex_unlock(&pool->lock);
    unmap(given_up.block, given_up.n);
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
