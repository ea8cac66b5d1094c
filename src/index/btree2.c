/* The version 2 B-tree (HDF5 file format specification, section III.A.2): records ordered by scaled
 * coordinates, in internal nodes as well as in leaves. How many records a node has, and how many
 * are under it, stands in the pointer to it. The root is kept in memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "index/btree2.h"
#include "store/store.h"

#define NEW_NODE_BYTES 2048 /* as libhdf5 takes for chunks */

const struct block_kind btree2_header_kind = {BTREE2_HEADER, "BTHD", 1};

/* ---- Nodes ---- */

const struct block_kind *btree2_node_kind(unsigned depth)
{
    static const struct block_kind leaf = {"version 2 B-tree leaf", "BTLF", 0};
    static const struct block_kind internal = {"version 2 B-tree internal node", "BTIN", 0};
    return depth ? &internal : &leaf;
}

static int read_record(const struct index *index, const struct block *node, uint64_t i,
                       uint64_t *scaled, struct chunk_record *record, struct why *why)
{
    const struct btree2 *tree = index->kind;
    struct cursor c = cursor_over(node->bytes, node->n);
    cursor_skip(&c, NODE_BEGIN + i * tree->record);
    return chunk_record_decode(&index->format, index->superblock, store_size(index->store),
                               node->address, &c, scaled, record, why);
}

/* The coordinates stand at the end of dense records, but before the sections of structured ones. */
static void read_coordinates(const struct index *index, const struct block *node, uint64_t i,
                             uint64_t *scaled)
{
    const struct btree2 *tree = index->kind;
    struct cursor c = cursor_over(node->bytes, node->n);
    cursor_skip(&c, NODE_BEGIN + i * tree->record + index->superblock->offset_size +
                        index->format.size_bytes);
    if (index->format.form == CHUNK_DENSE_FILTERED)
        cursor_skip(&c, 4);
    for (int axis = 0; axis < index->rank; axis++)
        scaled[axis] = cursor_uint(&c, 8);
}

