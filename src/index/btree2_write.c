/* Writing the version 2 B-tree as libhdf5 does it. A leaf with room takes a record as it is. If it
 * has none, records are shared with neighbours, or nodes are split, from the lowest node on the way
 * to it that has room; in removing, on the whole way from the root, records are shared or nodes are
 * merged before a node is entered that must not lose one. Each of these steps moves records between
 * two or three neighbours and the node above them, and leaves a complete tree behind. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "index/btree2.h"

#define TRIES         2 /* of sharing records with neighbours */
#define MOST_CHILDREN 3 /* among which records are moved at once */

/* Scratch space, in nodes: records of three nodes and two between them, of which a node holds at
 * least three; pointers of three nodes; the node above. */
#define SCRATCH_RECORDS  4
#define SCRATCH_POINTERS 3
#define SCRATCH_NODES    (SCRATCH_RECORDS + SCRATCH_POINTERS + 1)

/* The way from the root to a node. */
struct path {
    struct index *index;
    struct why *why;
    unsigned n;
    struct step {
        struct block *node; /* the path is one of its users */
        struct node_pointer pointer;
        uint64_t child; /* where the way goes on; in the last one, any record */
    } step[MOST_DEPTH + 1];
};

static struct btree2 *tree_of(const struct path *path)
{
    return path->index->kind;
}

static struct step *last_of(struct path *path)
{
    return &path->step[path->n - 1];
}

static void cut_path(struct path *path, unsigned n)
{
    while (path->n > n)
        block_put(path->step[--path->n].node);
}

/* To the root, which is there. */
static void begin_path(struct path *path)
{
    const struct btree2 *tree = tree_of(path);
    cut_path(path, 0);
    path->step[path->n++] = (struct step){
        .node = block_use(tree->root_block),
        .pointer = tree->root,
    };
}

static int descend(struct path *path, uint64_t child)
{
    struct step *last = last_of(path), *next = last + 1;
    int error = btree2_read_pointer(path->index, last->node, &last->pointer, child, &next->pointer,
                                    path->why);
    if (!error)
        error = btree2_get_node(path->index, &next->pointer, &next->node, path->why);
    if (error)
        return error;
    last->child = child;
    path->n++;
    return 0;
}

/* From the last step on to the record, or to the leaf where it would be. */
static int find(struct path *path, const uint64_t *scaled, bool *found)
{
    for (;;) {
        struct step *last = last_of(path);
        uint64_t i = btree2_search(path->index, last->node, last->pointer.n, scaled, found);
        last->child = i;
        if (*found || last->pointer.depth == 0)
            return 0;
        int error = descend(path, i);
        if (error)
            return error;
    }
}

/* ---- Nodes ---- */

/* When to split a node, and when it must not lose a record. Percentages of a file that make no
 * sense do no harm. */
static uint64_t split_at(const struct btree2 *tree, unsigned depth)
{
    uint64_t most = tree->level[depth].max_records, n = most * tree->split_percent / 100;
    return n < LEAST_NODE_RECORDS ? LEAST_NODE_RECORDS : n < most ? n : most;
}

static uint64_t merge_at(const struct btree2 *tree, unsigned depth)
{
    uint64_t n = tree->level[depth].max_records * tree->merge_percent / 100;
    uint64_t most = (split_at(tree, depth) - 1) / 2;
    return n < 1 ? 1 : n < most ? n : most;
}

static unsigned char *record_in(const struct btree2 *tree, struct block *node, uint64_t i)
{
    return node->bytes + NODE_BEGIN + i * tree->record;
}

/* Pointer to child i of a node of n records. */
static unsigned char *pointer_in(const struct btree2 *tree, struct block *node, uint64_t n,
                                 unsigned depth, uint64_t i)
{
    return record_in(tree, node, n) + i * tree->level[depth].pointer_bytes;
}

static void put_pointer(const struct index *index, unsigned char *bytes,
                        const struct node_pointer *child)
{
    const struct btree2 *tree = index->kind;
    struct output output = output_over(bytes, tree->level[child->depth + 1].pointer_bytes);
    superblock_put_address(index->superblock, &output, child->address);
    output_uint(&output, child->n, tree->count_bytes);
    output_uint(&output, child->total, tree->level[child->depth].total_bytes);
}

