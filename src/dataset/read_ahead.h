/* Reading ahead: while a dataset is read in order, idle workers decode the chunks that come next
 * into the cache. One for all files over one cache. Thread-safe. */
#ifndef SPARSEFS_DATASET_READ_AHEAD_H
#define SPARSEFS_DATASET_READ_AHEAD_H

#include "dataset/private.h"

struct ahead;

/* The cache outlives it. -ENOMEM. */
int ahead_create(struct cache *cache, struct ahead **ahead);

/* No dataset is open. NULL is fine. */
void ahead_destroy(struct ahead *ahead);

/* Notes that a box of a dataset is about to be read; the dataset is USING. Not called for the
 * sources of a virtual dataset: the chunks of these are prefetched for it. */
void ahead_note(struct ahead *ahead, struct sfs_dataset *dataset, const struct box *box);

/* Ends prefetching for a dataset, before it is closed or evicted, until it is read again. The
 * caller may hold locks that calls on the dataset wait for: a prefetch that would have to wait for
 * them is given up. */
void ahead_forget(struct ahead *ahead, struct sfs_dataset *dataset);

#endif
