/* Where new bytes of a store go: space that is free, or behind the end; and what becomes free. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/private.h"

#define MOST_FREE ((size_t)1 << 20) /* extents, by what others free */

/* No file system has files of any size; lseek(2) knows, and nothing reads at its place. */
static bool may_end_at(const struct store *store, uint64_t end)
{
    return store->fd < 0 || lseek(store->fd, (off_t)end, SEEK_SET) >= 0;
}

static int allocate(struct store *store, uint64_t n, uint64_t *address)
{
    uint64_t start, end = store_size(store);
    if (!extents_find(&store->free, n, &start)) {
        if (n > INT64_MAX || end > INT64_MAX - n)
            return -ENOSPC;
        if (!may_end_at(store, end + n))
            return -EFBIG;
        int error = store->image ? image_reserve(store, end + n) : 0;
        if (error)
            return error;
        *address = end;
        atomic_store_explicit(&store->end, end + n, memory_order_release);
        return 0;
    }
    int error = extents_reserve(&store->fresh, 1);
    if (error)
        return error;
    extents_cut(&store->free, start, n);
    if (start < store->committed_end) {
        uint64_t left = store->committed_end - start;
        extents_add(&store->fresh, start, n < left ? n : left);
    }
    *address = start;
    return 0;
}

/* Removes [address, end) from the space that belongs to the store. Nodes for two cuts in the middle
 * are reserved. */
static void disown(struct store *store, uint64_t address, uint64_t end)
{
    uint64_t start, length;
    while (extents_after(&store->own, address, &start, &length) && start < end) {
        uint64_t from = start > address ? start : address;
        uint64_t to = start + length < end ? start + length : end;
        extents_cut(&store->own, from, to - from);
    }
}

/* In a damaged file space may have been claimed that a snapshot held and that is free by now. */
static int allocate_for(struct store *store, uint64_t n, bool is_lent, uint64_t *address)
{
    pthread_mutex_lock(&store->change);
    int error = commit_check_writable(store);
    if (!error && store->tells_own)
        error = extents_reserve(&store->own, 3);
    if (!error)
        error = n > 0 ? allocate(store, n, address) : -EINVAL;
    if (!error && store->tells_own)
        disown(store, *address, *address + n);
    if (!error && store->tells_own && !is_lent)
        extents_add(&store->own, *address, n);
    store_check(store, false);
    pthread_mutex_unlock(&store->change);
    return error;
}

static int allocate_there(struct store *store, uint64_t n, uint64_t *address)
{
    uint64_t size;
    int error = store->reader.allocate(store->reader.context, n, address, &size);
    if (!error)
        atomic_store(&store->end, size);
    return error;
}

int store_allocate(struct store *store, uint64_t n, uint64_t *address)
{
    return store->reader.allocate ? allocate_there(store, n, address)
                                  : allocate_for(store, n, false, address);
}

int store_allocate_lent(struct store *store, uint64_t n, uint64_t *address)
{
    return allocate_for(store, n, true, address);
}

void store_tell_own(struct store *store)
{
    pthread_mutex_lock(&store->change);
    store->tells_own = true;
    pthread_mutex_unlock(&store->change);
}

/* If there is no memory it stays the store's own. */
void store_hand_over(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    if (extents_reserve(&store->own, 2) == 0)
        disown(store, address, address + n);
    pthread_mutex_unlock(&store->change);
}

/* Skips an extent of a set that covers this address; *next becomes the start of the following one
 * if that is nearer. */
static bool skip(const struct extents *extents, uint64_t *at, uint64_t *next)
{
    uint64_t start, length;
    if (!extents_after(extents, *at, &start, &length))
        return false;
    bool is_there = start <= *at;
    if (is_there)
        *at = start + length;
    else if (start < *next)
        *next = start;
    return is_there;
}

int store_claim(struct store *store, uint64_t address, uint64_t n)
{
    uint64_t end;
    int error = 0;
    pthread_mutex_lock(&store->change);
    uint64_t size = store_size(store);
    if (__builtin_add_overflow(address, n, &end) || end > size)
        end = size;
    for (uint64_t at = address, next = end; at < end && !error; next = end) {
        if (skip(&store->own, &at, &next) || skip(&store->free, &at, &next) ||
            skip(&store->pending, &at, &next))
            continue;
        error = extents_reserve(&store->own, 1);
        if (!error)
            extents_add(&store->own, at, next - at);
        at = next;
    }
    pthread_mutex_unlock(&store->change);
    return error;
}

void store_set_claimer(struct store *store, int (*claim)(void *context), void *context)
{
    store->claim = claim;
    store->claimer = context;
}

int store_let_claim(struct store *store)
{
    return store->claim ? store->claim(store->claimer) : 0;
}

/* The longest piece of [at, end) that is all fresh or all committed. */
static uint64_t piece(const struct store *store, uint64_t at, uint64_t end, bool *fresh)
{
    uint64_t start, length;
    *fresh = at >= store->committed_end;
    if (*fresh)
        return end - at;
    if (end > store->committed_end)
        end = store->committed_end;
    if (!extents_after(&store->fresh, at, &start, &length) || start >= end)
        return end - at;
    *fresh = start <= at;
    if (!*fresh)
        return start - at;
    return (start + length < end ? start + length : end) - at;
}

