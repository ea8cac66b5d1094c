/* Walks part by part, by descriptors that only say what they are. */
#include "common/links_of_others.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/mounts.h"

#define MOST_LINKS 40 /* as the kernel */

struct walk {
    int at;              /* what has been reached */
    char rest[PATH_MAX]; /* of the path */
    unsigned links;      /* that were followed */
    bool has_others;     /* one of them was another user's */
    bool has_several;    /* of several such users */
    uid_t user;          /* of that link */
};

static void move_to(struct walk *walk, int fd)
{
    close(walk->at);
    walk->at = fd;
}

static void note_owner(struct walk *walk, uid_t user)
{
    if (user == 0 || user == geteuid())
        return;
    walk->has_several |= walk->has_others && walk->user != user;
    walk->has_others = true;
    walk->user = user;
}

/* What the link says comes before the rest. */
static int follow(struct walk *walk, int link, uid_t owner)
{
    char text[PATH_MAX], rest[PATH_MAX];
    ssize_t n = readlinkat(link, "", text, sizeof(text) - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    note_owner(walk, owner);
    memcpy(rest, walk->rest, sizeof(rest));
    if (++walk->links > MOST_LINKS)
        return -ELOOP;
    int length = snprintf(walk->rest, sizeof(walk->rest), "%s/%s", text, rest);
    if (length < 0 || (size_t)length >= sizeof(walk->rest))
        return -ENAMETOOLONG;
    int root = text[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (text[0] == '/' && root < 0)
        return -errno;
    if (root >= 0)
        move_to(walk, root);
    return 0;
}

/* Links of /proc lead to what they mean, whatever their text is; nobody can make one. */
static bool is_of_proc(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

static int step(struct walk *walk, const char *part)
{
    struct stat st;
    int fd = openat(walk->at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
        if (!is_of_proc(fd)) {
            int error = follow(walk, fd, mounts_owner(fd, &st));
            close(fd);
            return error;
        }
        close(fd);
        fd = openat(walk->at, part, O_PATH | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    move_to(walk, fd);
    return 0;
}

static int walk_all(struct walk *walk)
{
    char part[NAME_MAX + 1];
    int error = 0;
    while (!error && walk->rest[0]) {
        size_t n = strcspn(walk->rest, "/"), skipped = n + strspn(walk->rest + n, "/");
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(part, walk->rest, n);
        part[n] = '\0';
        memmove(walk->rest, walk->rest + skipped, strlen(walk->rest + skipped) + 1);
        if (n > 0)
            error = step(walk, part);
    }
    return error;
}

int links_check(const char *path, const struct stat *opened, uid_t *user)
{
    struct walk walk = {.at = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    struct stat st;
    int error = walk.at < 0 ? -errno : 0;
    if (error)
        return error;
    if (snprintf(walk.rest, sizeof(walk.rest), "%s", path) >= (int)sizeof(walk.rest))
        error = -ENAMETOOLONG;
    error = error ? error : walk_all(&walk);
    error = error ? error : fstat(walk.at, &st) < 0 ? -errno : 0;
    uid_t owner = error || !walk.has_others ? 0 : mounts_owner(walk.at, &st);
    close(walk.at);
    *user = walk.user;
    if (!error && (st.st_dev != opened->st_dev || st.st_ino != opened->st_ino))
        error = -ESTALE;
    if (!error && walk.has_others && (walk.has_several || walk.user != owner))
        error = -EPERM;
    return error;
}
