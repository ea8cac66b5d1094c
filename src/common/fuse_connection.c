/* Opens the file abort of a connection where fusectl is mounted, or where it is nowhere. */
#include "common/fuse_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef SYS_fsopen
#include <linux/mount.h>
#endif

#define CONNECTIONS "/sys/fs/fuse/connections"

/* A mount of fusectl that is nowhere: only root may make one. A negative number: none. Linux has
 * had these calls since 5.2, glibc since 2.36. */
static int mount_connections(void)
{
#ifdef SYS_fsopen
    int context = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC), folder = -1;
    if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        folder = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
    if (context >= 0)
        close(context);
    return folder;
#else
    return -1;
#endif
}

/* The file belongs to the user who mounted. */
int fuse_connection_open(unsigned number)
{
    char path[64];
    snprintf(path, sizeof(path), CONNECTIONS "/%u/abort", number);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int folder = fd < 0 && errno == ENOENT ? mount_connections() : -1;
    if (folder < 0)
        return fd;
    snprintf(path, sizeof(path), "%u/abort", number);
    fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    close(folder);
    return fd;
}

bool fuse_connection_is_of(int fd, uid_t user)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_uid == user;
}

bool fuse_connection_abort(int fd)
{
    return write(fd, "1", 1) == 1;
}
