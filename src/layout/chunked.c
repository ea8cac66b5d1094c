/* Ordinary chunks whose filters we run ourselves: libhdf5 says where they are, nothing more. */
#include <errno.h>

#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "store/store.h"

/* Filters may make a chunk a little larger, and writers pad it. What is stored in more than twice
 * its bytes and this is a damaged size: reading it could take gigabytes of memory. */
#define PADDING_BYTES ((uint64_t)1 << 20)

/* Whether a chunk has elements outside of the dataset. */
static bool is_edge(const struct layout *layout, const uint64_t *start)
{
    for (int i = 0; i < layout->rank; i++)
        if (layout->chunk_dims[i] > layout->dims[i] - start[i])
            return true;
    return false;
}

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_location *location)
{
    uint64_t start[SFS_MAX_RANK];
    struct hdf5_chunk chunk;
    for (int i = 0; i < layout->rank; i++)
        start[i] = scaled[i] * layout->chunk_dims[i];
    int error = hdf5_locate(layout->hdf5, layout->dataset, start, &chunk);
    if (error)
        return error == -EIO ? layout_failed(layout, scaled, UINT64_MAX, hdf5_error()) : error;

    location->exists = chunk.address != UINT64_MAX;
    location->address = chunk.address;
    location->size = chunk.size;
    location->filter_mask =
        layout->unfiltered_edges && is_edge(layout, start) ? UINT32_MAX : chunk.filter_mask;
    if (!location->exists)
        return 0;
    uint64_t end;
    if (__builtin_add_overflow(chunk.address, chunk.size, &end) || end > store_size(layout->store))
        return layout_failed(layout, scaled, chunk.address,
                             "it reaches beyond the end of the file");
    if (layout->info->n_filters == 0 && chunk.size < layout->chunk_bytes)
        return layout_failed(layout, scaled, chunk.address, "it is shorter than its chunk dims");
    if (chunk.size / 2 > layout->chunk_bytes + PADDING_BYTES / 2)
        return layout_failed(layout, scaled, chunk.address, "its stored size is absurd");
    return 0;
}

static int decode(struct layout *layout, const uint64_t *scaled,
                  const struct chunk_location *location, const void *stored, void *scratch,
                  void *chunk)
{
    const struct sfs_dataset_info *info = layout->info;
    int error = filter_decode(info->filters, info->n_filters, location->filter_mask, stored,
                              (size_t)location->size, scratch, chunk, layout->chunk_bytes);
    if (error == -EILSEQ)
        return layout_failed(layout, scaled, location->address,
                             "its checksum or its compressed data are damaged");
    return error;
}

const struct layout_ops layout_chunked = {.lookup = lookup, .decode = decode};
const struct layout_ops layout_chunked_plain = {.lookup = lookup};
