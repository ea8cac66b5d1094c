/* What the kernel knows of inodes (their pages and attributes, the names in a directory) is kept by
 * it for long; when something is written through one view, what it knows of all others that show
 * the same must be taken from it before the writer is told that he is done. Then whoever reads
 * next, by read(2) or from a mapping, sees what was written.
 *
 * The kernel is told by writing a message to it. It handles the message at once, in the thread that
 * writes it, and waits there for the locks of the pages in question. So that nothing waits in a
 * circle:
 *
 *   - Requests are served by threads that never do this. They hand the request, with its answer and
 *     what has changed, to others that do; afterwards another answers it (keeper.h).
 *   - While a WRITE of inode X goes on the kernel holds pages of X: locked, or, when it is one that
 *     the kernel makes of dirty pages of a mapping, as being written. Who is to invalidate X then
 *     waits, but nobody waits behind him: there is one more thread, which makes known what that
 *     WRITE has changed, and it is answered. Only if each of two is to invalidate the inode that
 *     the other writes to, as when a frame is written through two of its views at the same time,
 *     the second is answered as soon as its own invalidations are in the queue, and these are made
 *     soon after.
 *   - The pages of X itself are right by themselves, unless they were invalidated while the WRITE
 *     was on its way (recent.h). Then they are invalidated last of all, and because these may be
 *     the ones that the kernel holds, the WRITE is answered a moment later in any case.
 *   - A truncation of X keeps WRITEs of dirty pages of X back until it is answered. So these, too,
 *     come last, and for a second at most.
 *   - Closing and syncing hold no pages: they are answered when all that was in the queue is done,
 *     and so is opening a view. So who has closed or synced what he has written, and who opens what
 *     others have, finds nothing older.
 *   - Closing what waits for the last close (staging.h) is answered when the kernel was told of
 *     all other views and nobody has looked at one meanwhile; otherwise it is told again.
 *   - Against a disk that does not give what a reader's pages wait for, and what we do not know of
 *     kernels to come, no answer is held back longer than a second, or where it is that of such a
 *     close, twenty.
 *
 * Most of what is written nobody has looked at: a fixed table of bits, a few for every inode that
 * the kernel may know, says so without asking. A bit that is set for another inode costs a message.
 *
 * Attributes of an inode that the kernel does not know yet must not be read before a change and
 * arrive after its message: who answers a look-up does so between notify_begin_lookup and
 * notify_end_lookup, and before messages are sent look-ups under way are waited for.
 *
 * All functions accept NULL as the notify of a mount that cannot be written. Thread-safe. */
#ifndef SPARSEFS_FS_NOTIFY_H
#define SPARSEFS_FS_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/fuse.h"
#include "fs/inode.h"
#include "fs/keeper.h"
#include "fs/node.h"

struct notify;
struct temporaries;

/* Of a session that is mounted. keeper: for the threads that tell the kernel. temporaries: or NULL.
 */
int notify_create(struct nodes *nodes, struct temporaries *temporaries,
                  struct fuse_session *session, struct keeper *keeper, struct notify **notify);

/* After the session's loop has ended: answers what is unanswered. Serves the requests that are
 * still there, because an invalidation may wait for them. */
void notify_destroy(struct notify *notify);

/* The kernel may get to know an inode: to be said before its attributes are read. */
void notify_known(struct notify *notify, struct inode inode);
void notify_begin_lookup(struct notify *notify);
void notify_end_lookup(struct notify *notify);

/* The kinds of views that show what frames hold. */
#define CHANGED_VIEWS ((1u << VIEW_KINDS) - 1)

/* What has changed. Of a group: the names in it. */
struct change {
    const struct node *node; /* a dataset or a group; hard links to it are meant, too */
    uint64_t first, last;    /* frames whose views show something else now; first > last: none */
    unsigned views;       /* bits: 1 << enum view_kind of those views, also of the whole dataset */
    bool names;           /* the directories of the frames have more names */
    bool only_attributes; /* times: bytes, names and sizes are as they were */
};

/* How a request is answered. */
struct answer {
    enum {
        ANSWER_ERROR,
        ANSWER_WRITTEN,
        ANSWER_ATTRIBUTES,
        ANSWER_ENTRY,
        ANSWER_OPENED,
        ANSWER_CLOSED
    } kind;
    int error;                     /* 0 or negative errno */
    size_t written;                /* bytes, */
    uint64_t offset;               /* from there on; */
    bool is_of_map;                /* dirty pages, which the kernel keeps until this is answered */
    struct stat st;                /* ANSWER_ATTRIBUTES, */
    double timeout;                /* seconds, and how long they hold */
    struct fuse_entry_param entry; /* ANSWER_ENTRY */
    struct fuse_file_info info;    /* ANSWER_OPENED: its file is put if the request was interrupted
                                    */
    struct inode inode;            /* ANSWER_CLOSED: the view and frame that staging_close is of */
};

/* Answers a look-up, or one that has found nothing; the kernel forgets the inode if nobody waits.
 */
void answer_entry(fuse_req_t request, const struct fuse_entry_param *entry);

/* Sends an answer now. */
void answer_now(fuse_req_t request, const struct answer *answer);

/* After a change: answers when the kernel knows nothing older any more. writer: the inode of which
 * the kernel holds pages until this is answered: those that a WRITE has put there, or that a
 * truncation keeps from being written; 0: none. request may be NULL: nobody waits. */
void notify_change(struct notify *notify, const struct change *change, uint64_t writer,
                   fuse_req_t request, const struct answer *answer);

/* Of a change that is answered now, and after which the kernel will clear pages of its own that
 * show something else: invalidates again and again for a while, as it does not say when it has done
 * so.
 */
void notify_again(struct notify *notify, const struct change *change);

/* To be called before bytes of a view are read for the kernel. */
void notify_read(struct notify *notify, uint64_t inode, uint64_t offset, size_t n);

/* Answers when the invalidations of everything that was changed before are made. */
void notify_answer(struct notify *notify, fuse_req_t request, const struct answer *answer);

#endif
