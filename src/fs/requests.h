/* The requests of FUSE, of which each file named here has one subject; requests.c, which has what is left,
 * puts all of them into one table. */
#ifndef SPARSEFS_FS_REQUESTS_H
#define SPARSEFS_FS_REQUESTS_H

#include <errno.h>

#include "fs/mount.h"

static inline struct mount *mount_of(fuse_req_t request)
{
    return fuse_req_userdata(request);
}

/* An error in the midst of a change leaves some of it done, but for those that are found before. EROFS may also be that
 * of a disk. */
static inline bool error_may_have_changed(int error)
{
    return error != -EINVAL && error != -EFBIG && error != -EOPNOTSUPP;
}

/* ---- fuse_init.c ---- */

void on_init(void *data, struct fuse_conn_info *connection);

/* Whether the kernel may keep listings. Where others change what is listed it may not, nor where other users list what
 * is written: it holds a page of what it keeps while a program is given it, which takes as long as the program wants,
 * if its memory is a file of a FUSE of its own, and all that have to make changes known would wait for that. */
bool mount_keeps_listings(const struct mount *mount);

/* ---- read_and_lseek.c ---- */

void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
             struct fuse_file_info *info);
void on_lseek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence,
              struct fuse_file_info *info);

/* ---- write.c, fsync.c, setattr.c, fallocate.c ---- */

void on_write(fuse_req_t request, fuse_ino_t number, const char *bytes, size_t n, off_t offset,
              struct fuse_file_info *info);
void on_setattr(fuse_req_t request, fuse_ino_t number, struct stat *attributes, int to_set,
                struct fuse_file_info *info);
void on_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t n,
                  struct fuse_file_info *info);
void on_fsync(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info);
void on_fsyncdir(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info);

/* As commits_now, for a request that waits for that, or (commits NULL) as mount_commit_folder: others are served
 * meanwhile. It waits for who has all of a frame applied before the next commit, and can be interrupted then. */
int commit_for_request(fuse_req_t request, struct commits *commits, struct sfs_dataset *dataset);

/* ---- mkdir_rmdir_link.c ---- */

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name);
void on_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name);
void on_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name);

/* ---- mknod_unlink_rename.c ---- */

void on_unlink(fuse_req_t request, fuse_ino_t parent, const char *name);
void on_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void on_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned flags);

/* CREATE of a name that is not there and stands for no frame. */
void create_temporary(fuse_req_t request, fuse_ino_t parent, const char *name,
                      struct fuse_file_info *info);

/* ---- xattr.c ---- */

void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size);
void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size);
void on_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value,
                 size_t n, int flags);
void on_removexattr(fuse_req_t request, fuse_ino_t number, const char *name);

#endif
