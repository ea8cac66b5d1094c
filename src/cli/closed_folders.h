/* What the folders above a file keep from others, whatever its own mode is. */
#ifndef SPARSEFS_CLI_CLOSED_FOLDERS_H
#define SPARSEFS_CLI_CLOSED_FOLDERS_H

#include <sys/stat.h>

/* The permission bits that a copy of a file in the file's group may have: 0777 without those of group and others, if
 * not all of these may search every folder from the root on to where the path leads without symbolic links. Of
 * `named`, a folder or NULL, and the folders above it those of this user are open to all, as for external_files of
 * struct sfs_options. st: of the file, which was opened; if the path leads to another one by now it is 0700. */
mode_t folders_open_to(const char *path, const struct stat *st, const char *named);

#endif
