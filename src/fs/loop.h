/* The threads that serve the requests of a mount, and the signals that end it.
 *
 * libfuse's own loop is not used: when a signal ends it, a request that was just read is dropped,
 * and so is one whose reader is cancelled. Whoever has made it keeps the pages of a file locked, an
 * invalidation of these (notify.h) waits for him, and the daemon for that, for ever. Here a thread
 * ends between two requests only; what is still in the kernel can be served by others. And no
 * signal is lost: those that end the mount are blocked everywhere and waited for. */
#ifndef SPARSEFS_FS_LOOP_H
#define SPARSEFS_FS_LOOP_H

#include "fs/fuse.h"

struct loop;

/* From now on SIGTERM, SIGINT and SIGHUP, unless they are ignored, wait for loop_run, which the
 * same thread must call. threads: at most so many. */
int loop_create(struct fuse_session *session, unsigned threads, struct loop **loop);

/* Serves until the mount is gone, such a signal comes, or loop_end is called. Requests are still
 * served when it returns. */
int loop_run(struct loop *loop);
void loop_end(struct loop *loop); /* any thread */

/* Ends the threads, each after the request that it serves. Returns what reading requests has failed
 * with, or 0. */
int loop_stop(struct loop *loop);

/* Signals are as they were before; more of those that have ended it count for nothing. NULL is
 * fine. */
void loop_destroy(struct loop *loop);

#endif
