/* Looks which mount is at a path; unmounts it, or ends its connection. */
#include "fs/daemon/at_mount_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/fuse_connection.h"
#include "common/mounts.h"
#include "fs/daemon/options.h"

int mount_point_open(const char *number, const char *path)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && mounts_number(fd) == atoi(number))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int fail(const char *why)
{
    printf("%s\n", why);
    return EXIT_MOUNT_FAILED;
}

/* While the mount is open no other one has the number of its connection. */
static int end_connection(int mount)
{
    unsigned number;
    int fd = mounts_connection(mounts_number(mount), &number) ? fuse_connection_open(number) : -1;
    bool is_ended = fd >= 0 && fuse_connection_abort(fd);
    int error = errno;
    if (fd >= 0)
        close(fd);
    close(mount);
    return is_ended ? EXIT_DONE : fail(strerror(error));
}

/* umount(2) knows paths only. Between the look and the call the mount point can still be exchanged, but only for
 * another directory beside it, by who may remove those. */
static int unmount(int mount, const char *path, char **arguments)
{
    int flags = UMOUNT_NOFOLLOW;
    for (; *arguments; arguments++)
        flags |= strcmp(*arguments, "-f") == 0   ? MNT_FORCE
                 : strcmp(*arguments, "-l") == 0 ? MNT_DETACH
                                                 : 0;
    close(mount); /* it would be busy */
    if (umount2(path, flags) == 0)
        return EXIT_DONE;
    return fail(errno == EBUSY ? "target is busy" : strerror(errno));
}

int at_mount_point(int n, char **arguments)
{
    bool ends = n == 3 && strcmp(arguments[2], "abort") == 0;
    if (!ends && (n < 3 || strcmp(arguments[2], "unmount") != 0))
        return EXIT_USAGE;
    int mount = mount_point_open(arguments[0], arguments[1]);
    if (mount < 0)
        return fail("another mount is there now, or none");
    return ends ? end_connection(mount) : unmount(mount, arguments[1], arguments + 3);
}
