/* Opening a store's file under the lock that libhdf5 takes, what cannot be opened, and closing it. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/io.h"
#include "common/links_of_others.h"
#include "common/log.h"
#include "common/thread.h"
#include "store/private.h"

struct store *file_new(const char *path, bool writable)
{
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return NULL;
    store->fd = -1;
    store->folder = -1;
    store->name_folder = -1;
    store->reach.files = -1;
    store->sought_folder = -1;
    store->standing.marked = -1;
    store->spill = -1;
    store->hold = -1;
    store->writable = writable;
    pthread_rwlock_init(&store->pages_lock, NULL);
    thread_init_lock(&store->unsynced_lock);
    pthread_mutex_init(&store->change, NULL);
    pthread_mutex_init(&store->hold_lock, NULL);
    pthread_mutex_init(&store->folder_lock, NULL);
    pthread_mutex_init(&store->raw_lock, NULL);
    pthread_cond_init(&store->raw_synced, NULL);
    store->path = strdup(path);
    if (!store->path) {
        store_close(store);
        return NULL;
    }
    return store;
}

/* Whoever may not write, or show, the file must not have chosen it. */
static int check_links(const struct store *store)
{
    uid_t user;
    int error = links_check(store->path, &store->st, &user);
    if (error == -EPERM)
        store_say(store, NULL,
                  "a symbolic link of user %u leads to a file of user %u: name that file itself",
                  (unsigned)user, (unsigned)store->st.st_uid);
    else if (error)
        store_say(store, NULL, "%s", strerror(-error));
    return error;
}

int file_open(struct store *store, bool own_links)
{
    int access = store->writable ? O_RDWR : O_RDONLY;
    int fd = store->found ? store_found_open(store->found, access)
                          : io_open_regular(store->path, access);
    if (fd < 0) {
        store_say(store, NULL, "%s", fd == -EINVAL ? "not a regular file" : strerror(-fd));
        return fd;
    }
    store->fd = fd;
    int error = store->is_following ? 0 : file_lock(store);
    if (error)
        return error;
    /* The file may have grown or shrunk before the lock was taken. */
    if (fstat(store->fd, &store->st) < 0)
        return -errno;
    if (own_links && (error = check_links(store)) < 0)
        return error;
    store->committed_end = (uint64_t)store->st.st_size;
    atomic_store(&store->end, store->committed_end);
    error = store->found ? 0 : place_keep_name(store);
    if (!error)
        error = place_find(store);
    store->found = NULL;
    return error;
}

static bool counter_exists(const struct store *store)
{
    struct stat st;
    return neighbour_stat(store->folder, store->counter, &st) == 0;
}

/* Followers must see a counter before the first byte is written. Where no counter can be made no
 * journal can be made either, and nothing could be committed. */
int file_begin_counter(struct store *store)
{
    int error = counter_advance(store);
    bool is_refused = error == -EACCES || error == -EPERM;
    if (error == -EISDIR || error == -EXDEV || (is_refused && counter_exists(store))) {
        store_say(store, NULL, "it cannot be written: %s is in the way: move it away",
                  store->counter);
        return is_refused ? error : -EPERM;
    }
    if (is_refused || error == -EROFS) {
        store_say(store, NULL, "it cannot be written: no journal can be made in its directory: %s",
                  strerror(-error));
        return error;
    }
    if (error)
        log_info("%s: cannot write %s, for those who follow: %s", store->path, store->counter,
                 strerror(-error));
    return 0;
}

