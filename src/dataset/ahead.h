/* Reading ahead: who goes through the chunks of a dataset in order finds those that come next in
 * the cache, decoded by workers that had nothing else to do. One for all files over one cache.
 * Thread-safe. */
#ifndef SPARSEFS_DATASET_AHEAD_H
#define SPARSEFS_DATASET_AHEAD_H

#include "dataset/private.h"

struct ahead;

/* The cache outlives it. -ENOMEM. */
int ahead_create(struct cache *cache, struct ahead **ahead);

/* No dataset is open. NULL is nothing. */
void ahead_destroy(struct ahead *ahead);

/* A box is about to be read of a dataset, which is USING; not of the sources of one that is virtual
 * by itself. What is read ahead of that are the chunks of its sources. */
void ahead_note(struct ahead *ahead, struct sfs_dataset *dataset, const struct box *box);

/* Before a dataset is closed, or its chunks are evicted: nothing is done for it any more, until it is
 * read again. Locks that a call on the dataset
 * waits for may be held: what is done ahead is given up where it would have to wait for them. */
void ahead_forget(struct ahead *ahead, struct sfs_dataset *dataset);

#endif
