/* Version 1 B-trees of the chunks of a dense dataset (HDF5 file format specification, section
 * III.A.1): what they take, and their chunks. */
#ifndef SPARSEFS_FORMAT_BTREE1_OF_CHUNKS_H
#define SPARSEFS_FORMAT_BTREE1_OF_CHUNKS_H

#include "format/plain_headers.h"

/* Tells of all nodes and chunks of the tree whose root is at address, of a dataset of this rank. Its
 * nodes have as many chunks as the superblock says. Goes round in no circle if blocks refuse more
 * bytes than there are. Errors as of plain_headers.h. */
int chunk_btree1_each(struct store *store, const struct superblock *superblock, uint64_t address,
                      int rank, const struct plain_blocks *blocks, struct why *why);

#endif
