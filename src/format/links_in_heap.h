/* Where links of large groups of the newer kind are: in a fractal heap, which a version 2 B-tree of
 * their names leads into (HDF5 file format specification, sections III.A.2, III.G and IV.A.2.c). */
#ifndef SPARSEFS_FORMAT_LINKS_IN_HEAP_H
#define SPARSEFS_FORMAT_LINKS_IN_HEAP_H

#include "format/plain_headers.h"

#define DENSE_LINKS_MOST_BYTES ((uint64_t)256 << 20) /* of a heap; else it is not plain */

/* Something is done with a link: a message of this type, of which data and size are set, and
 * address, for why; until the end of the call. *hash: what the index says of its name. */
typedef int (*heap_link_function)(void *context, const struct message *message, uint32_t hash);

/* Where links are that are not messages of the header: addresses of a heap and of an index;
 * NO_ADDRESS: nowhere. And of a second index, by their order, which is looked at only if blocks are
 * to be told of all that is taken; else they are NULL. */
struct link_info {
    uint64_t heap, index, by_order;
    const struct plain_blocks *blocks;
};

/* Does it with every link of a group, in no order. Stops at the first error and returns it. Errors
 * as of plain_headers.h, and -EINTR (interrupt.h). */
int heap_links_each(struct store *store, const struct superblock *superblock,
                    const struct link_info *info, heap_link_function function, void *context,
                    struct why *why);

#endif
