/* The filters of the selection section that suit a dataset best, found by trying. */
#ifndef SPARSEFS_CLI_CHOOSE_H
#define SPARSEFS_CLI_CHOOSE_H

#include "cli/copy.h"
#include "cli/options.h"

/* Shuffle and deflate: which element size of shuffle makes encoded selections smallest depends on
 * how densely and in what shapes elements are defined. Some chunks of what is to be copied are
 * written to a file that nobody sees, once for each size; the best is put into *filters as those of
 * the selection section. `create` is what the dataset will be made of; copy->to is not used. */
int choose_selection_filters(const struct copy *copy, const struct sfs_dataset_create *create,
                             struct filters *filters);

#endif
