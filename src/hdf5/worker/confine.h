/* Taking from a process what it does not need to answer over a socket. */
#ifndef SPARSEFS_HDF5_WORKER_CONFINE_H
#define SPARSEFS_HDF5_WORKER_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

/* Once in a process that forks workers, or in a worker for plugins when it has loaded them: namespaces
 * without a network and with nothing but an empty folder for a root, where the kernel allows them. */
void confine_surroundings(void);

/* After it, when nothing needs the variables of the program any more: overwrites them. */
void confine_environment(void);

/* For a worker: memory is the most bytes of address space (0: no limit). After it the process can
 * use its memory and its sockets, and end, as it does with its parent; nothing is opened, started
 * or looked at any more. Landlock is left out where the kernel has none; false: the rest cannot be.
 */
bool confine_worker(size_t memory);

/* Whether nothing is known that would keep a worker from being confined: this process may become another user, if it
 * is root, and use a filter of system calls. */
bool confine_is_allowed(void);

/* The exit code of a worker that could not be confined. */
#define UNCONFINED 97

/* The part of it that is Landlock's, after PR_SET_NO_NEW_PRIVS: no file or folder; since version 4
 * no TCP, since 5 no ioctl(2) of a device, since 6 no abstract socket and no signal to others. The
 * version that is in force, as landlock_create_ruleset(2) counts; 0: none. */
int confine_landlock(void);

/* Whether a worker's system calls are filtered: libseccomp was there when this was built. */
bool confine_has_filter(void);

#endif