/* Tells the node above, which may be changed, what step k has become. */
static void update_pointer(struct path *path, unsigned k)
{
    struct btree2 *tree = tree_of(path);
    struct step *step = &path->step[k], *above = step - 1;
    step->node->summed = btree2_summed(tree, &step->pointer);
    if (k > 0) {
        put_pointer(
            path->index,
            pointer_in(tree, above->node, above->pointer.n, above->pointer.depth, above->child),
            &step->pointer);
        return;
    }
    tree->root = step->pointer;
    path->index->changes.header = true;
}

static int change_step(struct path *path, unsigned k)
{
    const struct step *step = &path->step[k];
    return block_change(path->index, step->node, step->pointer.depth, path->why);
}

static int change_path(struct path *path)
{
    int error = 0;
    for (unsigned k = 0; !error && k < path->n; k++)
        error = change_step(path, k);
    return error;
}

static int make_node(struct index *index, unsigned depth, struct block **node, struct why *why)
{
    const struct btree2 *tree = index->kind;
    const struct block_place place = {btree2_node_kind(depth), 0, tree->node_bytes,
                                      tree->node_bytes};
    int error = block_allocate(index, place, tree->node_bytes, depth, node, why);
    if (error)
        return error;
    struct output output = output_over((*node)->bytes, (*node)->n);
    index_put_begin(index, (*node)->kind, BTREE2_FIRST_TYPE + index->format.form, &output);
    return 0;
}

/* ---- Moving records ---- */

/* Neighbours under the last step of a path, and what they are to become. */
struct move {
    unsigned depth; /* theirs */
    uint64_t first; /* of them in the node above */
    unsigned n_old, n_new;
    uint64_t count[MOST_CHILDREN]; /* new: records of each */
    struct block *child[MOST_CHILDREN];
    struct node_pointer pointer[MOST_CHILDREN];
    /* All records, those between them in the node above included, and all pointers; and where the
     * node above is put together: */
    unsigned char *records, *pointers, *above;
};

static void end_move(struct move *move)
{
    for (int i = 0; i < MOST_CHILDREN; i++)
        block_put(move->child[i]);
}

/* All that can fail. */
static int begin_move(struct path *path, struct move *move)
{
    struct btree2 *tree = tree_of(path);
    struct step *last = last_of(path);
    int error = change_step(path, path->n - 1);
    if (!error)
        error = changes_reserve(path->index, 2); /* one of them for a root that is given up */
    if (!error && !tree->scratch) {
        tree->scratch = malloc(SCRATCH_NODES * (size_t)tree->node_bytes);
        error = tree->scratch ? 0 : -ENOMEM;
    }
    for (unsigned i = 0; !error && i < move->n_old; i++) {
        error = btree2_read_pointer(path->index, last->node, &last->pointer, move->first + i,
                                    &move->pointer[i], path->why);
        if (!error)
            error = btree2_get_node(path->index, &move->pointer[i], &move->child[i], path->why);
        if (!error)
            error = block_change(path->index, move->child[i], move->depth, path->why);
    }
    if (!error && move->n_new > move->n_old)
        error = make_node(path->index, move->depth, &move->child[move->n_old], path->why);
    return error;
}

/* Copies records and pointers of all children into the scratch space. */
static void gather(struct path *path, struct move *move)
{
    struct btree2 *tree = tree_of(path);
    struct step *last = last_of(path);
    size_t pointer_bytes = tree->level[move->depth].pointer_bytes;
    move->records = tree->scratch;
    move->pointers = move->records + SCRATCH_RECORDS * tree->node_bytes;
    move->above = move->pointers + SCRATCH_POINTERS * tree->node_bytes;
    unsigned char *record = move->records, *pointer = move->pointers;
    for (unsigned i = 0; i < move->n_old; i++) {
        uint64_t n = move->pointer[i].n;
        memcpy(record, record_in(tree, move->child[i], 0), n * tree->record);
        record += n * tree->record;
        if (i + 1 < move->n_old) {
            memcpy(record, record_in(tree, last->node, move->first + i), tree->record);
            record += tree->record;
        }
        if (move->depth > 0) {
            memcpy(pointer, pointer_in(tree, move->child[i], n, move->depth, 0),
                   (n + 1) * pointer_bytes);
            pointer += (n + 1) * pointer_bytes;
        }
    }
}

