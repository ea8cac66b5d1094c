/* Ordinary chunks whose filters we run ourselves: libhdf5 says where they are, nothing more. */
#include <errno.h>

#include "common/pool.h"
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

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    uint64_t start[SFS_MAX_RANK];
    struct hdf5_chunk chunk;
    for (int i = 0; i < layout->rank; i++)
        start[i] = scaled[i] * layout->chunk_dims[i];
    int error = hdf5_locate(layout->hdf5, layout->dataset, start, &chunk);
    if (error)
        return error == -EIO ? layout_failed(layout, scaled, UINT64_MAX, hdf5_error()) : error;

    record->exists = chunk.address != UINT64_MAX;
    record->address = chunk.address;
    record->size = chunk.size;
    record->filter_mask[0] =
        layout->unfiltered_edges && is_edge(layout, start) ? UINT32_MAX : chunk.filter_mask;
    if (!record->exists)
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

static size_t decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts)
{
    (void)record, (void)parts;
    size_t scratch = layout->scratch_bytes ? pool_block_size(layout->scratch_bytes) : 0;
    return scratch + pool_block_size(layout->chunk_bytes);
}

static int decode(struct layout *layout, const uint64_t *scaled, const struct chunk_record *record,
                  unsigned parts, const void *stored, struct pool *pool, struct cache_form *form)
{
    (void)parts;
    const struct sfs_dataset_info *info = layout->info;
    size_t scratch_bytes = layout->scratch_bytes;
    void *scratch = scratch_bytes ? pool_get(pool, scratch_bytes) : NULL;
    int error = form_new_elements(layout, form, pool);
    if (!error && scratch_bytes && !scratch)
        error = -ENOMEM;
    if (!error)
        error = filter_decode(info->filters, info->n_filters, record->filter_mask[0], stored,
                              (size_t)record->size, scratch, form->elements, layout->chunk_bytes);
    pool_put(pool, scratch, scratch_bytes);
    if (error == -EILSEQ)
        return layout_failed(layout, scaled, record->address,
                             "its checksum or its compressed data are damaged");
    return error;
}

const struct layout_ops layout_chunked = {
    .lookup = lookup, .decode_bytes = decode_bytes, .decode = decode};
const struct layout_ops layout_chunked_plain = {.lookup = lookup};
