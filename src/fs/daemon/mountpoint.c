/* Looking at a mount point before it is used, and at what mounting wants after it has failed. */
#include "fs/daemon/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fs/daemon/detach.h"
#include "fs/daemon/options.h"
#include "fs/fuse.h"

#define FUSE_SUPER_MAGIC 0x65735546
#define FUSE_DEVICE      "/dev/fuse"
#define MOUNT_PROGRAM    "fusermount3"
#define CONFIGURATION    "/etc/fuse.conf"
#define OTHER_WAYS       "mount as root, or in a user namespace: unshare --user --map-root-user --mount"

bool mountpoint_is_descriptor(const char *mountpoint)
{
    unsigned fd;
    int n = 0;
    return sscanf(mountpoint, "/dev/fd/%u%n", &fd, &n) == 1 && mountpoint[n] == '\0';
}

static bool is_empty_directory(const char *path, int *error)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, NULL);
    *error = n < 0 ? errno : 0;
    for (int i = 0; i < n; i++)
        free(names[i]);
    if (n >= 0)
        free(names);
    return n <= 2;
}

int mountpoint_check(const char *path, bool may_be_full)
{
    struct stat st;
    struct statfs fs;
    int error = 0;
    if (mountpoint_is_descriptor(path))
        return 0;
    if (stat(path, &st) < 0 || statfs(path, &fs) < 0)
        return daemon_fail(path,
                           errno == ENOTCONN
                               ? "the daemon of an earlier mount here has died: unmount it first"
                               : strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return daemon_fail(path, "the mount point is not a directory");
    if (fs.f_type == FUSE_SUPER_MAGIC && st.st_ino == FUSE_ROOT_ID)
        return daemon_fail(path, "the mount point is busy: something is mounted there already");
    if (!may_be_full && !is_empty_directory(path, &error))
        return daemon_fail(path, "the mount point is not empty (-o nonempty mounts over it)");
    if (!error || may_be_full)
        return 0;
    daemon_fail(path, strerror(error));
    return error == EACCES ? EXIT_USAGE : EXIT_MOUNT_FAILED;
}

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