/* Under a shared lock. A journal that must be carried out is left to those who open the file. */
static int begin_shared(struct store *store, bool *has_journal)
{
    if (faccessat(store->folder, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int error = -errno;
        store_say(store, NULL, "it cannot be written: no journal can be made in its directory: %s",
                  strerror(-error));
        return error;
    }
    int error = store->journal ? journal_choose(store) : 0;
    if (!error)
        error = share_look(store, &store->seen);
    *has_journal = store->seen.journal.exists;
    return error;
}

/* Under an exclusive lock. */
static int begin_alone(struct store *store)
{
    int error = store->writable ? file_begin_counter(store) : 0;
    if (!error && store->journal)
        error = journal_recover(store);
    if (!error && store->writable) {
        if (!store->keeps_note)
            place_forget_note(store);
        free_space_take(store);
    }
    return error;
}

static int open_store(const char *path, const struct store_opening *how, struct store **out)
{
    bool has_journal = false;
    struct store *store = file_new(path, how->writable);
    if (!store)
        return -ENOMEM;
    store->found = how->found;
    store->is_shared = how->is_shared;
    store->why = how->why;
    int error = file_open(store, how->own_links && !how->found);
    if (!error)
        error = how->is_shared ? begin_shared(store, &has_journal) : begin_alone(store);
    if (!error && has_journal) {
        store_close(store);
        const struct store_opening alone = {
            .found = how->found, .writable = true, .own_links = how->own_links, .why = how->why};
        error = open_store(path, &alone, out);
        if (!error && (error = store_end_writing(*out)) < 0)
            store_close(*out);
        return error;
    }
    if (error) {
        store_close(store);
        return error;
    }
    store->file_end = store->committed_end;
    if (fstat(store->fd, &store->st) == 0 && (uint64_t)store->st.st_size <= SIZE_MAX) {
        void *map = mmap(NULL, (size_t)store->st.st_size, PROT_READ, MAP_SHARED, store->fd, 0);
        if (map != MAP_FAILED)
            store->map = map;
    }
    *out = store;
    return 0;
}

int store_open(const char *path, struct store **store)
{
    return open_store(path, &(struct store_opening){0}, store);
}

int store_open_writable(const char *path, struct store **store)
{
    return open_store(path, &(struct store_opening){.writable = true}, store);
}

int store_open_as(const char *path, const struct store_opening *how, struct store **store)
{
    return how->follows ? follow_open(path, how, store) : open_store(path, how, store);
}

struct why *store_why(const struct store *store)
{
    return store->why;
}

void store_opened(struct store *store)
{
    store->why = NULL;
}

int store_open_reader(const char *name, const struct store_reader *reader, struct store **out)
{
    struct store *store = file_new(name, reader->write != NULL);
    if (!store)
        return -ENOMEM;
    store->reader = *reader;
    store_renew_reader(store, reader);
    *out = store;
    return 0;
}

void store_renew_reader(struct store *store, const struct store_reader *reader)
{
    store->st = (struct stat){.st_dev = (dev_t)reader->device, .st_ino = (ino_t)reader->inode};
    store->committed_end = store->file_end = reader->size;
    store->is_following = reader->follows;
    store->is_live = reader->follows && reader->is_live;
    atomic_store(&store->end, reader->size);
}

void store_resize_reader(struct store *store, uint64_t size)
{
    atomic_store(&store->end, size);
}

bool store_has_reader(const struct store *store)
{
    return store->reader.read;
}

/* What was written behind the committed end is discarded. Not beside a journal that could not be removed: it may be
 * whole, and then is that of a file which nothing else has changed. */
static void discard(struct store *store)
{
    if (store->temporary)
        unlinkat(store->folder, place_entry(store->temporary), 0);
    else if (store->writable && store->written && !store->stray)
        (void)file_set_end(store, store->committed_end);
}

static void end_journal(struct store *store)
{
    if (!store->writable || store->unapplied)
        return;
    if (store->standing.stands || store->counted) {
        store->is_lost |= !store->standing.stands; /* that it was removed is no news then */
        (void)place_follow(store); /* so that a journal and a counter that were moved end, too */
    }
    if (settle(store) < 0)
        log_warning("%s: its journal stays beside it: it will be replayed", store->path);
    else if (store->is_noted)
        place_forget_note(store);
}

int store_close(struct store *store)
{
    if (!store)
        return 0;
    int error = store->image ? image_destroy(store) : 0;
    if (store->reader.close)
        store->reader.close(store->reader.context);
    if (store->map && !store->image)
        munmap((void *)store->map, (size_t)store->st.st_size);
    if (store->fd >= 0) {
        if (!store->is_shared) {
            discard(store);
            end_journal(store);
            if (store->writable)
                free_space_note(store);
            counter_remove(store);
        }
        close(store->fd);
    }
    if (store->hold >= 0)
        close(store->hold);
    unsynced_raw_forget(store);
    pages_clear(store);
    unsynced_clear(store, UINT64_MAX);
    unsynced_trim(store);
    extents_clear(&store->free);
    extents_clear(&store->pending);
    extents_clear(&store->fresh);
    extents_clear(&store->own);
    pthread_mutex_destroy(&store->hold_lock);
    pthread_mutex_destroy(&store->change);
    pthread_rwlock_destroy(&store->unsynced_lock);
    pthread_rwlock_destroy(&store->pages_lock);
    neighbour_forget(store);
    free(store->temporary);
    store_close_reach(store);
    journal_forget_mark(store);
    place_close(store);
    place_forget_name(store);
    pthread_mutex_destroy(&store->folder_lock);
    free(store->path);
    free(store);
    return error;
}

enum store_recovered store_recovered(const struct store *store)
{
    return store->recovered;
}

void store_say(const struct store *store, struct why *why, const char *format, ...)
{
    struct why phrase;
    va_list arguments;
    va_start(arguments, format);
    why_take(why ? why : &phrase, format, arguments);
    va_end(arguments);
    if (!why)
        why_say(store->why, "%s: %s", store->path, phrase.text);
}
