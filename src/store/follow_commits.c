/* Following: reading a file that another program commits to. What is read is of one commit: the
 * one that store_refresh has found last. A commit changes, in this order: new bytes where nothing
 * is; the journal, which is complete from then on; the counter; the bytes that were committed. The
 * journal stays until the next one is written over it. So
 *
 *   - while the counter stays as it is, the file and, over it, the journal that was complete then
 *     are one commit, whatever of the journal has been carried out meanwhile; and when the journal
 *     is incomplete, the file alone is one, for all of the last journal has been carried out;
 *   - what a commit has freed is written to only after it: the counter has changed by then.
 *
 * Bytes that were read are given out after a second look at the counter. Where there is none nobody
 * has the file open for writing, and its time of change stands for the counter; or a program that
 * is not ours has, which sees to its readers itself (libhdf5's SWMR): the file is live then, and
 * read as it is, as long as it has the mark of that when bytes were read: who opens it next may use
 * their space again. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "store/lock_holder.h"
#include "store/journal.h"
#include "store/private.h"

#define FUSE_SUPER_MAGIC 0x65735546 /* statfs(2) */

#define LARGEST_FOLIO ((uint64_t)2 << 20) /* bytes of a file that the kernel keeps as one */

/* After a state was found for which no counter stands: when to take it again, in nanoseconds, as the file may have been
 * changed once more at the time that it shows: of a tick of the kernel, or of one or two seconds. By then that is over,
 * whatever clock the time is of. The state in which the file is opened is in no doubt if its time is of long ago. */
#define DOUBTFUL_SECONDS 60

static const uint64_t doubt_nanos[] = {20000000, 1200000000, 3000000000};

#define N_DOUBTS (sizeof(doubt_nanos) / sizeof(*doubt_nanos))

#define MOST_TRIES  1000
#define PAUSE_NANOS 200000

static bool is_same_state(const struct follow_state *a, const struct follow_state *b)
{
    return memcmp(a->number, b->number, COUNTER_BYTES) == 0 &&
           (a->number[0] || (a->changed.tv_sec == b->changed.tv_sec &&
                             a->changed.tv_nsec == b->changed.tv_nsec && a->size == b->size));
}

/* Bypasses the attribute cache of network file systems. Reads are cut off at the size that is
 * found. */
static int stat_now(int fd, struct statx *st)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, st) < 0 ? -errno
                                                                                         : 0;
}

/* The counter, or what stands in for it. */
static int look(const struct store *store, struct follow_state *state)
{
    struct statx st;
    *state = (struct follow_state){0};
    int error = counter_read(store, state->number);
    if (error == -EPERM) /* it does not count */
        memset(state->number, 0, COUNTER_BYTES);
    else if (error || state->number[0])
        return error;
    error = stat_now(store->fd, &st);
    if (error)
        return error;
    state->changed =
        (struct timespec){.tv_sec = st.stx_mtime.tv_sec, .tv_nsec = st.stx_mtime.tv_nsec};
    state->size = (off_t)st.stx_size;
    return 0;
}

/* Network file systems know by the look before this what they must read again; on FUSE the page is dropped, with what
 * the kernel may keep with it. */
static int check_mark(const struct store *store)
{
    unsigned char byte;
    size_t done;
    if (store->is_on_fuse)
        (void)posix_fadvise(store->fd, (off_t)(store->live_mark.address & ~(LARGEST_FOLIO - 1)),
                            LARGEST_FOLIO, POSIX_FADV_DONTNEED);
    int error = io_read_at(store->fd, store->live_mark.address, &byte, 1, &done);
    if (error)
        return error;
    return done == 1 && (byte & store->live_mark.bits) ? 0 : STORE_MOVED;
}

int follow_check(const struct store *store)
{
    struct follow_state now;
    if (store->reader.read) /* it has checked already */
        return 0;
    if (store->is_gone || !store->has_state)
        return store->is_gone ? -ESTALE : STORE_MOVED;
    int error = look(store, &now);
    if (error)
        return error;
    if (store->is_live && !now.number[0])
        return check_mark(store);
    return is_same_state(&now, &store->state) ? 0 : STORE_MOVED;
}

int follow_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
{
    size_t done;
    int error = file_read_at(store, address, buffer, n, &done);
    if (!error && done == n)
        return 0;
    int moved = follow_check(store);
    if (!moved)
        store_say(store, why, "cannot read %zu bytes at address %llu: %s", n,
                  (unsigned long long)address, error ? strerror(-error) : "the file has shrunk");
    return moved ? moved : -EIO;
}

