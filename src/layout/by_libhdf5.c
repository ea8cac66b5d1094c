/* What only libhdf5 can read: virtual and compact storage. It reads a piece at a time, under its
 * one lock, into our cache. */
#include <errno.h>
#include <string.h>

#include "common/memory_pool.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"

int layout_find_piece(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)scaled;
    if (layout->lost)
        return layout->lost;
    record->exists = true;
    record->size = 0;
    return 0;
}

size_t layout_piece_bytes(const struct layout *layout, const struct chunk_record *record,
                          unsigned parts)
{
    (void)record, (void)parts;
    return pool_block_size(layout->chunk_bytes);
}

static int decode(struct layout *layout, const struct decoding *chunk)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    layout_inside(layout, chunk->scaled, start, count);
    int error = form_new_elements(layout, chunk->form, chunk->pool);
    if (!error)
        error = hdf5_read(layout->hdf5, layout->dataset, start, count, layout->chunk_dims,
                          chunk->form->elements);
    return error == -EIO ? layout_library_failed(layout, chunk->scaled, UINT64_MAX) : error;
}

const struct layout_ops layout_library = {
    .lookup = layout_find_piece, .decode_bytes = layout_piece_bytes, .decode = decode};
