/* Files that are opened for writing, and shared with readers until the first write. */
#include <errno.h>
#include <sys/file.h>

#include "common/log.h"
#include "store/private.h"

/* A name that leads to another file by now has that one's journal. */
int share_look(const struct store *store, struct follow_state *state)
{
    struct stat st;
    *state = (struct follow_state){0};
    if (fstat(store->fd, &st) < 0)
        return -errno;
    state->changed = st.st_mtim;
    state->size = st.st_size;
    int leads = store->journal ? place_leads(store, store->place) : 0;
    return leads > 0 ? journal_look(store, &state->journal) : leads;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool store_is_as_shared(const struct store *store)
{
    struct stat st;
    return fstat(store->fd, &st) == 0 && st.st_size == store->seen.size &&
           is_same_time(&st.st_mtim, &store->seen.changed);
}

bool store_is_as_in_file(const struct store *store)
{
    struct stat st;
    if (store->is_live || store->is_following || store->image || store->fd < 0 ||
        atomic_load(&store->n_pages) > 0)
        return false;
    if (store->is_shared)
        return store_is_as_shared(store);
    return !store->writable && fstat(store->fd, &st) == 0 && st.st_size == store->st.st_size &&
           is_same_time(&st.st_mtim, &store->st.st_mtim) &&
           is_same_time(&st.st_ctim, &store->st.st_ctim);
}

/* Holding `change`, as all that follow. */
static bool is_unchanged(const struct store *store)
{
    struct follow_state now;
    const struct journal_state *seen = &store->seen.journal;
    return share_look(store, &now) == 0 && store_is_as_shared(store) &&
           now.journal.exists == seen->exists && now.journal.inode == seen->inode &&
           now.journal.size == seen->size && is_same_time(&now.journal.changed, &seen->changed);
}

bool store_is_shared(const struct store *store)
{
    return store->is_shared;
}

unsigned store_writings(const struct store *store)
{
    return atomic_load(&store->writings);
}

/* flock(2) converts a lock by releasing it for a moment: another program may take it, and even
 * release it again. Until that is known, reads check the file as if one had. */
static int take_lock(struct store *store, int operation)
{
    atomic_store(&store->lost_lock, true);
    return file_take_lock(store, operation);
}

static int share_lock(struct store *store, bool was_lost)
{
    int error = take_lock(store, LOCK_SH);
    (void)place_follow(store); /* if it has none, a journal is not looked for */
    bool is_outdated = !error && !is_unchanged(store);
    atomic_store(&store->lost_lock, error || is_outdated);
    if (error && !was_lost)
        log_warning("%s: another program has taken the lock", store->path);
    if (is_outdated)
        store_say(store, NULL,
                  "another program has changed it while it had the lock: it must be opened "
                  "again");
    return error;
}

static int check_unchanged(struct store *store)
{
    int error = place_follow(store);
    if (error || is_unchanged(store))
        return error;
    if (log_is_due(&store->refused))
        store_say(store, NULL,
                  "another program has changed it since it was opened: it must be opened again "
                  "to be written (umount and mount)");
    return -EBUSY;
}

static int begin(struct store *store)
{
    int error = take_lock(store, LOCK_EX);
    if (error == -EBUSY && log_is_due(&store->refused))
        file_refuse(store, LOCK_EX);
    if (!error)
        error = check_unchanged(store);
    if (!error)
        error = file_begin_counter(store);
    if (error)
        return error;
    if (!store->keeps_note)
        place_forget_note(store);
    free_space_take(store);
    atomic_fetch_add(&store->writings, 1);
    store->is_shared = false;
    store->refused = 0;
    atomic_store(&store->lost_lock, false);
    return 0;
}

int store_begin_writing(struct store *store)
{
    if (!store->is_shared)
        return 0;
    pthread_mutex_lock(&store->change);
    bool was_lost = atomic_load(&store->lost_lock);
    bool is_begun = !store->is_shared; /* by another thread */
    /* If it was changed by a program without locks ours need not be released. */
    int error = is_begun ? 0 : check_unchanged(store);
    if (!error && !is_begun && (error = begin(store)) < 0)
        (void)share_lock(store, was_lost);
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_end_writing(struct store *store)
{
    pthread_mutex_lock(&store->change);
    struct follow_state seen;
    int error = settle(store);
    if (!error)
        error = share_look(store, &seen);
    if (!error) {
        store->seen = seen;
        if (store->is_noted)
            place_forget_note(store);
        store->is_noted = false;
        counter_remove(store);
        free_space_note(store);
    }
    store->is_shared = !error;
    if (!error)
        (void)share_lock(store, false);
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_share(struct store *store)
{
    if (!atomic_load(&store->lost_lock) || atomic_load(&store->lock))
        return 0;
    pthread_mutex_lock(&store->change);
    bool is_lost = store->is_shared && atomic_load(&store->lost_lock) && !atomic_load(&store->lock);
    int error = is_lost ? share_lock(store, true) : 0; /* another thread may have begun to write */
    pthread_mutex_unlock(&store->change);
    return error;
}
