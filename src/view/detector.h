/* The NXdetector that a dataset is of: the group that it is in, or what its NXentry has in
 * `instrument`. It knows files and nothing of views, as sparsectl uses it, too. */
#ifndef SPARSEFS_VIEW_DETECTOR_H
#define SPARSEFS_VIEW_DETECTOR_H

#include "sparsefs/sparsefs.h"

/* The detector of the dataset at an absolute path, and the group whose `instrument` it is in, or
 * the root if the dataset is in it. -ENOENT: there is none. Errors of sfs_find. */
int detector_find(struct sfs_file *file, const char *dataset, uint64_t *detector, uint64_t *entry);

/* A dataset by its path from a group; closed with sfs_dataset_close. -ENOENT: there is none. */
int detector_open(struct sfs_file *file, uint64_t group, const char *path,
                  struct sfs_dataset **dataset);

#endif
