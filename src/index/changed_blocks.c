/* Blocks that have changed, until they are written. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "index/private.h"
#include "store/store.h"

static size_t bytes_in_memory(const struct block *block)
{
    return sizeof(*block) + block->n;
}

static void take_out(struct changes *changes, struct block *block)
{
    HASH_DEL(changes->blocks, block);
    changes->bytes -= bytes_in_memory(block);
    block->changed = false;
    block_put(block);
}

void changes_destroy(struct changes *changes)
{
    struct block *block, *next;
    HASH_ITER (hh, changes->blocks, block, next)
        take_out(changes, block);
    free(changes->freed);
}

struct block *changes_find(const struct index *index, uint64_t address)
{
    struct block *block = NULL;
    if (index->changes.blocks)
        HASH_FIND(hh, index->changes.blocks, &address, sizeof(address), block);
    return block;
}

int block_change(struct index *index, struct block *block, unsigned height, struct why *why)
{
    struct changes *changes = &index->changes;
    if (block->changed)
        return 0;
    if (changes_find(index, block->address))
        return why_damaged(why, "%s at address %" PRIu64 ": it is something else as well",
                           block->kind->name, block->address);
    HASH_ADD(hh, changes->blocks, address, sizeof(block->address), block);
    if (hash_failed())
        return -ENOMEM;
    block->changed = true;
    block->checked = 0;
    block->height = height;
    changes->bytes += bytes_in_memory(block_use(block));
    block_cache_drop(&index->cache, block->address); /* other copies of it */
    return 0;
}

int block_make_changed(struct index *index, const struct block_place *place, unsigned height,
                       struct block **out, struct why *why)
{
    struct block *block;
    int error = block_make(place, &block);
    if (error)
        return error;
    error = block_change(index, block, height, why);
    if (error) {
        block_put(block);
        return error;
    }
    *out = block;
    return 0;
}

int block_allocate(struct index *index, struct block_place place, uint64_t whole, unsigned height,
                   struct block **block, struct why *why)
{
    int error = structure_allocate(index->store, index->superblock, place.kind->name, whole,
                                   &place.address, why);
    if (error)
        return error;
    error = block_make_changed(index, &place, height, block, why);
    if (error)
        store_free(index->store, place.address, whole); /* the error is one already */
    return error;
}

int changes_reserve(struct index *index, size_t n)
{
    struct changes *changes = &index->changes;
    if (changes->room_freed - changes->n_freed >= n)
        return 0;
    size_t room = 2 * changes->room_freed + n;
    struct freed_extent *more = reallocarray(changes->freed, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    changes->freed = more;
    changes->room_freed = room;
    return 0;
}

void block_discard(struct index *index, struct block *block)
{
    struct changes *changes = &index->changes;
    changes->freed[changes->n_freed++] = (struct freed_extent){block->address, block->n};
    block_cache_drop(&index->cache, block->address);
    if (block->changed)
        take_out(changes, block);
}

int header_allocate(struct index *index, const struct block_kind *kind, uint64_t n, struct why *why)
{
    uint64_t address;
    int error = structure_allocate(index->store, index->superblock, kind->name, n, &address, why);
    if (error)
        return error;
    index->address = address;
    index->changes.header = true;
    return 0;
}

/* Lower blocks first, so that no block is in the store before what it points to. */
static int compare(const struct block *a, const struct block *b)
{
    if (a->height != b->height)
        return a->height < b->height ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

static int write_block(struct index *index, struct block *block, struct why *why)
{
    size_t summed = (size_t)block->summed;
    memset(block->bytes + summed, 0, block->n - summed);
    structure_sum(block->bytes, summed);
    return structure_write(index->store, block->kind->name, block->address, block->bytes, block->n,
                           why);
}

static int write_header(struct index *index, struct why *why)
{
    unsigned char bytes[MOST_HEADER_BYTES];
    struct output output = output_over(bytes, sizeof(bytes));
    index->ops->encode_header(index, &output);
    output_zeros(&output, CHECKSUM_BYTES);
    size_t n = sizeof(bytes) - output.left;
    structure_sum(bytes, n);
    return structure_write(index->store, "header of a chunk index", index->address, bytes, n, why);
}

int changes_write(struct index *index, struct why *why)
{
    struct changes *changes = &index->changes;
    struct block *block, *next;
    HASH_SRT(hh, changes->blocks, compare);
    for (block = changes->blocks; block; block = block->hh.next) {
        int error = write_block(index, block, why);
        if (error)
            return error;
    }
    int error = changes->header ? write_header(index, why) : 0;
    if (error)
        return error;
    changes->header = false;
    HASH_ITER (hh, changes->blocks, block, next) {
        block_cache_keep(&index->cache, block);
        take_out(changes, block);
    }
    for (; changes->n_freed > 0; changes->n_freed--) {
        const struct freed_extent *extent = &changes->freed[changes->n_freed - 1];
        error = store_free(index->store, extent->address, extent->n);
        if (error)
            return why_refused(why, error,
                               "chunk index: space at address %" PRIu64 " cannot be given back",
                               extent->address);
    }
    return 0;
}
