/* Finding the files that a file names, where they are allowed to be. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/private.h"

/* openat2(2), of Linux 5.6: headers and C libraries that are older do not have it. */
#ifndef SYS_openat2
#define SYS_openat2 437 /* for all processors but Alpha */
#endif
#define NO_MAGIC_LINKS 0x02
#define BENEATH        0x08

struct how {
    uint64_t flags, mode, resolve;
};

/* What of a path lies below a folder; NULL: it does not. */
static const char *below(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    if (n > 0 && folder[n - 1] == '/') /* the root */
        n--;
    return strncmp(path, folder, n) != 0 ? NULL
           : path[n] == '/'              ? path + n + 1
           : path[n] == '\0'             ? path + n
                                         : NULL;
}

/* The same for who has no openat2: somebody may change the folders between the look at them and the
 * opening. */
static int open_looked_at(const char *folder, const char *name)
{
    char *path = NULL, *real = NULL;
    int fd = asprintf(&path, "%s/%s", folder, name) < 0 ? -ENOMEM : 0;
    if (!fd) {
        real = realpath(path, NULL);
        fd = !real ? -errno : below(folder, real) ? open(real, O_PATH | O_CLOEXEC) : -EXDEV;
        fd = fd == -1 ? -errno : fd;
    } else {
        path = NULL;
    }
    free(real);
    free(path);
    return fd;
}

/* A descriptor that only says what file it is, or -errno; -EXDEV: the name leads out. */
static int open_beneath(int folder, const char *path, const char *name)
{
    const struct how how = {.flags = O_PATH | O_CLOEXEC, .resolve = BENEATH | NO_MAGIC_LINKS};
    int fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof(how));
    if (fd >= 0)
        return fd;
    /* Sandboxes that do not know it say EPERM. */
    return errno == ENOSYS || errno == EPERM ? open_looked_at(path, name) : -errno;
}

static int find(int top, const char *folder, const char *name, char **path, struct stat *st)
{
    int fd = open_beneath(top, folder, name);
    if (fd < 0)
        return fd;
    int error = fstat(fd, st) < 0 ? -errno : S_ISREG(st->st_mode) ? 0 : -EINVAL;
    if (!error && !(*path = place_of_descriptor(fd)))
        error = -ENOENT;
    close(fd);
    return error;
}

/* Beside the file that names it. */
static int find_beside(int top, const char *folder, const char *beside, const char *name,
                       char **path, struct stat *st)
{
    char *together;
    if (asprintf(&together, "%s%s%s", beside, *beside ? "/" : "", name) < 0)
        return -ENOMEM;
    int error = find(top, folder, together, path, st);
    free(together);
    return error;
}

int store_folder(const struct store *store)
{
    return store->folder < 0 ? -1 : fcntl(store->folder, F_DUPFD_CLOEXEC, 0);
}

int store_find_beneath(int top, int from, const char *name, char **path, struct stat *st)
{
    char *folder = place_of_descriptor(top), *own = place_of_descriptor(from);
    const char *beside = folder && own ? below(folder, own) : NULL;
    int error = -EXDEV;
    *path = NULL;
    if (beside && name[0] == '/') {
        const char *rest = below(folder, name);
        if (rest && *rest)
            error = find(top, folder, rest, path, st);
        if (error == -EXDEV || error == -ENOENT) {
            int other = find_beside(top, folder, beside, place_entry(name), path, st);
            error = other == -ENOENT ? error : other;
        }
    } else if (beside) {
        error = find_beside(top, folder, beside, name, path, st);
    }
    free(own);
    free(folder);
    return error;
}
