/* Temporary files: names beside the frames of a dataset that stand for none, as programs make them
 * that write a new file and then rename it to the one that it replaces. They are in memory: their
 * contents, first names and tables together take no more than a limit. What they hold becomes a
 * frame by a rename (temporary_to_frame.c); until then nothing of them is in the HDF5 file, and what is left
 * when the mount ends is gone.
 *
 * A name belongs to a directory of a dataset, by whatever hard link that is reached. The inode
 * number (inode.h) is another one for each file that there ever was, and says by which node it was
 * made; it stays the same whatever the file is renamed to. Thread-safe. */
#ifndef SPARSEFS_FS_TEMPORARY_TABLE_H
#define SPARSEFS_FS_TEMPORARY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "fs/inode.h"
#include "fs/node.h"

struct staging_limit;
struct temporaries;
struct temporary;

/* label: of the HDF5 file or the folder, for messages. label and limit must outlive the table. Files with
 * names are handles of the HDF5 file that they are in, of those who made them (folder_open_files.h); others are used
 * only by what is a handle itself, or while it is in use. */
int temporaries_create(struct nodes *nodes, const char *label, struct staging_limit *limit,
                       struct temporaries **temporaries);

/* Says in the log what is lost. Nobody uses any file any more. NULL is fine. */
void temporaries_destroy(struct temporaries *temporaries);

/* Whether any has a name. NULL is fine. */
bool temporaries_have_names(const struct temporaries *temporaries);

/* Where what waits is lost (node_is_lost): nothing of them can come to be a frame, and nobody could remove them. They
 * lose their names, which the log says; who has one open goes on with that. */
void temporaries_lose(struct temporaries *temporaries);

/* A directory of a dataset, whose node is held. */
struct temporary_place {
    const struct node *node;
    unsigned directory; /* an enum entry */
};

/* Makes an empty file of a user, which the caller uses until temporary_put. -EEXIST; -ENOSPC, logged: the limit,
 * or no number is left; -ENOMEM. */
int temporary_make(struct temporaries *temporaries, struct temporary_place place, const char *name,
                   uid_t user, struct temporary **temporary);

/* By name and by number, for the caller to use until temporary_put; NULL: there is none, or no memory
 * to look for a name. A number is good as long as
 * the file has a name, or is in use. All take NULL for a mount that cannot be written. */
struct temporary *temporary_find(struct temporaries *temporaries, struct temporary_place place,
                                 const char *name);
struct temporary *temporary_get(struct temporaries *temporaries, struct inode inode);

/* The first one in a directory whose place in listings is `at` or behind that; *next is the place
 * behind it. Places stay what they are for as long as the mount. */
struct temporary *temporary_next(struct temporaries *temporaries, struct temporary_place place,
                                 uint64_t at, uint64_t *next);

void temporary_put(struct temporaries *temporaries, struct temporary *temporary);

/* Of one that is used: its inode, whose node it holds, and into name (NAME_BYTES) its name, "" if it has
 * none any more. */
struct inode temporary_inode(const struct temporary *temporary);
void temporary_name(struct temporaries *temporaries, const struct temporary *temporary, char *name);

/* Takes the name away: the file is gone when it is no longer in use. -ENOENT. */
int temporary_unlink(struct temporaries *temporaries, struct temporary_place place,
                     const char *name);

/* Another name, in place of another temporary file that may have it. -EEXIST: it is there and
 * replaces is false; -ENOENT: the file has lost its name meanwhile; -ENOMEM. */
int temporary_rename(struct temporaries *temporaries, struct temporary *temporary,
                     struct temporary_place place, const char *name, bool replaces);

/* ---- Contents. -ESTALE: it has become a frame. What changes them waits while one becomes it; -EINTR. ---- */

struct temporary_state {
    uint64_t size; /* bytes */
    struct timespec atime, mtime;
    bool has_become;
    struct inode became; /* has_become: the view that it is now */
};
void temporary_state(struct temporary *temporary, struct temporary_state *state);

/* What is new is zero. -EFBIG: more than the limit even if there were no other; -ENOSPC: more than is
 * left. These are logged, once for each file. -ENOMEM. After an error nothing has changed. */
int temporary_write(struct temporaries *temporaries, struct temporary *temporary, const void *bytes,
                    size_t n, uint64_t offset);
int temporary_resize(struct temporaries *temporaries, struct temporary *temporary, uint64_t size);

/* Up to n bytes, fewer at the end; *got in all. */
int temporary_read(struct temporary *temporary, uint64_t offset, size_t n, void *buffer,
                   size_t *got);

/* Times that are set; NULL: as it was. */
void temporary_set_times(struct temporary *temporary, const struct timespec *atime,
                         const struct timespec *mtime);

/* What is to be done with the whole content; it does not change meanwhile. */
typedef int (*temporary_use)(void *context, const void *bytes, size_t n);

/* Calls use with the content. If that succeeds the file has no name any more, and is the view
 * `became` of a node that is held, for those who have it open. Errors of use; -ENOENT: it
 * has no name; -EINTR. */
int temporary_become(struct temporaries *temporaries, struct temporary *temporary,
                     const struct node *node, struct inode became, temporary_use use,
                     void *context);

uid_t temporary_user(const struct temporary *temporary); /* who has made it */

/* Whether a time of it was set since it was written last; and its times. */
bool temporary_times_are_set(struct temporary *temporary, struct timespec *atime,
                             struct timespec *mtime);

/* The inodes of files that have become views of the frames first to last of an object, and are open
 * still: the kernel may have pages of them. In memory that the caller frees; returns how many.
 * views: bits, 1 << enum view_kind. */
size_t temporaries_that_became(struct temporaries *temporaries, uint64_t object, uint64_t first,
                               uint64_t last, unsigned views, struct inode **inodes);

#endif
