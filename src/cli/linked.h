/* Paths that lead through external links into other files. */
#ifndef SPARSEFS_CLI_LINKED_H
#define SPARSEFS_CLI_LINKED_H

#include "cli/options.h"

/* If the path of a dataset that is to be read leads through external links, the target becomes the
 * file and the path that they lead to: files as sfs_open_beneath allows them, beside the first one
 * or in --external-files, to be opened by source_open. Any other path stays as it is, also one that
 * leads nowhere: who opens it says so. FAILED, said on stderr: a link leads where it may not, or to
 * a file that is not there. */
int target_follow(struct target *target);

/* The same of what is copied: without a path of its own the destination gets the one that was
 * given.
 */
int source_follow(struct target *source, struct target *destination);

#endif
