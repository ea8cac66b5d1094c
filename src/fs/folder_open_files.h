/* Mounted HDF5 files, open or not. The file of the command line, and files that external links
 * lead to, are open as long as the mount. Of the files of a folder those in use and those used
 * last are open, up to a limit: a request uses a file for its duration, which opens it. A file
 * that was closed is opened again only if it has not changed: inode numbers and addresses of
 * objects stay valid. Changes are committed before a file is closed; if that fails it stays open
 * until the mount ends or the file is removed.
 *
 * Lock order: the lock of struct mounted_files comes last, and nothing is opened or closed under
 * it. */
#ifndef SPARSEFS_FS_FOLDER_OPEN_FILES_H
#define SPARSEFS_FS_FOLDER_OPEN_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "dataset/files_together.h"
#include "fs/folder_walk.h"
#include "fs/user_share.h"
#include "sparsefs/sparsefs.h"

#define MOUNTED_DESCRIPTORS 8 /* that an open file takes, about */
#define MOUNTED_NOBODY      ((uid_t)-1)

struct commits;
struct fresh;
struct mounted_files;

struct mounted_file {
    struct mounted_file *next;   /* of those that stay open */
    struct sfs_file *file;       /* NULL: not open, or a directory or another file of the folder */
    uint64_t root;               /* the address of its root group, of one that was open */
    struct stat st;              /* as of opening, before that and after that as it was last */
    atomic_uint refs;            /* references of nodes and users */
    struct mounted_files *files; /* NULL: it is open as long as the mount, or never; else: */
    char *path;                  /* of an HDF5 file of a folder: from that on; else "" */
    atomic_bool is_read_only;    /* it could not be opened for writing the last time */
    bool is_for_others; /* what the kernel was told decides who is let in: owner, group and mode are
                         * compared */
    atomic_uint told;   /* permission bits: all that the kernel was ever told it has */
    _Atomic uint64_t told_owners; /* that it was told last: user << 32 | group */
    /* Of what is not HDF5: the time of change (Unix time in ns) of the state of which the kernel may
     * keep pages; 0: of none. */
    _Atomic int64_t pages;
    /* Held for reading from when a link of it is read until its node is in the table, for writing while
     * links are made and removed: by mounted_lock_to_read and mounted_lock_to_change, as libhdf5's
     * process is waited for under it. */
    pthread_rwlock_t tree_lock;
    atomic_uint removals; /* of links */
    /* While it is open, as the mount makes them (mount.c); NULL: it is not written. */
    struct fresh *fresh;
    struct commits *commits;
    /* The node of its root group, which the mount holds: there is something to commit; 0: not held. */
    _Atomic uint32_t top;
    atomic_bool is_committed;  /* by a thread of its own (commit_files_of_folder.c) */
    atomic_bool is_gone;       /* it was removed or replaced: its last name in the file system */
    atomic_bool keeps_objects; /* objects of it are kept (node.h) */
    _Atomic uint64_t written;  /* when elements of it were, in this mount: Unix time in ns; or 0 */
    _Atomic uid_t changer;     /* who changed it last, in this mount; or MOUNTED_NOBODY */
    /* Under the lock of files: */
    struct mounted_file *prev_open, *next_open; /* those not used for longest first */
    unsigned users, handles;                    /* handles are users for longer than a request */
    struct user_counts holders;                 /* whose the handles are, and who opens one */
    struct user_counts askers;                  /* whose other requests use it, or are opening it */
    unsigned n_views;                           /* that are open of its datasets */
    bool is_busy;                               /* it is being opened or closed */
    bool was_open;
    uint64_t fails_until; /* time: it could not be committed before, and is not closed */
    bool is_outdated;     /* to be closed when it is unused */
    struct stat names_st; /* the state of which the following is, if there is any */
    char *names;          /* of the root group's attributes, as mounted_keep_names had them */
    size_t names_n;
    int error; /* it cannot be read as HDF5, however often one tries */
};

/* The most files that are in use at a time, if that many descriptors may be: more than are open otherwise. Alone each
 * user may use `most` then, whatever of this all others use (user_share.h). */
static inline size_t mounted_most_in_use(unsigned most)
{
    return (size_t)most * 3 + 1;
}

/* All of a folder, whose files are opened by `together`; both outlive this. most: that are open at
 * a time, but for those that several users use. opened(context, file, opened): it was opened, as that, and is closed
 * again on an error. closing(context, file): it is about to be closed, and nothing is left to commit of it: nothing
 * that was opened of it may stay. */
int mounted_files_create(struct folder *folder, struct together *together, unsigned most,
                         struct mounted_files **files);
struct mounted_calls {
    int (*opened)(void *context, struct mounted_file *file, struct sfs_file *opened);
    void (*closing)(void *context, struct mounted_file *file);
};
void mounted_files_set_calls(struct mounted_files *files, const struct mounted_calls *calls,
                             void *context);
void mounted_files_destroy(struct mounted_files *files); /* NULL is fine */

struct folder *mounted_files_folder(const struct mounted_files *files);

/* Closes all at the end of the mount, also what is used, each when it is not committed in the background any more
 * (is_committed). Returns the first error by which changes were lost, also of files that were closed before; the log
 * has all of them. */
int mounted_files_close(struct mounted_files *files);

