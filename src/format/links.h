/* The links of a group (HDF5 file format specification, sections III.A.1, III.B, III.C, III.D and
 * IV.A.2.c, g, r): of symbol tables, of messages in the group's header, and of the heap of a large
 * group of the newer kind (links_in_heap.h). */
#ifndef SPARSEFS_FORMAT_LINKS_H
#define SPARSEFS_FORMAT_LINKS_H

#include "format/plain_headers.h"

#define LINKS_MOST ((size_t)1 << 20) /* of a group, else it is not plain */

/* All links of the group that has this plain header, ascending by name, with addresses of the
 * store. Errors as of plain_headers.h, and -EINTR (interrupt.h). The caller frees what links has with
 * links_free. */
int links_read(struct store *store, const struct superblock *superblock,
               const struct object_header *header, struct sfs_links *links, struct why *why);
/* The same, and blocks are told of what the structures take that they are in, besides the header. */
int links_read_blocks(struct store *store, const struct superblock *superblock,
                      const struct object_header *header, const struct plain_blocks *blocks,
                      struct sfs_links *links, struct why *why);
void links_free(struct sfs_links *links);

#endif