bool store_is_held_by_stranger(const struct store *store)
{
    struct holder holder;
    return !store->state.number[0] && holder_find(&store->st, true, &holder);
}

void store_set_live(struct store *store, const struct store_mark *mark)
{
    store->is_live = store->is_following && mark;
    if (store->is_live)
        store->live_mark = *mark;
}

bool store_is_live(const struct store *store)
{
    return store->is_live;
}

void store_set_end(struct store *store, uint64_t end)
{
    uint64_t size = store_size(store);
    bool is_cut = !store->is_live && size < end;
    if (is_cut && !store->is_cut)
        log_warning(
            "%s: it was cut short: of %llu bytes %llu are left, what is gone cannot be read",
            store->path, (unsigned long long)end, (unsigned long long)size);
    store->is_cut = is_cut;
    store->wanted_end = is_cut ? end : 0;
}

uint64_t store_end_wanted(const struct store *store)
{
    uint64_t size = store_size(store);
    return size < store->wanted_end ? store->wanted_end : size;
}

void store_hold(struct store *store)
{
    pthread_mutex_lock(&store->hold_lock);
    if (store->n_holds++ == 0)
        store->hold = counter_hold(store);
    pthread_mutex_unlock(&store->hold_lock);
}

void store_release(struct store *store)
{
    pthread_mutex_lock(&store->hold_lock);
    if (--store->n_holds == 0 && store->hold >= 0) {
        close(store->hold);
        store->hold = -1;
    }
    pthread_mutex_unlock(&store->hold_lock);
}

unsigned store_states_found(const struct store *store)
{
    return store->n_found;
}

void store_outdate(struct store *store)
{
    store->has_state = false;
}

bool store_is_following(const struct store *store)
{
    return store->is_following;
}

/* Opening a file makes the changes of other hosts visible, except on FUSE file systems that were
 * told to keep pages and attributes: these are dropped explicitly. */
void follow_drop_cached(const struct store *store, int fd)
{
    struct statx st;
    if (store->is_on_fuse && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0)
        (void)stat_now(fd, &st);
}

/* The journal's size changes from commit to commit. */
static void drop_cached_journal(const struct store *store)
{
    int fd = store->is_on_fuse
                 ? io_open_at(store->folder, place_entry(store->journal), O_RDONLY | O_NONBLOCK)
                 : -1;
    if (fd < 0)
        return;
    follow_drop_cached(store, fd);
    close(fd);
}

void store_interrupt(struct store *store)
{
    atomic_store(&store->is_interrupted, true);
}

bool store_is_interrupted(const struct store *store)
{
    return atomic_load(&store->is_interrupted);
}

/* The name of the folder may belong to another one by now, and a file with several names may be
 * written by another of them. */
static int renew_place(struct store *store)
{
    char *noted;
    int error = place_noted(store, &noted);
    int is_same = noted || error ? 0 : place_leads(store, store->place);
    free(noted);
    error = is_same < 0 ? is_same : error;
    if (!error && !is_same) {
        pthread_mutex_lock(&store->hold_lock); /* store_hold looks for the counter */
        error = place_find_again(store);
        pthread_mutex_unlock(&store->hold_lock);
    }
    return error ? error : store->journal ? 0 : -ESTALE;
}

/* Opens the file anew, which makes changes of other hosts visible. The descriptor stays the same, as others ask it
 * meanwhile whose the file is. */
static int open_again(struct store *store)
{
    int fd = place_open_file(store);
    if (fd < 0)
        return fd;
    follow_drop_cached(store, fd);
    int error = dup3(fd, store->fd, O_CLOEXEC) < 0 ? -errno : 0;
    close(fd);
    return error ? error : renew_place(store);
}

/* Once, for as long as it is not to be trusted. */
static void say_what_counts(struct store *store)
{
    char number[COUNTER_BYTES];
    bool is_refused = counter_read(store, number) == -EPERM;
    if (is_refused && !store->counter_is_refused)
        (void)counter_check(store);
    store->counter_is_refused = is_refused;
}

