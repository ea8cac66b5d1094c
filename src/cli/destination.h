/* Files that commands write to, and how they end: all that was asked for, or nothing. */
#ifndef SPARSEFS_CLI_DESTINATION_H
#define SPARSEFS_CLI_DESTINATION_H

#include "cli/cli.h"

/* Opens a file for writing, or makes it if there is none (mode: see struct sfs_options); FAILED. */
int destination_open(const char *path, mode_t mode, struct sfs_file **file);

/* Makes a new one that begins as a copy of the template, user block left out. It is held in memory
 * until it is flushed. */
int destination_from_template(const char *template_path, const char *path, struct sfs_file **file);

/* Closes a file for writing. If code is DONE what was written is kept, and code is returned or
 * FAILED; else the file stays as it was, or does not come into being. NULL is fine. */
int destination_close(struct sfs_file *file, int code);

/* Opens both files, which may be the same one, for an action that copies, and closes them. What is
 * copied is of one commit of the source; the action may be called several times for that, each time
 * with a destination that knows nothing of what it has written before, and what it prints to `out` is printed
 * once, before the destination is kept: if that fails it is not. is_new: the destination must
 * not be there; most_copied as in source_open_whole. */
typedef int (*copy_action)(void *context, struct sfs_file *from, struct sfs_file *to, FILE *out);
int both_copy(const char *from_path, const char *to_path, bool is_new, uint64_t most_copied,
              copy_action action, void *context);
#define MOST_COPIED ((uint64_t)1 << 30) /* where the file itself will do */

#endif
