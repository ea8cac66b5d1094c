/* Files that commands read, and how they are opened. */
#ifndef SPARSEFS_CLI_OPEN_SOURCE_H
#define SPARSEFS_CLI_OPEN_SOURCE_H

#include "cli/cli.h"

/* sfs_open for reading; of standard input (-) or a file that is compressed with gzip, out of memory. */
int source_open_as(const char *path, struct sfs_options *options, struct sfs_file **file);

/* Opens a file for reading, also beside a program that writes it; FAILED, said on stderr. */
int source_open(const char *path, struct sfs_file **file);

/* The same for commands that read much of it, and need all of it as of one commit. If a mount writes it,
 * its image there is opened, which does not change. If a program with our library writes it, a copy
 * is opened, which is made beside `place` without a name, unless it would have more bytes than
 * `most`: then it is the file itself, for in_one_state.
 * *shown: mode, owner and group of the file that was opened, for which a copy is shown to no more users: without
 * what an ACL keeps from some and, where the path's links are of others or the file was found by links in files,
 * what folders above it keep from them. Its st_mode is 0 for standard input. */
int source_open_whole(const char *path, const char *place, uint64_t most, struct sfs_file **file,
                      struct stat *shown);

/* Calls action, which prints to out, or copies, what it reads of an open file, so that all of it is
 * of one commit: if another program commits meanwhile, what was printed is discarded and it is
 * called again, a number of times. Returns what it returns. */
int in_one_state(struct sfs_file *file, int (*action)(void *context, FILE *out), void *context);

/* Where other files may be, besides the folder of the one that names them: as external_files of
 * struct sfs_options; NULL: nowhere. source_allow is called before any file is opened. */
void source_allow(const char *folder);
const char *source_allowed(void);

/* The next file that is opened for reading must be this one: it has been found by links, and others
 * may have put another one in its place meanwhile. NULL: it may be any. */
void source_expect(const struct stat *st);

/* The most memory of a chunk: as chunk_memory of struct sfs_options. */
void source_limit_chunks(size_t most);
size_t source_chunk_memory(void);

/* From now on files are read, and written, by libhdf5 in processes of its own; copies: whole chunks
 * pass through these. Before anything is opened. Errors of sfs_start_hdf5_workers. */
int files_keep_apart(bool copies);
bool files_are_apart(void);

#endif
