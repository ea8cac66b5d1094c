/* Snapshots: a committed state that can still be read while later ones replace it.
 *
 *   a byte in a hole     zero: free when the snapshot was made. The space may be used meanwhile
 *   in a kept page       what the page had before a commit changed it in place
 *   any other            still in the file, whose space is held back
 *
 * Space that a commit frees is held back for the newest snapshot that needs it. When that is closed
 * the next older one that needs it gets it, and after that it is free. What was allocated after a
 * snapshot is no affair of it: it never holds back more than its own size.
 *
 * Who opens one between the same two commits as others gets theirs. What all of them take is limited, as their number
 * is that of readers: the oldest are given up for it, but the newest never. One that is given up is in no list, holds
 * nothing back, and reads as an error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "common/thread.h"
#include "store/private.h"

/* Of all snapshots of a store: */
#define MOST_KEPT   ((size_t)65536)       /* pages: 256 MiB */
#define MOST_RANGES ((size_t)1 << 21)     /* holes, and what is held back: 128 MiB */
#define LITTLE_HELD ((uint64_t)256 << 20) /* bytes; more only up to half of the file */

struct kept {
    uint64_t number;
    UT_hash_handle hh;
    unsigned char bytes[PAGE_BYTES];
};

struct store_snapshot {
    struct store *store;
    /* Under the store's lock `change`: */
    struct store_snapshot *prev, *next;
    unsigned users;
    bool is_past; /* there was a commit since */
    struct extents held;
    uint64_t end;
    pthread_rwlock_t lock; /* for reading: bytes are read; for writing: what follows is changed */
    struct extents holes;
    struct kept *kept; /* by number */
    bool lost;
};

/* ---- Holding back ---- */

/* The longest piece of [at, end) of which the snapshot needs all or nothing. */
static uint64_t piece(const struct store_snapshot *snapshot, uint64_t at, uint64_t end,
                      bool *needed)
{
    uint64_t start, length;
    *needed = at < snapshot->end;
    if (!*needed)
        return end - at;
    end = end < snapshot->end ? end : snapshot->end;
    if (!extents_after(&snapshot->holes, at, &start, &length) || start >= end)
        return end - at;
    *needed = at < start;
    if (*needed)
        return start - at;
    return (start + length < end ? start + length : end) - at;
}

/* Moves the first extent of `freed`: what the snapshot needs becomes held, the rest goes to `rest`.
 * Without memory it holds all of it. */
static void divide_first(struct store_snapshot *snapshot, struct extents *freed,
                         struct extents *rest, uint64_t start, uint64_t length)
{
    bool needed;
    size_t pieces = 0;
    for (uint64_t at = start; at < start + length; pieces++)
        at += piece(snapshot, at, start + length, &needed);
    if (extents_reserve(&snapshot->held, pieces) || extents_reserve(rest, pieces)) {
        extents_move_first(&snapshot->held, freed);
        return;
    }
    extents_cut(freed, start, length);
    for (uint64_t at = start, n; at < start + length; at += n) {
        n = piece(snapshot, at, start + length, &needed);
        extents_add(needed ? &snapshot->held : rest, at, n);
    }
}

/* To this snapshot and those that are older, as far as they need it, or else it is free. */
static void hand_down(struct store *store, struct store_snapshot *snapshot, struct extents *freed)
{
    struct extents rest = {0};
    uint64_t start, length;
    for (; snapshot; snapshot = snapshot->next) {
        while (extents_after(freed, 0, &start, &length))
            divide_first(snapshot, freed, &rest, start, length);
        extents_move(freed, &rest);
    }
    extents_move(&store->free, freed);
    extents_clear(&rest);
}

static void forget_kept(struct store_snapshot *snapshot)
{
    struct kept *kept, *next;
    HASH_ITER (hh, snapshot->kept, kept, next) {
        HASH_DEL(snapshot->kept, kept);
        free(kept);
        snapshot->store->n_kept--;
    }
}

static bool keep_page(struct store_snapshot *snapshot, uint64_t number)
{
    struct store *store = snapshot->store;
    uint64_t address = number * PAGE_BYTES;
    struct kept *kept;
    HASH_FIND(hh, snapshot->kept, &number, sizeof(number), kept);
    if (kept || address >= snapshot->end)
        return true;
    kept = store->n_kept < MOST_KEPT ? malloc(sizeof(*kept)) : NULL;
    if (!kept)
        return false;
    size_t n =
        snapshot->end - address < PAGE_BYTES ? (size_t)(snapshot->end - address) : PAGE_BYTES;
    kept->number = number;
    bool done = file_read(store, address, kept->bytes, n, NULL) == 0;
    if (done) {
        HASH_ADD(hh, snapshot->kept, number, sizeof(kept->number), kept);
        done = !hash_failed();
    }
    if (done)
        store->n_kept++;
    else
        free(kept);
    return done;
}

