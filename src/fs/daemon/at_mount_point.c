/* Looks which mount is at a path, and unmounts it. */
#include "fs/daemon/at_mount_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

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
    if (n < 3 || strcmp(arguments[2], "unmount") != 0)
        return EXIT_USAGE;
    int mount = mount_point_open(arguments[0], arguments[1]);
    if (mount < 0)
        return fail("another mount is there now, or none");
    return unmount(mount, arguments[1], arguments + 3);
}
