/* New stores: a file under a temporary name, which gets its own with the first commit. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

#define ATTEMPTS 100 /* to find a name that nobody has */

/* A place at which nothing stands yet, in a directory that is there. */
static int find_new_place(struct store *store)
{
    char *for_directory = strdup(store->path), *for_name = strdup(store->path);
    char *directory = NULL;
    int error = for_directory && for_name ? 0 : -ENOMEM;
    if (!error) {
        directory = realpath(dirname(for_directory), NULL);
        error = directory ? 0 : -errno;
    }
    if (!error && asprintf(&store->place, "%s/%s", directory, basename(for_name)) < 0) {
        store->place = NULL;
        error = -ENOMEM;
    }
    free(directory);
    free(for_name);
    free(for_directory);
    return error;
}

/* The place without symbolic links. One at path itself is followed if it leads to a file: that is
 * the one to be replaced. */
static int find_place(struct store *store)
{
    store->place = realpath(store->path, NULL);
    int error = store->place ? 0 : errno == ENOENT ? find_new_place(store) : -errno;
    return error ? error : file_name_neighbours(store);
}

/* A journal that stands beside the place would belong to the new file, or, if it went first, leave
 * the old one half changed. So the old file is recovered before it is replaced. */
static int settle_journal(struct store *store)
{
    struct store *old;
    struct stat st;
    if (lstat(store->journal, &st) < 0)
        return 0;
    int error = store_open_writable(store->place, &old);
    if (!error)
        store_close(old);
    return error == -ENOENT ? journal_remove(store) : error;
}

/* Whether the place may be taken: by nobody who writes the file that stands there. */
static int check_free(struct store *store)
{
    struct stat st;
    if (!store->replace)
        return lstat(store->place, &st) == 0 || lstat(store->journal, &st) == 0 ? -EEXIST : 0;
    int fd = open(store->place, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? settle_journal(store) : -errno;
    int error = 0;
    if (fstat(fd, &st) < 0)
        error = -errno;
    else if (!S_ISREG(st.st_mode))
        error = -EEXIST;
    else if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        error = -EBUSY;
    close(fd);
    return error ? error : settle_journal(store);
}

/* .NAME.XXXXXX in the directory of the place. */
static int create_temporary(struct store *store)
{
    const char *name = strrchr(store->place, '/') + 1;
    int error = -EEXIST;
    for (int i = 0; i < ATTEMPTS && error == -EEXIST; i++) {
        uint32_t number;
        char *temporary;
        if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
            error = -EIO;
        } else if (asprintf(&temporary, "%s/.%s.%06" PRIx32, store->directory, name,
                            number & 0xffffff) < 0) {
            error = -ENOMEM;
        } else {
            store->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            error = store->fd < 0 ? -errno : 0;
            if (error)
                free(temporary);
            else
                store->temporary = temporary;
        }
    }
    return error;
}

int store_create(const char *path, bool replace, struct store **out)
{
    struct store *store = file_new(path, true);
    if (!store)
        return -ENOMEM;
    store->replace = replace;
    store->unnamed = true;
    int error = find_place(store);
    if (!error)
        error = check_free(store);
    if (!error)
        error = create_temporary(store);
    if (!error && fstat(store->fd, &store->st) < 0)
        error = -errno;
    if (error)
        log_error("%s: cannot create it: %s", path, strerror(-error));
    if (!error)
        error = file_lock(store);
    if (error) {
        store_close(store);
        return error;
    }
    *out = store;
    return 0;
}

/* Not every file system can rename without replacing; a second name does the same. */
static int rename_to_free(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    return link(from, to) < 0 || unlink(from) < 0 ? -errno : 0;
}

int create_publish(struct store *store)
{
    int error = check_free(store);
    if (!error && store->replace)
        error = rename(store->temporary, store->place) < 0 ? -errno : 0;
    else if (!error)
        error = rename_to_free(store->temporary, store->place);
    if (error) {
        log_error("%s: cannot give it its name: %s", store->path, strerror(-error));
        return error;
    }
    free(store->temporary);
    store->temporary = NULL;
    return 0;
}