/* Records in and under a child whose pointers stand at `pointers`. */
static uint64_t count_under(const struct index *index, unsigned depth, uint64_t n,
                            const unsigned char *pointers)
{
    const struct btree2 *tree = index->kind;
    uint64_t total = n;
    for (uint64_t i = 0; depth > 0 && i <= n; i++) {
        struct cursor c = cursor_over(pointers + i * tree->level[depth].pointer_bytes,
                                      tree->level[depth].pointer_bytes);
        cursor_skip(&c, index->superblock->offset_size);
        uint64_t n_child = cursor_uint(&c, tree->count_bytes);
        total += depth > 1 ? cursor_uint(&c, tree->level[depth - 1].total_bytes) : n_child;
    }
    return total;
}

/* Copies them back into the new children. Child i begins with record and pointer number at[i]. */
static void scatter(struct path *path, struct move *move, uint64_t at[MOST_CHILDREN])
{
    struct btree2 *tree = tree_of(path);
    size_t pointer_bytes = tree->level[move->depth].pointer_bytes;
    uint64_t next = 0;
    for (unsigned i = 0; i < move->n_new; i++) {
        uint64_t n = move->count[i];
        struct block *child = move->child[i];
        const unsigned char *pointers = move->pointers + next * pointer_bytes;
        at[i] = next;
        memcpy(record_in(tree, child, 0), move->records + next * tree->record, n * tree->record);
        if (move->depth > 0)
            memcpy(pointer_in(tree, child, n, move->depth, 0), pointers, (n + 1) * pointer_bytes);
        move->pointer[i] = (struct node_pointer){
            .address = child->address,
            .n = n,
            .total = count_under(path->index, move->depth, n, pointers),
            .depth = move->depth,
        };
        child->summed = btree2_summed(tree, &move->pointer[i]);
        next += n + 1;
    }
}

/* Replaces in the node above the records between the old children, and the pointers to them. */
static void change_above(struct path *path, struct move *move, const uint64_t at[MOST_CHILDREN])
{
    struct btree2 *tree = tree_of(path);
    struct step *last = last_of(path);
    unsigned depth = move->depth + 1;
    size_t pointer_bytes = tree->level[depth].pointer_bytes;
    uint64_t n = last->pointer.n, first = move->first;
    struct output output = output_over(move->above, (size_t)tree->node_bytes);
    output_bytes(&output, record_in(tree, last->node, 0), first * tree->record);
    for (unsigned i = 0; i + 1 < move->n_new; i++)
        output_bytes(&output, move->records + (at[i] + move->count[i]) * tree->record,
                     tree->record);
    output_bytes(&output, record_in(tree, last->node, first + move->n_old - 1),
                 (n - first - move->n_old + 1) * tree->record);
    output_bytes(&output, pointer_in(tree, last->node, n, depth, 0), first * pointer_bytes);
    for (unsigned i = 0; i < move->n_new; i++) {
        put_pointer(path->index, output.at, &move->pointer[i]);
        output.at += pointer_bytes;
        output.left -= pointer_bytes;
    }
    output_bytes(&output, pointer_in(tree, last->node, n, depth, first + move->n_old),
                 (n + 1 - first - move->n_old) * pointer_bytes);
    memcpy(record_in(tree, last->node, 0), move->above, (size_t)tree->node_bytes - output.left);
    last->pointer.n = n + move->n_new - move->n_old;
}

/* Makes n_new nodes with so many records each out of n_old neighbours under the last step, whose
 * first is child number `first`. */
static int move_records(struct path *path, uint64_t first, unsigned n_old, unsigned n_new,
                        const uint64_t *count)
{
    struct move move = {
        .depth = last_of(path)->pointer.depth - 1,
        .first = first,
        .n_old = n_old,
        .n_new = n_new,
    };
    memcpy(move.count, count, n_new * sizeof(*count));
    uint64_t at[MOST_CHILDREN];
    int error = begin_move(path, &move);
    if (!error) {
        gather(path, &move);
        scatter(path, &move, at);
        change_above(path, &move, at);
        update_pointer(path, path->n - 1);
        for (unsigned i = n_new; i < n_old; i++)
            block_discard(path->index, move.child[i]);
    }
    end_move(&move);
    return error;
}

