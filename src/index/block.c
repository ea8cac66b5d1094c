/* Blocks of an index, and the few of them that are kept in memory. */
#include "index/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int block_cache_init(struct block_cache *cache)
{
    return -pthread_mutex_init(&cache->lock, NULL);
}

void block_cache_destroy(struct block_cache *cache)
{
    for (int i = 0; i < KEPT_BLOCKS; i++)
        block_put(cache->slot[i].block);
    pthread_mutex_destroy(&cache->lock);
}

void block_put(struct block *block)
{
    if (block && atomic_fetch_sub_explicit(&block->users, 1, memory_order_acq_rel) == 1)
        free(block);
}

int block_read(struct store *store, const struct block_kind *kind, uint64_t address, uint64_t n,
               uint64_t summed, struct block **out, struct why *why)
{
    int error = structure_within(store, kind->name, address, n, why);
    if (error)
        return error;
    if (n > SIZE_MAX - sizeof(struct block))
        return -ENOMEM;
    struct block *block = malloc(sizeof(*block) + (size_t)n);
    if (!block)
        return -ENOMEM;
    atomic_init(&block->users, 1);
    block->kind = kind;
    block->address = address;
    block->summed = summed;
    block->n = (size_t)n;
    error = structure_read(store, kind->name, address, block->bytes, block->n, why);
    if (!error && kind->signature)
        error = structure_signed(kind->name, address, block->bytes, kind->signature, why);
    if (!error)
        error = structure_summed(kind->name, address, block->bytes, (size_t)summed, why);
    if (error) {
        block_put(block);
        return error;
    }
    *out = block;
    return 0;
}

/* With the lock held. */
static struct block *find(struct block_cache *cache, const struct block_kind *kind,
                          uint64_t address, uint64_t n, uint64_t summed)
{
    for (int i = 0; i < KEPT_BLOCKS; i++) {
        struct block *block = cache->slot[i].block;
        if (block && block->kind == kind && block->address == address && block->n == n &&
            block->summed == summed) {
            cache->slot[i].last_use = ++cache->clock;
            atomic_fetch_add_explicit(&block->users, 1, memory_order_relaxed);
            return block;
        }
    }
    return NULL;
}

/* Puts the block into the slot that was not used for longest; returns what was there. With the lock
 * held. */
static struct block *keep(struct block_cache *cache, struct block *block)
{
    int oldest = 0;
    for (int i = 1; i < KEPT_BLOCKS; i++)
        if (cache->slot[i].last_use < cache->slot[oldest].last_use)
            oldest = i;
    struct block *evicted = cache->slot[oldest].block;
    cache->slot[oldest].block = block;
    cache->slot[oldest].last_use = ++cache->clock;
    atomic_fetch_add_explicit(&block->users, 1, memory_order_relaxed);
    return evicted;
}

int block_get(struct block_cache *cache, struct store *store, const struct block_kind *kind,
              uint64_t address, uint64_t n, uint64_t summed, struct block **block, struct why *why)
{
    pthread_mutex_lock(&cache->lock);
    struct block *found = find(cache, kind, address, n, summed);
    pthread_mutex_unlock(&cache->lock);
    if (!found) {
        /* Two threads may read the same block: both copies are right. */
        int error = block_read(store, kind, address, n, summed, &found, why);
        if (error)
            return error;
        pthread_mutex_lock(&cache->lock);
        struct block *evicted = keep(cache, found);
        pthread_mutex_unlock(&cache->lock);
        block_put(evicted);
    }
    *block = found;
    return 0;
}
