/* A dataset cut into slabs of bounded size that are gone through one by one. */
#ifndef SPARSEFS_CLI_BLOCKS_H
#define SPARSEFS_CLI_BLOCKS_H

#include "cli/cli.h"

struct blocks {
    int rank;
    uint64_t dims[SFS_MAX_RANK];
    uint64_t block[SFS_MAX_RANK];  /* dims of all blocks but those at the edges */
    uint64_t blocks[SFS_MAX_RANK]; /* per axis */
    uint64_t n;                    /* 0: the dataset has no elements */
    uint64_t most_elements;        /* of a block */
};

/* Blocks that are made of whole chunks, or parts of one chunk if that is large. A scalar is one
 * block of rank 1. -EFBIG: too many elements. */
int blocks_of_chunks(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                     struct blocks *blocks);

/* The same of chunks of `to`, as large as a chunk of `from`, which has the same dims, if that is
 * not too large: threads that each read a block do not wait for the same chunk to be decoded then.
 */
int blocks_of_both(const struct sfs_dataset_info *from, const struct sfs_dataset_info *to,
                   struct blocks *blocks);

/* The same, of no more than one chunk. */
int blocks_of_one_chunk(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                        struct blocks *blocks);

/* Blocks whose elements, one block after the other, are in row-major order. */
int blocks_in_order(const struct sfs_dataset_info *info, struct blocks *blocks);

/* The numbers of those in which a sparse dataset may have something, ascending. The blocks are of
 * the part of it that begins at `origin`. The caller frees list->number, also after an error.
 * Memory is in proportion to how many blocks the stored chunks touch. Errors of sfs_chunk_iterate;
 * -ENOMEM; -EINTR after a signal. */
struct block_list {
    uint64_t *number;
    size_t n, room;
};
int blocks_stored(const struct blocks *blocks, struct sfs_dataset *dataset, const uint64_t *origin,
                  struct block_list *list);

void blocks_at(const struct blocks *blocks, uint64_t i, struct sfs_slab *slab);

uint64_t slab_elements(const struct sfs_slab *slab);

#endif
