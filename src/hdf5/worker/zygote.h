/* The process that workers are forked from. It was forked itself before the program had threads or
 * had opened a file, so that workers have nothing of it but its code; and it is their parent, which
 * learns how they end. It ends with the program. */
#ifndef SPARSEFS_HDF5_WORKER_ZYGOTE_H
#define SPARSEFS_HDF5_WORKER_ZYGOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Forks it. prepare: what is done in it once; work: what a worker does with its socket, confined;
 * memory: see confine.h. -EALREADY: there is one; errors of fork(2). Not for threads. */
int zygote_start(void (*prepare)(void), void (*work)(int socket), size_t memory);

/* Forks a worker. *socket is our end of its socket. -EPIPE: the zygote is gone; errors of fork(2),
 * socketpair(2). Any thread, as the next. */
int zygote_fork(pid_t *pid, int *socket);

/* Ends a worker, if it has not ended yet, and tells how it did, as waitpid(2). */
int zygote_end(pid_t pid, int *status);

#endif
