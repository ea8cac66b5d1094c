/* Files that commands write to, and how they end: all that was asked for, or nothing. */
#ifndef SPARSEFS_CLI_TARGET_H
#define SPARSEFS_CLI_TARGET_H

#include "cli/cli.h"

/* Opens a file for reading, also beside a program that writes it; FAILED, said on stderr. */
int source_open(const char *path, struct sfs_file **file);

/* What action prints of an open file is of one commit: if another program commits meanwhile, what
 * was printed is forgotten and it is called again, a number of times. Returns what it returns. */
int in_one_state(struct sfs_file *file, int (*action)(void *context), void *context);

/* Opens a file for writing, or makes it if there is none; FAILED. */
int destination_open(const char *path, struct sfs_file **file);

/* Makes a new one that begins as a copy of the template, user block left out. It is held in memory
 * until it is flushed. */
int destination_from_template(const char *template_path, const char *path, struct sfs_file **file);

/* Opens both; *to is *from if they are the same file. */
int both_open(const char *from_path, const char *to_path, struct sfs_file **from,
              struct sfs_file **to);

/* Closes both. If code is DONE what was written is kept, and code is returned or FAILED; else the
 * file stays as it was, or does not come into being. NULL is fine. */
int both_close(struct sfs_file *from, struct sfs_file *to, int code);

#endif
