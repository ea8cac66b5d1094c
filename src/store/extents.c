/* Extents in a treap: a search tree by address that random priorities keep flat. Each node knows
 * the longest extent of its subtree, so that room is found on one way down. */
#include "store/extents.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/invariants.h"

struct extent {
    uint64_t start;
    uint64_t length;
    uint64_t longest;  /* of this subtree */
    uint64_t priority; /* at least those of its children */
    struct extent *left, *right;
};

static void update(struct extent *node)
{
    node->longest = node->length;
    if (node->left && node->left->longest > node->longest)
        node->longest = node->left->longest;
    if (node->right && node->right->longest > node->longest)
        node->longest = node->right->longest;
}

/* Divides a tree into what starts before address and the rest. */
static void split(struct extent *node, uint64_t address, struct extent **before,
                  struct extent **rest)
{
    if (!node) {
        *before = *rest = NULL;
    } else if (node->start < address) {
        *before = node;
        split(node->right, address, &node->right, rest);
        update(node);
    } else {
        *rest = node;
        split(node->left, address, before, &node->left);
        update(node);
    }
}

/* Joins two trees, all of the first lying before the second. */
static struct extent *join(struct extent *before, struct extent *rest)
{
    if (!before || !rest)
        return before ? before : rest;
    struct extent *root = before->priority >= rest->priority ? before : rest;
    if (root == before)
        root->right = join(before->right, rest);
    else
        root->left = join(before, rest->left);
    update(root);
    return root;
}

static struct extent *take_first(struct extent **tree)
{
    struct extent *node = *tree;
    if (node->left) {
        struct extent *first = take_first(&node->left);
        update(node);
        return first;
    }
    *tree = node->right;
    return node;
}

static struct extent *take_last(struct extent **tree)
{
    struct extent *node = *tree;
    if (node->right) {
        struct extent *last = take_last(&node->right);
        update(node);
        return last;
    }
    *tree = node->left;
    return node;
}

static const struct extent *first_of(const struct extent *node)
{
    while (node && node->left)
        node = node->left;
    return node;
}

static const struct extent *last_of(const struct extent *node)
{
    while (node && node->right)
        node = node->right;
    return node;
}

static void give_spare(struct extents *extents, struct extent *node)
{
    node->right = extents->spare;
    extents->spare = node;
    extents->n_spare++;
}

/* The same of one that was in the tree. */
static void take_out(struct extents *extents, struct extent *node)
{
    extents->n--;
    give_spare(extents, node);
}

/* A node that goes into the tree, with a random priority (xorshift). */
static struct extent *take_spare(struct extents *extents, uint64_t start, uint64_t length)
{
    struct extent *node = extents->spare;
    assert(node);
    extents->spare = node->right;
    extents->n_spare--;
    extents->n++;
    uint64_t x = extents->random ? extents->random : 0x9e3779b97f4a7c15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    extents->random = x;
    *node = (struct extent){.start = start, .length = length, .longest = length, .priority = x};
    return node;
}

int extents_reserve(struct extents *extents, size_t n)
{
    while (extents->n_spare < n) {
        struct extent *node = malloc(sizeof(*node));
        if (!node)
            return -ENOMEM;
        give_spare(extents, node);
    }
    return 0;
}

void extents_add(struct extents *extents, uint64_t start, uint64_t length)
{
    struct extent *before, *rest;
    split(extents->root, start, &before, &rest);
    const struct extent *last = last_of(before), *first = first_of(rest);
    assert(!last || last->start + last->length <= start);
    assert(!first || start + length <= first->start);
    extents->bytes += length;
    if (last && last->start + last->length == start) {
        struct extent *node = take_last(&before);
        start = node->start;
        length += node->length;
        take_out(extents, node);
    }
    if (first && start + length == first->start) {
        struct extent *node = take_first(&rest);
        length += node->length;
        take_out(extents, node);
    }
    struct extent *node = take_spare(extents, start, length);
    extents->root = join(join(before, node), rest);
}

void extents_cut(struct extents *extents, uint64_t start, uint64_t length)
{
    struct extent *before, *rest;
    split(extents->root, start + 1, &before, &rest);
    assert(before);
    struct extent *node = take_last(&before);
    uint64_t node_start = node->start, node_end = node->start + node->length;
    assert(node_start <= start && start + length <= node_end);
    take_out(extents, node);
    extents->bytes -= length;
    if (node_start < start)
        before = join(before, take_spare(extents, node_start, start - node_start));
    if (start + length < node_end)
        before = join(before, take_spare(extents, start + length, node_end - start - length));
    extents->root = join(before, rest);
}

bool extents_find(const struct extents *extents, uint64_t length, uint64_t *start)
{
    const struct extent *node = extents->root;
    if (!node || node->longest < length)
        return false;
    for (;;) {
        if (node->left && node->left->longest >= length) {
            node = node->left;
        } else if (node->length >= length) {
            *start = node->start;
            return true;
        } else {
            node = node->right;
        }
    }
}

bool extents_after(const struct extents *extents, uint64_t address, uint64_t *start,
                   uint64_t *length)
{
    const struct extent *found = NULL;
    for (const struct extent *node = extents->root; node;) {
        if (node->start + node->length > address) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    if (found) {
        *start = found->start;
        *length = found->length;
    }
    return found;
}

void extents_move_first(struct extents *extents, struct extents *from)
{
    struct extent *node = take_first(&from->root);
    uint64_t start = node->start, length = node->length;
    from->n--;
    from->bytes -= length;
    give_spare(extents, node);
    extents_add(extents, start, length);
}

void extents_move(struct extents *extents, struct extents *from)
{
    while (from->root)
        extents_move_first(extents, from);
}

/* All of a subtree; *end: of what lies before it, then of the last one in it. */
static void check(const struct extent *node, uint64_t *end, uint64_t *bytes)
{
    struct extent updated = *node;
    update(&updated);
    SANE(updated.longest == node->longest && node->length > 0);
    SANE(!node->left || node->left->priority <= node->priority);
    SANE(!node->right || node->right->priority <= node->priority);
    if (node->left)
        check(node->left, end, bytes);
    SANE(node->start > *end || (node->start == 0 && *end == 0));
    *end = node->start + node->length;
    *bytes += node->length;
    if (node->right)
        check(node->right, end, bytes);
}

void extents_check(const struct extents *extents)
{
    uint64_t end = 0, bytes = 0;
    if (SANITY && extents->root)
        check(extents->root, &end, &bytes);
    SANE(bytes == extents->bytes);
}

void extents_clear(struct extents *extents)
{
    while (extents->root)
        take_out(extents, take_first(&extents->root));
    while (extents->spare) {
        struct extent *node = extents->spare;
        extents->spare = node->right;
        free(node);
    }
    extents->n_spare = 0;
    extents->bytes = 0;
}
