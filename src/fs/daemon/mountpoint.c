/* Looking at a mount point before it is used, and at what mounting wants after it has failed. */
#include "fs/daemon/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/mounts.h"
#include "fs/daemon/detach.h"
#include "fs/daemon/options.h"
#include "fs/fuse.h"

#define FUSE_SUPER_MAGIC 0x65735546
#define DESCRIPTOR_NAME  64
#define MOST_TRIES       100 /* while its path changes */

#define FUSE_DEVICE   "/dev/fuse"
#define MOUNT_PROGRAM "fusermount3"
#define CONFIGURATION "/etc/fuse.conf"
#define OTHER_WAYS    "mount as root, or in a user namespace: unshare --user --map-root-user --mount"

bool mountpoint_is_descriptor(const char *mountpoint)
{
    unsigned fd;
    int n = 0;
    return sscanf(mountpoint, "/dev/fd/%u%n", &fd, &n) == 1 && mountpoint[n] == '\0';
}

static bool is_empty_directory(int fd, int *error)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
    DIR *directory = own < 0 ? NULL : fdopendir(own);
    *error = directory ? 0 : errno;
    if (directory) {
        while (n <= 2 && readdir(directory))
            n++;
        closedir(directory);
    } else if (own >= 0) {
        close(own);
    }
    return n <= 2;
}

