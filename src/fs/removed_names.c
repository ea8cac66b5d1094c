/* A table by object, directory, view and frame. */
#include "fs/removed_names.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/hash.h"
#include "common/log.h"
#include "fs/staging_limit.h"

struct removed_name {
    UT_hash_handle hh;
    struct removed_key {
        uint64_t object, frame;
        uint64_t directory, view; /* enum entry, each */
    } key;
    const struct mounted_file *file;
};

struct removed {
    struct staging_limit *memory;
    const char *label;
    atomic_uint n;        /* may be read without the lock */
    pthread_mutex_t lock; /* guards what follows */
    struct removed_name *entries;
};

int removed_create(struct staging_limit *memory, const char *label, struct removed **out)
{
    struct removed *removed = calloc(1, sizeof(*removed));
    if (!removed)
        return -ENOMEM;
    removed->memory = memory;
    removed->label = label;
    atomic_init(&removed->n, 0);
    pthread_mutex_init(&removed->lock, NULL);
    *out = removed;
    return 0;
}

/* The lock must be held, here and in what follows. */
static void drop(struct removed *removed, struct removed_name *entry)
{
    HASH_DEL(removed->entries, entry);
    atomic_fetch_sub(&removed->n, 1);
    staging_limit_give_back(removed->memory, sizeof(*entry));
    free(entry);
}

static struct removed_name *find(struct removed *removed, struct temporary_place place,
                                 struct inode view)
{
    const struct removed_key key = {place.node->object, view.frame, place.directory, view.entry};
    struct removed_name *entry;
    HASH_FIND(hh, removed->entries, &key, sizeof(key), entry);
    return entry;
}

void removed_destroy(struct removed *removed)
{
    struct removed_name *entry, *next;
    if (!removed)
        return;
    unsigned n = atomic_load(&removed->n);
    if (n > 0)
        log_warning("%s: %u name%s of frames that %s removed %s there again with the next mount: "
                    "truncate -s 0 frames/N.raw erases a frame",
                    removed->label, n, n == 1 ? "" : "s", n == 1 ? "was" : "were",
                    n == 1 ? "is" : "are");
    HASH_ITER (hh, removed->entries, entry, next)
        drop(removed, entry);
    pthread_mutex_destroy(&removed->lock);
    free(removed);
}

static int add(struct removed *removed, struct temporary_place place, struct inode view)
{
    struct removed_name *entry;
    if (find(removed, place, view))
        return -ENOENT;
    if (staging_limit_take(removed->memory, sizeof(*entry)) != 0)
        return -ENOSPC;
    entry = calloc(1, sizeof(*entry));
    if (entry) {
        entry->key =
            (struct removed_key){place.node->object, view.frame, place.directory, view.entry};
        entry->file = place.node->mounted;
        HASH_ADD(hh, removed->entries, key, sizeof(entry->key), entry);
        if (!hash_failed()) {
            atomic_fetch_add(&removed->n, 1);
            return 0;
        }
    }
    free(entry);
    staging_limit_give_back(removed->memory, sizeof(*entry));
    return -ENOMEM;
}

int removed_add(struct removed *removed, struct temporary_place place, struct inode view)
{
    if (!removed)
        return -EROFS;
    pthread_mutex_lock(&removed->lock);
    int error = add(removed, place, view);
    pthread_mutex_unlock(&removed->lock);
    return error;
}

bool removed_has(struct removed *removed, struct temporary_place place, struct inode view)
{
    if (!removed || atomic_load(&removed->n) == 0)
        return false;
    pthread_mutex_lock(&removed->lock);
    bool has = find(removed, place, view);
    pthread_mutex_unlock(&removed->lock);
    return has;
}

bool removed_undo(struct removed *removed, struct temporary_place place, struct inode view)
{
    if (!removed || atomic_load(&removed->n) == 0)
        return false;
    pthread_mutex_lock(&removed->lock);
    struct removed_name *entry = find(removed, place, view);
    if (entry)
        drop(removed, entry);
    pthread_mutex_unlock(&removed->lock);
    return entry;
}

void removed_forget_file(struct removed *removed, const struct mounted_file *file)
{
    struct removed_name *entry, *next;
    if (!removed || atomic_load(&removed->n) == 0)
        return;
    pthread_mutex_lock(&removed->lock);
    HASH_ITER (hh, removed->entries, entry, next)
        if (entry->file == file)
            drop(removed, entry);
    pthread_mutex_unlock(&removed->lock);
}

/* ---- By a mount ---- */
