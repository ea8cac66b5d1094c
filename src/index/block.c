/* Blocks of an index, and the few of them that are kept in memory. */
#include "index/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

struct block *block_use(struct block *block)
{
    atomic_fetch_add_explicit(&block->users, 1, memory_order_relaxed);
    return block;
}

void block_put(struct block *block)
{
    if (block && atomic_fetch_sub_explicit(&block->users, 1, memory_order_acq_rel) == 1)
        free(block);
}

/* Its bytes are not set. */
static int make(const struct block_place *place, struct block **out)
{
    if (place->n > SIZE_MAX - sizeof(struct block))
        return -ENOMEM;
    struct block *block = malloc(sizeof(*block) + (size_t)place->n);
    if (!block)
        return -ENOMEM;
    *block = (struct block){
        .kind = place->kind,
        .address = place->address,
        .summed = place->summed,
        .n = (size_t)place->n,
    };
    atomic_init(&block->users, 1);
    *out = block;
    return 0;
}

int block_make(const struct block_place *place, struct block **block)
{
    int error = make(place, block);
    if (!error)
        memset((*block)->bytes, 0, (*block)->n);
    return error;
}

int block_read(struct store *store, const struct block_place *place, struct block **out,
               struct why *why)
{
    const char *name = place->kind->name, *signature = place->kind->signature;
    struct block *block;
    int error = structure_within(store, name, place->address, place->n, why);
    if (!error)
        error = make(place, &block);
    if (error)
        return error;
    error = structure_read(store, name, place->address, block->bytes, block->n, why);
    if (!error && signature)
        error = structure_signed(name, place->address, block->bytes, signature, why);
    if (!error)
        error = structure_summed(name, place->address, block->bytes, (size_t)place->summed, why);
    if (error) {
        block_put(block);
        return error;
    }
    *out = block;
    return 0;
}

static bool is_same(const struct block *block, const struct block_place *place)
{
    return block->kind == place->kind && block->address == place->address && block->n == place->n &&
           block->summed == place->summed;
}

/* With the cache's lock held. */
static struct block *find(struct block_cache *cache, const struct block_place *place)
{
    for (int i = 0; i < KEPT_BLOCKS; i++) {
        struct block *block = cache->slot[i].block;
        if (block && is_same(block, place)) {
            cache->slot[i].last_use = ++cache->clock;
            return block_use(block);
        }
    }
    return NULL;
}

void block_cache_keep(struct block_cache *cache, struct block *block)
{
    int oldest = 0;
    pthread_mutex_lock(&cache->lock);
    for (int i = 1; i < KEPT_BLOCKS; i++)
        if (cache->slot[i].last_use < cache->slot[oldest].last_use)
            oldest = i;
    struct block *evicted = cache->slot[oldest].block;
    cache->slot[oldest].block = block_use(block);
    cache->slot[oldest].last_use = ++cache->clock;
    pthread_mutex_unlock(&cache->lock);
    block_put(evicted);
}

void block_cache_drop(struct block_cache *cache, uint64_t address)
{
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < KEPT_BLOCKS; i++) {
        if (!cache->slot[i].block || cache->slot[i].block->address != address)
            continue;
        block_put(cache->slot[i].block);
        cache->slot[i].block = NULL;
        cache->slot[i].last_use = 0;
    }
    pthread_mutex_unlock(&cache->lock);
}

int block_get(struct index *index, const struct block_place *place, struct block **block,
              struct why *why)
{
    struct block_cache *cache = &index->cache;
    struct block *found = changes_find(index, place->address);
    if (found) {
        if (!is_same(found, place))
            return why_damaged(why, "%s at address %" PRIu64 ": it is something else as well",
                               place->kind->name, place->address);
        *block = block_use(found);
        return 0;
    }
    pthread_mutex_lock(&cache->lock);
    found = find(cache, place);
    pthread_mutex_unlock(&cache->lock);
    if (!found) {
        /* Two threads may read the same block: both copies are right. */
        int error = block_read(index->store, place, &found, why);
        if (error)
            return error;
        block_cache_keep(cache, found);
    }
    *block = found;
    return 0;
}