static bool touches(const struct extents *extents, uint64_t address, uint64_t end)
{
    uint64_t start, length;
    return extents_after(extents, address, &start, &length) && start < end;
}

static int give_back(struct store *store, uint64_t address, uint64_t end)
{
    bool fresh;
    size_t pieces = 0;
    for (uint64_t at = address; at < end; at += piece(store, at, end, &fresh))
        pieces++;
    if (extents_reserve(&store->free, pieces) || extents_reserve(&store->pending, pieces) ||
        extents_reserve(&store->fresh, pieces) || extents_reserve(&store->own, 2))
        return -ENOMEM;
    disown(store, address, end);

    for (uint64_t at = address, n; at < end; at += n) {
        n = piece(store, at, end, &fresh);
        if (fresh && at < store->committed_end)
            extents_cut(&store->fresh, at, n);
        extents_add(fresh ? &store->free : &store->pending, at, n);
    }
    store_check(store, false);
    return 0;
}

static bool is_in_use(const struct store *store, uint64_t address, uint64_t n)
{
    uint64_t end;
    return n > 0 && !__builtin_add_overflow(address, n, &end) && end <= store_size(store) &&
           !touches(&store->free, address, end) && !touches(&store->pending, address, end) &&
           !snapshots_hold(store, address, end);
}

static bool is_lent(const struct store *store, uint64_t address, uint64_t n)
{
    return is_in_use(store, address, n) && !touches(&store->own, address, address + n);
}

int store_check_lent(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    int error = is_lent(store, address, n) ? 0 : -EACCES;
    pthread_mutex_unlock(&store->change);
    return error;
}

/* Whoever has it lent may free it in as many pieces as there are bytes. */
static bool has_room_for(const struct store *store, uint64_t address, uint64_t end)
{
    uint64_t before = address > 0 ? address - 1 : 0;
    return store->free.n + store->pending.n < MOST_FREE || touches(&store->free, before, end + 1) ||
           touches(&store->pending, before, end + 1);
}