static int check(int fd, const char *path, bool may_be_full)
{
    struct stat st;
    struct statfs fs;
    int error = 0;
    if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return daemon_fail(path,
                           errno == ENOTCONN
                               ? "the daemon of an earlier mount here has died: unmount it first"
                               : strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return daemon_fail(path, "the mount point is not a directory");
    if (fs.f_type == FUSE_SUPER_MAGIC && st.st_ino == FUSE_ROOT_ID)
        return daemon_fail(path, "the mount point is busy: something is mounted there already");
    if (!may_be_full && !is_empty_directory(fd, &error))
        return daemon_fail(path, "the mount point is not empty (-o nonempty mounts over it)");
    if (!error || may_be_full)
        return 0;
    daemon_fail(path, strerror(error));
    return error == EACCES ? EXIT_USAGE : EXIT_MOUNT_FAILED;
}

int mountpoint_check(struct options *options)
{
    if (mountpoint_is_descriptor(options->mountpoint))
        return 0;
    options->mountpoint_fd = open(options->mountpoint, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char *where = mountpoint_where(options);
    if (where) {
        free(options->mountpoint);
        options->mountpoint = where;
    }
    return check(options->mountpoint_fd, options->mountpoint, options->nonempty);
}

/* ---- The directory, whatever its path is ---- */

/* The path of a descriptor of this thread. */
static char *path_of(int fd)
{
    char link[48], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, path, sizeof(path));
    return n > 0 && n < (ssize_t)sizeof(path) && path[0] == '/' ? strndup(path, (size_t)n) : NULL;
}

char *mountpoint_where(const struct options *options)
{
    return path_of(options->mountpoint_fd);
}

int mountpoint_open(const char *where)
{
    int fd = open(where, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char *path = path_of(fd);
    bool is_there = path && strcmp(path, where) == 0;
    free(path);
    if (fd >= 0 && !is_there) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* What is mounted on the directory, and has that number, if one is known. */
static int open_mounted(const struct options *options, int number)
{
    int fd = -1;
    for (unsigned i = 0; i < MOST_TRIES && fd < 0; i++) {
        char *where = mountpoint_where(options);
        fd = where ? mountpoint_open(where) : -1;
        free(where);
    }
    int found = fd < 0 ? -1 : mounts_number(fd);
    if (found >= 0 && found != mounts_number(options->mountpoint_fd) &&
        (number < 0 || found == number))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A name of the descriptor for libfuse and for what that may run. (The pid is the one that this /proc has.) */
static bool name_descriptor(int fd, char name[DESCRIPTOR_NAME])
{
    char self[16];
    ssize_t n = fd < 0 ? -1 : readlink("/proc/self", self, sizeof(self));
    if (n <= 0 || n == sizeof(self))
        return false;
    snprintf(name, DESCRIPTOR_NAME, "/proc/%.*s/fd/%d", (int)n, self, fd);
    return true;
}

int mountpoint_mount(const struct options *options, struct fuse_session *session,
                     struct mounted_here *mounted)
{
    char name[DESCRIPTOR_NAME];
    *mounted = (struct mounted_here){.options = options, .number = -1};
    mounted->by_descriptor =
        geteuid() == 0 && !options->auto_unmount && name_descriptor(options->mountpoint_fd, name);
    int error = fuse_session_mount(session, mounted->by_descriptor ? name : options->mountpoint);
    int fd = error || !mounted->by_descriptor ? -1 : open_mounted(options, -1);
    if (fd >= 0) {
        mounted->number = mounts_number(fd);
        close(fd);
    }
    return error;
}

/* libfuse unmounts what has the name that it has mounted on: after this the mount itself, if that is still there,
 * else something that is no mount. */
static void give_name_to_mount(const struct mounted_here *mounted)
{
    int fd = open_mounted(mounted->options, mounted->number);
    if (fd < 0)
        fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0 || dup3(fd, mounted->options->mountpoint_fd, O_CLOEXEC) < 0)
        close(mounted->options->mountpoint_fd);
    if (fd >= 0)
        close(fd);
}

void mountpoint_unmount(const struct mounted_here *mounted, struct fuse_session *session)
{
    if (mounted->by_descriptor)
        give_name_to_mount(mounted);
    fuse_session_unmount(session);
    if (mounted->by_descriptor)
        close(mounted->options->mountpoint_fd);
}

/* ---- Why it failed ---- */

/* Finds a program as execvp does. */
static bool find_program(const char *name, char *path, size_t n, struct stat *st)
{
    const char *folders = getenv("PATH");
    for (const char *folder = folders ? folders : "/bin:/usr/bin"; folder;) {
        size_t length = strcspn(folder, ":");
        snprintf(path, n, "%.*s/%s", (int)length, folder, name);
        if (stat(path, st) == 0 && S_ISREG(st->st_mode) && access(path, X_OK) == 0)
            return true;
        folder = folder[length] ? folder + length + 1 : NULL;
    }
    return false;
}

/* Whether fusermount3 lets users do that. True, too, if its configuration cannot be read. */
static bool users_may_let_in_others(void)
{
    FILE *file = fopen(CONFIGURATION, "re");
    bool may = !file && errno != ENOENT;
    char line[256], word[sizeof(line)];
    while (file && !may && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "#")] = '\0';
        int end = 0;
        may = sscanf(line, "%255s %n", word, &end) == 1 && !line[end] &&
              !strcmp(word, "user_allow_other");
    }
    if (file)
        fclose(file);
    return may;
}

static void explain_program(bool for_others)
{
    char path[4096];
    struct stat st;
    if (!find_program(MOUNT_PROGRAM, path, sizeof(path), &st))
        daemon_fail(MOUNT_PROGRAM, "is not there (package fuse3); without it, " OTHER_WAYS);
    else if (!(st.st_mode & S_ISUID) || st.st_uid != 0)
        daemon_fail(path, "is not setuid root, so users cannot mount by it; " OTHER_WAYS);
    else if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        daemon_fail(path, "has no rights here (no_new_privs, as in many containers); " OTHER_WAYS);
    else if (for_others && !users_may_let_in_others())
        daemon_fail(CONFIGURATION, "has no line \"user_allow_other\", so only root may use "
                                   "allow_other and allow_root: let root add the line, or mount "
                                   "without the option");
}

void mountpoint_explain(bool for_others)
{
    int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    else if (errno == ENOENT)
        daemon_fail(FUSE_DEVICE, "is not there: \"modprobe fuse\" makes it; into a container it is "
                                 "let by --device " FUSE_DEVICE);
    else if (errno == ENODEV || errno == ENXIO)
        daemon_fail(FUSE_DEVICE, "the kernel has no FUSE: \"modprobe fuse\"");
    else if (errno == EACCES || errno == EPERM)
        daemon_fail(FUSE_DEVICE,
                    "may not be opened by this user (its mode is 0666 on most systems), "
                    "or by this container");
    if (fd >= 0 && geteuid() != 0)
        explain_program(for_others);
}
