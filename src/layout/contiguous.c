/* Contiguous storage: the whole dataset is one chunk, stored as it is. libhdf5 gives it its place,
 * when it is written to first. */
#include <errno.h>
#include <stdlib.h>

#include "common/box.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "store/store.h"

#define FILL_BYTES ((size_t)256 << 10) /* written at once */

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)scaled;
    record->exists = layout->data_address != UINT64_MAX;
    record->address = layout->data_address;
    record->size = layout->chunk_bytes;
    return 0;
}

/* The commit lock is held for reading. The cache sees to it that one thread at a time does this,
 * while nobody looks the chunk up. */
static int allocate(struct layout *layout)
{
    static const uint64_t origin[SFS_MAX_RANK];
    uint64_t one[SFS_MAX_RANK], address;
    for (int i = 0; i < layout->rank; i++)
        one[i] = 1;
    int error = hdf5_write(layout->hdf5, layout->dataset, origin, one, layout->info->fill);
    if (!error)
        error = hdf5_data_address(layout->hdf5, layout->dataset, &address);
    if (error == -EIO || error == -EINVAL)
        return layout_failed(layout, origin, UINT64_MAX, hdf5_error());
    if (!error)
        layout->data_address = address;
    return error;
}

/* libhdf5 does not always write the fill value, and the space may have been in use before. */
static int fill(const struct layout *layout)
{
    size_t most = FILL_BYTES / layout->element_size ? FILL_BYTES / layout->element_size : 1;
    size_t bytes = most * layout->element_size;
    void *elements = malloc(bytes);
    if (!elements)
        return -ENOMEM;
    fill_elements(elements, most, layout->element_size, layout->info->fill);
    int error = 0;
    for (size_t done = 0; done < layout->chunk_bytes && !error; done += bytes) {
        size_t left = layout->chunk_bytes - done;
        error = store_write(layout->store, layout->data_address + done, elements,
                            left < bytes ? left : bytes);
    }
    free(elements);
    return error;
}

static int new_chunk(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    pthread_rwlock_rdlock(layout->commit_lock);
    int error = allocate(layout);
    if (!error)
        error = fill(layout);
    pthread_rwlock_unlock(layout->commit_lock);
    return error ? error : lookup(layout, scaled, record);
}

static int insert(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record)
{
    int error = 0;
    pthread_rwlock_rdlock(layout->commit_lock);
    if (layout->data_address == UINT64_MAX)
        error = allocate(layout);
    if (!error)
        error = store_write(layout->store, layout->data_address, encoded->bytes, encoded->n);
    pthread_rwlock_unlock(layout->commit_lock);
    return error ? error : lookup(layout, scaled, record);
}

const struct layout_ops layout_contiguous = {
    .lookup = lookup, .new_chunk = new_chunk, .insert = insert};
