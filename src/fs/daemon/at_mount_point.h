/* What umount.sparsefs does to a mount that it has found: to that one alone, whatever is done meanwhile to its mount
 * point, its directories, or the number of its device, which another mount may get when it is gone. */
#ifndef SPARSEFS_FS_DAEMON_AT_MOUNT_POINT_H
#define SPARSEFS_FS_DAEMON_AT_MOUNT_POINT_H

#include <stdbool.h>

#define AT_MOUNT_POINT "--at-mount-point" /* the first argument of the program; not for users */

/* What the mount point is, if the mount of that number (in mountinfo, in decimal) is there; else negative. The mount is
 * not asked; it keeps its numbers as long as the descriptor is open. A link is not followed at the end of the path. */
int mount_point_open(const char *number, const char *path);

/* Prints the number in .sparsefs/pid of the mount, with a newline; fsync(2) of its root. No link is followed. False:
 * that has failed. */
bool mount_point_tell_pid(int mount);
bool mount_point_commit(int mount);

/* The arguments behind that:
 *
 *     MOUNT PATH pid                  mount_point_tell_pid; fails without a message, with EXIT_SYSTEM
 *     MOUNT PATH commit               mount_point_commit; the same
 *     MOUNT PATH abort                ends its connection: whoever waits for it gets an error
 *     MOUNT PATH unmount [FLAG]...    umount2(2); -f: MNT_FORCE, -l: MNT_DETACH, others are ignored
 *
 * Returns EXIT_DONE, EXIT_USAGE, or EXIT_MOUNT_FAILED after saying on standard output why, as far as that is known. */
int at_mount_point(int n, char **arguments);

#endif
