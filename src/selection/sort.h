/* Sorting of positions. Knows nothing of what the positions are for. */
#ifndef SPARSEFS_SELECTION_SORT_H
#define SPARSEFS_SELECTION_SORT_H

#include <stddef.h>
#include <stdint.h>

struct pair {
    uint64_t key, value;
};

/* Sorts by key. Pairs of one key keep their order if their values ascend in it; else any. Keys are below
 * limit. In linear time, with spare memory for n more pairs. */
void sort_pairs(struct pair *pairs, struct pair *spare, size_t n, uint64_t limit);

#endif
