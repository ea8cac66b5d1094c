/* Processes that workers are forked from. They were forked themselves before the program had
 * threads or had opened a file, so that workers have nothing of it but its code; and they are their
 * parents, which learn how they end. They end with the program, which waits for them when it exits.
 */
#ifndef SPARSEFS_HDF5_WORKER_ZYGOTE_H
#define SPARSEFS_HDF5_WORKER_ZYGOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The workers of libhdf5, and those for images, are confined from the beginning; those for plugins
 * still have to load them, and do it themselves then. */
struct zygote;
extern struct zygote zygote_of_libhdf5, zygote_of_plugins, zygote_of_images;

/* Forks it. prepare: what is done in it once; work: what a worker does with its socket; memory: see
 * confine.h, of those that are confined. -EALREADY: it runs; errors of fork(2) and
 * socketpair(2). Not for threads. */
int zygote_start(struct zygote *zygote, void (*prepare)(void), void (*work)(int socket),
                 size_t memory);

/* What was said of memory then. */
size_t zygote_memory(const struct zygote *zygote);

/* Forks a worker. *socket is our end of its socket. -EPIPE: the zygote is gone; -ETIMEDOUT: it does not
 * answer; -EPROTO: it got no socket; errors of fork(2), socketpair(2), sendmsg(2). Any thread, as the next. */
int zygote_fork(struct zygote *zygote, pid_t *pid, int *socket);

/* How a worker has ended. */
struct worker_end {
    int status;    /* as waitpid(2) */
    bool lived_on; /* it was ended by us */
};

/* Learns how a worker has ended, and ends one that lives on after so many nanoseconds. -EPIPE: the zygote is
 * gone; -ETIMEDOUT: it does not answer, or the worker cannot be ended; errors of waitpid(2), sendmsg(2); *end is zeroed
 * then. */
int zygote_end(struct zygote *zygote, pid_t pid, uint64_t patience, struct worker_end *end);

/* Nanoseconds for one whose socket is closed, as it is when it ends: for its status. */
#define WORKER_PATIENCE 1000000000

#endif
