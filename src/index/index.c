/* Opening an index of any kind, and what the kinds have in common. */
#include "index/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "index/private.h"
#include "store/store.h"

static const struct index_ops *ops_of(enum chunk_index_kind kind)
{
    switch (kind) {
    case INDEX_SINGLE:
        return &index_single;
    case INDEX_FIXED_ARRAY:
        return &index_fixed_array;
    case INDEX_EXTENSIBLE_ARRAY:
        return &index_extensible_array;
    case INDEX_BTREE2:
        return &index_btree2;
    }
    return NULL;
}

int index_open(struct store *store, const struct superblock *superblock,
               const struct layout_message *layout, const struct chunk_record_format *format,
               const uint64_t *max_dims, struct index **out, struct why *why)
{
    struct index *index = calloc(1, sizeof(*index));
    if (!index)
        return -ENOMEM;
    int error = block_cache_init(&index->cache);
    if (error) {
        free(index);
        return error;
    }
    index->ops = ops_of(layout->index);
    index->store = store;
    index->superblock = superblock;
    index->format = *format;
    index->rank = layout->rank;
    index->address = layout->address;
    for (int i = 0; i < index->rank; i++) {
        uint64_t chunk = layout->chunk_dims[i];
        index->max_chunks[i] = max_dims[i] == SFS_UNLIMITED
                                   ? SFS_UNLIMITED
                                   : max_dims[i] / chunk + (max_dims[i] % chunk != 0);
        if (index->max_chunks[i] == 0)
            index->address = NO_ADDRESS; /* there cannot be any chunk */
    }
    error = index->ops->open(index, layout, why);
    if (error) {
        index_close(index);
        return error;
    }
    *out = index;
    return 0;
}

void index_close(struct index *index)
{
    if (!index)
        return;
    if (index->kind)
        index->ops->close(index);
    block_cache_destroy(&index->cache);
    free(index);
}

int index_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                 struct why *why)
{
    struct chunk_record found = {0};
    bool inside = index->address != NO_ADDRESS;
    for (int i = 0; inside && i < index->rank; i++)
        inside = scaled[i] < index->max_chunks[i];
    int error = inside ? index->ops->lookup(index, scaled, &found, why) : 0;
    if (!error)
        *record = found;
    return error;
}

int index_iterate(struct index *index, index_each_function each, void *context, struct why *why)
{
    return index->address == NO_ADDRESS ? 0 : index->ops->iterate(index, each, context, why);
}

int index_begin(const char *name, uint64_t address, const unsigned char *bytes, size_t n,
                unsigned type, struct cursor *cursor, struct why *why)
{
    *cursor = cursor_over(bytes, n);
    cursor_skip(cursor, SIGNATURE_BYTES);
    unsigned version = (unsigned)cursor_uint(cursor, 1);
    unsigned found = (unsigned)cursor_uint(cursor, 1);
    if (version > 1)
        return why_damaged(why, "%s at address %" PRIu64 ": version %u", name, address, version);
    if (found != type)
        return why_damaged(why, "%s at address %" PRIu64 ": type of records %u, not %u", name,
                           address, found, type);
    return 0;
}

int index_begin_block(const struct index *index, const char *name, const struct block *block,
                      struct cursor *cursor, struct why *why)
{
    int error =
        index_begin(name, block->address, block->bytes, block->n, index->format.form, cursor, why);
    if (!error && superblock_address(index->superblock, cursor) != index->address)
        error = why_damaged(why, "%s at address %" PRIu64 ": it belongs to another array", name,
                            block->address);
    return error;
}

int index_element(const struct index *index, const struct block *block, size_t offset,
                  struct chunk_record *record, struct why *why)
{
    struct cursor c = cursor_over(block->bytes, block->n);
    cursor_skip(&c, offset);
    return chunk_record_decode(&index->format, index->superblock, store_size(index->store),
                               block->address, &c, NULL, record, why);
}

int index_spend(const char *name, uint64_t address, uint64_t bytes, uint64_t *budget,
                struct why *why)
{
    if (bytes > *budget)
        return why_damaged(why, "%s at address %" PRIu64 ": it overlaps another", name, address);
    *budget -= bytes;
    return 0;
}
