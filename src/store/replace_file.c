/* A new file takes its name, and the place of the file that it replaces. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/io.h"
#include "common/log.h"
#include "store/private.h"

static bool exists(const struct store *store, const char *path)
{
    struct stat st;
    int error = neighbour_stat(store->folder, path, &st);
    return !error || error == -EXDEV;
}

/* A journal beside the place would be taken for the new file's or, if it were removed first, leave
 * the old file half changed. So the old file is recovered before it is replaced; if there is none
 * it was moved away without its journal. */
static int settle_journal(struct store *store)
{
    struct store *old;
    if (!exists(store, store->journal))
        return 0;
    int error = store_open_writable(store->place, &old);
    if (!error)
        store_close(old);
    return error == -ENOENT ? journal_clear_way(store) : error;
}

static bool is_unchanged(const struct stat *st, const struct stat *known)
{
    return st->st_dev == known->st_dev && st->st_ino == known->st_ino &&
           st->st_size == known->st_size && st->st_mtim.tv_sec == known->st_mtim.tv_sec &&
           st->st_mtim.tv_nsec == known->st_mtim.tv_nsec;
}

/* Whether the file at the place may be replaced. It is locked shared from then on. */
static int check_replaced(const struct store *store, int fd)
{
    struct stat st;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return -EBUSY;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EEXIST;
    if (!store->replaced || is_unchanged(&st, store->replaced))
        return 0;
    store_say(store, NULL, "another program has changed it: it is not replaced");
    return -EBUSY;
}

int publish_check(struct store *store, int *held)
{
    struct stat st;
    *held = -1;
    if (!store->replace)
        return exists(store, store->place) ? -EEXIST : journal_clear_way(store);
    int error = settle_journal(store);
    if (error)
        return error;
    error = neighbour_stat(store->folder, store->place, &st);
    if (error)
        return error == -ENOENT ? 0 : error;
    if (!S_ISREG(st.st_mode)) /* opening some devices sets them going */
        return -EEXIST;
    int fd = io_open_at(store->folder, place_entry(store->place), O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    error = check_replaced(store, fd);
    if (error)
        close(fd);
    else
        *held = fd;
    return error;
}

static bool is_same(int folder, const char *name, const char *other)
{
    struct stat a, b;
    return fstatat(folder, name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(folder, other, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* For file systems that cannot rename without replacing: link and unlink. */
static int rename_to_free(int folder, const char *from, const char *to)
{
    bool is_interrupted = false;
    int error;
    do {
        error = renameat2(folder, from, folder, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
        if (error == -ENOENT && is_interrupted)
            return 0;
        is_interrupted |= error == -EINTR;
    } while (error == -EINTR);
    if (error != -EINVAL && error != -ENOSYS)
        return error;
    error = TEMP_FAILURE_RETRY(linkat(folder, from, folder, to, 0)) < 0 ? -errno : 0;
    if (error == -EEXIST && is_same(folder, from, to)) /* it was interrupted, and done */
        error = 0;
    return error ? error : io_unlink_at(folder, from);
}

/* It has its name already, and may have the other one, too. */
static void leave_temporary(const struct store *store)
{
    int error = place_leads(store, store->temporary);
    if (error > 0)
        error = io_unlink_at(store->folder, place_entry(store->temporary));
    if (error)
        log_warning("%s: it has the name %s, too, which cannot be removed: %s", store->path,
                    store->temporary, strerror(-error));
}

int publish(struct store *store)
{
    const char *from = place_entry(store->temporary), *to = place_entry(store->place);
    int held = -1,
        error = place_leads(store, store->temporary) > 0 ? publish_check(store, &held) : -ESTALE;
    if (!error && store->replace)
        error = io_rename_at(store->folder, from, store->folder, to);
    else if (!error)
        error = rename_to_free(store->folder, from, to);
    if (held >= 0)
        close(held);
    /* It may have it all the same: what is written from now on needs a journal then. */
    if (error && place_leads(store, store->place) > 0) {
        leave_temporary(store);
        error = 0;
    }
    if (error) {
        store_say(store, NULL, "cannot give it its name: %s", strerror(-error));
        return error;
    }
    free(store->temporary);
    store->temporary = NULL;
    (void)counter_advance(store); /* if it cannot be written the first journal reports it */
    return 0;
}