/* Reads the journal between two looks at the counter: STORE_MOVED if a commit came between. */
static int take_state(struct store *store, struct follow_state *state)
{
    struct follow_state after;
    struct statx st;
    say_what_counts(store);
    int error = look(store, state);
    if (error)
        neighbour_say(store, store->counter, "cannot be read", neighbour_reason(error));
    if (!error)
        error = open_again(store); /* after reading the counter: so its bytes are at least as new */
    if (!error)
        error = journal_choose(store);
    if (!error) {
        error = journal_look(store, &state->journal);
        if (error)
            neighbour_say(store, journal_path(store), "cannot be read", neighbour_reason(error));
    }
    if (!error)
        error = stat_now(store->fd, &st);
    if (error)
        return error;
    atomic_store(&store->end, st.stx_size);
    pages_clear(store);
    drop_cached_journal(store);
    if (state->journal.exists)
        error = journal_overlay(store);
    if (!error)
        error = look(store, &after);
    return error || is_same_state(state, &after) ? error : STORE_MOVED;
}

static bool is_same_journal(const struct journal_state *a, const struct journal_state *b)
{
    return a->exists == b->exists && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* How many of these times have come. */
static unsigned doubts_by_now(const struct store *store)
{
    uint64_t age = clock_now() - store->found_at;
    unsigned n = 0;
    while (n < N_DOUBTS && age >= doubt_nanos[n])
        n++;
    return n;
}

static bool is_recent(const struct store *store)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return store->n_found > 1 || store->state.changed.tv_sec > now.tv_sec - DOUBTFUL_SECONDS;
}

/* Whether the state found last is still current. A journal that exists may have become complete
 * since; the state of a live file is never kept. */
static bool is_unchanged(const struct store *store)
{
    struct follow_state now;
    return store->has_state && !store->is_live && look(store, &now) == 0 &&
           (now.number[0] || !is_recent(store) || doubts_by_now(store) <= store->doubts) &&
           journal_look(store, &now.journal) == 0 && is_same_state(&now, &store->state) &&
           (!now.journal.exists || is_same_journal(&now.journal, &store->state.journal));
}

/* Tries again, after an error for which that makes sense: which is no matter of the disk. */
static int take_state_again(struct store *store, struct follow_state *state, int error)
{
    struct timespec pause = {.tv_nsec = PAUSE_NANOS};
    uint64_t before = clock_waited();
    unsigned i;
    for (i = 1; i < MOST_TRIES && (error == STORE_MOVED || error == -EBUSY); i++) {
        if (i == STORE_FREE_TRIES)
            store_hold(store);
        nanosleep(&pause, NULL);
        error = store_is_interrupted(store) ? -EINTR : take_state(store, state);
    }
    if (i > STORE_FREE_TRIES)
        store_release(store);
    clock_uncount_waited(before);
    return error;
}

static int refresh(struct store *store, bool *moved)
{
    int error = open_again(store);
    if (error || (*moved = !is_unchanged(store)) == false)
        return error;
    struct follow_state state;
    unsigned doubts = doubts_by_now(store);
    store->has_state = false;
    error = take_state_again(store, &state, take_state(store, &state));
    if (error == STORE_MOVED)
        store_say(store, NULL, "it is committed to without a pause: no state of it could be read");
    else if (error == -EBUSY)
        neighbour_say(store, store->journal, "cannot be used",
                      "it belongs to another file, or this one was changed since");
    if (error)
        return error == STORE_MOVED ? -EBUSY : error;
    bool is_same = is_same_state(&state, &store->state);
    if (!is_same) {
        store->found_at = clock_now();
        store->n_found++;
    }
    store->doubts = is_same ? doubts : 0;
    store->state = state;
    store->has_state = true;
    store->is_live = store->is_live && check_mark(store) == 0;
    neighbour_forget(store);
    return 0;
}

int store_refresh(struct store *store, bool *moved)
{
    int error = refresh(store, moved);
    bool gone = error == -ESTALE || error == -ENOENT;
    if (gone && !store->is_gone)
        store_say(store, NULL, "the file that was followed is no longer there");
    store->is_gone = gone;
    return gone ? -ESTALE : error;
}

int follow_open(const char *path, const struct store_opening *how, struct store **out)
{
    bool moved;
    struct statfs fs;
    struct store *store = file_new(path, false);
    if (!store)
        return -ENOMEM;
    store->is_following = true;
    store->found = how->found;
    store->why = how->why;
    int error = file_open(store, how->own_links && !how->found);
    if (!error && !store->journal)
        error = -ENOENT;
    if (!error)
        store->is_on_fuse = fstatfs(store->fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
    if (!error)
        error = store_refresh(store, &moved);
    if (error)
        store_close(store);
    else
        *out = store;
    return error;
}

int store_open_following(const char *path, struct store **store)
{
    return follow_open(path, &(struct store_opening){0}, store);
}
