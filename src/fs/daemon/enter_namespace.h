/* What `mount -N` and `umount -N` are for the helpers: a program that is run in another mount namespace. All that it
 * is made of (itself, its libraries, a shell) is then found by paths there. So the namespace must be one whose mounts
 * are made by nobody who may do less than who calls: it belongs to the user namespace of the caller, not to one that
 * a user has made for himself, and has the same root directory, as that of a container, which is its users' to write,
 * has not. */
#ifndef SPARSEFS_FS_DAEMON_ENTER_NAMESPACE_H
#define SPARSEFS_FS_DAEMON_ENTER_NAMESPACE_H

#define IN_NAMESPACE "--in-namespace" /* the first argument of the program; not for users */

/* The arguments behind that: NAMESPACE (a file such as /proc/PID/ns/mnt), PROGRAM (absolute), and arguments for it.
 * Returns an exit code, after a message, if the program cannot be executed. */
int enter_namespace(int n, char **arguments);

#endif
