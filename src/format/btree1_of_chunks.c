/* Walking through a B-tree of chunks. */
#include "format/btree1_of_chunks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "format/cursor.h"
#include "format/structure.h"
#include "store/store.h"

#define NODE  "B-tree of chunks"
#define CHUNK "chunk"

#define TYPE_CHUNKS 1
#define MOST_LEVEL  16
#define ANY_LEVEL   (-1)

struct walk {
    struct store *store;
    const struct superblock *superblock;
    const struct plain_blocks *blocks;
    size_t key_bytes; /* size of the chunk, filters, offsets */
    struct why *why;
};

static int walk_node(const struct walk *walk, uint64_t address, int level);

static int use_children(const struct walk *walk, struct cursor *c, uint64_t address, uint64_t n,
                        uint64_t level)
{
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++) {
        uint64_t size = cursor_uint(c, 4);
        cursor_skip(c, walk->key_bytes - 4);
        uint64_t child = superblock_address(walk->superblock, c);
        if (c->failed || child == NO_ADDRESS)
            return why_damaged(walk->why, NODE " at address %" PRIu64 ": a child", address);
        error = level > 0 ? walk_node(walk, child, (int)level - 1)
                          : walk->blocks->each(walk->blocks->context, CHUNK, child, size);
    }
    return error;
}

/* bytes: of a node behind its signature. */
static int use_node(const struct walk *walk, const unsigned char *bytes, size_t bytes_n,
                    uint64_t address, int level)
{
    struct cursor c = cursor_over(bytes, bytes_n);
    uint64_t type = cursor_uint(&c, 1), own_level = cursor_uint(&c, 1), n = cursor_uint(&c, 2);
    cursor_skip(&c, 2 * walk->superblock->offset_size); /* siblings */
    if (type != TYPE_CHUNKS || own_level > MOST_LEVEL ||
        (level != ANY_LEVEL && own_level != (uint64_t)level) ||
        n > 2 * (uint64_t)walk->superblock->chunk_k)
        return why_damaged(walk->why, NODE " at address %" PRIu64 ": type, level or number",
                           address);
    return use_children(walk, &c, address, n, own_level);
}

static int walk_node(const struct walk *walk, uint64_t address, int level)
{
    size_t offset = walk->superblock->offset_size, k = 2 * (size_t)walk->superblock->chunk_k;
    size_t n = SIGNATURE_BYTES + 4 + 2 * offset + k * offset + (k + 1) * walk->key_bytes;
    int error = interrupt_check();
    if (!error)
        error = plain_within(walk->superblock, NODE, address, n, walk->why);
    if (!error)
        error = walk->blocks->each(walk->blocks->context, NODE, address, n);
    unsigned char *bytes = error ? NULL : malloc(n);
    if (!bytes)
        return error ? error : -ENOMEM;
    error = structure_read(walk->store, NODE, address, bytes, n, walk->why);
    if (!error)
        error = structure_signed(NODE, address, bytes, "TREE", walk->why);
    if (!error)
        error = use_node(walk, bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES, address, level);
    free(bytes);
    return error;
}

int chunk_btree1_each(struct store *store, const struct superblock *superblock, uint64_t address,
                      int rank, const struct plain_blocks *blocks, struct why *why)
{
    const struct walk walk = {store, superblock, blocks, 8 + 8 * ((size_t)rank + 1), why};
    return walk_node(&walk, address, ANY_LEVEL);
}
