/* What a mount is made of, for the files of src/fs: attributes of inodes, look-up by name,
 * listings, what follows a change, and the requests of FUSE on top. */
#ifndef SPARSEFS_FS_MOUNT_H
#define SPARSEFS_FS_MOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/daemon/commit_and_unlock.h"
#include "fs/daemon/follow_timer.h"
#include "fs/daemon/loop.h"
#include "fs/daemon/options.h"
#include "fs/dataset_entries.h"
#include "fs/frame_times.h"
#include "fs/fuse.h"
#include "fs/group_listings.h"
#include "fs/inode.h"
#include "fs/kernel_invalidate.h"
#include "fs/node.h"
#include "fs/removed_names.h"
#include "fs/staged_csr.h"
#include "fs/staged_writes.h"
#include "fs/staging_limit.h"
#include "fs/temporary_table.h"
#include "fs/unfinished_new_frames.h"

#define MOUNT_BECOMING 16

struct periodic;

struct mount {
    const struct options *options;
    struct sfs_file *file;       /* NULL: a folder is mounted */
    struct mounted_files *files; /* of the folder; or NULL */
    struct nodes *nodes;
    struct listings *listings;
    bool is_writable;              /* or, of a folder, files in it may be */
    atomic_bool opens_directories; /* the kernel must do so (readdir.c) */
    atomic_bool times_drop_pages;  /* another time of change invalidates the kernel's pages */
    /* By hash of the frame: held while a temporary file becomes it. */
    pthread_mutex_t becoming[MOUNT_BECOMING];
    struct staging_limit limit; /* set if is_writable; outlives the tables below */
    /* NULL, down to notify, unless is_writable: */
    struct times *times;
    struct fresh *fresh;       /* of the file; NULL of a folder: struct mounted_file has it */
    struct commits *commits;   /* the same */
    struct periodic *periodic; /* commits what is written in a folder; NULL of a file */
    pthread_mutex_t beside_lock;
    pthread_cond_t fewer_beside;
    unsigned n_beside;     /* threads that work in the background for a folder; under this lock */
    atomic_bool is_losing; /* one of them */
    struct staging *staging;
    struct temporaries *temporaries;
    struct matrices *matrices;
    struct removed *removed;
    struct notify *notify;
    struct keeper *keeper; /* NULL if a mount for reading was asked for, or it has ended */
    struct loop *loop;     /* that serves it; not NULL */
    struct follow *follow; /* NULL: the files are not followed */
};

/* The kernel may keep what it knows for this long; what changes earlier it is told to forget. Of
 * followed files it keeps it for less. */
#define MOUNT_TIMEOUT_SECONDS 86400.0

/* Makes all of a mount of an open file but notify and loop, which need a session, and the keeper,
 * which is older than the file. The caller keeps options and file until mount_destroy. After an error
 * nothing is left to destroy. */
int mount_create(struct mount *mount, const struct options *options, struct sfs_file *file);

/* The same of a folder. Its files are written unless options say read_only. */
int mount_create_of_folder(struct mount *mount, const struct options *options,
                           struct mounted_files *files);

/* After the last request: frees all that was made, but not file, files, notify, loop and keeper. 0, or the
 * first error for which something that was written to files of a folder is lost. */
int mount_destroy(struct mount *mount);

/* Around what may let go of an HDF5 file of a folder: who does so last closes it, which commits it, however long that
 * takes. Requests are read by others meanwhile (loop_begin_wait). */
void mount_begin_letting_go(const struct mount *mount);
void mount_end_letting_go(const struct mount *mount);

/* ---- commit_files_of_folder.c ---- */

/* Of the file that a node is in, which is used: NULL if it is not written, or node is NULL. */
struct commits *mount_commits(const struct mount *mount, const struct node *node);
struct fresh *mount_fresh(const struct mount *mount, const struct node *node);

/* Commits all that was written in the folder; the first error. After -EINTR of a file (commits_now) no more are. */
int mount_commit_folder(struct mount *mount);

/* The same in the background, of what has changed, for a struct periodic: the argument is a struct mount. */
void mount_commit_regularly(void *mount);

/* It is not called any more. Waits until no thread of it looks for what is lost (matrices_lose); until none goes on. */
void mount_wait_for_losing(struct mount *mount);
void mount_wait_for_commits(struct mount *mount);

/* A user has written something of the node's file: there is something to commit, and it counts for him if that
 * fails. */
void mount_note(struct mount *mount, const struct node *node, uid_t user);

/* ---- attr.c ---- */

