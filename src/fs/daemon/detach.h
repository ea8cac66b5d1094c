/* Daemonising: the parent process stays until the child reports success or failure, and returns its
 * exit code, with stderr still the user's. */
#ifndef SPARSEFS_FS_DAEMON_DETACH_H
#define SPARSEFS_FS_DAEMON_DETACH_H

/* Says on stderr, in one line, why it cannot begin; returns EXIT_MOUNT_FAILED. */
int daemon_fail(const char *path, const char *why);

/* Forks. In the parent it does not return: the process ends with 0 once the child says so, with the
 * child's exit code if it ends before, with 8 if the child was interrupted, or with 4 if another signal
 * has killed it. Returns 0 in the child; -errno if nothing was forked. */
int daemon_begin(void);

/* In the child: reports success to the parent, which ends, and detaches from its session, working
 * directory and descriptors 0 to 2. Without daemon_begin (in the foreground) this does nothing. */
void daemon_ready(void);

#endif
