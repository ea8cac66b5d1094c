/* Files that are opened over one chunk cache, each for itself: for who shows many. Thread-safe. */
#ifndef SPARSEFS_DATASET_TOGETHER_H
#define SPARSEFS_DATASET_TOGETHER_H

#include "sparsefs/sparsefs.h"

struct together;

/* Of options, which are those of all files, cache_size, chunk_memory and workers count here. What
 * they point to outlives this. -ENOMEM, errors of starting threads. */
int together_create(const struct sfs_options *options, struct together **together);

/* All files are closed. NULL is fine. */
void together_destroy(struct together *together);

/* Opens, for reading, the file of a descriptor, which the caller closes in any case; O_PATH will
 * do. path: absolute, by which others find the file, for messages. Errors of sfs_open. */
int together_open(struct together *together, int fd, const char *path, struct sfs_file **file);

/* Whether the root group of such a file may have attributes, without libhdf5: false if its header
 * has none, and does not name a place for them. What is doubtful, or cannot be read, is true:
 * whoever opens it finds out, and tells. */
bool together_may_have_attributes(int fd, const char *path);

/* The members that tell of the cache; the others are 0. */
void together_statistics(const struct together *together, struct sfs_statistics *statistics);

#endif
