/* Walking through a B-tree. Counts in it have as many bytes as the most records need that a node, or
 * all under it, can have. */
#include "format/btree2_of_heap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "format/structure.h"
#include "store/store.h"

#define NAME "B-tree of names"
#define NODE "node of a B-tree of names"

#define NODE_BEGIN    (SIGNATURE_BYTES + 2) /* version and type follow the signature */
#define NODE_OVERHEAD (NODE_BEGIN + CHECKSUM_BYTES)
#define MOST_DEPTH    8
#define MOST_NODE     65536 /* bytes */

struct walk {
    struct store *store;
    const struct superblock *superblock;
    const struct heap_btree2 *tree;
    uint64_t node_bytes, record_bytes;
    unsigned depth;
    uint64_t total;                       /* records that there are still to be */
    uint64_t most[MOST_DEPTH + 1];        /* records of a node of each depth, */
    unsigned total_bytes[MOST_DEPTH + 1]; /* and what the number of all under it takes */
    unsigned count_bytes;
    struct why *why;
};

struct child {
    uint64_t address, n;
};

static unsigned bytes_for(uint64_t n)
{
    return (63 - (unsigned)__builtin_clzll(n)) / 8 + 1;
}

static size_t pointer_bytes(const struct walk *walk, unsigned depth)
{
    return walk->superblock->offset_size + walk->count_bytes + walk->total_bytes[depth - 1];
}

/* False: a node could not have a record. */
static bool count_most(struct walk *walk)
{
    uint64_t all = walk->most[0] = (walk->node_bytes - NODE_OVERHEAD) / walk->record_bytes;
    if (all == 0)
        return false;
    walk->count_bytes = bytes_for(all);
    walk->total_bytes[0] = 0;
    for (unsigned depth = 1; depth <= walk->depth; depth++) {
        size_t pointer = pointer_bytes(walk, depth);
        if (walk->node_bytes < NODE_OVERHEAD + 2 * pointer + walk->record_bytes)
            return false;
        uint64_t most =
            (walk->node_bytes - NODE_OVERHEAD - pointer) / (walk->record_bytes + pointer);
        walk->most[depth] = most;
        if (__builtin_mul_overflow(most + 1, all, &all) || __builtin_add_overflow(all, most, &all))
            return false;
        walk->total_bytes[depth] = bytes_for(all);
    }
    return true;
}

/* ---- Nodes ---- */

static int tell(const struct walk *walk, const char *name, uint64_t address, uint64_t n)
{
    const struct plain_blocks *blocks = walk->tree->blocks;
    return blocks ? blocks->each(blocks->context, name, address, n) : 0;
}

static int use_record(struct walk *walk, struct cursor *c, uint64_t node)
{
    const struct heap_btree2 *tree = walk->tree;
    const unsigned char *bytes = cursor_bytes(c, walk->record_bytes);
    if (!bytes || walk->total-- == 0)
        return why_damaged(walk->why, NODE " at address %" PRIu64 ": its records", node);
    struct cursor record = cursor_over(bytes, (size_t)walk->record_bytes);
    return tree->each ? tree->each(tree->context, &record) : 0;
}

static int walk_node(struct walk *walk, struct child child, unsigned depth);

static int use_node(struct walk *walk, const unsigned char *bytes, size_t n, struct child node,
                    unsigned depth)
{
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES - CHECKSUM_BYTES);
    uint64_t version = cursor_uint(&c, 1), type = cursor_uint(&c, 1);
    int error = version == 0 && type == walk->tree->type
                    ? 0
                    : why_damaged(walk->why, NODE " at address %" PRIu64 ": type", node.address);
    for (uint64_t i = 0; i < node.n && !error; i++)
        error = use_record(walk, &c, node.address);
    for (uint64_t i = 0; depth > 0 && i <= node.n && !error; i++) {
        struct child child = {superblock_address(walk->superblock, &c), 0};
        child.n = cursor_uint(&c, walk->count_bytes);
        cursor_skip(&c, walk->total_bytes[depth - 1]);
        error = c.failed || child.address == NO_ADDRESS || child.n == 0
                    ? why_damaged(walk->why, NODE " at address %" PRIu64 ": a child", node.address)
                    : walk_node(walk, child, depth - 1);
    }
    return error;
}

