/* Paths that lead through external links into other files. */
#ifndef SPARSEFS_CLI_EXTERNAL_LINKS_H
#define SPARSEFS_CLI_EXTERNAL_LINKS_H

#include "cli/options.h"

/* Opens the file of a target for reading, or, if its path leads through external links, the one
 * that they lead to: the target becomes that file and the path there. Files are opened as
 * sfs_open_beneath allows it, beside the first one or in --external-files. A path that leads
 * nowhere stays as it is: opening the dataset fails then. FAILED, said on stderr: also if a link
 * leads where it may not, or to a file that is not there. */
int target_open(struct target *target, struct sfs_file **file);

/* The same of what is copied, which is to be opened by source_open_whole; without a path of its own
 * the destination gets the one that was given. */
int source_follow(struct target *source, struct target *destination);

#endif
