/* Looks which mount is at a path; asks it, unmounts it, or ends its connection. */
#include "fs/daemon/at_mount_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/fuse_connection.h"
#include "common/mounts.h"
#include "fs/daemon/options.h"

#define FIRST_OTHER 3 /* descriptor that is none of the standard ones */
#define PID_DIGITS  10
#define ASK_FLAGS   (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

int mount_point_open(const char *number, const char *path)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && mounts_number(fd) == atoi(number))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* No link is followed, and nothing but digits is believed. */
bool mount_point_tell_pid(int mount)
{
    char text[PID_DIGITS + 2] = "";
    int folder = openat(mount, ".sparsefs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = folder < 0 ? -1 : openat(folder, "pid", O_RDONLY | ASK_FLAGS);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    size_t digits = strspn(text, "0123456789");
    return n > 0 && digits > 0 && digits <= PID_DIGITS &&
           !text[digits + strspn(text + digits, "\n")] && printf("%.*s\n", (int)digits, text) > 0 &&
           fflush(stdout) == 0;
}

bool mount_point_commit(int mount)
{
    int fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | ASK_FLAGS);
    return fd >= 0 && fsync(fd) == 0;
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

/* It may wait for the daemon for ever, and holds nothing then. */
static int ask(const char *number, const char *path, bool (*question)(int mount))
{
    descriptors_close_from(FIRST_OTHER);
    int mount = mount_point_open(number, path);
    setsid(); /* no terminal that /dev/tty could mean */
    return mount >= 0 && question(mount) ? EXIT_DONE : EXIT_SYSTEM;
}

int at_mount_point(int n, char **arguments)
{
    const char *what = n < 3 ? "" : arguments[2];
    if (n == 3 && strcmp(what, "pid") == 0)
        return ask(arguments[0], arguments[1], mount_point_tell_pid);
    if (n == 3 && strcmp(what, "commit") == 0)
        return ask(arguments[0], arguments[1], mount_point_commit);
    bool ends = n == 3 && strcmp(what, "abort") == 0;
    if (!ends && strcmp(what, "unmount") != 0)
        return EXIT_USAGE;
    int mount = mount_point_open(arguments[0], arguments[1]);
    if (mount < 0)
        return fail("another mount is there now, or none");
    return ends ? end_connection(mount) : unmount(mount, arguments[1], arguments + 3);
}
