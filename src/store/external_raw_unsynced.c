/* Files with external raw data that were written since the last commit. They are written in place,
 * by others, and have no journal: all that is known of them here is that they are to be synced. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "store/private.h"

#define MOST_RAW 64 /* descriptors; more are synced before a commit */

struct raw {
    struct raw *prev, *next;
    int fd;
    struct stat st;
};

static int sync_raw(struct store *store, int fd)
{
    int error;
    do
        error = fsync(fd) < 0 ? -errno : 0;
    while (error == -EINTR);
    if (error)
        store_say(store, NULL, "external raw data may be lost, a file of them cannot be synced: %s",
                  strerror(-error));
    return error;
}

static void end(struct raw *raw)
{
    close(raw->fd);
    free(raw);
}

/* What is lost may be of anybody: it is the error of a commit, not of who syncs it or writes to another one. */
static void note_loss(struct store *store, int error)
{
    store->raw_untold = store->raw_error = error;
    store->raw_losses++;
}

/* The one that was written longest ago. The lock is not held meanwhile: others may write, but a commit waits, as it
 * must not end before the file is durable. */
static void sync_first(struct store *store)
{
    struct raw *raw = store->raw;
    DL_DELETE(store->raw, raw);
    store->n_raw--;
    store->raw_syncing++;
    pthread_mutex_unlock(&store->raw_lock);
    int error = sync_raw(store, raw->fd);
    end(raw);
    pthread_mutex_lock(&store->raw_lock);
    if (error)
        note_loss(store, error);
    if (--store->raw_syncing == 0)
        pthread_cond_broadcast(&store->raw_synced);
}

/* Where a file is in the list; its descriptor is older than what was written, so that it hears of
 * every error of the disk. */
static struct raw *find(struct store *store, const struct stat *st)
{
    struct raw *raw;
    DL_FOREACH (store->raw, raw)
        if (raw->st.st_dev == st->st_dev && raw->st.st_ino == st->st_ino)
            break;
    return raw;
}

int store_raw_written(struct store *store, int fd)
{
    struct raw *raw = calloc(1, sizeof(*raw));
    if (!raw || fstat(fd, &raw->st) < 0) {
        int error = raw ? -errno : -ENOMEM;
        (void)sync_raw(store, fd);
        close(fd);
        free(raw);
        return error;
    }
    raw->fd = fd;
    pthread_mutex_lock(&store->raw_lock);
    if (find(store, &raw->st)) {
        end(raw);
    } else {
        DL_APPEND(store->raw, raw);
        if (++store->n_raw > MOST_RAW)
            sync_first(store);
    }
    pthread_mutex_unlock(&store->raw_lock);
    return 0;
}

bool unsynced_raw_has(struct store *store, const struct stat *st)
{
    pthread_mutex_lock(&store->raw_lock);
    bool has = find(store, st) != NULL;
    pthread_mutex_unlock(&store->raw_lock);
    return has;
}

/* Those that are written meanwhile are the next one's: else it might have no end. */
int unsynced_raw_sync(struct store *store)
{
    pthread_mutex_lock(&store->raw_lock);
    for (unsigned n = store->n_raw; n > 0 && store->raw; n--)
        sync_first(store);
    while (store->raw_syncing > 0)
        pthread_cond_wait(&store->raw_synced, &store->raw_lock);
    int error = store->raw_untold;
    store->raw_untold = 0;
    pthread_mutex_unlock(&store->raw_lock);
    return error;
}

unsigned store_raw_losses(struct store *store, int *error)
{
    pthread_mutex_lock(&store->raw_lock);
    unsigned losses = store->raw_losses;
    *error = store->raw_error;
    pthread_mutex_unlock(&store->raw_lock);
    return losses;
}

void unsynced_raw_forget(struct store *store)
{
    struct raw *raw, *next;
    DL_FOREACH_SAFE (store->raw, raw, next)
        end(raw);
    pthread_cond_destroy(&store->raw_synced);
    pthread_mutex_destroy(&store->raw_lock);
}
