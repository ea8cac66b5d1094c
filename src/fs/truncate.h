/* Truncating and extending: what truncate(2), ftruncate(2) and O_TRUNC ask for. */
#ifndef SPARSEFS_FS_TRUNCATE_H
#define SPARSEFS_FS_TRUNCATE_H

#include "fs/mount.h"
#include "fs/open.h"

/* What is truncated, or extended, and to how many bytes. */
struct truncation {
    struct inode inode;
    /* Through which it is done, or (by_opening) which is being opened; NULL: by its name. */
    struct open_file *file;
    bool by_opening;
    uint64_t size;
    uid_t user;
};

/* Sets *change, whose node is NULL if nothing can have changed. -ESTALE: the object is gone; -EROFS; errors of
 * refusal_say, view_truncate, staging_truncate, matrix_resize, temporary_resize. */
int mount_truncate(struct mount *mount, const struct truncation *truncation, struct change *change);

#endif
