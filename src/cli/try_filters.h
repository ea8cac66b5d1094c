/* Which filters suit a dataset, and how large chunks should be, found by trying. */
#ifndef SPARSEFS_CLI_TRY_FILTERS_H
#define SPARSEFS_CLI_TRY_FILTERS_H

#include "cli/copy_elements.h"
#include "cli/filter_candidates.h"
#include "cli/filter_sample.h"

/* What was chosen for a section that no filters were given for. */
struct choice {
    bool is_made[TRIED_SECTIONS];
    struct candidate of[TRIED_SECTIONS];
};

/* Some chunks of what is to be copied are written to a temporary file, without filters, and filters
 * are tried on them in memory. `create` is what the dataset will be made of; copy->to is not used.
 * Where trying fails there is no harm: what is wrong will be said when it is done in
 * earnest. -EINTR, -ENOMEM.
 *
 * A selection of more than 65,535 blocks takes twice the bytes for each. If may_cut, the chunk dims
 * are cut so that the chunks that were tried have fewer.
 *
 * Sections that no filters were given for get some. GOAL_PLAIN: shuffle and deflate. Which element
 * size of shuffle makes encoded selections smallest depends on how densely and in what shapes
 * elements are defined: it is the best of some, or that of a block. Other goals: the best of all
 * filters that are built in. */
int choose(const struct copy *copy, struct sfs_dataset_create *create, bool may_cut, enum goal goal,
           struct filters *filters, struct choice *choice);

#endif
