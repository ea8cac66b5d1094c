/* Selections of a dataset cut into the parts that lie in one chunk each. */
#ifndef SPARSEFS_DATASET_CUT_SELECTION_H
#define SPARSEFS_DATASET_CUT_SELECTION_H

#include "layout/layout.h"
#include "selection/runs.h"

#define ASK_EVERY_CHUNKS 4096 /* between two checks for an interruption */

/* Adjacent selected elements of one chunk. */
struct part_piece {
    uint64_t position; /* of the first, in the chunk */
    uint64_t length;
    uint64_t index; /* of the first, among all selected elements in row-major order */
};

/* What is selected of one chunk. */
struct part {
    uint64_t scaled[SFS_MAX_RANK];
    struct runs positions;           /* in the chunk */
    const struct part_piece *pieces; /* the same, ascending, with where they come from */
    size_t n_pieces;
    bool is_whole; /* everything of the chunk that lies in the dataset */
};

/* How many elements of a chunk lie in the dataset. */
uint64_t parts_inside(const struct layout *layout, const uint64_t *scaled);

typedef int (*part_function)(void *context, const struct part *part);

/* Calls each for every chunk that has elements of runs, which are row-major positions in the
 * dataset, until one returns an error. Memory is in proportion to the runs of one row of chunks
 * along the first axis. -ENOMEM; -EINTR. */
int parts_each(const struct layout *layout, const struct runs *runs, part_function each,
               void *context);

#endif
