/* Walking a path part by part, with descriptors that only say what they are, so that no file system is asked that
 * nobody has allowed: a daemon that waits for itself, for one that waits for it, or for a disk that does not
 * answer, waits for good. Opening a mount's root in this way asks the file system around it only. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/mounts.h"
#include "store/private.h"

#define MOST_SYMLINKS 40  /* the kernel's limit */
#define ASK_EVERY     256 /* steps */

/* ---- Names ---- */

/* Skips slashes, and parts that say nothing. */
static const char *skip(const char *path)
{
    while (*path == '/' || (path[0] == '.' && (path[1] == '/' || path[1] == '\0')))
        path++;
    return path;
}

/* The rest of an absolute path that begins with the parts of another one; NULL: it does not. */
static const char *rest_below(const char *folder, const char *path)
{
    for (;;) {
        folder = skip(folder);
        path = skip(path);
        size_t n = strcspn(folder, "/");
        if (n == 0)
            return path;
        if (n != strcspn(path, "/") || strncmp(folder, path, n) != 0)
            return NULL;
        folder += n;
        path += n;
    }
}

char *path_absolute(const char *path)
{
    char *absolute = NULL, *directory = *path == '/' ? NULL : getcwd(NULL, 0);
    if (*path == '/')
        return strdup(path);
    if (directory && asprintf(&absolute, "%s/%s", directory, path) < 0)
        absolute = NULL;
    free(directory);
    return absolute;
}

bool path_is_below(const char *folder, const char *path)
{
    return rest_below(folder, path) != NULL;
}

const struct folder *path_folder(const struct folders *folders, const char *path)
{
    const struct folder *deepest = NULL;
    for (size_t i = 0; i < folders->n; i++) {
        const struct folder *folder = &folders->folder[i];
        if (folder->path && path_is_below(folder->path, path) &&
            (!deepest || strlen(folder->path) > strlen(deepest->path)))
            deepest = folder;
    }
    return deepest;
}

/* The folder whose name, or other name, leaves the shortest rest of a path. NULL: none. */
static const struct folder *folder_named(const struct folders *folders, const char **path)
{
    const struct folder *named = NULL;
    const char *shortest = NULL;
    for (size_t i = 0; i < 2 * folders->n; i++) {
        const struct folder *folder = &folders->folder[i / 2];
        const char *name = i % 2 ? folder->as : folder->path;
        const char *rest = name ? rest_below(name, *path) : NULL;
        if (rest && (!shortest || rest > shortest)) {
            shortest = rest;
            named = folder;
        }
    }
    *path = named ? shortest : *path;
    return named;
}

/* ---- Steps ---- */

/* Does not ask the file system, which may be our own. */
static int look_at(int fd, struct statx *st)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, st) < 0 ? -errno : 0;
}

/* Takes a descriptor over as the current directory. */
static void go_to(struct walk *walk, int fd, const struct statx *st)
{
    if (walk->at >= 0)
        close(walk->at);
    walk->at = fd;
    walk->major = st->stx_dev_major;
    walk->minor = st->stx_dev_minor;
}

/* Takes it over in any case; or the error of opening it. */
static int go_to_opened(struct walk *walk, int fd)
{
    struct statx st;
    int error = fd < 0 ? -errno : look_at(fd, &st);
    if (!error)
        go_to(walk, fd, &st);
    else if (fd >= 0)
        close(fd);
    return error;
}

/* Where a path begins: it is taken over as the rest. */
static int begin(struct walk *walk, int from, char *path)
{
    const char *rest = path;
    const struct folder *folder = *path == '/' ? folder_named(walk->folders, &rest) : NULL;
    free(walk->name);
    walk->name = path;
    walk->left = path + (rest - path);
    if (*path == '/' && !folder)
        return go_to_opened(walk, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return go_to_opened(walk, fcntl(folder ? folder->fd : from, F_DUPFD_CLOEXEC, 0));
}

/* Puts the target of a symbolic link in front of the rest of the path. */
static int follow_symlink(struct walk *walk, int fd)
{
    char target[PATH_MAX], *path;
    ssize_t n = readlinkat(fd, "", target, sizeof(target));
    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    if (walk->is_straight || ++walk->symlinks > MOST_SYMLINKS)
        return -ELOOP;
    size_t left = walk->left ? strlen(walk->left) : 0;
    if (n == sizeof(target) || left >= PATH_MAX)
        return -ENAMETOOLONG;
    if (asprintf(&path, "%.*s/%s", (int)n, target, walk->left ? walk->left : "") < 0)
        return -ENOMEM;
    return begin(walk, walk->at, path);
}

/* Whether something on another device than the current directory may be entered. */
static int check_entry(const struct walk *walk, int fd, const struct statx *st)
{
    const struct folders *folders = walk->folders;
    for (size_t i = 0; i < folders->n; i++) {
        int is_on_way = mounts_is_on_way(fd, folders->folder[i].fd);
        if (is_on_way)
            return is_on_way < 0 ? is_on_way : 0;
    }
    errno = 0;
    char *path = place_of_descriptor(fd);
    int error = !path && errno == ENOMEM               ? -ENOMEM
                : !path || !path_folder(folders, path) ? -EXDEV
                                                       : 0;
    free(path);
    if (error)
        return error;
    int is_sparsefs = mounts_is_sparsefs(st->stx_dev_major, st->stx_dev_minor);
    if (is_sparsefs || walk->trusts_users)
        return is_sparsefs > 0 ? -EDEADLK : is_sparsefs;
    int is_silent = mounts_may_be_silent(st->stx_dev_major, st->stx_dev_minor);
    return is_silent > 0 ? -EXDEV : is_silent;
}

static int step(struct walk *walk, const char *part)
{
    struct statx st;
    int error = walk->ends && ++walk->steps % ASK_EVERY == 0 ? interrupt_check() : 0;
    if (!error && walk->audiences)
        error = audience_search(walk->audiences, walk->folders, walk->at);
    if (error)
        return error;
    int fd = openat(walk->at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    error = fd < 0 ? -errno : look_at(fd, &st);
    if (!error && (st.stx_dev_major != walk->major || st.stx_dev_minor != walk->minor))
        error = check_entry(walk, fd, &st);
    if (!error && !S_ISLNK(st.stx_mode)) {
        go_to(walk, fd, &st);
        return 0;
    }
    if (!error)
        error = follow_symlink(walk, fd);
    if (fd >= 0)
        close(fd);
    return error;
}

int path_walk(struct walk *walk, int from, const char *name)
{
    const char *part;
    char *path = strdup(name);
    walk->at = -1;
    int error = path ? begin(walk, from, path) : -ENOMEM;
    while (!error && walk->left && (part = strsep(&walk->left, "/")))
        if (*part && strcmp(part, ".") != 0)
            error = step(walk, part);
    free(walk->name);
    walk->name = NULL;
    return error;
}
