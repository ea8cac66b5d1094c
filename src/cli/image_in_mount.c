/* Looks through the mounts for one of a file. */
#include "cli/image_in_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mounts.h"

#define ANSWER_SECONDS   10 /* of all together; one that is well takes microseconds */
#define MOST_ASKED       64
#define STATISTICS_BYTES ((size_t)64 << 10)

/* ---- In a process of its own, as whoever waits for a FUSE that does not answer cannot be ended ---- */

static unsigned long long number_in(const char *statistics, const char *key)
{
    unsigned long long number = 0;
    const char *found = strstr(statistics, key);
    return found && sscanf(found + strlen(key), ": %llu", &number) == 1 ? number : 0;
}

/* The table has the name that the file had when it was mounted: it may be another one's by now. */
static bool is_of(int folder, const struct stat *file)
{
    char statistics[STATISTICS_BYTES + 1];
    size_t n = 0;
    int fd = openat(folder, "stats.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || io_read(fd, statistics, STATISTICS_BYTES, &n) < 0)
        return false;
    statistics[n] = '\0';
    return number_in(statistics, "\"file_device\"") == file->st_dev &&
           number_in(statistics, "\"file_inode\"") == file->st_ino;
}

/* Links are not followed, and what is on the mount point must be the mount that was found. */
static int open_image(const struct mounts *mount, const struct stat *file)
{
    const int folder_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    int root = open(mount->point, folder_flags);
    int folder = root >= 0 && mounts_number(root) == mount->number
                     ? openat(root, ".sparsefs", folder_flags)
                     : -1;
    int image = folder >= 0 && is_of(folder, file)
                    ? openat(folder, "image.h5", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                    : -1;
    return image >= 0 && fstat(image, &st) == 0 && S_ISREG(st.st_mode) ? image : -1;
}

/* It keeps nothing else open: not a lock, nor a pipe that others read to its end. */
static void answer(int socket, const struct mounts *mount, const struct stat *file)
{
    const char found = 1;
    dup2(socket, 0);
    descriptors_close_from(1);
    int image = open_image(mount, file);
    if (image >= 0)
        (void)descriptor_send(0, &found, sizeof(found), image);
    _exit(0);
}

/* ---- The command ---- */

struct asked {
    char *point;
    pid_t pid;
    int socket;
    bool has_answered;
};

/* They are all asked at the same time: one that does not answer keeps nobody from another. */
static int ask(struct asked *asked, const struct mounts *mount, const struct stat *file)
{
    int ends[2];
    char *point = strdup(mount->point);
    int error = !point                                                            ? -ENOMEM
                : socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ? -errno
                                                                                  : 0;
    if (error) {
        free(point);
        return error;
    }
    pid_t pid = fork();
    if (pid == 0)
        answer(ends[1], mount, file);
    close(ends[1]);
    *asked = (struct asked){.point = point, .pid = pid, .socket = ends[0]};
    return 0;
}

/* What has answered, or ended, at a time of clock_now(); NULL: nothing by then. */
static struct asked *wait_for(struct asked *asked, size_t n, uint64_t until)
{
    struct pollfd waited[MOST_ASKED];
    uint64_t now = clock_now();
    for (size_t i = 0; i < n; i++)
        waited[i] =
            (struct pollfd){.fd = asked[i].has_answered ? -1 : asked[i].socket, .events = POLLIN};
    if (now >= until || poll(waited, n, (int)((until - now) / 1000000) + 1) <= 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (waited[i].revents)
            return &asked[i];
    return NULL;
}

/* A descriptor of the first image that one of them has; *point: its mount, which stays the asked one's. -1: none. */
static int receive(struct asked *asked, size_t n, const char **point)
{
    const uint64_t until = clock_now() + ANSWER_SECONDS * UINT64_C(1000000000);
    int image = -1;
    for (size_t left = n; left > 0 && image < 0; left--) {
        char found;
        struct asked *one = wait_for(asked, n, until);
        if (!one)
            break;
        one->has_answered = true;
        *point = one->point;
        (void)descriptor_receive(one->socket, &found, sizeof(found), &image);
    }
    return image;
}

/* Those that have not answered are named, if no other has. */
static void end(struct asked *asked, size_t n, const char *source, bool is_found)
{
    for (size_t i = 0; i < n; i++) {
        if (!asked[i].has_answered && !is_found)
            log_warning(
                "%s: the mount does not answer within %d s: it is not asked for the image of %s",
                asked[i].point, ANSWER_SECONDS, source);
        close(asked[i].socket);
        if (asked[i].pid > 0) {
            kill(asked[i].pid, SIGKILL);
            (void)waitpid(asked[i].pid, NULL, asked[i].has_answered ? 0 : WNOHANG);
        }
        free(asked[i].point);
    }
}

/* A lock proves nothing: who may read a file may lock it. */
static bool is_trusted(const struct mounts *mount, int file, const struct stat *st)
{
    uid_t user = (uid_t)mount->user;
    bool is_trusted = mount->user >= 0 && (user == 0 || user == geteuid() || user == st->st_uid ||
                                           acl_lets_write(file, st, user, acl_is_member));
    if (!is_trusted)
        log_warning("%s: the mount is not asked for the image of %s: user %u, who has mounted, may "
                    "not write that file",
                    mount->point, mount->source, user);
    return is_trusted;
}

static int find(int file, const char *path, struct mounted_image *image)
{
    struct asked asked[MOST_ASKED];
    struct stat st;
    struct mounts mounts;
    const char *point = NULL;
    size_t n = 0;
    int error = fstat(file, &st) < 0 ? -errno : 0;
    mounts_begin(&mounts);
    while (!error && n < MOST_ASKED && mounts_next(&mounts))
        if (mounts.is_writable && !strcmp(mounts.source, path) && is_trusted(&mounts, file, &st))
            n += ask(&asked[n], &mounts, &st) == 0;
    mounts_end(&mounts);
    image->fd = receive(asked, n, &point);
    if (!error)
        error = image->fd < 0 ? -ENOENT : 0;
    if (!error && asprintf(&image->path, "%s/.sparsefs/image.h5", point) < 0) {
        close(image->fd);
        error = -ENOMEM;
    }
    end(asked, n, path, !error);
    if (error)
        return error;
    image->st = st;
    acl_narrow(file, &image->st);
    return 0;
}

int mounted_image_open(const char *path, struct mounted_image *image)
{
    char *real = realpath(path, NULL);
    int file = real ? open(real, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    int error = file < 0 ? -ENOENT : find(file, real, image);
    if (file >= 0)
        close(file);
    free(real);
    return error;
}

void mounted_image_close(struct mounted_image *image)
{
    free(image->path);
    close(image->fd);
}
