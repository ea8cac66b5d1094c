/* Targets of the symbolic links that soft and external links of HDF5 are shown as. All in memory that the caller
 * frees; NULL: no memory. Any thread. */
#ifndef SPARSEFS_FS_LINK_TARGETS_H
#define SPARSEFS_FS_LINK_TARGETS_H

#include <stdbool.h>

#include "fs/node.h"

/* So many levels up, down again to `before`, which may be empty, and on to an HDF5 path from there: every component
 * of it is encoded as its file name, so that none can lead out of the mount. in_root: the first one is a name in the
 * root of the mount. */
char *link_target_write(unsigned levels, const char *before, const char *path, bool in_root);

/* An HDF5 path, relative to the group that holds the link. */
char *link_target_of_path(const struct node *group, const char *path);

/* Says what an external link names, and leads nowhere: no name begins so. */
char *link_target_of_external(const struct sfs_link *link);

#endif
