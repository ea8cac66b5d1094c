/* Whether who makes a request may read what he asks about. The kernel lets others in by the modes that the mount shows
 * (default_permissions), but there are calls for which it asks nobody: names of extended attributes are told to all,
 * and here they are contents of the HDF5 file. Any thread; no lock is needed. */
#ifndef SPARSEFS_FS_CALLER_RIGHTS_H
#define SPARSEFS_FS_CALLER_RIGHTS_H

#include <stdbool.h>
#include <sys/stat.h>

#include "fs/fuse.h"

struct mount;
struct node;

/* Whether he reads whatever he wants: root, who has mounted, and all where others do not come in. */
bool caller_reads_all(fuse_req_t request);

/* Of a file that is open, in which the node is, by the mode that is shown. 0; -EACCES: also if it cannot be found out
 * in which groups he is, where that decides, and of capabilities that he has in another user namespace. */
int caller_may_read(fuse_req_t request, const struct node *node);

/* The same of the HDF5 file of a folder, of which nothing is opened for that; the node, its root group or in it, is
 * held. otherwise: what is taken for right where groups decide and cannot be found out. -ESTALE: it is another file;
 * -ENOMEM, errors of folder_find. */
int caller_may_read_closed(fuse_req_t request, const struct node *node, bool otherwise);

#endif