int store_free_lent(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    int error = commit_check_writable(store);
    if (!error && !is_lent(store, address, n))
        error = -EACCES;
    if (!error && !has_room_for(store, address, address + n))
        error = -EFBIG;
    if (!error)
        error = give_back(store, address, address + n);
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_free(struct store *store, uint64_t address, uint64_t n)
{
    if (store->reader.release)
        return store->reader.release(store->reader.context, address, n);
    pthread_mutex_lock(&store->change);
    int error = commit_check_writable(store);
    if (!error && !is_in_use(store, address, n)) {
        store_say(store, NULL,
                  "%" PRIu64 " bytes at address %" PRIu64 " cannot be freed: they are not in "
                  "use",
                  n, address);
        error = -EINVAL;
    }
    if (!error)
        error = give_back(store, address, address + n);
    pthread_mutex_unlock(&store->change);
    return error;
}

/* ---- In place of what was there ---- */

/* Space of an image that something new may take: `old` itself, what is free, and, as what is written
 * there is kept in memory until the commit, what was freed since the last one. */
struct room {
    struct store *store;
    uint64_t old, old_end; /* in use */
    bool pending;
};

/* The first of it that ends behind an address. */
static bool room_after(const struct room *room, uint64_t at, uint64_t *start, uint64_t *end)
{
    const struct extents *sets[] = {&room->store->free, &room->store->pending};
    uint64_t first, n;
    bool found = at < room->old_end;
    *start = found ? room->old : UINT64_MAX;
    *end = room->old_end;
    for (size_t i = 0; i < (room->pending ? 2u : 1u); i++)
        if (extents_after(sets[i], at, &first, &n) && first < *start) {
            *start = first;
            *end = first + n;
            found = true;
        }
    return found;
}

/* How far it goes on from there without a gap, but no farther than wanted. */
static uint64_t room_end(const struct room *room, uint64_t at, uint64_t wanted)
{
    uint64_t start, end;
    while (at < wanted && room_after(room, at, &start, &end) && start <= at)
        at = end;
    return at;
}

/* The lowest n bytes of it. */
static bool find_lowest(const struct room *room, uint64_t n, uint64_t *address)
{
    uint64_t start, end;
    for (uint64_t at = 0; room_after(room, at, &start, &end); at = end) {
        end = room_end(room, start, start + n);
        *address = start;
        if (end - start >= n)
            return true;
    }
    return false;
}

/* Where n bytes go: to the place of the old ones, if they fit with what follows; or to a place that
 * is free, then one that was freed. In a buffer that cannot grow two of these may be joined. */
static bool find_room(const struct room *room, uint64_t n, uint64_t *address)
{
    *address = room->old;
    return (room->old < room->old_end &&
            room_end(room, room->old_end, room->old + n) >= room->old + n) ||
           extents_find(&room->store->free, n, address) ||
           (room->pending && extents_find(&room->store->pending, n, address)) ||
           (image_is_fixed(room->store) && find_lowest(room, n, address));
}

/* The first piece of [at, end) that lies in a set, as far as the set has it. */
static bool piece_of(const struct extents *set, uint64_t at, uint64_t end, uint64_t *start,
                     uint64_t *piece_end)
{
    uint64_t length;
    if (at >= end || !extents_after(set, at, start, &length) || *start >= end)
        return false;
    *piece_end = *start + length < end ? *start + length : end;
    if (*start < at)
        *start = at;
    return true;
}

/* Two nodes for each set that is cut, once in its midst, and some for what becomes fresh. */
static int reserve_cuts(struct store *store, uint64_t address, uint64_t end)
{
    uint64_t start;
    size_t pieces = 0;
    for (uint64_t at = address; piece_of(&store->free, at, end, &start, &at);)
        pieces++;
    return extents_reserve(&store->free, 2) || extents_reserve(&store->pending, 2) ||
                   extents_reserve(&store->fresh, pieces) ||
                   (store->tells_own && extents_reserve(&store->own, 3))
               ? -ENOMEM
               : 0;
}

/* Cannot fail: what is free becomes fresh, what was freed is in use again. */
static void take(struct store *store, uint64_t address, uint64_t end)
{
    uint64_t start;
    for (uint64_t at = address; piece_of(&store->free, at, end, &start, &at);) {
        uint64_t committed = at < store->committed_end ? at : store->committed_end;
        extents_cut(&store->free, start, at - start);
        if (start < committed)
            extents_add(&store->fresh, start, committed - start);
    }
    for (uint64_t at = address; piece_of(&store->pending, at, end, &start, &at);)
        extents_cut(&store->pending, start, at - start);
}

/* -ENOSPC: there is no such room. */
static int allocate_over(const struct room *room, uint64_t n, uint64_t *address)
{
    struct store *store = room->store;
    uint64_t start;
    if (n > INT64_MAX || !find_room(room, n, &start))
        return -ENOSPC;
    int error = reserve_cuts(store, start, start + n);
    if (!error)
        error = pages_prepare(store, start, (size_t)n, false);
    if (error)
        return error;
    take(store, start, start + n);
    if (store->tells_own) {
        disown(store, start, start + n);
        extents_add(&store->own, start, n);
    }
    *address = start;
    return 0;
}

/* With a snapshot new bytes in place of committed ones cost memory, and some day the snapshot: only
 * a buffer that cannot grow puts them there. */
static bool is_written_over(const struct store *store)
{
    return !store->snapshots || image_is_fixed(store);
}

bool store_allocates_over(const struct store *store)
{
    return store->image && store->writable;
}

int store_allocate_over(struct store *store, uint64_t old, uint64_t old_n, uint64_t n,
                        uint64_t *address)
{
    int error = -ENOSPC;
    if (!store->image)
        return store_allocate(store, n, address);
    pthread_mutex_lock(&store->change);
    if (commit_check_writable(store) == 0 && n > 0 && is_written_over(store)) {
        bool has_old = is_in_use(store, old, old_n);
        struct room room = {.store = store,
                            .old = has_old ? old : 0,
                            .old_end = has_old ? old + old_n : 0,
                            .pending = !store->snapshots};
        error = allocate_over(&room, n, address);
        store_check(store, false);
    }
    pthread_mutex_unlock(&store->change);
    return error == -ENOSPC ? store_allocate(store, n, address) : error;
}

int store_free_except(struct store *store, uint64_t address, uint64_t n, uint64_t kept,
                      uint64_t kept_n)
{
    uint64_t end = address + n, kept_end = kept + kept_n;
    int error = 0;
    if (n == 0)
        return 0;
    if (kept_n == 0 || kept >= end || kept_end <= address)
        return store_free(store, address, n);
    if (address < kept)
        error = store_free(store, address, kept - address);
    if (!error && kept_end < end)
        error = store_free(store, kept_end, end - kept_end);
    return error;
}

int store_free_unused(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    int error = commit_check_writable(store);
    if (!error && !is_in_use(store, address, n))
        error = -EINVAL;
    if (!error)
        error = extents_reserve(&store->free, 1);
    if (!error)
        extents_add(&store->free, address, n);
    pthread_mutex_unlock(&store->change);
    return error;
}

void store_forget(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    if (store->fd >= 0 && address >= store->committed_end)
        (void)fallocate(store->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)address,
                        (off_t)n);
    pthread_mutex_unlock(&store->change);
}

uint64_t end_in_use(const struct store *store)
{
    uint64_t end = store_size(store), start, length;
    bool pending = !store->snapshots;
    while (end > 0 &&
           ((extents_after(&store->free, end - 1, &start, &length) && start < end) ||
            (pending && extents_after(&store->pending, end - 1, &start, &length) && start < end)))
        end = start;
    return end;
}

uint64_t store_end(struct store *store)
{
    if (store->reader.end_in_use)
        return store->reader.end_in_use(store->reader.context);
    pthread_mutex_lock(&store->change);
    uint64_t end = end_in_use(store);
    pthread_mutex_unlock(&store->change);
    return end;
}
