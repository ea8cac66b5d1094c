/* Chunks of a dataset that others write: a chunk stays in the cache as long as what is stored of it
 * is what it was made of. That is found out when it is used again: looking it up, reading it and
 * adding it up takes a fraction of the time of decoding it. Its address tells nothing: there may be
 * something else now. */
#include <errno.h>
#include <string.h>

#include "cache/private.h"
#include "store/store.h"

/* A checksum in which a change of any one word shows: every step is a bijection of that word. */
static uint64_t sum_of(const char *bytes, size_t n)
{
    uint64_t sum = n;
    for (size_t i = 0; i < n; i += sizeof(sum)) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < sizeof(word) ? n - i : sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 32;
    }
    return sum;
}

void revalidate_note(struct chunk *chunk, uint64_t offset, size_t n, const void *bytes)
{
    const struct layout *layout = chunk->dataset->layout;
    if (!store_is_following(layout->store))
        return;
    struct stored_part *part = &chunk->stored[0];
    if (part->n > 0 && (part->offset != offset || part->n != n))
        part = &chunk->stored[1];
    *part = (struct stored_part){.offset = offset, .n = n, .sum = sum_of(bytes, n)};
}

static int compare_part(const struct layout *layout, const struct chunk *chunk,
                        const struct stored_part *part, struct pool *pool, bool *same)
{
    char *bytes = pool_get(pool, part->n);
    if (!bytes)
        return -ENOMEM;
    int error = store_read(layout->store, chunk->record.address + part->offset, bytes, part->n);
    if (!error)
        *same = sum_of(bytes, part->n) == part->sum;
    pool_put(pool, bytes, part->n);
    return error;
}

/* Compares a chunk, which this thread has marked as changing, with what is stored. */
static int compare(struct cache *cache, struct chunk *chunk, bool *same)
{
    struct layout *layout = chunk->dataset->layout;
    struct chunk_record now = {0};
    int error = layout->ops->lookup(layout, chunk->scaled, &now);
    if (error)
        return error;
    *same = chunk_record_is_same(MAX_SECTIONS, &now, &chunk->record);
    if (chunk->state != CHUNK_LOADED)
        return 0;
    *same = *same && chunk->stored[0].n > 0; /* else it was not decoded from known bytes */
    for (int i = 0; i < STORED_PARTS && *same && !error; i++)
        if (chunk->stored[i].n > 0)
            error = compare_part(layout, chunk, &chunk->stored[i], &cache->pool, same);
    return error;
}

int revalidate(struct cache *cache, struct chunk *chunk)
{
    bool same = false;
    size_t bytes = pool_block_size((size_t)chunk->record.size);
    chunk->changing = true;
    int error = reserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (!error)
        error = compare(cache, chunk, &same);
    pthread_mutex_lock(&cache->lock);
    unreserve(cache, bytes);
    chunk_end_change(chunk);
    if (!error && same) {
        chunk->epoch = chunk->dataset->epoch;
    } else if (!error) {
        chunk_pin(chunk);
        chunk_unlink(chunk);
        chunk_unpin(chunk);
    }
    return error;
}

void cache_outdate(struct cache_dataset *dataset)
{
    pthread_mutex_lock(&dataset->cache->lock);
    dataset->epoch++;
    pthread_mutex_unlock(&dataset->cache->lock);
}
