/* The threads that serve the requests of a mount, and the signals that end it.
 *
 * libfuse's own loop is not used: when a signal ends it, a request that was just read is dropped,
 * and so is one whose reader is cancelled. Its caller would keep pages of a file locked, an
 * invalidation of these (kernel_invalidate.h) would wait for it, and the daemon for that, for ever. Here a
 * thread ends between two requests only; requests that are still in the kernel can be served by
 * others. No signal is lost: those that end the mount are blocked in all threads and waited for. A
 * second one must not prevent the last commit: they stay blocked, and SIGKILL ends it
 * without waiting. */
#ifndef SPARSEFS_FS_DAEMON_LOOP_H
#define SPARSEFS_FS_DAEMON_LOOP_H

#include "fs/fuse.h"

struct loop;

/* From now on, and when the loop is gone, too, SIGTERM, SIGINT and SIGHUP, unless they are ignored,
 * do nothing but end loop_run, which the same thread must call. threads: at most so many, and as
 * many more as have waited, or taken longer than a second for a request, at a time. */
int loop_create(struct fuse_session *session, unsigned threads, struct loop **loop);

/* Serves until the mount is gone, such a signal comes, or loop_end is called. Requests are still
 * served when it returns. 0; -EAGAIN: no thread could be started. */
int loop_run(struct loop *loop);
void loop_end(struct loop *loop); /* any thread */

/* Around what a thread waits for that serves a request, if that may take the serving of another
 * one: another thread reads requests meanwhile, however many wait; also when the loop ends, if it has not when the wait
 * begins: one that is begun later ends without further requests. In the midst of such a wait of the same thread they
 * do nothing. Any thread; one that serves no requests is not among the `threads`. */
void loop_begin_wait(struct loop *loop);
void loop_end_wait(struct loop *loop);

/* Ends the threads, each after the request that it serves. Returns what reading requests has failed
 * with, or 0. */
int loop_stop(struct loop *loop);

/* NULL is fine. */
void loop_destroy(struct loop *loop);

#endif