/* Attributes of an inode, and how long the kernel may keep them, in seconds. Those of a view that
 * cannot be read (view_size_to_show) are not kept. */
int mount_attributes(struct mount *mount, struct inode inode, struct stat *st, double *timeout);

/* The same for a view of an open dataset. */
int mount_view_attributes(struct mount *mount, const struct node *node, struct views *views,
                          struct inode inode, struct stat *st, double *timeout);

/* Its file, which is open, as it was opened, with the permission bits, owner and group to show of all in it, but that
 * some of it cannot be written. */
void mount_rights(const struct mount *mount, const struct node *node, struct stat *file);

/* The frame by which frame_times.h knows when a view was written. */
uint64_t mount_frame_of_times(struct inode inode);

/* Whether a view shows header and fill values alone, whatever there is: it was truncated and not
 * written to, or its frame is not there yet. */
bool mount_shows_nothing(struct mount *mount, const struct node *node, struct views *views,
                         struct inode inode);

bool mount_is_directory(const struct node *node, struct inode inode);

/* ---- kernel_cache_times.c: how long the kernel may keep names and attributes of an inode, in seconds ---- */

double mount_name_timeout(const struct mount *mount, struct inode inode);
double mount_attribute_timeout(const struct mount *mount, struct inode inode);

/* Of what is the folder's: the kernel is not notified of changes by others. */
double mount_folder_timeout(const struct mount *mount);

/* ---- dataset_entries.c ---- */

/* Whether the mount shows such views, and a fixed name, of a dataset. */
bool mount_shows(const struct mount *mount, struct views *views, enum view_kind view);
bool mount_shows_name(const struct mount *mount, struct views *views,
                      const struct entry_name *name);

/* ---- lookup.c ---- */

/* The inode of a name in a directory, whose node the caller holds then; -ENOENT. *is_new: it is of
 * a frame that may come to be, and not be there any more at any time. "." stands for the directory
 * itself and ".." for the one above; with these two NFS's server asks for inodes of which the
 * kernel has nothing but the number, also for those of files: -ESTALE. */
int mount_lookup(struct mount *mount, struct inode directory, const char *name, struct inode *inode,
                 bool *is_new);

/* The directory that one is in; the root is in itself. */
struct inode mount_parent(const struct node *node, struct inode inode);

/* The generation that goes with an inode number whose node is held. */
uint64_t mount_generation(struct mount *mount, struct inode inode);

/* ---- note_written.c ---- */

/* Frames first to last of a dataset were written by a user: what must be known of that besides the kernel. */
struct written {
    uint64_t first, last;
    uid_t user;
};
void mount_written(struct mount *mount, const struct node *node, struct written written);

/* The same in two steps, for staged changes (staged_writes.h): a time that is set between them is kept.
 */
void mount_asked(struct mount *mount, const struct node *node, uint64_t frame);
void mount_applied(struct mount *mount, const struct node *node, struct written written);

/* The same through a view that shows all of the dataset, of which alone the time was set in between. */
void mount_applied_to_all(struct mount *mount, const struct node *node, struct written written);

/* ---- apply_staged.c ---- */

/* Before a view, or the number of frames, is looked at: waits for closes of other files of which it
 * is not known yet whether they change that. Before a view is changed, closes of the view itself
 * are waited for, too. -EINTR. */
int mount_apply_staged(struct mount *mount, const struct node *node, struct inode inode);
int mount_apply_itself(struct mount *mount, const struct node *node, struct inode inode);
int mount_apply_names(struct mount *mount, const struct node *node);

/* Before a commit that a request asks for: the same for all that was closed before it in the file, or (NULL) in the
 * folder. Errors of staging_apply_before_commit. */
int mount_apply_closed(fuse_req_t request, const struct commits *commits);

/* ---- new_names.c ---- */

/* The directory of temporary files by its inode. -EROFS, -ESTALE; -EPERM: there are none in it; errors of
 * node_get_views. */
int mount_place(struct mount *mount, struct inode directory, struct temporary_place *place);

/* The inode of a frame that is not there, by its name in a directory of its dataset. -EPERM: the
 * name stands for none; -EFBIG: the dataset cannot be so large. */
int mount_new_frame(struct mount *mount, struct inode directory, const char *name,
                    struct inode *inode);

/* Whether a name in a directory is one of a view of a frame, which may be there or not. */
bool mount_parse_name(struct mount *mount, struct inode directory, const char *name,
                      struct inode *inode);

/* ---- remove_name.c ---- */

