/* Committing a file: what is in memory, of its datasets and of libhdf5, goes to the store, which makes it
 * durable (store/commit.c). Several that wait for it are served by one commit. */
#include <string.h>

#include "cache/cache.h"
#include "common/log.h"
#include "dataset/private.h"
#include "dataset/read_ahead.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

/* With both locks held: writes metadata that only memory has to the store: indexes, headers,
 * libhdf5's cache. */
static int write_metadata(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    int error = hard_link_end(file);
    if (error)
        return error;
    HASH_ITER (hh, file->datasets, dataset, next) {
        error = dataset->sparse ? sparse_flush(&dataset->layout) : 0;
        if (!error)
            error = unfinished_put_dims(dataset);
        if (error)
            return error;
    }
    error = hdf5_flush(file->hdf5);
    if (error)
        log_error("%s: cannot flush: %s", sfs_path(file), hdf5_error());
    return error;
}

/* With the lock held: records and logs which datasets have chunks that cannot be stored. Where edge
 * chunks have no filters, all chunks must match the committed dims, and where a chunk was cut, what
 * is stored of it must not: then nothing is committed. */
static int look_at_left(struct sfs_file *file, bool any)
{
    struct sfs_dataset *dataset, *next;
    int held = 0;
    HASH_ITER (hh, file->datasets, dataset, next) {
        int error = any && dataset->cache ? cache_left(dataset->cache) : 0;
        atomic_store(&dataset->left, error);
        if (!error)
            continue;
        bool holds = dataset->layout.unfiltered_edges || dataset->was_cut;
        log_error("%s: %s: chunks of it cannot be stored, and stay in memory: %s; all else %s",
                  sfs_path(file), dataset->path, strerror(-error),
                  holds ? "waits for them" : "is committed");
        held = holds ? error : held;
    }
    return held;
}

static void begin_commit(struct sfs_file *file, bool keeps_promises)
{
    struct sfs_dataset *dataset, *next;
    pthread_mutex_lock(&file->lock);
    unfinished_restore_left(file);
    pthread_rwlock_rdlock(&file->commit_lock);
    file->is_committing = true;
    HASH_ITER (hh, file->datasets, dataset, next)
        unfinished_begin_commit(dataset, keeps_promises);
    pthread_rwlock_unlock(&file->commit_lock);
    pthread_mutex_unlock(&file->lock);
}

static void end_commit(struct sfs_file *file, bool is_committed)
{
    struct sfs_dataset *dataset, *next;
    pthread_mutex_lock(&file->lock);
    pthread_rwlock_rdlock(&file->commit_lock);
    file->is_committing = false;
    HASH_ITER (hh, file->datasets, dataset, next) {
        unfinished_end_commit(dataset, is_committed);
        if (is_committed && !atomic_load(&dataset->left))
            dataset->was_cut = false;
    }
    pthread_rwlock_unlock(&file->commit_lock);
    pthread_mutex_unlock(&file->lock);
}

/* During a commit datasets can be opened, closed, read, and written in the cache; only changes of
 * the store wait. */
static int commit(struct sfs_file *file, bool keeps_promises, int *left)
{
    begin_commit(file, keeps_promises);
    int error = cache_flush_most(file->cache, file->store, left);
    if (!error) {
        pthread_mutex_lock(&file->lock);
        error = look_at_left(file, *left);
        pthread_rwlock_wrlock(&file->commit_lock);
        if (!error)
            error = write_metadata(file);
        pthread_mutex_unlock(&file->lock);
        if (!error)
            error = store_commit(file->store);
        unfinished_restore(file);
        pthread_rwlock_unlock(&file->commit_lock);
    }
    end_commit(file, !error);
    return error;
}

int file_flush(struct sfs_file *file, bool keeps_promises, int *left)
{
    struct flushing *flushing = &file->flushing;
    pthread_mutex_lock(&flushing->lock);
    uint64_t mine = flushing->begun + 1;
    flushing->keeps_promises |= keeps_promises;
    while (flushing->running && flushing->ended < mine)
        pthread_cond_wait(&flushing->ended_one, &flushing->lock);
    if (flushing->ended < mine) {
        keeps_promises = flushing->keeps_promises;
        flushing->keeps_promises = false;
        flushing->running = true;
        flushing->begun++;
        pthread_mutex_unlock(&flushing->lock);
        int mine_left = 0, error = commit(file, keeps_promises, &mine_left);
        pthread_mutex_lock(&flushing->lock);
        flushing->left = mine_left;
        flushing->running = false;
        flushing->ended++;
        flushing->error = error;
        pthread_cond_broadcast(&flushing->ended_one);
    }
    int error = flushing->error;
    *left = flushing->left;
    pthread_mutex_unlock(&flushing->lock);
    return error;
}

void file_hold_commits(struct sfs_file *file)
{
    struct flushing *flushing = &file->flushing;
    pthread_mutex_lock(&flushing->lock);
    while (flushing->running)
        pthread_cond_wait(&flushing->ended_one, &flushing->lock);
    flushing->running = true;
    pthread_mutex_unlock(&flushing->lock);
}

void file_let_commits(struct sfs_file *file)
{
    struct flushing *flushing = &file->flushing;
    pthread_mutex_lock(&flushing->lock);
    flushing->running = false;
    pthread_cond_broadcast(&flushing->ended_one);
    pthread_mutex_unlock(&flushing->lock);
}

static int flush(struct sfs_file *file, bool keeps_promises, int *left)
{
    *left = 0;
    if (!writing_hold(file))
        return store_is_writable(file->store) ? store_check_end(file->store) : 0;
    int error = file_flush(file, keeps_promises, left);
    sfs_end_writing(file);
    return error;
}

int sfs_flush(struct sfs_file *file)
{
    int left, error = flush(file, true, &left);
    return error ? error : left;
}

int sfs_flush_for(struct sfs_file *file, struct sfs_dataset *dataset)
{
    int left, error = flush(file, true, &left);
    return error || !left || !dataset ? error : atomic_load(&dataset->left);
}

int sfs_flush_error(struct sfs_dataset *dataset)
{
    return atomic_load(&dataset->left);
}

unsigned sfs_raw_losses(const struct sfs_file *file, int *error)
{
    return store_raw_losses(file->store, error);
}

int sfs_flush_finished(struct sfs_file *file)
{
    int left;
    return flush(file, false, &left);
}

int sfs_flush_dataset(struct sfs_dataset *dataset, bool evict)
{
    USING(dataset);
    if (!dataset->cache) /* libhdf5 reads and writes it */
        return 0;
    int error = cache_flush(dataset->file->cache, dataset->cache);
    if (evict) {
        ahead_forget(dataset->file->ahead, dataset); /* else a chunk that is being prefetched would
                                                      * stay */
        cache_evict(dataset->cache);
    }
    return error;
}

int sfs_settle(struct sfs_file *file)
{
    if (!writing_hold(file))
        return 0;
    int error = store_settle(file->store);
    sfs_end_writing(file);
    return error;
}