/* The checksum stands behind what is used of a node. */
static int walk_node(struct walk *walk, struct child node, unsigned depth)
{
    int error = interrupt_check();
    if (!error)
        error = plain_within(walk->superblock, NODE, node.address, walk->node_bytes, walk->why);
    if (!error && node.n > walk->most[depth])
        error = why_damaged(walk->why, NODE " at address %" PRIu64 ": records", node.address);
    size_t n = NODE_OVERHEAD + (size_t)node.n * walk->record_bytes +
               (depth > 0 ? ((size_t)node.n + 1) * pointer_bytes(walk, depth) : 0);
    unsigned char *bytes = error ? NULL : malloc(n);
    if (!bytes)
        return error ? error : -ENOMEM;
    error = structure_read(walk->store, NODE, node.address, bytes, n, walk->why);
    if (!error)
        error = structure_signed(NODE, node.address, bytes, depth > 0 ? "BTIN" : "BTLF", walk->why);
    if (!error)
        error = structure_summed(NODE, node.address, bytes, n, walk->why);
    if (!error)
        error = tell(walk, NODE, node.address, walk->node_bytes);
    if (!error)
        error = use_node(walk, bytes, n, node, depth);
    free(bytes);
    return error;
}

/* ---- The header ---- */

static int read_header(struct walk *walk, struct child *root)
{
    uint64_t address = walk->tree->address;
    const struct superblock *superblock = walk->superblock;
    unsigned char bytes[22 + 2 * sizeof(uint64_t)];
    size_t n = 22 + superblock->offset_size + (size_t)superblock->length_size;
    int error = plain_within(superblock, NAME, address, n, walk->why);
    if (!error)
        error = structure_read(walk->store, NAME, address, bytes, n, walk->why);
    if (!error)
        error = structure_signed(NAME, address, bytes, "BTHD", walk->why);
    if (!error)
        error = structure_summed(NAME, address, bytes, n, walk->why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES - CHECKSUM_BYTES);
    uint64_t version = cursor_uint(&c, 1), type = cursor_uint(&c, 1);
    walk->node_bytes = cursor_uint(&c, 4);
    walk->record_bytes = cursor_uint(&c, 2);
    walk->depth = (unsigned)cursor_uint(&c, 2);
    uint64_t split = cursor_uint(&c, 1), merge = cursor_uint(&c, 1);
    root->address = superblock_address(superblock, &c);
    root->n = cursor_uint(&c, 2);
    walk->total = cursor_uint(&c, superblock->length_size);
    bool is_plain = !c.failed && version == 0 && type == walk->tree->type && split > 0 &&
                    merge > 0 && split <= 100 && merge <= 100 && walk->depth <= MOST_DEPTH &&
                    walk->node_bytes > NODE_OVERHEAD && walk->node_bytes <= MOST_NODE &&
                    walk->record_bytes == walk->tree->record_bytes &&
                    (root->n > 0) == (root->address != NO_ADDRESS) && count_most(walk);
    return is_plain ? tell(walk, NAME, address, n)
                    : why_unsupported(walk->why, NAME " at address %" PRIu64, address);
}

int heap_btree2_walk(struct store *store, const struct superblock *superblock,
                     const struct heap_btree2 *tree, struct why *why)
{
    struct walk walk = {.store = store, .superblock = superblock, .tree = tree, .why = why};
    struct child root;
    int error = read_header(&walk, &root);
    if (!error && root.n > 0)
        error = walk_node(&walk, root, walk.depth);
    if (!error && walk.total != 0)
        error = why_damaged(why, NAME " at address %" PRIu64 ": number of records", tree->address);
    return error;
}
