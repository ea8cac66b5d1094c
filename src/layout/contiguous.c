/* Contiguous storage: the whole dataset is one chunk, stored as it is. libhdf5 gives it its place,
 * when it is written to first. */
#include <errno.h>
#include <stdlib.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "store/store.h"

#define FILL_BYTES ((size_t)256 << 10) /* written at once */
#define SOON_BYTES ((size_t)64 << 20)  /* written anyhow: what waits for it is not lost for that */

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)scaled;
    if (layout->lost)
        return layout->lost;
    record->exists = layout->data_address != UINT64_MAX;
    record->address = layout->data_address;
    record->size = layout->chunk_bytes;
    return 0;
}

/* Writes all elements to an address; NULL: the fill value. ends: -EINTR if that is wanted
 * meanwhile, as a header may say that there is no end of them. */
static int write_all(const struct layout *layout, uint64_t address, const void *elements, bool ends)
{
    if (elements)
        return store_write(layout->store, address, elements, layout->chunk_bytes);
    size_t most = FILL_BYTES / layout->element_size ? FILL_BYTES / layout->element_size : 1;
    size_t bytes = most * layout->element_size;
    void *filled = malloc(bytes);
    if (!filled)
        return -ENOMEM;
    fill_elements(filled, most, layout->element_size, layout->info->fill);
    int error = 0;
    for (size_t done = 0; done < layout->chunk_bytes && !error; done += bytes) {
        size_t left = layout->chunk_bytes - done;
        if (ends && done >= SOON_BYTES)
            error = store_is_interrupted(layout->store) ? -EINTR : interrupt_check();
        if (!error)
            error = store_write(layout->store, address + done, filled, left < bytes ? left : bytes);
    }
    free(filled);
    return error;
}

/* It goes on to its end, as what is to be stored does not wait for who gives up. */
static int let_claim(struct store *store)
{
    UNINTERRUPTED();
    return store_let_claim(store);
}

/* The address that libhdf5 gives: it must be space that is lent to it. */
static int rewrite(const struct layout *layout, const void *elements)
{
    static const uint64_t origin[SFS_MAX_RANK];
    int error = let_claim(layout->store);
    if (!error)
        error = store_check_lent(layout->store, layout->data_address, layout->chunk_bytes);
    if (error == -EACCES)
        return layout_failed(layout, origin, layout->data_address,
                             "its place is in use by others, or by nobody");
    return error ? error : write_all(layout, layout->data_address, elements, false);
}

static void give_back(const struct layout *layout, uint64_t address)
{
    store_forget(layout->store, address, layout->chunk_bytes);
    (void)store_free(layout->store, address, layout->chunk_bytes);
}

/* The elements are written first, so that libhdf5 does not name space where they are not. The
 * commit lock is held for reading. The cache lets one thread at a time do this, and no thread look
 * the chunk up meanwhile. */
static int place(struct layout *layout, const void *elements)
{
    static const uint64_t origin[SFS_MAX_RANK];
    uint64_t address, at;
    int error = store_allocate(layout->store, layout->chunk_bytes, &address);
    if (error)
        return error;
    at = address;
    error = write_all(layout, address, elements, true);
    if (error) {
        give_back(layout, address);
        return error;
    }
    error = hdf5_place(layout->hdf5, layout->dataset, &at, layout->chunk_bytes,
                       elements ? elements : layout->info->fill);
    if (error && at != UINT64_MAX) /* else libhdf5 may have the space or not: it is lost */
        give_back(layout, address);
    if (error == -EIO || error == -EINVAL)
        return layout_failed(layout, origin, UINT64_MAX, hdf5_error());
    if (error)
        return error;
    if (at != address) {
        error = store_free(layout->store, address, layout->chunk_bytes);
        if (!error)
            error = write_all(layout, at, elements, false); /* libhdf5 names it by now */
    }
    if (!error)
        layout->data_address = at;
    return error;
}

static int new_chunk(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    int error = interrupt_rdlock(layout->commit_lock);
    if (error)
        return error;
    error = place(layout, NULL);
    pthread_rwlock_unlock(layout->commit_lock);
    return error ? error : lookup(layout, scaled, record);
}

static int insert(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record)
{
    pthread_rwlock_rdlock(layout->commit_lock);
    int error = layout->data_address == UINT64_MAX ? place(layout, encoded->bytes)
                                                   : rewrite(layout, encoded->bytes);
    pthread_rwlock_unlock(layout->commit_lock);
    return error ? error : lookup(layout, scaled, record);
}

const struct layout_ops layout_contiguous = {
    .lookup = lookup, .new_chunk = new_chunk, .insert = insert};
