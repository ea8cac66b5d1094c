/* Version 2 B-trees of the names, or the order, of what is in a fractal heap: of links and attributes
 * (HDF5 file format specification, section III.A.2). */
#ifndef SPARSEFS_FORMAT_BTREE2_OF_HEAP_H
#define SPARSEFS_FORMAT_BTREE2_OF_HEAP_H

#include "format/cursor.h"
#include "format/plain_headers.h"

enum heap_btree2_type { /* as numbered in the file */
                        TREE_LINK_NAMES = 5,
                        TREE_LINK_ORDER = 6,
                        TREE_ATTRIBUTE_NAMES = 8,
                        TREE_ATTRIBUTE_ORDER = 9,
};

struct heap_btree2 {
    uint64_t address; /* of its header */
    enum heap_btree2_type type;
    size_t record_bytes;                               /* as they must be */
    const struct plain_blocks *blocks;                 /* told of what it takes; or NULL */
    int (*each)(void *context, struct cursor *record); /* called with each record; or NULL */
    void *context;
};

/* All of it, in no order. Stops at the first error and returns it. Errors as of plain_headers.h, and -EINTR
 * (interrupt.h). */
int heap_btree2_walk(struct store *store, const struct superblock *superblock,
                     const struct heap_btree2 *tree, struct why *why);

#endif