/* Records of child i of the last step. */
static int count_child(struct path *path, uint64_t i, uint64_t *n)
{
    struct step *last = last_of(path);
    struct node_pointer child;
    int error = btree2_read_pointer(path->index, last->node, &last->pointer, i, &child, path->why);
    if (!error)
        *n = child.n;
    return error;
}

/* Records of child i, and of its neighbours, of which one may be missing and has as many as
 * `missing`. */
static int count_around(struct path *path, uint64_t i, uint64_t missing, uint64_t n[3])
{
    n[0] = n[2] = missing;
    int error = count_child(path, i, &n[1]);
    if (!error && i > 0)
        error = count_child(path, i - 1, &n[0]);
    if (!error && i < last_of(path)->pointer.n)
        error = count_child(path, i + 1, &n[2]);
    return error;
}

/* Makes child i and its neighbours, which have n records, equally full. */
static int share(struct path *path, uint64_t i, const uint64_t n[3])
{
    uint64_t last = last_of(path)->pointer.n;
    if (i > 0 && i < last) {
        uint64_t total = n[0] + n[1] + n[2], middle = total / 3, left = (total - middle) / 2;
        return move_records(path, i - 1, 3, 3, (uint64_t[]){left, middle, total - middle - left});
    }
    uint64_t l = i == 0 ? n[1] : n[0], r = i == 0 ? n[2] : n[1];
    uint64_t left = l < r ? l + r - (l + r) / 2 : (l + r) / 2;
    return move_records(path, i == 0 ? 0 : i - 1, 2, 2, (uint64_t[]){left, l + r - left});
}

/* ---- Inserting ---- */

int btree2_make_header(struct index *index, struct why *why)
{
    if (index->address != NO_ADDRESS)
        return 0;
    int error = btree2_derive(index, index->kind, 0, why);
    if (error)
        return error;
    return header_allocate(index, &btree2_header_kind, btree2_header_bytes(index->superblock), why);
}

void btree2_encode_header(const struct index *index, struct output *output)
{
    const struct btree2 *tree = index->kind;
    index_put_begin(index, &btree2_header_kind, BTREE2_FIRST_TYPE + index->format.form, output);
    output_uint(output, tree->node_bytes, 4);
    output_uint(output, tree->record, 2);
    output_uint(output, tree->root.depth, 2);
    output_uint(output, tree->split_percent, 1);
    output_uint(output, tree->merge_percent, 1);
    superblock_put_address(index->superblock, output, tree->root.address);
    output_uint(output, tree->root.n, 2);
    output_uint(output, tree->root.total, index->superblock->length_size);
}

static int check_levels(const struct index *index, unsigned depth, struct why *why)
{
    const struct btree2 *tree = index->kind;
    for (unsigned d = 0; d <= depth; d++)
        if (tree->level[d].max_records < LEAST_NODE_RECORDS)
            return why_unsupported(why,
                                   BTREE2_HEADER " at address %" PRIu64 ": nodes of %" PRIu64
                                                 " bytes are too small",
                                   index->address, tree->node_bytes);
    return 0;
}

/* A leaf as the root of an empty tree. */
static int make_root(struct index *index, struct btree2 *tree, struct why *why)
{
    if (tree->root_block)
        return 0;
    struct block *node;
    int error = make_node(index, 0, &node, why);
    if (error)
        return error;
    tree->root_block = node;
    tree->root = (struct node_pointer){.address = node->address};
    node->summed = btree2_summed(tree, &tree->root);
    index->changes.header = true;
    return 0;
}

