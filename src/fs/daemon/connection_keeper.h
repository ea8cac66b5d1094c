/* What a daemon that is killed leaves behind has an end, too.
 *
 * When a daemon dies the kernel fails all requests that it has not answered; it does so when the
 * daemon's descriptors are closed, which is when the last of its threads is gone. But the threads
 * that invalidate (kernel_invalidate.h) may be waiting in the kernel, where no signal reaches them, for pages
 * that are locked until just such a request is answered. Then daemon, users and the lock of the
 * file would stay for ever. So
 *
 *   - those threads have a table of descriptors of their own. In it is a second descriptor of the
 *     connection, through which no request is ever read. When the others are gone all else is
 *     closed: the file is unlocked, and requests that were read have failed;
 *   - those that were not read are left to the keeper: a small process that holds a third such
 *     descriptor, does nothing as long as the daemon lives, and then fails what comes until the
 *     threads are gone. Its own end takes the connection with it.
 *
 * None of this wants more rights than mounting does. */
#ifndef SPARSEFS_FS_DAEMON_CONNECTION_KEEPER_H
#define SPARSEFS_FS_DAEMON_CONNECTION_KEEPER_H

#include <stdint.h>

struct keeper;

/* Forks: to be called before there are threads, and before files are opened. -ENOMEM; errors of
 * socketpair(2) and fork(2). */
int keeper_create(struct keeper **keeper);

/* Ends it: after the last invalidation, and before the session is unmounted, which would wait for a
 * connection that is still open. NULL is fine. */
void keeper_destroy(struct keeper *keeper);

/* Called by the first thread that invalidates, before all else: gives it the table of its own,
 * which those that it starts share. From then on they must not use, open or log anything. session:
 * the descriptor from which requests are read. Returns the one for keeper_invalidate: session where
 * the thread could not get a table of its own, and nothing has changed; else 0. keeper NULL: there is
 * none, and requests that were not read fail only when the threads are gone. */
int keeper_part(struct keeper *keeper, int session);

/* Tells the kernel to forget the pages of n bytes (0: up to the end) at offset, or the names, and
 * the attributes of an inode. -ENOENT: it does not have it (kernel_missed.h). Other errors do not matter: there
 * is no connection any more. */
int keeper_invalidate(int connection, uint64_t inode, uint64_t offset, uint64_t n);

/* The same of the attributes alone. */
int keeper_invalidate_attributes(int connection, uint64_t inode);

/* Gives the calling thread an empty table of descriptors. One that asks its own mount for something
 * cannot be killed either before it is answered. */
void keeper_leave_descriptors(void);

#endif
