/* Followed files: taking the state that their writer has committed last, for everything that is
 * open. Calls hold the state while they run. A call that meets bytes of another state ends with
 * STORE_MOVED before it has returned anything; then it is repeated (repeat_when_moved.c). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/log.h"
#include "dataset/private.h"
#include "dataset/series.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

#define MOST_TRIES 200 /* of taking a state */

/* Compares the properties that cannot change in the same dataset. */
static bool is_same_sparse(const struct sparse *a, const struct sparse *b)
{
    const struct dataset_header *old = &a->header, *new = &b->header;
    size_t dims_bytes = (size_t)old->dataspace.rank * sizeof(uint64_t);
    bool same = old->dataspace.rank == new->dataspace.rank &&
                !memcmp(old->dataspace.max_dims, new->dataspace.max_dims, dims_bytes) &&
                !memcmp(old->layout.chunk_dims, new->layout.chunk_dims, dims_bytes) &&
                old->layout.element_size == new->layout.element_size &&
                old->layout.n_sections == new->layout.n_sections &&
                old->layout.first_section == new->layout.first_section &&
                old->layout.unfiltered_edges == new->layout.unfiltered_edges &&
                old->filtered == new->filtered && old->datatype.size == new->datatype.size &&
                !memcmp(old->datatype.data, new->datatype.data, old->datatype.size) &&
                old->fill.size == new->fill.size &&
                (old->fill.size == 0 || !memcmp(old->fill.value, new->fill.value, old->fill.size));
    for (int i = 0; same && i < SFS_SECTIONS; i++)
        same = old->filters.section[i].n == new->filters.section[i].n;
    return same;
}

void follow_take_dims(struct sfs_dataset *dataset, const uint64_t *dims)
{
    size_t bytes = (size_t)dataset->info.rank * sizeof(*dims);
    if (dataset->info.rank == 0 || !memcmp(dataset->info.dims, dims, bytes))
        return;
    if (dataset->layout.ops)
        memcpy(dataset->layout.dims, dims, bytes);
    memcpy(dataset->info.dims, dims, bytes);
    if (!box_product(dims, dataset->info.rank, 1, &dataset->info.elements))
        dataset->info.elements = UINT64_MAX;
    atomic_fetch_add(&dataset->use.extents, 1);
}

/* Calls on it fail from now on with this error; logged once. */
static void set_lost(struct sfs_dataset *dataset, int error, const char *why)
{
    if (dataset->layout.lost != error)
        log_warning("%s: %s: it cannot be %s: %s", sfs_path(dataset->file), dataset->path,
                    error == -ESTALE ? "followed any more" : "read now", why);
    dataset->layout.lost = error;
    dataset->file->has_unread |= error == -EIO;
}

static int renew_sparse(struct sfs_dataset *dataset)
{
    struct sfs_file *file = dataset->file;
    struct sparse *sparse;
    struct why why;
    int error = sparse_open(file->store, &file->superblock,
                            dataset_store_address(file, dataset->address), &sparse, &why);
    if (error == -EINVAL)
        set_lost(dataset, -ESTALE, "it is another object now");
    else if (error == -EIO || error == -EILSEQ || error == -EOPNOTSUPP)
        set_lost(dataset, error == -EIO ? -EIO : -ESTALE, why.text);
    else if (error)
        return error;
    if (error)
        return 0;
    if (!is_same_sparse(dataset->sparse, sparse)) {
        sparse_close(sparse);
        set_lost(dataset, -ESTALE, "it is another dataset now");
        return 0;
    }
    sparse_close(dataset->sparse);
    dataset->sparse = dataset->layout.sparse = sparse;
    dataset->layout.lost = 0;
    follow_take_dims(dataset, sparse->header.dataspace.dims);
    return 0;
}

static int renew_dense(struct sfs_dataset *dataset)
{
    struct hdf5_renewed renewed;
    int error =
        hdf5_dataset_renew(dataset->file->hdf5, dataset->address, dataset->info.rank, &renewed);
    if (!error && renewed.form != hdf5_form(&dataset->info, &dataset->storage))
        error = -ESTALE;
    if (error == -ESTALE || error == -EIO) {
        set_lost(dataset, error, error == -EIO ? hdf5_error() : "it is another object now");
        return 0;
    }
    if (error)
        return error;
    dataset->layout.lost = 0;
    dataset->layout.data_address = renewed.data_address;
    follow_take_dims(dataset, renewed.dims);
    return 0;
}

/* The same addresses may have other bytes in another state. Members of a series are in other files,
 * and refreshed by series_refresh. */
static int renew_dataset(struct sfs_dataset *dataset)
{
    if (series_is_address(dataset->address))
        return 0;
    int error = dataset->sparse ? renew_sparse(dataset) : renew_dense(dataset);
    if (!error && dataset->cache)
        cache_outdate(dataset->cache);
    use_changed(&dataset->use);
    return error;
}