static int compare(int rank, const uint64_t *a, const uint64_t *b)
{
    for (int i = 0; i < rank; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

int btree2_read_pointer(const struct index *index, const struct block *node,
                        const struct node_pointer *pointer, uint64_t i, struct node_pointer *child,
                        struct why *why)
{
    const struct btree2 *tree = index->kind;
    const struct level *level = &tree->level[pointer->depth], *below = level - 1;
    struct cursor c = cursor_over(node->bytes, node->n);
    cursor_skip(&c, NODE_BEGIN + pointer->n * tree->record + i * level->pointer_bytes);
    child->depth = pointer->depth - 1;
    child->address = superblock_address(index->superblock, &c);
    child->n = cursor_uint(&c, tree->count_bytes);
    child->total = child->depth > 0 ? cursor_uint(&c, below->total_bytes) : child->n;
    if (c.failed || child->address == NO_ADDRESS || child->n < 1 || child->n > below->max_records ||
        child->total > below->max_total || child->total < child->n)
        return why_damaged(why, "%s at address %" PRIu64 ": pointer to child %" PRIu64,
                           node->kind->name, node->address, i);
    return 0;
}

/* Order of records, and that the totals of all children make up that of the node. */
static int check_node(const struct index *index, const struct block *node,
                      const struct node_pointer *pointer, struct why *why)
{
    struct cursor c;
    int error = index_begin(node, BTREE2_FIRST_TYPE + index->format.form, &c, why);
    if (error)
        return error;
    uint64_t coordinates[2][SFS_MAX_RANK];
    for (uint64_t i = 0; i < pointer->n; i++) {
        read_coordinates(index, node, i, coordinates[i & 1]);
        if (i > 0 && compare(index->rank, coordinates[i & 1], coordinates[~i & 1]) <= 0)
            return why_damaged(why, "%s at address %" PRIu64 ": record %" PRIu64 " is out of order",
                               node->kind->name, node->address, i);
    }
    uint64_t total = pointer->n;
    for (uint64_t i = 0; pointer->depth > 0 && i <= pointer->n; i++) {
        struct node_pointer child;
        error = btree2_read_pointer(index, node, pointer, i, &child, why);
        if (error)
            return error;
        if (__builtin_add_overflow(total, child.total, &total))
            total = UINT64_MAX;
    }
    if (total != pointer->total)
        return why_damaged(
            why, "%s at address %" PRIu64 ": %" PRIu64 " records in and under it, not %" PRIu64,
            node->kind->name, node->address, total, pointer->total);
    return 0;
}

uint64_t btree2_summed(const struct btree2 *tree, const struct node_pointer *pointer)
{
    uint64_t n_children = pointer->depth > 0 ? pointer->n + 1 : 0;
    return NODE_OVERHEAD + pointer->n * tree->record +
           n_children * tree->level[pointer->depth].pointer_bytes;
}

int btree2_get_node(struct index *index, const struct node_pointer *pointer, struct block **node,
                    struct why *why)
{
    const struct btree2 *tree = index->kind;
    const struct block_place place = {btree2_node_kind(pointer->depth), pointer->address,
                                      tree->node_bytes, btree2_summed(tree, pointer)};
    struct block *found;
    int error = block_get(index, &place, &found, why);
    if (error)
        return error;
    /* What we have changed is right. */
    if (!found->changed &&
        atomic_load_explicit(&found->checked, memory_order_relaxed) != pointer->total) {
        error = check_node(index, found, pointer, why);
        if (error) {
            block_put(found);
            return error;
        }
        atomic_store_explicit(&found->checked, pointer->total, memory_order_relaxed);
    }
    *node = found;
    return 0;
}

/* ---- Opening ---- */

static int header_damaged(const struct index *index, const char *field, uint64_t value,
                          struct why *why)
{
    return why_damaged(why, BTREE2_HEADER " at address %" PRIu64 ": %s %" PRIu64, index->address,
                       field, value);
}

int btree2_derive(const struct index *index, struct btree2 *tree, unsigned depth, struct why *why)
{
    if (depth > MOST_DEPTH)
        return header_damaged(index, "depth", depth, why);
    if (tree->node_bytes < NODE_OVERHEAD + tree->record || tree->node_bytes > MOST_NODE_BYTES)
        return header_damaged(index, "node size", tree->node_bytes, why);
    uint64_t space = tree->node_bytes - NODE_OVERHEAD;
    tree->level[0].max_records = tree->level[0].max_total = space / tree->record;
    tree->count_bytes = floor_log2(tree->level[0].max_records) / 8 + 1;
    for (unsigned d = 1; d <= depth; d++) {
        const struct level *below = &tree->level[d - 1];
        struct level *level = &tree->level[d];
        level->pointer_bytes =
            index->superblock->offset_size + tree->count_bytes + below->total_bytes;
        if (space < level->pointer_bytes + tree->record + level->pointer_bytes)
            return header_damaged(index, "node size", tree->node_bytes, why);
        level->max_records = (space - level->pointer_bytes) / (tree->record + level->pointer_bytes);
        if (__builtin_mul_overflow(level->max_records + 1, below->max_total, &level->max_total) ||
            __builtin_add_overflow(level->max_total, level->max_records, &level->max_total))
            return header_damaged(index, "depth", depth, why);
        level->total_bytes = floor_log2(level->max_total) / 8 + 1;
    }
    return 0;
}

static int check_root(const struct index *index, const struct btree2 *tree, struct why *why)
{
    const struct level *top = &tree->level[tree->root.depth];
    const struct node_pointer *root = &tree->root;
    bool empty = root->address == NO_ADDRESS;
    if (root->n > top->max_records || (root->n == 0) != (root->total == 0) ||
        (empty && (root->n != 0 || root->depth != 0)) || (root->depth > 0 && root->n == 0))
        return header_damaged(index, "records in the root", root->n, why);
    if (root->total < root->n || root->total > top->max_total)
        return header_damaged(index, "records in the tree", root->total, why);
    return 0;
}

size_t btree2_header_bytes(const struct superblock *superblock)
{
    return INDEX_BEGIN_BYTES + 12 + superblock->offset_size + superblock->length_size +
           CHECKSUM_BYTES;
}

static int read_header(struct index *index, struct btree2 *tree, struct why *why)
{
    const struct superblock *superblock = index->superblock;
    size_t size = btree2_header_bytes(superblock);
    const struct block_place place = {&btree2_header_kind, index->address, size, size};
    struct block *block;
    struct cursor c;
    int error = block_read(index->store, &place, &block, why);
    if (error)
        return error;
    error = index_begin_header(index, block, BTREE2_FIRST_TYPE + index->format.form, &c, why);
    tree->node_bytes = cursor_uint(&c, 4);
    size_t record = (size_t)cursor_uint(&c, 2);
    tree->root.depth = (unsigned)cursor_uint(&c, 2);
    tree->split_percent = (unsigned)cursor_uint(&c, 1);
    tree->merge_percent = (unsigned)cursor_uint(&c, 1);
    tree->root.address = superblock_address(superblock, &c);
    tree->root.n = cursor_uint(&c, 2);
    tree->root.total = cursor_uint(&c, superblock->length_size);
    block_put(block);
    if (error)
        return error;
    if (c.failed)
        return header_damaged(index, "address of the root", 0, why);
    if (record != tree->record)
        return header_damaged(index, "record size", record, why);
    error = btree2_derive(index, tree, tree->root.depth, why);
    return error ? error : check_root(index, tree, why);
}

static int btree2_open(struct index *index, const struct layout_message *layout, struct why *why)
{
    struct btree2 *tree = calloc(1, sizeof(*tree));
    if (!tree)
        return -ENOMEM;
    index->kind = tree;
    tree->record = chunk_record_in_tree(&index->format, index->superblock);
    /* The header, if there is one, knows better; the node size of layouts is any number in files of
     * the prototype. */
    bool is_size = layout->node_bytes <= MOST_NODE_BYTES &&
                   layout->node_bytes >= layout_message_least_node(index->superblock, tree->record);
    tree->node_bytes = is_size ? layout->node_bytes : NEW_NODE_BYTES;
    tree->split_percent = layout->split_percent;
    tree->merge_percent = layout->merge_percent;
    tree->root.address = NO_ADDRESS;
    if (index->address == NO_ADDRESS)
        return 0;
    int error = read_header(index, tree, why);
    if (error || tree->root.n == 0)
        return error;
    return btree2_get_node(index, &tree->root, &tree->root_block, why);
}

static void btree2_tell(const struct index *index, struct layout_message *layout)
{
    const struct btree2 *tree = index->kind;
    layout->node_bytes = (unsigned)tree->node_bytes;
    layout->split_percent = tree->split_percent;
    layout->merge_percent = tree->merge_percent;
}

static void btree2_close(struct index *index)
{
    struct btree2 *tree = index->kind;
    block_put(tree->root_block);
    free(tree->scratch);
    free(tree);
}

/* ---- Lookup ---- */

uint64_t btree2_search(const struct index *index, const struct block *node, uint64_t n,
                       const uint64_t *scaled, bool *equal)
{
    uint64_t low = 0, high = n;
    *equal = false;
    while (low < high && !*equal) {
        uint64_t middle = low + (high - low) / 2, coordinates[SFS_MAX_RANK];
        read_coordinates(index, node, middle, coordinates);
        int order = compare(index->rank, coordinates, scaled);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
        *equal = order == 0;
    }
    return high;
}

static int btree2_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                         struct why *why)
{
    const struct btree2 *tree = index->kind;
    struct node_pointer pointer = tree->root;
    const struct block *node = tree->root_block; /* NULL: there is nothing to look for */
    struct block *held = NULL;                   /* node, if it is not the root */
    int error = 0;
    while (node) {
        bool found;
        uint64_t i = btree2_search(index, node, pointer.n, scaled, &found),
                 coordinates[SFS_MAX_RANK];
        if (found)
            error = read_record(index, node, i, coordinates, record, why);
        if (found || pointer.depth == 0)
            break;
        struct node_pointer child;
        error = btree2_read_pointer(index, node, &pointer, i, &child, why);
        block_put(held);
        held = NULL;
        if (!error)
            error = btree2_get_node(index, &child, &held, why);
        node = held;
        pointer = child;
    }
    block_put(held);
    return error;
}

/* ---- Iteration ---- */

struct walk {
    struct index *index;
    index_each_function each; /* of these one is NULL */
    index_block_function each_block;
    void *context;
    const struct index_range *range; /* each: all records between its ends; NULL: all */
    uint64_t budget;                 /* bytes that nodes may still have */
    bool any;                        /* a record came before, with these coordinates: */
    uint64_t last[SFS_MAX_RANK];
    struct why *why;
};

/* Of which each_block wants nothing but that they are in order: a node that is met again is not, however
 * large the file says that it is. */
static int walk_record(struct walk *walk, const struct block *node, uint64_t i)
{
    struct index *index = walk->index;
    uint64_t scaled[SFS_MAX_RANK];
    struct chunk_record record = {0};
    int error = 0;
    if (walk->each)
        error = read_record(index, node, i, scaled, &record, walk->why);
    else
        read_coordinates(index, node, i, scaled);
    if (error)
        return error;
    if (walk->any && compare(index->rank, walk->last, scaled) >= 0)
        return why_damaged(walk->why,
                           "version 2 B-tree node at address %" PRIu64 ": record %" PRIu64
                           " is not behind that of a node before",
                           node->address, i);
    walk->any = true;
    memcpy(walk->last, scaled, sizeof(*scaled) * (size_t)index->rank);
    return record.exists ? walk->each(walk->context, scaled, &record) : 0;
}

/* The records of a node in the range: from *first to before *end. The children between these, and
 * on both sides of them, may have others. */
static void records_in_range(const struct walk *walk, const struct block *node, uint64_t n,
                             uint64_t *first, uint64_t *end)
{
    const struct index_range *range = walk->range;
    bool equal;
    *first = 0;
    *end = n;
    if (!range)
        return;
    *first =
        btree2_search(walk->index, node, n, range->behind ? range->behind : range->first, &equal);
    *first += equal && range->behind;
    *end = btree2_search(walk->index, node, n, range->last, &equal);
    *end += equal;
}

static int walk_node(struct walk *walk, const struct block *node,
                     const struct node_pointer *pointer)
{
    const struct btree2 *tree = walk->index->kind;
    uint64_t first, end;
    int result = interrupt_check();
    if (!result)
        result = index_spend(node->kind->name, node->address, tree->node_bytes, &walk->budget,
                             walk->why);
    if (!result && walk->each_block)
        result = walk->each_block(walk->context, node->kind->name, node->address, tree->node_bytes);
    records_in_range(walk, node, pointer->n, &first, &end);
    for (uint64_t i = first; !result && i <= end; i++) {
        if (pointer->depth > 0) {
            struct node_pointer child;
            struct block *block;
            result = btree2_read_pointer(walk->index, node, pointer, i, &child, walk->why);
            if (!result)
                result = btree2_get_node(walk->index, &child, &block, walk->why);
            if (!result) {
                result = walk_node(walk, block, &child);
                block_put(block);
            }
        }
        if (!result && i < end)
            result = walk_record(walk, node, i);
    }
    return result;
}

static int btree2_iterate(struct index *index, const struct index_range *range,
                          index_each_function each, void *context, struct why *why)
{
    const struct btree2 *tree = index->kind;
    struct walk walk = {
        .index = index,
        .each = each,
        .context = context,
        .range = range,
        .budget = store_size(index->store),
        .why = why,
    };
    return tree->root_block ? walk_node(&walk, tree->root_block, &tree->root) : 0;
}

static int btree2_each_block(struct index *index, index_block_function each, void *context,
                             struct why *why)
{
    const struct btree2 *tree = index->kind;
    struct walk walk = {
        .index = index,
        .each_block = each,
        .context = context,
        .budget = store_size(index->store),
        .why = why,
    };
    int result =
        each(context, BTREE2_HEADER, index->address, btree2_header_bytes(index->superblock));
    if (!result && tree->root_block)
        result = walk_node(&walk, tree->root_block, &tree->root);
    return result;
}

static size_t btree2_kept(const struct index *index)
{
    const struct btree2 *tree = index->kind;
    return tree->root_block ? tree->root_block->n : 0;
}

const struct index_ops index_btree2 = {
    .open = btree2_open,
    .close = btree2_close,
    .lookup = btree2_lookup,
    .iterate = btree2_iterate,
    .each_block = btree2_each_block,
    .insert = btree2_insert,
    .remove = btree2_remove,
    .make_header = btree2_make_header,
    .encode_header = btree2_encode_header,
    .tell = btree2_tell,
    .kept = btree2_kept,
};
