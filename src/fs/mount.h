/* What a mount is made of, for the files of src/fs: attributes of inodes, look-up by name,
 * listings, and the requests of FUSE on top. */
#ifndef SPARSEFS_FS_MOUNT_H
#define SPARSEFS_FS_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/fuse.h"
#include "fs/inode.h"
#include "fs/node.h"
#include "fs/options.h"

struct mount {
    const struct options *options;
    struct sfs_file *file;
    struct nodes *nodes;
};

/* The kernel may keep what it knows of a read-only mount for this long. */
#define MOUNT_TIMEOUT_SECONDS 86400.0

/* ---- attr.c ---- */

/* Attributes of an inode. For a view whose size has to be read this may read. */
int mount_attributes(struct mount *mount, struct inode inode, struct stat *st);

/* The same for a view of an open dataset. */
int mount_view_attributes(struct mount *mount, const struct node *node, struct views *views,
                          struct inode inode, struct stat *st);

bool mount_is_directory(const struct node *node, struct inode inode);

/* ---- lookup.c ---- */

/* The inode of a name in a directory; -ENOENT. */
int mount_lookup(struct mount *mount, struct inode directory, const char *name,
                 struct inode *inode);

/* ---- control.c: .sparsefs and its files ---- */

int control_lookup(const char *name, struct inode *inode);

/* The n-th name in .sparsefs, or NULL. */
const char *control_name(unsigned n, struct inode *inode);

/* The content of a control file as of now. The caller frees *text. */
int control_text(struct mount *mount, unsigned entry, char **text, size_t *n);

/* ---- dir.c: open directories ---- */

struct directory;

int directory_open(struct mount *mount, struct inode inode, struct directory **directory);
void directory_close(struct mount *mount, struct directory *directory);

/* Answers readdir, or readdirplus if plus, from `offset` on into at most `size` bytes. */
void directory_read(struct mount *mount, struct directory *directory, fuse_req_t request,
                    size_t size, off_t offset, bool plus);

/* ---- requests.c ---- */

extern const struct fuse_lowlevel_ops mount_requests;

/* Closes what is open still, after the last request: the kernel does not say more. */
void mount_close_all(struct mount *mount);

#endif