/* ---- Giving up ---- */

/* The caller holds `change`, and nobody reads. */
static void leave(struct store_snapshot *snapshot)
{
    struct store *store = snapshot->store;
    hand_down(store, snapshot->next, &snapshot->held);
    DL_DELETE(store->snapshots, snapshot);
    forget_kept(snapshot);
    extents_clear(&snapshot->held);
    extents_clear(&snapshot->holes);
}

static void give_up(struct store_snapshot *snapshot, const char *why)
{
    log_warning("%s: an image that is being read is given up: %s", store_path(snapshot->store),
                why);
    pthread_rwlock_wrlock(&snapshot->lock);
    snapshot->lost = true;
    leave(snapshot);
    pthread_rwlock_unlock(&snapshot->lock);
}

/* What only the oldest has held back is free then. */
static void limit_all(struct store *store)
{
    const struct store_snapshot *each;
    size_t ranges = 0;
    uint64_t held = 0, half = store_size(store) / 2;
    uint64_t most_held = half > LITTLE_HELD ? half : LITTLE_HELD;
    DL_FOREACH (store->snapshots, each) {
        ranges += each->holes.n + each->held.n;
        held += each->held.bytes;
    }
    while ((ranges > MOST_RANGES || held > most_held) && store->snapshots->next) {
        struct store_snapshot *oldest = store->snapshots->prev;
        const char *why = held > most_held ? "all that are open hold back too much space"
                                           : "all that are open take too much memory";
        ranges -= oldest->holes.n + oldest->held.n;
        held -= oldest->held.bytes;
        give_up(oldest, why);
    }
}

/* ---- Commits ---- */

static bool keep_pages(struct store_snapshot *snapshot)
{
    const struct page *page, *next;
    bool done = true;
    pthread_rwlock_wrlock(&snapshot->lock);
    HASH_ITER (hh, snapshot->store->pages, page, next)
        done = done && keep_page(snapshot, page->number);
    pthread_rwlock_unlock(&snapshot->lock);
    return done;
}

/* An error is not the commit's: the snapshot is lost. */
void snapshots_keep(struct store *store)
{
    struct store_snapshot *snapshot, *next;
    DL_FOREACH_SAFE (store->snapshots, snapshot, next)
        if (!keep_pages(snapshot))
            give_up(snapshot, "too much was changed since it was opened");
}

void snapshots_free_pending(struct store *store)
{
    if (store->snapshots)
        store->snapshots->is_past = true;
    hand_down(store, store->snapshots, &store->pending);
    limit_all(store);
}

bool snapshots_hold(const struct store *store, uint64_t address, uint64_t end)
{
    const struct store_snapshot *each;
    uint64_t start, length;
    DL_FOREACH (store->snapshots, each)
        if (extents_after(&each->held, address, &start, &length) && start < end)
            return true;
    return false;
}

/* ---- Opening and closing ---- */

static int add_all(struct extents *to, const struct extents *from)
{
    uint64_t start, length;
    int error = 0;
    for (uint64_t at = 0; !error && extents_after(from, at, &start, &length); at = start + length) {
        error = extents_reserve(to, 1);
        if (!error)
            extents_add(to, start, length);
    }
    return error;
}

/* Free space in the committed state: also what only older snapshots hold, and what is noted for the next writer. */
static int find_holes(struct store_snapshot *snapshot)
{
    struct store *store = snapshot->store;
    const struct store_snapshot *older;
    if (store->is_shared && !store->knows_free)
        return free_space_noted(store, &snapshot->holes);
    int error = add_all(&snapshot->holes, &store->free);
    if (!error)
        error = add_all(&snapshot->holes, &store->fresh);
    DL_FOREACH (store->snapshots, older) {
        if (!error)
            error = add_all(&snapshot->holes, &older->held);
    }
    return error;
}

static void destroy(struct store_snapshot *snapshot)
{
    extents_clear(&snapshot->holes);
    extents_clear(&snapshot->held);
    pthread_rwlock_destroy(&snapshot->lock);
    free(snapshot);
}