/* Splits the root under a new one. The path leads to the new one afterwards. */
static int grow(struct path *path)
{
    struct index *index = path->index;
    struct btree2 *tree = index->kind;
    struct block *old = tree->root_block, *node;
    const struct node_pointer root = tree->root;
    const unsigned depth = root.depth + 1;
    int error = btree2_derive(index, tree, depth, path->why);
    if (!error)
        error = check_levels(index, depth, path->why);
    if (!error)
        error = changes_reserve(index, 1);
    if (!error)
        error = make_node(index, depth, &node, path->why);
    if (error)
        return error;
    cut_path(path, 0);
    put_pointer(index, pointer_in(tree, node, 0, depth, 0), &root);
    path->step[path->n++] = (struct step){
        .node = node,
        .pointer = {.address = node->address, .total = root.total, .depth = depth},
    };
    node->summed = btree2_summed(tree, &last_of(path)->pointer);
    error = move_records(path, 0, 1, 2, (uint64_t[]){root.n / 2, root.n - root.n / 2 - 1});
    if (error) {
        block_discard(index, node);
        return error;
    }
    tree->root_block = block_use(node);
    block_put(old);
    return 0;
}

/* Gives the child of the last step that the record belongs to room for it. *full: there is no room
 * for splitting it here. */
static int make_room(struct path *path, const uint64_t *scaled, uint64_t *child, bool *full)
{
    const struct btree2 *tree = tree_of(path);
    struct step *last = last_of(path);
    unsigned depth = last->pointer.depth;
    uint64_t most = split_at(tree, depth - 1);
    for (int tries = TRIES;; tries--) {
        bool found;
        uint64_t n[3], i = btree2_search(path->index, last->node, last->pointer.n, scaled, &found);
        int error = count_around(path, i, UINT64_MAX, n);
        *child = i;
        *full = false;
        if (error || n[1] < most)
            return error;
        if (tries > 0 && (n[0] < most || n[2] < most))
            error = share(path, i, n);
        else if (last->pointer.n < tree->level[depth].max_records)
            error = move_records(path, i, 1, 2, (uint64_t[]){n[1] / 2, n[1] - n[1] / 2 - 1});
        else
            *full = true;
        if (error || *full)
            return error;
    }
}

/* Whether the child of the last step might have to be split though it has neighbours to share with:
 * as libhdf5 says it, if it and one of them have room for one record at most. */
static int may_split(struct path *path, bool *split)
{
    uint64_t n[3], most = split_at(tree_of(path), last_of(path)->pointer.depth - 1);
    int error = count_around(path, last_of(path)->child, 0, n);
    if (!error)
        *split = n[0] + n[1] >= 2 * most - 1 || n[1] + n[2] >= 2 * most - 1;
    return error;
}

/* Cuts the path, which leads to a full leaf, to the lowest node from which room can be made there:
 * one that is not full itself, or (if only that is asked for) whose child need not be split. *none:
 * there is none. */
static int climb(struct path *path, bool share_only, bool *none)
{
    const struct btree2 *tree = tree_of(path);
    int error = 0;
    *none = false;
    while (!error && path->n > 1) {
        cut_path(path, path->n - 1);
        bool split = true;
        if (last_of(path)->pointer.n < split_at(tree, last_of(path)->pointer.depth))
            return 0;
        if (share_only)
            error = may_split(path, &split);
        if (!split)
            return error;
    }
    *none = true;
    return error;
}

/* Leads the path from its last step to a leaf that has room; *full: it could not be made. */
static int go_to_room(struct path *path, const uint64_t *scaled, bool *full)
{
    int error = 0;
    *full = false;
    while (!error && last_of(path)->pointer.depth > 0) {
        uint64_t child;
        error = make_room(path, scaled, &child, full);
        if (error || *full)
            return error;
        error = descend(path, child);
        if (!error)
            error = change_step(path, path->n - 1);
    }
    return error;
}

static int find_again(struct path *path, const uint64_t *scaled)
{
    bool found;
    begin_path(path);
    int error = find(path, scaled, &found);
    return error ? error : change_path(path);
}

/* The path leads to a leaf that is full: lead it to one that has room. Sharing may turn out not to
 * suffice where the tree was thought to be able to do without a split: then with splits. */
static int make_room_in_leaf(struct path *path, const uint64_t *scaled)
{
    bool none, full = true;
    int error = 0;
    for (int share_only = 1; !error && full && share_only >= 0; share_only--) {
        if (!share_only)
            error = find_again(path, scaled);
        if (!error && last_of(path)->pointer.n < split_at(tree_of(path), 0))
            return 0;
        if (!error)
            error = climb(path, share_only, &none);
        if (!error && none)
            error = grow(path);
        if (!error)
            error = go_to_room(path, scaled, &full);
    }
    if (!error && full) /* only where the header wants nodes less full than they are */
        error = why_unsupported(
            path->why, BTREE2_HEADER " at address %" PRIu64 ": its nodes are fuller than it says",
            path->index->address);
    return error;
}

