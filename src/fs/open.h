/* What users have open. */
#ifndef SPARSEFS_FS_OPEN_H
#define SPARSEFS_FS_OPEN_H

#include <stdatomic.h>

#include "fs/mount.h"

/* A view, a text that was made when it was opened, or a directory. Reference-counted: a file may be
 * closed before the thread that answered its last read has returned from doing so. */
struct open_file {
    struct open_file *prev, *next; /* of all that are open in the mount; under a lock of open.c */
    atomic_uint users;
    const struct node *node;
    struct views *views; /* of a view */
    struct inode inode;
    char *text;
    size_t text_bytes;
    bool counts_text;              /* it is not small: open.c */
    struct sfs_snapshot *snapshot; /* of image.h5: as long as it is open it stays as it is */
    struct directory *directory;
    int fd;                            /* of a file of the folder that is not HDF5; or -1; */
    bool counts_descriptor;            /* it is counted, */
    uid_t user;                        /* for who has opened it */
    struct selection_reading *reading; /* N.defined of a sparse dataset: read_defined.h */
    bool is_for_writing;
    bool holds_lock;              /* of a writer */
    struct staged_writer *staged; /* for writing; or, of a file of csr, */
    struct matrix *matrix;
    atomic_bool has_staged; /* a selection through this file, since the last close */
    atomic_bool has_asked;  /* of a dense view: by it a truncation or a new frame was asked for */
    struct fresh_frame *fresh;        /* for writing a frame for the first time */
    atomic_bool has_written;          /* to it, since the last close */
    atomic_bool has_closed;           /* a descriptor, perhaps not the last one */
    struct commits_seen commits_seen; /* for writing */
    _Atomic pid_t opener;             /* for writing: the thread that has opened it, */
    atomic_bool is_unused;            /* and nothing was done with it since */
    struct temporary *temporary;
    int access; /* of a temporary one: of O_ACCMODE */
    /* Of one that has become a frame, which this is, from its first use on. It is opened without a
     * lock, for which a close that it may have to wait for would wait. */
    struct open_file *_Atomic instead;
};

struct open_file *open_file_of(const struct fuse_file_info *info);

/* A file that has no content yet; NULL: no memory. */
struct open_file *open_file_new(struct mount *mount, fuse_ino_t number, uid_t user);
void open_file_use(struct open_file *file);
void open_file_put(struct mount *mount, struct open_file *file);

/* Opens an inode, for *info to be answered; is_new: it is made by that, to be written. */
int open_file_open(struct mount *mount, fuse_req_t request, fuse_ino_t number, bool is_new,
                   struct fuse_file_info *info, struct open_file **file);

/* What an open file is now: of a temporary one that has become a frame, its view, opened in place
 * of it and for as long; of others themselves. Errors of opening. */
int open_file_now(struct mount *mount, struct open_file **file);

bool open_file_is_selection(const struct open_file *file);

/* A thread truncates a view to nothing, without saying by which file: the one that it has just
 * opened for writing, which is how the kernel tells of O_TRUNC; in use until open_file_put. NULL:
 * there is none. */
struct open_file *open_file_just_opened(fuse_ino_t number, pid_t opener);

/* What waited for a file has been applied, or soon will be, in a dataset that had so many frames:
 * all that its view shows has changed. */
struct change open_file_change(const struct open_file *file, uint64_t frames);

/* The same is made known, with an answer, or none (request NULL), to a request. */
void open_file_frame_changed(struct mount *mount, const struct open_file *file, uint64_t frames,
                             fuse_req_t request, const struct answer *answer);

/* Something was written to a file that collects it: the other views show it when it is applied. */
void open_file_note_collected(struct mount *mount, struct open_file *file, struct change *change);

/* Applies what is staged, if anything. *change: what has changed; its node stays if nothing has. Errors
 * of staging_apply. */
int open_file_apply(struct mount *mount, struct open_file *file, struct change *change);

/* Of a file of csr, when it is closed or synced: as matrix_begin_taking and matrix_take. What has changed is
 * made known to the kernel by the time that notify_answer answers. */
int open_file_take(struct mount *mount, struct open_file *file, enum matrix_close how);

/* The inodes of all views that are open, of nodes of which node_is_told_open, in memory that the caller frees.
 * -ENOMEM. Thread-safe. */
int open_files_told(struct inode **inodes, size_t *n);

/* Closes what is open still, after the last request: the kernel does not say more. */
void open_files_close(struct mount *mount);

/* ---- Requests ---- */

void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);
void on_flush(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);
void on_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info);

/* create.c */
void on_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *info);

#endif
