/* The sources of virtual datasets: datasets of this and of other files, which are opened when they
 * are first needed, and kept open with a bound. One table serves a file and all files that its
 * virtual datasets lead to. Thread-safe. */
#ifndef SPARSEFS_DATASET_VIRTUAL_SOURCES_H
#define SPARSEFS_DATASET_VIRTUAL_SOURCES_H

#include <stdbool.h>

#include "sparsefs/sparsefs.h"

struct sources;
struct source;

/* `file` is where the first virtual dataset is; its own sources are in no other file object. It
 * outlives the table. -ENOMEM. */
int sources_create(struct sfs_file *file, struct sources **sources);

/* Closes all datasets and files. */
void sources_destroy(struct sources *sources);

/* How a source is named. */
struct source_name {
    const char *file;
    const char *dataset;
    uint64_t group; /* where the path of the dataset begins, if file is "." */
};

/* A source of a virtual dataset of `file`, whose elements have this type; owned by the caller.
 * `path` is the virtual dataset's, for messages. All but the name outlive it. NULL: no memory. */
struct source *source_create(struct sources *sources, struct sfs_file *file, const char *path,
                             const struct sfs_encoded *type, const struct source_name *name);

/* Of memory that one takes, besides its names. */
#define SOURCE_BYTES 160

/* It is unused from now on. */
void source_destroy(struct source *source);

/* Opens it unless it is open; it stays so until source_put. -ENOENT: there is no such file or
 * dataset; -EINVAL: there is something else, or it is open for writing elsewhere; -EIO: reading has
 * failed, or it is refused (store_find), or its path is too long; the log says so the first time. -ENOMEM,
 * -EINTR. is_expected: nothing is said if there is none. */
int source_get(struct source *source, bool is_expected, struct sfs_dataset **dataset);
void source_put(struct source *source);

/* What an error of source_get means: 0 where the fill value stands for a source that is not there
 * (-ENOENT, -EINVAL), which is if all that is missing is filled, or, after -ENOENT, if the place may be
 * empty; else -EIO. Other errors stay. */
int source_missing(int error, bool fills_missing, bool may_be_empty);

/* The same without waiting: NULL unless it is open. */
struct sfs_dataset *source_get_open(struct source *source);

/* Whether it could not be opened when that was tried last. */
bool source_has_failed(struct source *source);

/* Of one that is held: whether its elements have the type of the virtual dataset's. */
bool source_is_of_type(struct source *source);

/* Of one that is held: whether libhdf5 may read it, as the source of a virtual dataset that is left
 * to it. -EIO, which the log says the first time: its bytes are in other files, and libhdf5 would
 * open whatever these are. */
int source_check_left(struct source *source, const struct sfs_dataset *dataset);

/* The log says, the first time, that it has not all that is mapped. */
void source_is_short(struct source *source);

/* What is known of it; of one that was not opened yet, only whether there is such a file. */
enum sfs_source_state source_state(struct source *source);

/* Takes the last state of the files that are followed; *moved: one of them was in another one since
 * this was called last, or is no longer there and was closed. What is wrong with one is told to who
 * reads it. No lock of a file is held, and none is in a call of this thread. -ENOMEM. */
int sources_refresh(struct sources *sources, bool *moved);

/* What tells whether a file that is named in this one has changed. All of its bytes are set. */
struct source_stamp {
    int error; /* of looking for it; then the rest is 0 */
    struct stat_time {
        int64_t seconds, nanoseconds;
    } changed;
    uint64_t device, inode, size;
};
void source_stamp(const struct sfs_file *file, const char *file_name, struct source_stamp *stamp);

const char *source_file_name(const struct source *source);
const char *source_dataset_name(const struct source *source);

#endif
