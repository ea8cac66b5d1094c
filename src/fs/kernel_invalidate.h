/* Invalidating the kernel's caches of inodes (pages, attributes, names in a directory). When
 * something is written through one view, the caches of all views that show the same are
 * invalidated before the write is answered. So the next read, by read(2) or through a mapping,
 * sees it.
 *
 * An invalidation is a message to the kernel, which handles it in the thread that writes it, and
 * waits there for the locks of the pages. To avoid deadlocks:
 *
 *   - Threads that serve requests never invalidate. They pass the request, with its answer and the
 *     change, to worker threads, which have no descriptors to answer through
 *     (daemon/connection_keeper.h): one more thread, the guard, answers when they are done.
 *   - During a WRITE of inode X the kernel holds pages of X: locked, or under writeback if it
 *     writes dirty pages of a mapping. A worker that invalidates X waits for them, but nothing waits
 *     for that worker: another one makes the change of that WRITE known, and it is answered. A WRITE or
 *     truncation is answered at once, and its invalidations follow, if this could not go on: two each
 *     need the inode of the other to be invalidated, as when a frame is written through two of its
 *     views at once; or all workers are busy, and one of them may wait for the pages of this one.
 *   - The pages of X itself are right, unless they were invalidated while the WRITE was on its way
 *     (overtaken_reads.h). Then they are invalidated last, and the WRITE is answered 2 ms later at
 *     most, as the kernel may hold the pages until then.
 *   - A truncation of X delays WRITEs of dirty pages of X until it is answered. So the pages of X are
 *     invalidated last here, too, and it is answered a second later at most.
 *   - Other datasets that show elements of this one (virtual ones, previews with their mask) are invalidated after
 *     that, all by one worker: a READ of them that holds pages may take as long as other files. A WRITE or truncation
 *     does not wait for it.
 *   - Closing and syncing hold no pages: they are answered when everything queued before is done,
 *     and so is opening a view, but for what other datasets show if it shows nothing of others, or closing what
 *     was only read. So after a close, a sync or an open no outdated content is seen, but for a moment the
 *     attributes of an inode that is new to the kernel (kernel_missed.h).
 *   - Closing a file with something staged (staged_writes.h) is answered when the kernel was told of
 *     all other views and none was looked at meanwhile; otherwise it is told again.
 *   - No answer is delayed longer than a second, that of a truncation two, that of such a close
 *     twenty, of which one is for other datasets each time that it is told, whatever the disk of a reader that
 *     holds pages, or a future kernel, does. What is still queued then follows.
 *   - Changes that nobody waits for any more, and no worker has yet, are merged: those of one dataset or group and one
 *     writer; when there are very many, whoever has written, whose inode is then invalidated, too. So the queue has
 *     no more than those, and one for each request that the kernel waits for.
 *   - Without memory for its place in the queue a request is answered at once, and the kernel is not
 *     told of the change.
 *
 * Most changes concern inodes that were never looked up: a fixed table of bits, a few for every
 * inode that the kernel may know, tells which without a message. A false positive costs one.
 *
 * Attributes of an inode that the kernel does not know yet must not be read before a change and
 * arrive after its message. Reading them may take long, by what a file claims or a disk that is slow, and nobody waits
 * for that: if something has changed since they began to be read, they are answered so that the kernel keeps them for
 * no time. Giving such an answer alone (notify_begin_answer to notify_end_answer) is waited for before messages
 * are sent. Names of a directory that were read before some were changed are invalidated once they have been answered.
 *
 * NULL as notify: nothing of the mount can be written; requests are answered at once. Thread-safe. */
#ifndef SPARSEFS_FS_KERNEL_INVALIDATE_H
#define SPARSEFS_FS_KERNEL_INVALIDATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/answer.h"
#include "fs/daemon/connection_keeper.h"
#include "fs/fuse.h"
#include "fs/inode.h"
#include "fs/inodes_of_change.h"
#include "fs/kernel_known.h"
#include "fs/node.h"

struct notify;
struct temporaries;

/* Of a session that is mounted; all that is given stays the caller's, who keeps it until notify_destroy. keeper: holds
 * what the threads that invalidate do so through. temporaries may be NULL. -ENOMEM; errors of pthread_create. */
int notify_create(struct nodes *nodes, struct temporaries *temporaries,
                  struct fuse_session *session, struct keeper *keeper, struct notify **notify);

/* After the session's loop has ended: answers what is unanswered. Meanwhile it serves requests that
 * still come, as an invalidation may wait for them. NULL is fine. */
void notify_destroy(struct notify *notify);

/* The kernel may get to know an inode: to be called before its attributes are read. */
void notify_known(struct notify *notify, struct inode inode);

/* Before attributes or names are read that the kernel may keep; when they have been read: then look->is_old says
 * whether it may keep attributes for no time; and after the answer, between which nothing is waited for, nor any node
 * forgotten. */
void notify_begin_look(struct notify *notify, struct look *look);
void notify_begin_answer(struct notify *notify, struct look *look);
void notify_end_answer(struct notify *notify, const struct look *look);

/* After names of a group, or in the directories of a dataset, have been answered that were old: the kernel shall not
 * keep them. Does not wait. */
void notify_names_were_old(struct notify *notify, const struct node *node);

/* After a change: answers when the kernel knows nothing older any more, or as said above. writer: the inode of which
 * the kernel holds pages until this is answered: those that a WRITE has put there, or that a
 * truncation keeps from being written; 0: none. request may be NULL: none waits; then writer is 0, and answer may be
 * NULL, too. */
void notify_change(struct notify *notify, const struct change *change, uint64_t writer,
                   fuse_req_t request, const struct answer *answer);

/* Of a change that is answered now, and after which the kernel will clear pages of its own that
 * show something else: invalidates several times within 200 ms, as it does not say when it has done
 * so. Without memory fewer times, or never. */
void notify_again(struct notify *notify, const struct change *change);

/* To be called before bytes of a view are read for the kernel. */
void notify_read(struct notify *notify, uint64_t inode, uint64_t offset, size_t n);

/* Answers when the invalidations of everything that was changed before are made, but as late as said above. */
void notify_answer(struct notify *notify, fuse_req_t request, const struct answer *answer);

#endif
