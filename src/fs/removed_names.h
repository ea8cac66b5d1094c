/* Names of frames that were removed by unlink(2). Programs that replace a file often remove it first and
 * then make it anew (tar, install, unzip, mv across file systems): such a name is not to be found
 * until it is made again, or the mount ends; of the frame itself nothing has changed. They take of
 * memory (staging_limit.h). Thread-safe; everything takes NULL for a mount that cannot be
 * written, where there are none. */
#ifndef SPARSEFS_FS_REMOVED_NAMES_H
#define SPARSEFS_FS_REMOVED_NAMES_H

#include <stdbool.h>

#include "fs/inode.h"
#include "fs/node.h"
#include "fs/temporary_table.h"

struct removed;
struct staging_limit;

/* label: as of temporaries_create; memory outlives the table. */
int removed_create(struct staging_limit *memory, const char *label, struct removed **removed);

/* Says in the log how many names are there again with the next mount. */
void removed_destroy(struct removed *removed);

/* A name in a directory of a dataset, which stands for a view of a frame. -ENOENT: it is removed
 * already; -ENOSPC: the limit of memory; -ENOMEM; -EROFS: removed is NULL. */
int removed_add(struct removed *removed, struct temporary_place place, struct inode view);

bool removed_has(struct removed *removed, struct temporary_place place, struct inode view);

/* The name is there again. Returns whether it had been removed. */
bool removed_undo(struct removed *removed, struct temporary_place place, struct inode view);

/* A file of a folder is closed: all its names are there again. */
void removed_forget_file(struct removed *removed, const struct mounted_file *file);

#endif
