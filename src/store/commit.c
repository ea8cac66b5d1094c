/* Changing the bytes of a store, and commits.
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
#include <inttypes.h>
#include <string.h>

#include "store/private.h"

int commit_check_writable(struct store *store)
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
    int error = commit_check_writable(store);
    if (!error && (__builtin_add_overflow(address, (uint64_t)n, &end) || end > store_size(store))) {
        store_say(store, NULL,
                  "%zu bytes to write at address %" PRIu64 " lie beyond the end of the file", n,
                  address);
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
        store_say(store, NULL, "cannot write %s: %s", store->counter, strerror(-error));
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
    error = store->temporary ? publish(store) : tell_followers(store);
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
    int error = unsynced_raw_sync(store);
    if (error)
        return error;
    pthread_mutex_lock(&store->change);
    error = commit_check_writable(store);
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
    int error = commit_check_writable(store);
    if (!error && store->standing.stands)
        (void)place_follow(store); /* so that a journal that was moved is ended, too */
    if (!error)
        error = settle(store);
    pthread_mutex_unlock(&store->change);
    return error;
}
