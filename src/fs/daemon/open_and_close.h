/* Opening the HDF5 file of a mount, and closing it at its end. Not for threads. */
#ifndef SPARSEFS_FS_DAEMON_OPEN_AND_CLOSE_H
#define SPARSEFS_FS_DAEMON_OPEN_AND_CLOSE_H

#include <stdbool.h>

#include "fs/daemon/options.h"
#include "sparsefs/sparsefs.h"

/* How files are opened, also each file of a folder; it refers to what options do. */
struct sfs_options daemon_file_options(const struct options *options);

/* Judges the symbolic links of the path by which the file, or folder, was named, `given`, before it was resolved. Those
 * of others must not say what is written, or shown to others: the mount is read-only then, which is logged, if that is
 * enough and nobody has asked for writing. Otherwise an exit code, after saying why. Of links that come on the resolved
 * path afterwards the same is an error of whoever opens it. */
int daemon_judge_links(struct options *options, const char *given);

/* Opens the file for writing if that is wanted and possible, otherwise for reading. Errors of sfs_open; logged. */
int daemon_open_file(const struct options *options, struct sfs_file **file);

/* What was written last is committed now, or the log says that it cannot be. Returns the exit code, of which `status`
 * is what it would be without that. is_writable: as the file was when it was opened, whatever it is at the end. */
int daemon_close_file(struct sfs_file *file, bool is_writable, int status);

#endif
