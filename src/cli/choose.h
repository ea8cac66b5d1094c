/* What suits the selections of a dataset best, found by trying: their filters, and how large chunks
 * should be. */
#ifndef SPARSEFS_CLI_CHOOSE_H
#define SPARSEFS_CLI_CHOOSE_H

#include "cli/copy.h"
#include "cli/options.h"

/* Some chunks of what is to be copied are written to a file that nobody sees. `create` is what the
 * dataset will be made of; copy->to is not used. Where trying fails there is no harm: what is wrong
 * will be said when it is done in earnest. -EINTR, -ENOMEM.
 *
 * Shuffle and deflate: which element size of shuffle makes encoded selections smallest depends on
 * how densely and in what shapes elements are defined. The best of some, or that of a block, is put
 * into *filters as those of the selection section. */
int choose_selection_filters(const struct copy *copy, const struct sfs_dataset_create *create,
                             struct filters *filters);

/* A selection of more than 65,535 blocks takes twice the bytes for each. Cuts the chunk dims so
 * that the chunks that were tried have fewer. */
int choose_chunk(const struct copy *copy, struct sfs_dataset_create *create);

#endif
