/* Slabs as model tests draw them. */
#ifndef TESTS_UNIT_SLAB_H
#define TESTS_UNIT_SLAB_H

#include "support.h"

#include "sparsefs/sparsefs.h"

static inline uint64_t elements_of(const struct sfs_slab *slab)
{
    uint64_t n = 1;
    for (int i = 0; i < slab->rank; i++)
        n *= slab->count[i];
    return n;
}

/* At random within the dims; it may be empty. */
static inline struct sfs_slab slab_within(int rank, const uint64_t *dims)
{
    struct sfs_slab slab = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        slab.start[i] = random_below(dims[i] + 1);
        slab.count[i] = random_below(dims[i] - slab.start[i] + 1);
    }
    return slab;
}

#endif
