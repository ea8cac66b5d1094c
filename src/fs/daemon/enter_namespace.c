/* Looks at a mount namespace, enters it, and executes a program. The file of the namespace is opened once. */
#include "fs/daemon/enter_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/daemon/detach.h"
#include "fs/daemon/options.h"

#define OWN_USERS "/proc/self/ns/user"

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_mount_namespace(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 && system.f_type == NSFS_MAGIC &&
           ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNS;
}

/* The kernel does not show an owner that is none of ours, or of those below. */
static bool is_of_our_users(int fd)
{
    struct stat own, its;
    int owner = ioctl(fd, NS_GET_USERNS);
    bool is_ours =
        owner >= 0 && fstat(owner, &its) == 0 && stat(OWN_USERS, &own) == 0 && is_same(&own, &its);
    if (owner >= 0)
        close(owner);
    return is_ours;
}

/* NULL, or why not. */
static const char *enter(int fd)
{
    struct stat before, after;
    if (!is_mount_namespace(fd))
        return "not a mount namespace";
    if (!is_of_our_users(fd))
        return "not entered: the mount namespace belongs to another user namespace, and programs "
               "would be run from it";
    if (stat("/", &before) < 0 || setns(fd, CLONE_NEWNS) < 0 || stat("/", &after) < 0)
        return strerror(errno);
    if (!is_same(&before, &after))
        return "not entered: the mount namespace has another root directory, and programs would be "
               "run from it";
    return NULL;
}

int enter_namespace(int n, char **arguments)
{
    if (n < 2 || arguments[1][0] != '/')
        return EXIT_USAGE;
    int fd = open(arguments[0], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const char *why = fd < 0 ? strerror(errno) : enter(fd);
    if (fd >= 0)
        close(fd);
    if (why)
        return daemon_fail(arguments[0], why);
    execv(arguments[1], arguments + 1);
    return daemon_fail(arguments[1], strerror(errno));
}