static int check_state(const struct store *store)
{
    if (store->temporary || (store->committed_end == 0 && atomic_load(&store->commits) == 0))
        return -ENOENT;
    if (store->is_following) {
        log_error("%s: another process changes it: only that one can give an image of it",
                  store_path(store));
        return -EOPNOTSUPP;
    }
    if (store->unapplied) {
        log_error("%s: its last commit waits for the disk: there is no image of it now",
                  store_path(store));
        return -EIO;
    }
    return 0;
}

/* The caller holds `change`. */
static int take(struct store *store, struct store_snapshot **out)
{
    int error = check_state(store);
    struct store_snapshot *snapshot = error ? NULL : calloc(1, sizeof(*snapshot));
    if (!snapshot)
        return error ? error : -ENOMEM;
    snapshot->store = store;
    snapshot->users = 1;
    snapshot->end = store->committed_end;
    thread_init_lock(&snapshot->lock);
    error = find_holes(snapshot);
    if (error) {
        destroy(snapshot);
        return error;
    }
    DL_PREPEND(store->snapshots, snapshot);
    limit_all(store);
    *out = snapshot;
    return 0;
}

int store_snapshot_open(struct store *store, struct store_snapshot **out)
{
    int error = interrupt_lock(&store->change); /* it is held by commits */
    if (error)
        return error;
    struct store_snapshot *newest = store->snapshots;
    if (newest && !newest->is_past) {
        newest->users++;
        *out = newest;
    } else {
        error = take(store, out);
    }
    pthread_mutex_unlock(&store->change);
    return error;
}

void store_snapshot_close(struct store_snapshot *snapshot)
{
    if (!snapshot)
        return;
    struct store *store = snapshot->store;
    pthread_mutex_lock(&store->change);
    bool is_last = --snapshot->users == 0;
    if (is_last && !snapshot->lost)
        leave(snapshot);
    pthread_mutex_unlock(&store->change);
    if (is_last)
        destroy(snapshot);
}

/* ---- Reading ---- */

uint64_t store_snapshot_size(const struct store_snapshot *snapshot)
{
    return snapshot->end;
}

uint64_t store_committed_size(struct store *store)
{
    if (interrupt_lock(&store->change) != 0) /* it is held by commits */
        return 0;
    uint64_t end = store->temporary ? 0 : store->committed_end;
    pthread_mutex_unlock(&store->change);
    return end;
}

/* The part of [start, start + length) that lies in n bytes at address becomes what `from` has, or
 * zeros. */
static void lay_over(uint64_t address, char *buffer, size_t n, uint64_t start, uint64_t length,
                     const unsigned char *from)
{
    uint64_t first = start > address ? start : address;
    uint64_t end = start + length < address + n ? start + length : address + n;
    if (first >= end)
        return;
    if (from)
        memcpy(buffer + (first - address), from + (first - start), end - first);
    else
        memset(buffer + (first - address), 0, end - first);
}

static int read_bytes(struct store_snapshot *snapshot, uint64_t address, char *buffer, size_t n)
{
    struct store *store = snapshot->store;
    uint64_t start, length, end = address + n;
    if (!store->writable) /* pages are a journal's */
        return store_read(store, address, buffer, n);
    int error = file_read(store, address, buffer, n, NULL);
    if (error)
        return error;
    for (uint64_t number = address / PAGE_BYTES; number * PAGE_BYTES < end && snapshot->kept;
         number++) {
        const struct kept *kept;
        HASH_FIND(hh, snapshot->kept, &number, sizeof(number), kept);
        if (kept)
            lay_over(address, buffer, n, number * PAGE_BYTES, PAGE_BYTES, kept->bytes);
    }
    for (uint64_t at = address; extents_after(&snapshot->holes, at, &start, &length) && start < end;
         at = start + length)
        lay_over(address, buffer, n, start, length, NULL);
    return 0;
}

int store_snapshot_read(struct store_snapshot *snapshot, uint64_t address, void *buffer, size_t n)
{
    if (address > snapshot->end || n > snapshot->end - address)
        return -EINVAL;
    if (n == 0)
        return 0;
    pthread_rwlock_rdlock(&snapshot->lock);
    int error = snapshot->lost ? -ESTALE : read_bytes(snapshot, address, buffer, n);
    pthread_rwlock_unlock(&snapshot->lock);
    return error;
}