/* Calls action for those that are open, each used meanwhile; the first error. waits: for one that is being closed,
 * until it is known whether it is, or -EINTR: those after it are left out then; else it is left out. */
int mounted_files_each(struct mounted_files *files, bool waits,
                       int (*action)(void *context, struct mounted_file *file), void *context);

/* Takes the last state of those that are open, and followed; the first error. */
int mounted_files_refresh(struct mounted_files *files);
void mounted_files_interrupt(struct mounted_files *files);

struct mounted_statistics {
    struct sfs_statistics sums; /* store_*: of all that are or were open */
    enum sfs_lock lock;         /* the strongest of all */
    unsigned most, open;
    uint64_t opened; /* so often */
};
void mounted_files_statistics(struct mounted_files *files, struct mounted_statistics *statistics);

/* As sfs_set_cache_size, of the cache of all files. */
int mounted_files_set_cache_size(struct mounted_files *files, size_t bytes);

/* A file of a folder that is not open yet, or (files NULL) something else in it; refs 1. NULL: no
 * memory. */
struct mounted_file *mounted_new(struct mounted_files *files, const char *path,
                                 const struct stat *st);
void mounted_ref(struct mounted_file *file);
void mounted_unref(struct mounted_file *file); /* the last one closes it; NULL is fine */

/* Whether this is a state of it; of one that is open, or never was, whether it is the same file. Numbers of inodes are
 * given again: if others are let in by what the kernel was told, one that never was open has the same owner and group,
 * and nothing is kept from somebody that was told to be his; a directory has the owner and group that were told last,
 * so that the kernel learns of others, and of the mode, before anybody is let in. */
bool mounted_is(struct mounted_file *file, const struct stat *st);

/* Of a directory, whose files go on as they are if its owners change: whether it is the same one. */
bool mounted_is_directory(const struct mounted_file *file, const struct stat *st);

/* As mounted_is of attributes that are shown, also to those who have it open: it may let in less by now, or belong to
 * others, who, but of a directory, do not get more by that than all had. */
bool mounted_shows(struct mounted_file *file, struct stat *st);

/* The kernel may be told these permission bits; it is going to be told this owner and group; whether those were told
 * last: by an answer that tells others of a directory the kernel is not to learn of them otherwise. */
void mounted_tell(struct mounted_file *file, mode_t bits);
void mounted_tell_owners(struct mounted_file *file, const struct stat *st);
bool mounted_has_told_owners(const struct mounted_file *file, const struct stat *st);

/* Of what is not HDF5, and is opened in this state: whether all pages that the kernel may have are of it. From then on
 * they are. */
bool mounted_keeps_pages(struct mounted_file *file, const struct stat *st);

/* It is open until mounted_put; what is not a folder's is that anyway. user: for whom it is; who uses as many as he may
 * waits for requests of his own. -ESTALE: it is another file now; -ENFILE: he has handles of as many as he may, or as
 * can be open have handles, or changes that cannot be committed, which count for who changed the file last; -EIO: it is
 * no HDF5 file, of which the log says more; -EINTR: others were waited for (interrupt.h); errors of sfs_open. */
int mounted_use(struct mounted_file *file, uid_t user);
void mounted_put(struct mounted_file *file, uid_t user);

/* The same of one that is used, for none of the users: until mounted_let_be. */
void mounted_use_again(struct mounted_file *file);
void mounted_let_be(struct mounted_file *file);

/* A user has changed it. */
void mounted_changed(struct mounted_file *file, uid_t user);

/* The same of a request that may make handles. -ENOMEM. */
int mounted_use_to_open(struct mounted_file *file, uid_t user);
void mounted_put_opened(struct mounted_file *file, uid_t user);

/* The one or, if opens, the other, of a file that is open already. -EAGAIN: it is not, or he has to wait; -ENOMEM. */
int mounted_use_open(struct mounted_file *file, uid_t user, bool opens);

/* Of one of a folder: just now. */
bool mounted_is_open(struct mounted_file *file);

/* Another program has changed or removed one of a folder that is used: it is closed when it is not
 * any more, to be opened as what it is then. */
void mounted_outdate(struct mounted_file *file);

/* The names of the root group's attributes, each with its NUL, as they are while it is used: known
 * from then on for as long as the file is in this state. Not kept if they have more than 1 KiB, the file
 * has changed in the last seconds, or there is no memory. */
void mounted_keep_names(struct mounted_file *file, const char *names, size_t n);

/* The same of one that need not be opened for that, in memory that the caller frees. -EAGAIN: it is
 * to be opened; -ENOMEM. */
int mounted_names(struct mounted_file *file, char **names, size_t *n);

/* A handle: for longer than a request. The file is in use, by a request of the user's that may make handles, or by a
 * handle of his. -ENOMEM. */
int mounted_use_more(struct mounted_file *file, uid_t user);
void mounted_put_more(struct mounted_file *file, uid_t user);

/* Take its tree_lock, until mounted_unlock. -EINTR: it is not taken (interrupt.h). */
int mounted_lock_to_read(struct mounted_file *file);
int mounted_lock_to_change(struct mounted_file *file);
void mounted_unlock(struct mounted_file *file);

/* The views of one of its datasets were opened; were closed. */
void mounted_views_opened(struct mounted_file *file);
void mounted_views_closed(struct mounted_file *file);

#endif
