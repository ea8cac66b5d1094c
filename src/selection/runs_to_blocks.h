/* Lists of blocks: runs cut into boxes. For the encoder. All coordinates are in elements; ends are
 * inclusive, as in encoded selections. The runs lie in the extent, whose rank is at least 1. */
#ifndef SPARSEFS_SELECTION_RUNS_TO_BLOCKS_H
#define SPARSEFS_SELECTION_RUNS_TO_BLOCKS_H

#include "selection/private.h"

/* The list that libhdf5 makes, walked once to count and once to write. */
struct block_list {
    const struct dataspace_extent *extent;
    const struct runs *runs;
    uint64_t n, highest;    /* blocks; the largest coordinate */
    struct regular regular; /* if it is that at all */
    /* While it is walked: where in the axes before the last one, and where it is written. */
    uint64_t start[SFS_MAX_RANK], end[SFS_MAX_RANK];
    unsigned char *at;
    int width;
    bool asks;         /* whether this is still wanted: of what is not to be done as a whole */
    uint64_t n_walked; /* since it was asked */
    int error;
};

/* asks: they can be ended (common/interrupt.h). -EINTR. */
int blocks_count(struct block_list *list, const struct dataspace_extent *extent,
                 const struct runs *runs, bool asks);

/* Whether the selection is exactly list->regular. */
bool blocks_are_regular(const struct block_list *list);

/* Writes all blocks: rank starts and rank ends each, of width bytes. -EINTR, as above. */
int blocks_write(struct block_list *list, unsigned char *to, int width);

/* Blocks of a row's interval of columns that goes on in the rows below, in the order of their first
 * elements. */
struct tall_block {
    uint64_t row, rows; /* row: counted through all planes of the last two axes */
    uint64_t first, end;
};

struct tall_list {
    struct tall_block *blocks; /* NULL: there were more than asked for */
    size_t n;
};

/* At most limit of them, which the caller frees. asks: as above. -ENOMEM, -EINTR. */
int tall_blocks(const struct dataspace_extent *extent, const struct runs *runs, size_t limit,
                bool asks, struct tall_list *list);
void tall_list_free(struct tall_list *list);

void tall_write(const struct dataspace_extent *extent, const struct tall_list *list,
                unsigned char *to, int width);

#endif
