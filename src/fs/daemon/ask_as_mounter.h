/* What umount.sparsefs of root asks a mount of another user. Without allow_other only processes of
 * that user may look into it, and those he could take over (ptrace(2), /proc/PID/mem), and with them
 * the terminal and the environment of root. So a process of root's becomes one of his that nobody can
 * trace, opens what it was told to, and executes nothing.
 *
 * It may wait for the daemon, or be ended by that user, at any point: nobody must depend on it. */
#ifndef SPARSEFS_FS_DAEMON_ASK_AS_MOUNTER_H
#define SPARSEFS_FS_DAEMON_ASK_AS_MOUNTER_H

#define ASK_AS_MOUNTER "--as-mounter" /* the first argument of the program; not for users */

/* The arguments behind that:
 *
 *     UID:GID pid MOUNT DIRECTORY       prints the number in DIRECTORY/.sparsefs/pid
 *     UID:GID commit MOUNT DIRECTORY    fsync(2) of the directory
 *     UID:GID lock FILE                 prints device and inode as /proc/locks has them
 *
 * MOUNT is the number in mountinfo of the mount that must be there. Returns an exit code, without a message. */
int ask_as_mounter(int n, char **arguments);

#endif