/* Adds d to the number of records of all nodes on the path, the last of which has lost or won one.
 */
static void count_record(struct path *path, int d)
{
    last_of(path)->pointer.n += (uint64_t)(int64_t)d;
    for (unsigned k = path->n; k > 0; k--) {
        path->step[k - 1].pointer.total += (uint64_t)(int64_t)d;
        update_pointer(path, k - 1);
    }
}

/* Of a record that is not there; the path leads to its leaf. */
static int insert_new(struct path *path, const uint64_t *scaled, const struct chunk_record *record)
{
    struct index *index = path->index;
    const struct btree2 *tree = index->kind;
    if (tree->root.total >= index_most_length(index))
        return why_refused(path->why, -EFBIG,
                           BTREE2_HEADER " at address %" PRIu64 ": it cannot count more records",
                           index->address);
    int error = change_path(path);
    if (!error && last_of(path)->pointer.n >= split_at(tree, 0))
        error = make_room_in_leaf(path, scaled);
    if (error)
        return error;
    bool found;
    struct step *leaf = last_of(path);
    uint64_t n = leaf->pointer.n, i = btree2_search(index, leaf->node, n, scaled, &found);
    unsigned char *at = record_in(tree, leaf->node, i);
    memmove(at + tree->record, at, (n - i) * tree->record);
    /* What could not be encoded was refused before. */
    error = chunk_record_encode(&index->format, index->superblock, scaled, record, at, path->why);
    assert(!error);
    count_record(path, 1);
    return error;
}

int btree2_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                  struct why *why)
{
    struct btree2 *tree = index->kind;
    struct path path = {.index = index, .why = why};
    int error = btree2_make_header(index, why);
    if (!error)
        error = check_levels(index, tree->root.depth, why);
    if (!error)
        error = make_root(index, tree, why);
    if (error)
        return error;
    bool found;
    begin_path(&path);
    error = find(&path, scaled, &found);
    if (!error && !found) {
        error = insert_new(&path, scaled, record);
    } else if (!error) {
        struct step *last = last_of(&path);
        error = change_step(&path, path.n - 1);
        if (!error)
            error = chunk_record_encode(&index->format, index->superblock, scaled, record,
                                        record_in(tree, last->node, last->child), why);
    }
    cut_path(&path, 0);
    return error;
}

/* ---- Removing ---- */

/* A root with one record whose children fit into one node gives way to that. Two nodes that must
 * not lose a record always fit. */
static int shrink(struct path *path, bool *shrunk)
{
    struct btree2 *tree = tree_of(path);
    const struct level *below = &tree->level[tree->root.depth - 1];
    struct step *root = last_of(path);
    struct node_pointer left;
    struct block *child;
    uint64_t n[2];
    *shrunk = false;
    if (root->pointer.n != 1)
        return 0;
    int error = count_child(path, 0, &n[0]);
    if (!error)
        error = count_child(path, 1, &n[1]);
    if (error || n[0] + n[1] > 2 * merge_at(tree, tree->root.depth - 1) + 1 ||
        n[0] + n[1] + 1 > below->max_records)
        return error;
    error = btree2_read_pointer(path->index, root->node, &root->pointer, 0, &left, path->why);
    if (!error)
        error = btree2_get_node(path->index, &left, &child, path->why);
    if (error)
        return error;
    error = block_change(path->index, child, left.depth, path->why); /* not another copy */
    left.n = n[0] + n[1] + 1;
    left.total = root->pointer.total;
    if (!error)
        error = move_records(path, 0, 2, 1, &left.n);
    if (error) {
        block_put(child);
        return error;
    }
    block_discard(path->index, tree->root_block);
    block_put(tree->root_block);
    tree->root_block = child;
    tree->root = left;
    begin_path(path);
    *shrunk = true;
    return 0;
}

