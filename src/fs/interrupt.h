/* Requests that take long end early when whoever has made them no longer waits, or when the mount
 * ends. Those that write, or apply what was written, do so before the first change: it is told, as
 * the request fails with EINTR. A signal for which a program has a handler ends only those that look: others
 * end for one that ends the program. Commits that have begun do not. Of those that can end the thread is no longer
 * counted when they take long (loop_begin_wait): others are served, however many of them there are. */
#ifndef SPARSEFS_FS_INTERRUPT_H
#define SPARSEFS_FS_INTERRUPT_H

#include <stdbool.h>

#include "fs/fuse.h"

/* To the end of the block this thread serves a request that may be ended by -EINTR: as soon as the
 * mount ends if it only looks, else when it has taken a while; and by FUSE_INTERRUPT then, too: a
 * program that is sent a signal is not to see short requests fail for that. */
#define LOOKING(request)  INTERRUPTIBLE(request, REQUEST_LOOKS)
#define CHANGING(request) INTERRUPTIBLE(request, REQUEST_CHANGES)
#define CLOSING(request)  INTERRUPTIBLE(request, REQUEST_CLOSES) /* what cannot be repeated */
#define INTERRUPTIBLE(request, kind)                                                               \
    __attribute__((cleanup(interruptible_end), unused)) int interruptible =                        \
        interruptible_begin(request, kind)
enum request_kind { REQUEST_LOOKS, REQUEST_CHANGES, REQUEST_CLOSES };
int interruptible_begin(fuse_req_t request, enum request_kind kind);
void interruptible_end(const int *interruptible);

/* Until the end of the block the request cannot be interrupted: a commit that has begun is finished. */
#define NOT_INTERRUPTIBLE()                                                                        \
    __attribute__((cleanup(interruptible_again), unused)) bool was_interruptible =                 \
        interruptible_not()
bool interruptible_not(void);
void interruptible_again(const bool *was);

/* The same for what nobody waits for, as it is done after the last close: it ends early only when the mount ends and it
 * has taken a while; of several one after the other those that come behind one that did have less time. In a request,
 * or when no more are served. */
#define FINISHING(mount)                                                                           \
    __attribute__((cleanup(finishing_end), unused)) struct finishing finishing =                   \
        finishing_begin(mount)
struct mount;
struct finishing {
    bool was_interruptible, gave_way;
    enum request_kind kind;
    fuse_req_t request;
};
struct finishing finishing_begin(const struct mount *mount);
void finishing_end(const struct finishing *finishing);

/* The mount ends. */
void interrupt_all(void);

#endif