/* libhdf5 opens the file again only if something needs it: that takes longer than all the rest. */
static int renew_library(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    bool wanted = atomic_load(&file->library_wanted) || store_is_live(file->store);
    HASH_ITER (hh, file->datasets, dataset, next) {
        wanted |= !dataset->sparse;
    }
    atomic_store(&file->library_outdated, true);
    if (!wanted)
        return 0;
    int error = hdf5_renew(file->hdf5);
    if (error && error != STORE_MOVED && error != -ESTALE && error != -ENOMEM && error != -EINTR &&
        !atomic_exchange(&file->library_failed, true))
        log_error("%s: cannot open it again: %s", sfs_path(file), hdf5_error());
    if (error)
        return error == -EINVAL ? -EIO : error;
    atomic_store(&file->library_failed, false);
    atomic_store(&file->library_outdated, false);
    atomic_store(&file->library_wanted, false);
    return 0;
}

/* With `lock` held. Unused datasets are dropped, and opened again on demand. */
static int renew_all(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    struct why why;
    int error = superblock_read(file->store, &file->superblock, &why);
    if (error == -EILSEQ)
        log_error("%s: %s", sfs_path(file), why.text);
    if (!error)
        store_set_end(file->store, file->superblock.end);
    HASH_ITER (hh, file->datasets, dataset, next) {
        if (dataset->users == 0 && !series_is_address(dataset->address))
            (void)dataset_drop(dataset); /* libhdf5 reads virtual ones of a followed file */
    }
    if (!error)
        error = renew_library(file);
    file->has_unread = false;
    HASH_ITER (hh, file->datasets, dataset, next) {
        if (!error)
            error = renew_dataset(dataset);
    }
    return error == -EILSEQ ? -EIO : error;
}

/* With `lock` held. What could not be read may be readable now, without another state; *renewed: some was. */
static int renew_unread(struct sfs_file *file, bool *renewed)
{
    struct sfs_dataset *dataset, *next;
    int error = 0;
    file->has_unread = false;
    HASH_ITER (hh, file->datasets, dataset, next) {
        if (dataset->layout.lost != -EIO)
            continue;
        if (!error)
            error = renew_dataset(dataset);
        *renewed |= dataset->layout.lost != -EIO;
    }
    return error;
}

/* The caller excludes all calls on the file. */
static int take_state(struct sfs_file *file)
{
    bool moved;
    int error = store_refresh(file->store, &moved);
    bool library = atomic_load(&file->library_wanted) && atomic_load(&file->library_outdated);
    if (error || !(moved || library || file->has_unread))
        return error;
    pthread_mutex_lock(&file->lock);
    error = moved || library ? renew_all(file) : renew_unread(file, &moved);
    pthread_mutex_unlock(&file->lock);
    if (error) /* some objects are of the old state: nothing is read until all are renewed */
        store_outdate(file->store);
    else
        atomic_fetch_add(&file->states, moved);
    return error;
}

int follow_refresh(struct sfs_file *file)
{
    ALONE(file);
    int error = take_state(file);
    unsigned i;
    for (i = 1; i < MOST_TRIES && error == STORE_MOVED; i++) {
        if (i == STORE_FREE_TRIES)
            store_hold(file->store);
        error = store_is_interrupted(file->store) ? -EINTR : take_state(file);
    }
    if (i > STORE_FREE_TRIES)
        store_release(file->store);
    if (error == STORE_MOVED) {
        log_error("%s: it is committed to too often to be followed", sfs_path(file));
        error = -EBUSY;
    }
    return error;
}

int sfs_refresh(struct sfs_file *file)
{
    int error = file->follows ? follow_refresh(file) : 0;
    return error || !file->follows ? error : series_refresh(file);
}

void sfs_hold_state(struct sfs_file *file, bool hold)
{
    atomic_store(&file->holds_state, hold);
}

void sfs_interrupt(struct sfs_file *file)
{
    store_interrupt(file->store);
}

uint64_t sfs_states(const struct sfs_file *file)
{
    return atomic_load(&file->states);
}

bool sfs_is_following(const struct sfs_file *file)
{
    return file->follows;
}

int library_current(struct sfs_file *file)
{
    if (!file->follows || !atomic_load(&file->library_outdated))
        return 0;
    atomic_store(&file->library_wanted, true);
    return STORE_MOVED;
}

static int library_current_once(struct sfs_file *file)
{
    FOLLOWED(file);
    return library_current(file);
}

int follow_begin_copy(struct sfs_file *from)
{
    return FOLLOWING(from, library_current_once(from));
}

int follow_end_copy(struct sfs_file *from, int error)
{
    if (error != STORE_MOVED || !from->follows || use_is_mine(&from->use))
        return error;
    error = follow_refresh(from);
    return error ? error : -EAGAIN;
}
