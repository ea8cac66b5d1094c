/* Files that may be written, and are shared with those who read them while nobody does. */
#include <errno.h>
#include <string.h>
#include <sys/file.h>

#include "common/clock.h"
#include "common/log.h"
#include "store/private.h"

#define REFUSED_PAUSE                                                                              \
    1000000000 /* nanoseconds: who tries again and again is not told each time                     \
                */

int share_look(const struct store *store, struct follow_state *state)
{
    struct stat st;
    *state = (struct follow_state){0};
    if (fstat(store->fd, &st) < 0)
        return -errno;
    state->changed = st.st_mtim;
    state->size = st.st_size;
    return store->journal ? journal_look(store, &state->journal) : 0;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool share_is_unchanged(const struct store *store)
{
    struct follow_state now;
    const struct follow_state *seen = &store->seen;
    return share_look(store, &now) == 0 && now.size == seen->size &&
           is_same_time(&now.changed, &seen->changed) &&
           now.journal.exists == seen->journal.exists && now.journal.inode == seen->journal.inode &&
           now.journal.size == seen->journal.size &&
           is_same_time(&now.journal.changed, &seen->journal.changed);
}

bool store_is_shared(const struct store *store)
{
    return store->is_shared;
}

/* Making a lock another one gives it away for a moment (flock(2)): somebody else may take it, and
 * even be done already. */
static int share_lock(struct store *store)
{
    int error = file_take_lock(store, LOCK_SH);
    bool is_outdated = !error && !share_is_unchanged(store);
    bool was_lost = atomic_exchange(&store->lost_lock, error || is_outdated);
    if (error && !was_lost)
        log_warning("%s: another program has taken the lock", store->path);
    if (is_outdated)
        log_error("%s: another program has changed it while it had the lock: it must be opened "
                  "again",
                  store->path);
    return error;
}

static bool may_say(struct store *store)
{
    uint64_t now = clock_now();
    bool may = !store->refused || now - store->refused > REFUSED_PAUSE;
    store->refused = may ? now : store->refused;
    return may;
}

static int check_unchanged(struct store *store)
{
    if (share_is_unchanged(store))
        return 0;
    if (may_say(store))
        log_error("%s: another program has changed it since it was opened: it must be opened again "
                  "to be written",
                  store->path);
    return -EBUSY;
}

static int begin(struct store *store)
{
    pthread_mutex_lock(&store->change);
    int error = place_follow(store);
    if (!error)
        error = file_begin_counter(store);
    if (!error)
        place_forget_note(store);
    store->is_shared = error != 0;
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_begin_writing(struct store *store)
{
    if (!store->is_shared)
        return 0;
    /* If it was changed by somebody who knows no locks, ours need not be given away. */
    int error = check_unchanged(store);
    if (error)
        return error;
    error = file_take_lock(store, LOCK_EX);
    if (error == -EBUSY && may_say(store))
        file_refuse(store->fd, store->path, LOCK_EX);
    if (!error)
        error = check_unchanged(store);
    if (!error)
        error = begin(store);
    if (error) {
        (void)share_lock(store);
        return error;
    }
    atomic_store(&store->lost_lock, false);
    store->refused = 0;
    return 0;
}

int store_end_writing(struct store *store)
{
    pthread_mutex_lock(&store->change);
    int error = settle(store);
    if (!error) {
        if (store->is_noted)
            place_forget_note(store);
        store->is_noted = false;
        counter_remove(store);
        error = share_look(store, &store->seen);
    }
    store->is_shared = !error;
    pthread_mutex_unlock(&store->change);
    if (!error)
        (void)share_lock(store);
    return error;
}

int store_share(struct store *store)
{
    if (!atomic_load(&store->lost_lock) || atomic_load(&store->lock))
        return 0;
    return share_lock(store);
}
