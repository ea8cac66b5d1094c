/* Files that are opened over one chunk cache, each for itself, with its own lock and commits: for
 * who shows many. Thread-safe. */
#ifndef SPARSEFS_DATASET_FILES_TOGETHER_H
#define SPARSEFS_DATASET_FILES_TOGETHER_H

#include <sys/stat.h>

#include "common/why.h"
#include "sparsefs/sparsefs.h"

struct together;

/* Of options, which are those of all files, cache_size, chunk_memory and workers count here. What
 * they point to outlives this. -ENOMEM, errors of starting threads. */
int together_create(const struct sfs_options *options, struct together **together);

/* All files are closed. NULL is fine. */
void together_destroy(struct together *together);

/* Opens the file of a descriptor, which the caller closes in any case; O_PATH will do. path:
 * absolute and without symbolic links, by which others find the file. With options->writable it is
 * opened for writing, under a shared lock until something is changed (sfs_options.share); where
 * that cannot be, for reading, and the log says why: at LOG_INFO, if the permission is missing.
 * Errors of sfs_open; -ECHILD: no process for libhdf5 could be had for now, which says nothing of the file. */
int together_open(struct together *together, int fd, const char *path, struct sfs_file **file);

/* The same of one file, over a cache of its own, with all of options, and without a line of the log
 * where it can only be read: *refusal is the error then, and `why` says it; otherwise *refusal is 0
 * and it is open for writing. */
int together_open_alone(const char *path, const struct sfs_options *options, struct why *why,
                        int *refusal, struct sfs_file **file);

/* Before a file is closed that is not in use: what was written to it is committed and put into the
 * file for good, and the lock is shared. *st: the state in which it is then, and in which closing
 * leaves it; one without an inode, if another program has changed it. Errors of sfs_flush: it is as
 * it was. */
int together_finish(struct sfs_file *file, struct stat *st);

/* Whether a file that was opened for writing is shared: nothing is to be committed. */
bool together_is_shared(const struct sfs_file *file);

/* Whether another program has changed, or removed, a file that is shared. */
bool together_is_outdated(const struct sfs_file *file);

/* Whether the root group of such a file may have attributes, without libhdf5: false if its header
 * has none, and does not name a place for them. What is doubtful, or cannot be read, is true:
 * opening it finds out, and logs why. */
bool together_may_have_attributes(int fd, const char *path);

/* The file that sfs_open_linked (is_free) or sfs_open_beneath would open, which is not opened: errors of finding it. */
int file_stat_linked(struct sfs_file *from, bool is_free, const char *name, struct stat *st);

/* Bytes of memory that an open dataset takes by what describes it: names, datatype, fill value, mappings and their
 * sources, the list of files with its elements; of a sparse one its header and index, if they are large. */
size_t dataset_described_bytes(struct sfs_dataset *dataset);

/* Whether an open dataset of a followed file can no longer be read, for ever or until its address has it again
 * (-ESTALE). What is there now can be opened beside it. */
bool dataset_is_gone(const struct sfs_dataset *dataset);

/* The members that tell of the cache; the others are 0. */
void together_statistics(const struct together *together, struct sfs_statistics *statistics);

/* As sfs_set_cache_size. */
int together_set_cache_size(struct together *together, size_t bytes);

#endif
