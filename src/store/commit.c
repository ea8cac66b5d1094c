/* Changing a store: bytes, space and commits.
 *
 * A commit goes through these states; a crash in any of them leaves what stands on the right.
 *
 *   new bytes are being synced, and with them what   the old state, once the last journal is
 *   the last journal has changed                     carried out; bytes nobody refers to
 *   the journal is being written over the last one   the old state, an incomplete journal
 *   the journal is durable                           the new state, once it is carried out
 *   pages are written, the end is set                the same, and so until the next commit
 *
 * From the moment on at which the journal is durable, the new state is the committed one, even if
 * carrying it out fails: that is tried again by the next commit, or by whoever opens the file. The
 * journal stands until the next one is written over it, or the store has been settled: that syncs
 * the file and removes it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

/* A journal that could not be removed might be replayed by whoever opens the file after a crash:
 * nothing may be changed before it is gone. */
static int check_writable(struct store *store)
{
    if (!store->writable || store->reader.read)
        return -EROFS;
    if (!store->stray)
        return 0;
    int error = journal_remove(store);
    store->stray = error;
    return error;
}

static int write_bytes(struct store *store, uint64_t address, const void *bytes, size_t n,
                       bool or_keep)
{
    uint64_t end;
    if (store->reader.write)
        return store->reader.write(store->reader.context, address, bytes, n);
    pthread_mutex_lock(&store->change);
    int error = check_writable(store);
    if (!error && (__builtin_add_overflow(address, (uint64_t)n, &end) || end > store_size(store))) {
        log_error("%s: %zu bytes to write at address %" PRIu64 " lie beyond the end of the file",
                  store->path, n, address);
        error = -EINVAL;
    }
    if (!error) {
        store->written = true;
        error = pages_write(store, address, bytes, n, or_keep);
    }
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_write(struct store *store, uint64_t address, const void *bytes, size_t n)
{
    return write_bytes(store, address, bytes, n, false);
}

int store_write_or_keep(struct store *store, uint64_t address, const void *bytes, size_t n)
{
    return write_bytes(store, address, bytes, n, true);
}

/* ---- Space ---- */

static int allocate(struct store *store, uint64_t n, uint64_t *address)
{
    uint64_t start, end = store_size(store);
    if (!extents_find(&store->free, n, &start)) {
        if (n > INT64_MAX || end > INT64_MAX - n)
            return -ENOSPC;
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
    int error = check_writable(store);
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
           !touches(&store->free, address, end) && !touches(&store->pending, address, end);
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

int store_free_lent(struct store *store, uint64_t address, uint64_t n)
{
    pthread_mutex_lock(&store->change);
    int error = check_writable(store);
    if (!error)
        error = is_lent(store, address, n) ? give_back(store, address, address + n) : -EACCES;
    pthread_mutex_unlock(&store->change);
    return error;
}

int store_free(struct store *store, uint64_t address, uint64_t n)
{
    if (store->reader.release)
        return store->reader.release(store->reader.context, address, n);
    pthread_mutex_lock(&store->change);
    int error = check_writable(store);
    if (!error && !is_in_use(store, address, n)) {
        log_error("%s: %" PRIu64 " bytes at address %" PRIu64 " cannot be freed: they are not in "
                  "use",
                  store->path, n, address);
        error = -EINVAL;
    }
    if (!error)
        error = give_back(store, address, address + n);
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

/* ---- Commit ---- */

/* Makes everything that was written straight to the file durable; the file is extended first. */
static int sync_fresh(struct store *store, uint64_t new_end)
{
    struct stat st;
    if (fstat(store->fd, &st) < 0)
        return -errno;
    int error = (uint64_t)st.st_size < new_end ? file_set_end(store, new_end) : 0;
    if (!error)
        error = file_sync(store, place_note(store));
    store->is_noted &= !error;
    return error;
}

/* The new state is committed: what it has freed may be allocated. */
static void begin_anew(struct store *store, uint64_t new_end)
{
    uint64_t start, length;
    snapshots_free_pending(store);
    if (extents_after(&store->free, new_end, &start, &length))
        extents_cut(&store->free, new_end, start + length - new_end);
    extents_clear(&store->fresh);
    store->committed_end = store->file_end = new_end;
    atomic_store_explicit(&store->end, new_end, memory_order_release);
    store->written = false;
}

/* Repeats the carrying out from the journal: pages may have changed since. */
static int carry_out(struct store *store)
{
    int error = journal_carry_out(store, store_size(store));
    store->unapplied = error;
    return error;
}

static int sync_name(struct store *store)
{
    int error = directory_sync(store);
    store->unnamed = error;
    return error;
}

int tell_followers(struct store *store)
{
    int error = counter_advance(store);
    if (error)
        log_error("%s: cannot write %s: %s", store->path, store->counter, strerror(-error));
    return error;
}

/* A commit that changes no committed byte: setting the end of the file, and its name, is atomic. A
 * file with a name may be found after a crash: from then on its bytes are committed. Space that it
 * has freed is reused from then on, so followers are told. */
static int commit_end(struct store *store, uint64_t new_end)
{
    bool shrinks = new_end < store->committed_end && !store->temporary;
    int error = shrinks ? tell_followers(store) : 0;
    if (error)
        return error;
    error = file_set_end(store, new_end);
    if (!error)
        error = file_sync(store, true);
    if (error)
        return error;
    error = store->temporary ? create_publish(store) : tell_followers(store);
    if (error)
        return error;
    begin_anew(store, new_end);
    return store->unnamed ? sync_name(store) : 0;
}

static void drop_pages(struct store *store)
{
    pthread_rwlock_wrlock(&store->pages_lock);
    pages_clear(store);
    pthread_rwlock_unlock(&store->pages_lock);
}

/* Followers are told before committed bytes change. */
static int apply(struct store *store, uint64_t new_end)
{
    snapshots_keep(store);
    int error = tell_followers(store);
    if (!error)
        error = pages_apply(store, new_end);
    if (!error)
        error = file_set_end(store, new_end);
    store->unapplied = error;
    return error;
}

int settle(struct store *store)
{
    if (store->unapplied)
        return carry_out(store);
    if (!store->standing.stands)
        return 0;
    int error = file_sync(store, false);
    if (error)
        return error;
    unsynced_trim(store);
    return journal_remove(store);
}

/* The pages of a large journal are not remembered: it is ended before anything else is written. */
static int end_large(struct store *store)
{
    int error = file_sync(store, false);
    store->unapplied = error;
    if (error)
        return error;
    error = journal_remove(store);
    store->stray = error;
    return error;
}

static int commit_pages(struct store *store, uint64_t new_end)
{
    int error = journal_write(store, new_end);
    if (error) {
        store->stray = journal_remove(store) < 0;
        return error;
    }
    bool many = atomic_load(&store->n_pages) > MOST_STANDING;
    begin_anew(store, new_end);
    error = apply(store, new_end);
    if (error)
        return error;
    drop_pages(store);
    journal_mark(store);
    return many ? end_large(store) : 0;
}

/* An image needs no journal: a commit in memory cannot be interrupted. */
static int commit_image(struct store *store, uint64_t new_end)
{
    snapshots_keep(store);
    image_apply(store, new_end);
    begin_anew(store, new_end);
    drop_pages(store);
    return image_write_back(store);
}

static int commit_file(struct store *store, uint64_t new_end)
{
    int error = sync_fresh(store, new_end);
    if (error)
        return error;
    return atomic_load(&store->n_pages) > 0 || store->standing.stands ? commit_pages(store, new_end)
                                                                      : commit_end(store, new_end);
}

static bool is_unchanged(const struct store *store, uint64_t new_end)
{
    bool is_new = store->temporary || (store->image && image_is_unbacked(store));
    return !is_new && !store->written && atomic_load(&store->n_pages) == 0 &&
           new_end == store->committed_end;
}

/* The removal of the file is an error only if uncommitted changes would be lost. */
static int follow_place(struct store *store)
{
    if (store->image || store->temporary)
        return 0;
    int error = place_follow(store);
    bool is_whole = !store->unapplied && is_unchanged(store, end_in_use(store));
    return error == -ESTALE && is_whole ? 0 : error;
}

static int commit(struct store *store)
{
    int error = follow_place(store);
    if (!error && store->unapplied)
        error = carry_out(store);
    if (!error && store->unnamed && !store->temporary)
        error = sync_name(store);
    if (error)
        return error;
    uint64_t new_end = end_in_use(store);
    if (is_unchanged(store, new_end)) {
        error = store->pending.root && !store->image ? tell_followers(store) : 0;
        if (!error)
            begin_anew(store, new_end);
        return error;
    }
    error = store->image ? commit_image(store, new_end) : commit_file(store, new_end);
    if (!error)
        atomic_fetch_add_explicit(&store->commits, 1, memory_order_relaxed);
    return error;
}

int store_commit(struct store *store)
{
    int error = raw_sync(store);
    if (error)
        return error;
    pthread_mutex_lock(&store->change);
    error = check_writable(store);
    if (!error && !store->image)
        error = file_check_end(store);
    if (!error)
        error = commit(store);
    store_check(store, true);
    if (!error)
        store_check_committed(store);
    pthread_mutex_unlock(&store->change);
    return error;
}

void store_set_landmark(struct store *store, uint64_t address)
{
    pthread_mutex_lock(&store->change);
    store->landmark = address;
    pthread_mutex_unlock(&store->change);
}

int store_settle(struct store *store)
{
    pthread_mutex_lock(&store->change);
    int error = check_writable(store);
    if (!error)
        error = settle(store);
    pthread_mutex_unlock(&store->change);
    return error;
}
