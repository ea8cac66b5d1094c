/* Requests that take long end early when whoever has made them no longer waits, or when the mount
 * ends. Not those that write, flush or sync: what they were given is not to be lost (but see
 * write.c). Of those that
 * can end the thread is no longer counted when they take long (loop_begin_wait): others are served,
 * however many of them there are. */
#ifndef SPARSEFS_FS_INTERRUPT_H
#define SPARSEFS_FS_INTERRUPT_H

#include <stdbool.h>

#include "fs/fuse.h"

/* To the end of the block this thread serves a request that may be ended by -EINTR: as soon as the
 * mount ends if it only looks, else when it has taken a while; and by FUSE_INTERRUPT then, too: a
 * program that is sent a signal is not to see short requests fail for that. */
#define LOOKING(request)  INTERRUPTIBLE(request, true)
#define CHANGING(request) INTERRUPTIBLE(request, false)
#define INTERRUPTIBLE(request, only_looks)                                                         \
    __attribute__((cleanup(interruptible_end), unused)) int interruptible =                        \
        interruptible_begin(request, only_looks)
int interruptible_begin(fuse_req_t request, bool only_looks);
void interruptible_end(const int *interruptible);

/* Until the end of the block the request cannot be interrupted: changes by others are applied. */
#define NOT_INTERRUPTIBLE()                                                                        \
    __attribute__((cleanup(interruptible_again), unused)) bool was_interruptible =                 \
        interruptible_not()
bool interruptible_not(void);
void interruptible_again(const bool *was);

/* The mount ends. */
void interrupt_all(void);

#endif
