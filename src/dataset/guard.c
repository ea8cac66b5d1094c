/* Space that a worker must not change in a file that is written: that of sparse datasets and before
 * the superblock. Space that is allocated while the file is open is the store's own anyway. Older
 * space is claimed lazily, when the worker first changes something, for all open datasets that were
 * not claimed yet: neither opening a dataset nor writing to sparse ones reads anything for it. */
#include <errno.h>
#include <utlist.h>

#include "dataset/private.h"
#include "layout/sparse.h"
#include "store/store.h"

/* Called by the store; locks of the worker's client and commit_lock may be held. */
static int claim(void *context)
{
    struct guard *guard = context;
    struct sfs_dataset *dataset, *next;
    int error = 0;
    pthread_mutex_lock(&guard->lock);
    DL_FOREACH_SAFE2(guard->unclaimed, dataset, next, guarded.next)
    {
        if (!error)
            error = sparse_claim(&dataset->layout);
        if (error)
            break;
        DL_DELETE2(guard->unclaimed, dataset, guarded.prev, guarded.next);
        dataset->guarded.waits = false;
    }
    pthread_mutex_unlock(&guard->lock);
    return error;
}

int guard_init(struct sfs_file *file)
{
    if (!file->has_worker || !store_is_writable(file->store))
        return 0;
    file->guard.is_on = true;
    store_set_claimer(file->store, claim, &file->guard);
    return store_claim(file->store, 0, file->superblock.address);
}

void guard_add(struct sfs_dataset *dataset)
{
    struct guard *guard = &dataset->file->guard;
    if (!guard->is_on || !dataset->sparse)
        return;
    pthread_mutex_lock(&guard->lock);
    DL_APPEND2(guard->unclaimed, dataset, guarded.prev, guarded.next);
    dataset->guarded.waits = true;
    pthread_mutex_unlock(&guard->lock);
}

void guard_remove(struct sfs_dataset *dataset)
{
    struct guard *guard = &dataset->file->guard;
    pthread_mutex_lock(&guard->lock);
    if (dataset->guarded.waits)
        DL_DELETE2(guard->unclaimed, dataset, guarded.prev, guarded.next);
    dataset->guarded.waits = false;
    pthread_mutex_unlock(&guard->lock);
}
