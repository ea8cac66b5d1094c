/* Choosing the layout of a dataset. */
#include "layout/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/box.h"
#include "common/cpu_limit.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

/* Pieces of what libhdf5 reads for us: large enough to pay for entering it, small enough to read
 * one frame of many. */
#define LIBRARY_PIECE_BYTES ((uint64_t)1 << 20)

/* The chunks that a virtual dataset shows may be large, and lie anywhere: libhdf5 decodes a chunk
 * for each piece that shows a part of it. A frame is one piece, so that each is decoded once for
 * it, if that leaves room for another in the cache; else pieces are large shares of that. */
#define FRAME_SHARE 2
#define PART_SHARE  8

static uint64_t piece_bytes(const struct layout *layout, size_t memory)
{
    uint64_t frame, part = memory / PART_SHARE;
    if (layout->info->layout != SFS_VIRTUAL)
        return LIBRARY_PIECE_BYTES;
    int before = layout->rank > 2 ? 1 : 0; /* axes that number frames */
    if (!box_product(layout->dims + before, layout->rank - before, layout->element_size, &frame) ||
        frame > memory / FRAME_SHARE)
        frame = part;
    return frame > LIBRARY_PIECE_BYTES ? frame : LIBRARY_PIECE_BYTES;
}

/* Whole trailing axes as long as they fit, then a part of the next. */
static void choose_pieces(struct layout *layout, uint64_t most_bytes)
{
    uint64_t bytes = layout->element_size;
    for (int i = layout->rank - 1; i >= 0; i--) {
        uint64_t most = most_bytes / bytes;
        uint64_t dim = layout->dims[i] ? layout->dims[i] : 1;
        layout->chunk_dims[i] = dim <= most ? dim : most ? most : 1;
        bytes *= layout->chunk_dims[i];
    }
}

int layout_init(struct layout *layout, const struct hdf5_storage *storage, size_t memory,
                struct why *why)
{
    const struct sfs_dataset_info *info = layout->info;
    const struct sparse *sparse = layout->sparse;
    layout->rank = info->rank > 0 ? info->rank : 1;
    layout->element_size = info->type.size;
    if (info->rank > 0)
        memcpy(layout->dims, info->dims, sizeof(layout->dims));
    else
        layout->dims[0] = info->space == SFS_SPACE_NULL ? 0 : 1;

    if (info->layout == SFS_SPARSE) {
        layout->ops = &layout_sparse;
        layout->unfiltered_edges =
            sparse->header.filtered && sparse->header.layout.unfiltered_edges;
        memcpy(layout->chunk_dims, info->chunk_dims, sizeof(layout->chunk_dims));
    } else if (info->layout == SFS_CHUNKED) {
        layout->ops = info->n_filters == 0 ? &layout_chunked_plain : &layout_chunked;
        memcpy(layout->chunk_dims, info->chunk_dims, sizeof(layout->chunk_dims));
        layout->unfiltered_edges = storage->unfiltered_edges;
        layout->in_array = storage->in_array;
    } else if (info->layout == SFS_CONTIGUOUS) {
        layout->ops = &layout_contiguous;
        layout->data_address = storage->address;
        for (int i = 0; i < layout->rank; i++)
            layout->chunk_dims[i] = layout->dims[i] ? layout->dims[i] : 1;
    } else {
        layout->ops = info->layout == SFS_EXTERNAL ? &layout_external : &layout_library;
        layout->storage = storage;
        choose_pieces(layout, piece_bytes(layout, memory));
    }

    uint64_t bytes;
    if (!box_product(layout->chunk_dims, layout->rank, layout->element_size, &bytes) ||
        bytes > SIZE_MAX / 4) {
        store_say(layout->store, why, "%s: a chunk of this dataset does not fit in memory",
                  layout->path);
        return -EFBIG;
    }
    layout->chunk_bytes = (size_t)bytes;
    if (layout->ops == &layout_contiguous && storage->address != UINT64_MAX &&
        storage->bytes < bytes) {
        store_say(layout->store, why,
                  "%s: %" PRIu64 " bytes are stored at address %" PRIu64 ", %" PRIu64 " are needed",
                  layout->path, storage->bytes, storage->address, bytes);
        return -EIO;
    }
    struct filter_pipeline filters = pipeline_of(info);
    if (layout->ops == &layout_chunked)
        layout->scratch_bytes = filters_scratch(&filters, layout->chunk_bytes);
    return 0;
}

int layout_check_room(const struct layout *layout, const uint64_t *scaled)
{
    if (!layout->ops->can_hold || layout->ops->can_hold(layout, scaled))
        return 0;
    (void)layout_failed(layout, scaled, UINT64_MAX,
                        "the index has no room for it: its number or a page is too large");
    return -EFBIG;
}

int layout_failed(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                  const char *reason)
{
    char coordinates[SFS_MAX_RANK * 21 + 1] = "";
    size_t n = 0;
    for (int i = 0; i < layout->rank; i++)
        n += (size_t)snprintf(coordinates + n, sizeof(coordinates) - n, "%s%" PRIu64, i ? "," : "",
                              scaled[i]);
    if (address == UINT64_MAX)
        store_say(layout->store, layout->why, "%s: chunk (%s): %s", layout->path, coordinates,
                  reason);
    else
        store_say(layout->store, layout->why, "%s: chunk (%s) at address %" PRIu64 ": %s",
                  layout->path, coordinates, address, reason);
    return -EIO;
}

int layout_check_bytes(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                       size_t bytes, size_t most)
{
    char line[160];
    if (bytes <= most)
        return 0;
    snprintf(line, sizeof(line),
             "it takes up to %zu MiB of memory, and chunk_memory= allows no more than %zu MiB",
             bytes >> 20, most >> 20);
    return layout_failed(layout, scaled, address, line);
}

int layout_takes_too_long(const struct layout *layout, const uint64_t *scaled, uint64_t address)
{
    char line[160];
    snprintf(line, sizeof(line),
             "decoding it takes more than the %g s of processor time that hdf5_timeout= allows",
             cpu_limit());
    return layout_failed(layout, scaled, address, line);
}

int layout_library_failed(const struct layout *layout, const uint64_t *scaled, uint64_t address)
{
    if (layout->said_missing && atomic_exchange(layout->said_missing, true))
        return -EIO;
    return layout_failed(layout, scaled, address, hdf5_error());
}
