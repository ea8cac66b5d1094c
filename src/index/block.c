/* Blocks of an index, and the few of them that are kept in memory. Most have some KiB. Large ones, as
 * files may claim them, are counted, those of all indexes of the process together. */
#include "index/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "common/machine_memory.h"
#include "store/store.h"

#define LARGE_BYTES ((size_t)64 << 10)  /* from so many on one is counted */
#define MOST_LARGE  ((uint64_t)1 << 30) /* or a quarter of the memory, if that is less */
#define MOST_BYTES  ((uint64_t)MOST_PAGE_BYTES + CHECKSUM_BYTES)

/* From so many on a block is read once for all threads that want it, and they can be interrupted. */
#define PIECE_BYTES ((size_t)1 << 20)

static _Atomic uint64_t large; /* bytes of all large blocks */

int block_cache_init(struct block_cache *cache)
{
    int error = pthread_mutex_init(&cache->lock, NULL);
    if (error)
        return -error;
    error = pthread_mutex_init(&cache->reading, NULL);
    if (error)
        pthread_mutex_destroy(&cache->lock);
    return -error;
}

void block_cache_destroy(struct block_cache *cache)
{
    for (int i = 0; i < KEPT_BLOCKS; i++)
        block_put(cache->slot[i].block);
    pthread_mutex_destroy(&cache->reading);
    pthread_mutex_destroy(&cache->lock);
}

size_t block_cache_bytes(struct block_cache *cache)
{
    size_t n = 0;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < KEPT_BLOCKS; i++)
        n += cache->slot[i].block ? cache->slot[i].block->n : 0;
    pthread_mutex_unlock(&cache->lock);
    return n;
}

static uint64_t most_large(void)
{
    uint64_t memory = machine_memory();
    return memory > 0 && memory / 4 < MOST_LARGE ? memory / 4 : MOST_LARGE;
}

static int count_large(uint64_t n)
{
    static _Atomic uint64_t said;
    uint64_t before = atomic_load(&large), most = most_large();
    do {
        if (before + n > most) {
            if (log_is_due(&said))
                log_warning("large blocks of chunk indexes would take more than %" PRIu64
                            " MiB together",
                            most >> 20);
            return -ENOMEM;
        }
    } while (!atomic_compare_exchange_weak(&large, &before, before + n));
    return 0;
}

struct block *block_use(struct block *block)
{
    atomic_fetch_add_explicit(&block->users, 1, memory_order_relaxed);
    return block;
}

void block_put(struct block *block)
{
    if (!block || atomic_fetch_sub_explicit(&block->users, 1, memory_order_acq_rel) > 1)
        return;
    if (block->n >= LARGE_BYTES)
        atomic_fetch_sub(&large, block->n);
    free(block);
}

/* Its bytes are not set. */
static int make(const struct block_place *place, struct block **out)
{
    if (place->n > SIZE_MAX - sizeof(struct block))
        return -ENOMEM;
    bool is_large = place->n >= LARGE_BYTES;
    int error = is_large ? count_large(place->n) : 0;
    if (error)
        return error;
    struct block *block = malloc(sizeof(*block) + (size_t)place->n);
    if (!block) {
        if (is_large)
            atomic_fetch_sub(&large, place->n);
        return -ENOMEM;
    }
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

static int read_bytes(struct store *store, struct block *block, struct why *why)
{
    int error = 0;
    for (size_t done = 0, part; done < block->n && !error; done += part) {
        part = block->n - done < PIECE_BYTES ? block->n - done : PIECE_BYTES;
        error = done > 0 ? interrupt_check() : 0;
        if (!error)
            error = structure_read(store, block->kind->name, block->address + done,
                                   block->bytes + done, part, why);
    }
    return error;
}

int block_read(struct store *store, const struct block_place *place, struct block **out,
               struct why *why)
{
    const char *name = place->kind->name, *signature = place->kind->signature;
    struct block *block;
    int error = structure_within(store, name, place->address, place->n, why);
    if (!error && place->n > MOST_BYTES)
        error = why_damaged(why, "%s at address %" PRIu64 ": it is too large, of %" PRIu64 " bytes",
                            name, place->address, place->n);
    if (!error)
        error = make(place, &block);
    if (error)
        return error;
    error = read_bytes(store, block, why);
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
    int oldest = -1;
    bool must_replace = block->n >= LARGE_BYTES && atomic_load(&large) > most_large() / 2;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < KEPT_BLOCKS; i++) {
        const struct block *kept = cache->slot[i].block;
        if (must_replace && (!kept || kept->n < LARGE_BYTES))
            continue;
        if (oldest < 0 || cache->slot[i].last_use < cache->slot[oldest].last_use)
            oldest = i;
    }
    if (oldest < 0) {
        pthread_mutex_unlock(&cache->lock);
        return;
    }
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

static struct block *find_kept(struct block_cache *cache, const struct block_place *place)
{
    pthread_mutex_lock(&cache->lock);
    struct block *found = find(cache, place);
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static int read_and_keep(struct index *index, const struct block_place *place, struct block **block,
                         struct why *why)
{
    int error = block_read(index->store, place, block, why);
    if (!error)
        block_cache_keep(&index->cache, *block);
    return error;
}

static int read_large(struct index *index, const struct block_place *place, struct block **block,
                      struct why *why)
{
    struct block_cache *cache = &index->cache;
    int error = interrupt_lock(&cache->reading);
    if (error)
        return error;
    *block = find_kept(cache, place); /* another thread may have read it meanwhile */
    if (!*block)
        error = read_and_keep(index, place, block, why);
    pthread_mutex_unlock(&cache->reading);
    return error;
}

int block_get(struct index *index, const struct block_place *place, struct block **block,
              struct why *why)
{
    struct block *found = changes_find(index, place->address);
    if (found) {
        if (!is_same(found, place))
            return why_damaged(why, "%s at address %" PRIu64 ": it is something else as well",
                               place->kind->name, place->address);
        *block = block_use(found);
        return 0;
    }
    int error = 0;
    found = find_kept(&index->cache, place);
    if (!found && place->n > PIECE_BYTES)
        error = read_large(index, place, &found, why);
    else if (!found) /* two threads may read the same block: both copies are right */
        error = read_and_keep(index, place, &found, why);
    if (!error)
        *block = found;
    return error;
}
