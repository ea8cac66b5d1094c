/* Finding datasets in a file. */
#ifndef SPARSEFS_CLI_TREE_H
#define SPARSEFS_CLI_TREE_H

#include "cli/cli.h"

/* Called with an object by one of its paths; what is not 0 ends the walk and is returned. */
typedef int (*tree_function)(void *context, const char *path, uint64_t address,
                             enum sfs_object_type type);

/* Calls each for every object that hard links lead to, once, groups before what is in them, names
 * in ascending order; the root group first, as "/". An error has been said on stderr: FAILED. */
int tree_walk(struct sfs_file *file, tree_function each, void *context);

/* The same, and calls series for every series (SFS_LINK_SERIES) that can be opened, before its
 * members; of others stderr says why they cannot. unreadable is called for each object
 * that cannot be read, to say so; what is not 0 ends the walk. NULL: it is said, and is FAILED. */
int tree_walk_series(struct sfs_file *file, tree_function each, tree_function series,
                     int (*unreadable)(void *context, const char *path, int error), void *context);

/* Opens the dataset at a path; said on stderr if it fails: FAILED. */
int tree_open(struct sfs_file *file, const char *path, struct sfs_dataset **dataset);

/* Opens the one dataset of rank 2 or more in the file, whose path the caller frees. If there is not
 * exactly one FAILED, and stderr lists them. */
int tree_open_only(struct sfs_file *file, struct sfs_dataset **dataset, char **path);

/* Whether elements are numbers. */
bool is_numeric(const struct sfs_type *type);

#endif
