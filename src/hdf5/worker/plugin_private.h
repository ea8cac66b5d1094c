/* Processes of plugins, for the files plugin_*.c only. A process is used by one thread. */
#ifndef SPARSEFS_HDF5_WORKER_PLUGIN_PRIVATE_H
#define SPARSEFS_HDF5_WORKER_PLUGIN_PRIVATE_H

#include <sys/types.h>

#include "hdf5/worker/channel.h"
#include "hdf5/worker/plugin_pool.h"

#define PLUGIN_MOST_TRIES 10 /* of one call, if others kill the process */
#define PLUGIN_MOST_TIMES 2  /* the time of a chunk: if it took more there is no other try */

struct plugin_process {
    struct plugin_process *next; /* of those that are idle */
    pid_t pid;
    int socket; /* -1: it has not been started */
    unsigned char *shared;
    size_t room; /* bytes of that */
    int ids[PLUGINS_MOST_IDS];
    size_t n_ids;
    struct wire in;
};

/* may_end: waiting ends with -EINTR when the caller's thread is interrupted (interrupt.h). */

/* Leases a process, exclusively, until it is given back or ended. Which of the ids it has is known then, and it shares
 * so many bytes, or more. -ENOMEM, -EIO; -EPIPE: it was killed by others while it was started. */
int plugin_take(const int *ids, size_t n_ids, size_t needed, bool may_end,
                struct plugin_process **out);

/* What one chunk has taken is not kept for those that take little. */
void plugin_give_back(struct plugin_process *process);

/* Ends one that is leased. */
void plugin_end(struct plugin_process *process);

bool plugin_has(const struct plugin_process *process, int id);

/* Asks it something. *is_lost: nothing can be expected of it any more, for which the error is the reason. Otherwise
 * an error is its answer: -EILSEQ, -EINVAL, -EOPNOTSUPP, -ENOMEM, or -EIO for all others. */
int plugin_exchange(struct plugin_process *process, const struct wire *request, bool may_end,
                    struct cursor *results, bool *is_lost);

/* Ends one that is lost: hdf5_error() says why it is no more. Returns whether that is its own doing: not if others have
 * killed it. */
bool plugin_bury(struct plugin_process *process, const char *what, int error);

/* Whether bytes on which processes have spent so many nanoseconds are given to another one. */
bool plugin_may_try_again(uint64_t spent);

#endif