/* Merges child i of the last step with one neighbour, or it and both into two. */
static int merge(struct path *path, uint64_t i, const uint64_t n[3])
{
    uint64_t last = last_of(path)->pointer.n;
    if (i > 0 && i < last) {
        uint64_t total = n[0] + n[1] + n[2] + 2, left = (total - 1) / 2;
        return move_records(path, i - 1, 3, 2, (uint64_t[]){left, total - 1 - left});
    }
    uint64_t sum = i == 0 ? n[1] + n[2] + 1 : n[0] + n[1] + 1;
    return move_records(path, i == 0 ? 0 : i - 1, 2, 1, &sum);
}

/* Makes sure that the child of the last step to which the way goes on may lose a record: it goes to
 * the record, if that is still to be found (equal: it is record child - 1 here), else to the first
 * of all. */
static int make_ready(struct path *path, const uint64_t *scaled, bool leftmost, uint64_t *child,
                      bool *equal)
{
    const struct btree2 *tree = tree_of(path);
    struct step *last = last_of(path);
    uint64_t few = merge_at(tree, last_of(path)->pointer.depth - 1);
    for (int tries = TRIES;; tries--) {
        uint64_t n[3], i = 0;
        *equal = false;
        if (!leftmost)
            i = btree2_search(path->index, last->node, last->pointer.n, scaled, equal);
        i += *equal;
        int error = count_around(path, i, 0, n);
        *child = i;
        if (error || n[1] > few)
            return error;
        if (tries > 0 && (n[0] > few || n[2] > few))
            error = share(path, i, n);
        else if (last->pointer.n > 1)
            error = merge(path, i, n);
        else
            return 0; /* the root, or what was merged from less than the header wants */
        if (error)
            return error;
    }
}

/* From the root, of a tree that has the record, to the leaf that will lose one: the record's, or if
 * the record stands in a node above, that of the one behind it. Then that is step `above` and the
 * record is before its child. */
static int go_to_leaf(struct path *path, const uint64_t *scaled, unsigned *above)
{
    *above = UINT32_MAX;
    begin_path(path);
    int error = 0;
    while (!error && last_of(path)->pointer.depth > 0) {
        uint64_t child;
        bool equal, shrunk = false;
        error = change_step(path, path->n - 1);
        if (!error && path->n == 1)
            error = shrink(path, &shrunk);
        if (error || shrunk)
            continue;
        error = make_ready(path, scaled, *above != UINT32_MAX, &child, &equal);
        if (!error && equal)
            *above = path->n - 1;
        if (!error)
            error = descend(path, child);
    }
    return error ? error : change_step(path, path->n - 1);
}

static int remove_found(struct path *path, const uint64_t *scaled)
{
    struct index *index = path->index;
    struct btree2 *tree = index->kind;
    unsigned above;
    int error = go_to_leaf(path, scaled, &above);
    if (!error)
        error = changes_reserve(index, 1);
    if (error)
        return error;
    bool found;
    struct step *leaf = last_of(path);
    uint64_t n = leaf->pointer.n, i = 0;
    assert(n > 1 || path->n == 1);
    if (above != UINT32_MAX) {
        struct step *step = &path->step[above];
        memcpy(record_in(tree, step->node, step->child - 1), record_in(tree, leaf->node, 0),
               tree->record);
    } else {
        i = btree2_search(index, leaf->node, n, scaled, &found);
    }
    unsigned char *at = record_in(tree, leaf->node, i);
    memmove(at, at + tree->record, (n - i - 1) * tree->record);
    count_record(path, -1);
    if (tree->root.total == 0) {
        block_discard(index, tree->root_block);
        block_put(tree->root_block);
        tree->root_block = NULL;
        tree->root = (struct node_pointer){.address = NO_ADDRESS};
    }
    return 0;
}

int btree2_remove(struct index *index, const uint64_t *scaled, struct why *why)
{
    const struct btree2 *tree = index->kind;
    struct path path = {.index = index, .why = why};
    bool found;
    if (!tree->root_block)
        return 0;
    int error = check_levels(index, tree->root.depth, why);
    if (error)
        return error;
    begin_path(&path);
    error = find(&path, scaled, &found);
    if (!error && found)
        error = remove_found(&path, scaled);
    cut_path(&path, 0);
    return error;
}
