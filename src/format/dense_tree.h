/* Version 2 B-trees of the names, or the order, of what is in a fractal heap: of links and attributes
 * (HDF5 file format specification, section III.A.2). */
#ifndef SPARSEFS_FORMAT_DENSE_TREE_H
#define SPARSEFS_FORMAT_DENSE_TREE_H

#include "format/cursor.h"
#include "format/plain_headers.h"

enum dense_tree_type { /* as numbered in the file */
                       TREE_LINK_NAMES = 5,
                       TREE_LINK_ORDER = 6,
                       TREE_ATTRIBUTE_NAMES = 8,
                       TREE_ATTRIBUTE_ORDER = 9,
};

struct dense_tree {
    uint64_t address; /* of its header */
    enum dense_tree_type type;
    size_t record_bytes;                               /* as they must be */
    const struct plain_blocks *blocks;                 /* told of what it takes; or NULL */
    int (*each)(void *context, struct cursor *record); /* called with each record; or NULL */
    void *context;
};

/* All of it, in no order. Stops at the first error and returns it. Errors as of plain_headers.h, and -EINTR
 * (interrupt.h). */
int dense_tree_walk(struct store *store, const struct superblock *superblock,
                    const struct dense_tree *tree, struct why *why);

#endif
