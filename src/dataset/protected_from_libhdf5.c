/* Space that a worker must not change in a file that is written: that of sparse datasets and before
 * the superblock. Space that is allocated while the file is open is the store's own anyway. Older
 * space is claimed lazily, when the worker first changes something, for all open datasets that were
 * not claimed yet: neither opening a dataset nor writing to sparse ones reads anything for it. */
#include <errno.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "dataset/private.h"
#include "layout/sparse.h"
#include "store/store.h"

/* Called by the store; locks of the worker's client and commit_lock may be held. */
static int claim(void *context)
{
    struct protected_from_libhdf5 *claimed = context;
    struct sfs_dataset *dataset, *next;
    int error = interrupt_lock(&claimed->lock); /* it is held while indexes are read */
    if (error)
        return error;
    DL_FOREACH_SAFE2(claimed->unclaimed, dataset, next, claim.next)
    {
        if (!error)
            error = sparse_protect_from_libhdf5(&dataset->layout);
        if (error)
            break;
        DL_DELETE2(claimed->unclaimed, dataset, claim.prev, claim.next);
        dataset->claim.waits = false;
    }
    pthread_mutex_unlock(&claimed->lock);
    return error;
}

int protected_from_libhdf5_init(struct sfs_file *file)
{
    if (!file->has_worker || !store_is_writable(file->store))
        return 0;
    file->protected_from_libhdf5.is_on = true;
    store_set_claimer(file->store, claim, &file->protected_from_libhdf5);
    return store_claim(file->store, 0, file->superblock.address);
}

void protected_from_libhdf5_add(struct sfs_dataset *dataset)
{
    struct protected_from_libhdf5 *claimed = &dataset->file->protected_from_libhdf5;
    if (!claimed->is_on || !dataset->sparse)
        return;
    interrupt_ask_lock(&claimed->lock);
    DL_APPEND2(claimed->unclaimed, dataset, claim.prev, claim.next);
    dataset->claim.waits = true;
    pthread_mutex_unlock(&claimed->lock);
}

void protected_from_libhdf5_remove(struct sfs_dataset *dataset)
{
    struct protected_from_libhdf5 *claimed = &dataset->file->protected_from_libhdf5;
    interrupt_ask_lock(&claimed->lock);
    if (dataset->claim.waits)
        DL_DELETE2(claimed->unclaimed, dataset, claim.prev, claim.next);
    dataset->claim.waits = false;
    pthread_mutex_unlock(&claimed->lock);
}