/* Takes the name of a view of a frame away (removed_names.h), but not with -o strict, and not that of one
 * which cannot be written or is only coming to be: refused, and told. -ENOENT. */
int mount_remove_name(struct mount *mount, struct inode directory, const char *name);

/* Whether a name was removed; it is there again then. */
bool mount_undo_removal(struct mount *mount, struct inode directory, const char *name);

/* Takes that back, when nothing could be made there. */
void mount_redo_removal(struct mount *mount, struct inode directory, const char *name);

/* ---- temporary_to_frame.c: temporary files (temporary_table.h) and the frames that they become ---- */

/* A temporary file becomes the view that a name stands for in a directory, which must be such a
 * one: all of its content is checked as if it was written there, or nothing changes. *change: what
 * has changed; its node is NULL if nothing has. -EEXIST: the frame is there, and replaces is false;
 * -EPERM and -EOPNOTSUPP: the view cannot be written; errors as of view_put. */
int mount_become(struct mount *mount, struct temporary *temporary, struct inode directory,
                 const char *name, bool replaces, struct change *change);

/* ---- dot_sparsefs.c: .sparsefs and its files ---- */

int control_lookup(const struct mount *mount, const char *name, struct inode *inode);

/* The n-th name in .sparsefs, or NULL. */
const char *control_name(const struct mount *mount, unsigned n, struct inode *inode);

/* The content of a control file but image.h5 as of now. The caller frees *text. -ENOMEM. */
int control_text(struct mount *mount, unsigned entry, char **text, size_t *n);

/* Whether it may be written, by control_write: n bytes, which are all of it. -EINVAL: they make no
 * sense, and nothing changes; it is logged. */
bool control_is_writable(const struct mount *mount, unsigned entry);
int control_write(struct mount *mount, const char *bytes, size_t n);

/* ---- group_json.c: group.json, which says why external links of a group are not followed ---- */

/* Whether a group with these links has it: one of them is an external link that is not followed,
 * and none has its name. The file's tree_lock must be held. 0; -ENOENT: it has none; -EINTR. */
int group_tells(struct mount *mount, const struct node *group, const struct sfs_links *links);

/* The same of a node that is used: 0; -ENOENT: it is no group, or has none; errors of sfs_list. */
int group_find(struct mount *mount, const struct node *group);

/* Its content as of now. The caller frees *text. -ESTALE: the node is no group. */
int group_text(struct mount *mount, const struct node *group, char **text, size_t *n);

/* ---- readdir.c: directories ---- */

/* readdir, or readdirplus: entries from `offset` on are wanted, of at most `size` bytes. */
struct directory_read {
    fuse_req_t request;
    size_t size;
    off_t offset;
    bool plus;
};

/* Answers it. */
void directory_read(struct mount *mount, struct inode inode, const struct directory_read *read);

/* The same where directories are open. */
struct directory;
/* user: who opens it. -EMFILE: he has too many open (reader_descriptors.h). */
int directory_open(struct mount *mount, struct inode inode, uid_t user,
                   struct directory **directory);
void directory_close(struct mount *mount, struct directory *directory);
void directory_read_open(struct mount *mount, struct directory *directory,
                         const struct directory_read *read);

/* ---- folder_lookup.c: what is the folder's: all above the root groups of its files ---- */

/* As mount_lookup of a name, and mount_attributes. */
int mount_lookup_in_folder(struct mount *mount, const struct node *directory, const char *name,
                           struct inode *inode);
int mount_folder_attributes(struct mount *mount, const struct node *node, struct stat *st);

/* The same in one, of a name that is listed; the caller holds the node then. */
struct in_folder {
    const struct node *node;
    struct stat st;
    bool is_told; /* the kernel may be given these attributes (mounted_has_told_owners) */
};
int mount_listed_in_folder(struct mount *mount, const struct node *directory,
                           const struct folder_names *names, size_t i, struct in_folder *child);

int mount_list_folder(struct mount *mount, const struct node *directory,
                      struct folder_names *names);

/* A descriptor of a file that is not HDF5, for reading, or an error. */
int mount_open_passed(struct mount *mount, const struct node *node);

/* ---- requests.c ---- */

extern const struct fuse_lowlevel_ops mount_requests;

/* ---- xattr.c ---- */

/* Answers getxattr or listxattr with room for size bytes; 0: with how many there are. */
void mount_reply_xattr(fuse_req_t request, const char *value, size_t n, size_t size);

/* ---- folder_requests.c: the same of a folder: of a file in it that is open meanwhile ---- */

void mount_folder_requests(struct fuse_lowlevel_ops *requests);

#endif
