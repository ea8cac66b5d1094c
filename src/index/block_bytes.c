/* What blocks of all kinds of indexes have in common: how they begin, and their elements. */
#include <inttypes.h>

#include "index/private.h"
#include "store/store.h"

int index_begin(const struct block *block, unsigned type, struct cursor *cursor, struct why *why)
{
    const char *name = block->kind->name;
    *cursor = cursor_over(block->bytes, block->n);
    cursor_skip(cursor, SIGNATURE_BYTES);
    unsigned version = (unsigned)cursor_uint(cursor, 1);
    unsigned found = (unsigned)cursor_uint(cursor, 1);
    if (version > 1)
        return why_damaged(why, "%s at address %" PRIu64 ": version %u", name, block->address,
                           version);
    if (found != type)
        return why_damaged(why, "%s at address %" PRIu64 ": type of records %u, not %u", name,
                           block->address, found, type);
    return 0;
}

int index_begin_header(struct index *index, const struct block *block, unsigned type,
                       struct cursor *cursor, struct why *why)
{
    int error = index_begin(block, type, cursor, why);
    if (!error)
        index->versions_0 = block->bytes[SIGNATURE_BYTES] == 0;
    return error;
}

void index_put_begin(const struct index *index, const struct block_kind *kind, unsigned type,
                     struct output *output)
{
    output_bytes(output, kind->signature, SIGNATURE_BYTES);
    output_uint(output, index->versions_0 ? 0 : kind->version, 1);
    output_uint(output, type, 1);
}

int index_begin_block(const struct index *index, const struct block *block, struct cursor *cursor,
                      struct why *why)
{
    int error = index_begin(block, index->format.form, cursor, why);
    if (!error && superblock_address(index->superblock, cursor) != index->address)
        error = why_damaged(why, "%s at address %" PRIu64 ": it belongs to another array",
                            block->kind->name, block->address);
    return error;
}

struct output index_put_begin_block(const struct index *index, struct block *block)
{
    struct output output = output_over(block->bytes, block->n);
    index_put_begin(index, block->kind, index->format.form, &output);
    superblock_put_address(index->superblock, &output, index->address);
    return output;
}

int index_element(const struct index *index, const struct block *block, size_t offset,
                  struct chunk_record *record, struct why *why)
{
    struct cursor c = cursor_over(block->bytes, block->n);
    cursor_skip(&c, offset);
    return chunk_record_decode(&index->format, index->superblock, store_size(index->store),
                               block->address, &c, NULL, record, why);
}

int index_put_element(const struct index *index, struct block *block, size_t offset,
                      const struct chunk_record *record, struct why *why)
{
    static const struct chunk_record nothing = {0};
    return chunk_record_encode(&index->format, index->superblock, NULL, record ? record : &nothing,
                               block->bytes + offset, why);
}

void index_put_no_elements(const struct index *index, struct block *block, size_t offset,
                           uint64_t n)
{
    size_t bytes = chunk_record_element(&index->format, index->superblock);
    struct output output = output_over(block->bytes + offset, block->n - offset);
    for (uint64_t i = 0; i < n; i++) {
        superblock_put_address(index->superblock, &output, NO_ADDRESS);
        output_zeros(&output, bytes - index->superblock->offset_size);
    }
}

int index_spend(const char *name, uint64_t address, uint64_t bytes, uint64_t *budget,
                struct why *why)
{
    if (bytes > *budget)
        return why_damaged(why, "%s at address %" PRIu64 ": it overlaps another", name, address);
    *budget -= bytes;
    return 0;
}
