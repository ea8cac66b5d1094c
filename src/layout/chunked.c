/* Ordinary chunks: libhdf5 says where they are, or puts them there, nothing more. We run their
 * filters, or have them run where there are plugins. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"

#include "common/memory_pool.h"
#include "common/size.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "index/index.h"
#include "layout/layout.h"
#include "store/store.h"

/* Filters may make a chunk a little larger, and writers pad it. What is stored in more than twice
 * its bytes and this is a damaged size: reading it could take gigabytes of memory. */
#define PADDING_BYTES ((uint64_t)1 << 20)

bool layout_is_size(const struct layout *layout, uint64_t n)
{
    return n / 2 <= layout->chunk_bytes + PADDING_BYTES / 2;
}

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    uint64_t start[SFS_MAX_RANK];
    struct hdf5_chunk chunk;
    if (layout->lost)
        return layout->lost;
    for (int i = 0; i < layout->rank; i++)
        start[i] = scaled[i] * layout->chunk_dims[i];
    int error = hdf5_locate(layout->hdf5, layout->dataset, start, &chunk);
    if (error)
        return error == -EIO ? layout_failed(layout, scaled, UINT64_MAX, hdf5_error()) : error;

    record->exists = chunk.address != UINT64_MAX;
    record->address = chunk.address;
    record->size = chunk.size;
    record->filter_mask[0] = layout_is_unfiltered(layout, scaled) ? UINT32_MAX : chunk.filter_mask;
    if (!record->exists)
        return 0;
    uint64_t end;
    if (__builtin_add_overflow(chunk.address, chunk.size, &end) || end > store_size(layout->store))
        return layout_failed(layout, scaled, chunk.address,
                             "it reaches beyond the end of the file");
    if (layout->info->n_filters == 0 && chunk.size < layout->chunk_bytes)
        return layout_failed(layout, scaled, chunk.address, "it is shorter than its chunk dims");
    if (!layout_is_size(layout, chunk.size))
        return layout_failed(layout, scaled, chunk.address, "its stored size is absurd");
    return 0;
}

static size_t decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts)
{
    (void)parts;
    size_t scratch = layout->scratch_bytes ? pool_block_size(layout->scratch_bytes) : 0;
    struct filter_pipeline filters = pipeline_of(layout->info);
    size_t besides = filters_besides(&filters, record->size, layout->chunk_bytes);
    return size_sum(size_sum(scratch, besides), pool_block_size(layout->chunk_bytes));
}

static int decode(struct layout *layout, const struct decoding *chunk)
{
    const struct chunk_record *record = chunk->record;
    struct filter_pipeline filters = pipeline_of(layout->info);
    size_t scratch_bytes = layout->scratch_bytes;
    filters.mask = record->filter_mask[0];
    if (filters.mask != UINT32_MAX && !filter_can_make(&filters, record->size, layout->chunk_bytes))
        return layout_failed(layout, chunk->scaled, record->address,
                             "its compressed data are too few for its chunk dims");
    void *scratch = scratch_bytes ? pool_get(chunk->pool, scratch_bytes) : NULL;
    int error = form_new_elements(layout, chunk->form, chunk->pool);
    if (!error && scratch_bytes && !scratch)
        error = -ENOMEM;
    if (!error)
        error = filters_decode(&filters, chunk->stored, (size_t)record->size, scratch,
                               chunk->form->elements, layout->chunk_bytes);
    pool_put(chunk->pool, scratch, scratch_bytes);
    if (error == -EILSEQ)
        return layout_failed(layout, chunk->scaled, record->address,
                             "its checksum or its compressed data are damaged");
    return error == -EIO || error == -EOPNOTSUPP || error == -EINVAL
               ? layout_library_failed(layout, chunk->scaled, record->address)
               : error;
}

/* ---- Writing ---- */

/* libhdf5 finds out only when a chunk is stored. */
static bool can_hold(const struct layout *layout, const uint64_t *scaled)
{
    const uint64_t *max_dims = layout->info->max_dims, *chunk_dims = layout->chunk_dims;
    uint64_t max_chunks[SFS_MAX_RANK], number;
    for (int i = 0; i < layout->rank; i++)
        max_chunks[i] = max_dims[i] == SFS_UNLIMITED
                            ? SFS_UNLIMITED
                            : max_dims[i] / chunk_dims[i] + (max_dims[i] % chunk_dims[i] != 0);
    return !layout->in_array || (index_number(layout->rank, max_chunks, scaled, &number) &&
                                 number < INDEX_MOST_ELEMENTS);
}

/* In the place of a filter mask: elements of a box, which libhdf5 writes. */
#define BOX UINT32_MAX

/* The output size of foreign filters is unknown: an assumed bound, plus their input. */
static size_t encode_bytes(const struct layout *layout, const struct cache_form *form)
{
    (void)form;
    struct filter_pipeline filters = pipeline_of(layout->info);
    if (!filter_is_native(&filters))
        return size_product(3, pool_block_size(layout->chunk_bytes));
    size_t scratch = filter_encode_scratch(&filters, layout->chunk_bytes);
    return pool_block_size(filter_encode_bound(&filters, layout->chunk_bytes)) +
           (scratch ? pool_block_size(scratch) : 0);
}

/* Chunks over the edge that are stored without filters are few, and libhdf5 knows how. */
static int take_box(const struct layout *layout, const uint64_t *count,
                    const struct cache_form *form, struct pool *pool, struct encoded *encoded)
{
    uint64_t n;
    (void)box_product(count, layout->rank, layout->element_size, &n); /* no more than a chunk */
    encoded->n = encoded->room = (size_t)n;
    encoded->bytes = pool_get(pool, encoded->room);
    if (!encoded->bytes)
        return -ENOMEM;
    box_copy(&(struct box_shape){layout->rank, count, layout->element_size}, encoded->bytes,
             (struct box_place){count, NULL}, form->elements,
             (struct box_place){layout->chunk_dims, NULL});
    encoded->record.filter_mask[0] = BOX;
    return 0;
}

static int apply_others(const struct layout *layout, const struct cache_form *form,
                        struct pool *pool, struct encoded *encoded)
{
    struct filter_pipeline filters = pipeline_of(layout->info);
    void *bytes;
    int error = filters_encode(&filters, form->elements, layout->chunk_bytes, &bytes, &encoded->n);
    if (error)
        return error;
    encoded->record.filter_mask[0] = filters.mask;
    encoded->room = encoded->n;
    encoded->bytes = pool_get(pool, encoded->room);
    if (encoded->bytes)
        memcpy(encoded->bytes, bytes, encoded->n);
    free(bytes);
    return encoded->bytes ? 0 : -ENOMEM;
}

static int apply_filters(const struct layout *layout, const struct cache_form *form,
                         struct pool *pool, struct encoded *encoded)
{
    struct filter_pipeline filters = pipeline_of(layout->info);
    if (!filter_is_native(&filters))
        return apply_others(layout, form, pool, encoded);
    size_t scratch_bytes = filter_encode_scratch(&filters, layout->chunk_bytes);
    encoded->n = encoded->room = filter_encode_bound(&filters, layout->chunk_bytes);
    encoded->bytes = pool_get(pool, encoded->room);
    void *scratch = scratch_bytes ? pool_get(pool, scratch_bytes) : NULL;
    int error = -ENOMEM;
    if (encoded->bytes && (scratch || !scratch_bytes))
        error = filter_encode(&filters, form->elements, layout->chunk_bytes, scratch,
                              encoded->bytes, &encoded->n);
    encoded->record.filter_mask[0] = filters.mask;
    pool_put(pool, scratch, scratch_bytes);
    return error;
}

static int encode(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                  struct pool *pool, struct encoded *encoded)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    pthread_rwlock_rdlock(layout->commit_lock); /* for the dims */
    bool is_box = layout_is_unfiltered(layout, scaled);
    layout_inside(layout, scaled, start, count);
    pthread_rwlock_unlock(layout->commit_lock);
    int error = is_box ? take_box(layout, count, form, pool, encoded)
                       : apply_filters(layout, form, pool, encoded);
    if (error == -EIO || error == -EOPNOTSUPP)
        return layout_failed(layout, scaled, UINT64_MAX, hdf5_error());
    return error == -EINVAL
               ? layout_failed(layout, scaled, UINT64_MAX, "its filters have wrong parameters")
               : error;
}

static int insert_failed(const struct layout *layout, const uint64_t *scaled, int error)
{
    return error == -EIO || error == -EINVAL
               ? layout_failed(layout, scaled, UINT64_MAX, hdf5_error())
               : error;
}

static void insert_box(struct layout *layout, struct insertion *insertion)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    layout_inside(layout, insertion->scaled, start, count);
    int error = hdf5_write(layout->hdf5, layout->dataset, start, count, insertion->encoded->bytes);
    insertion->error = insert_failed(layout, insertion->scaled, error);
}

/* All that are no boxes, in one question. */
static void insert_chunks(struct layout *layout, struct insertion *insertions, size_t n)
{
    struct hdf5_stored chunks[HDF5_MOST_STORED];
    size_t which[HDF5_MOST_STORED];
    unsigned n_chunks = 0;
    for (size_t i = 0; i < n; i++) {
        const struct encoded *encoded = insertions[i].encoded;
        if (encoded->record.filter_mask[0] == BOX)
            continue;
        struct hdf5_stored *chunk = &chunks[n_chunks];
        for (int j = 0; j < layout->rank; j++)
            chunk->start[j] = insertions[i].scaled[j] * layout->chunk_dims[j];
        chunk->mask = encoded->record.filter_mask[0];
        chunk->bytes = encoded->bytes;
        chunk->n = encoded->n;
        which[n_chunks++] = i;
    }
    if (n_chunks == 0)
        return;
    int error = hdf5_write_chunks(layout->hdf5, layout->dataset, chunks, n_chunks);
    error = insert_failed(layout, insertions[which[0]].scaled, error);
    for (unsigned i = 0; i < n_chunks; i++)
        insertions[which[i]].error = error;
}

static void insert_many(struct layout *layout, struct insertion *insertions, size_t n)
{
    pthread_rwlock_rdlock(layout->commit_lock);
    for (size_t i = 0; i < n; i++)
        if (insertions[i].encoded->record.filter_mask[0] == BOX)
            insert_box(layout, &insertions[i]);
    insert_chunks(layout, insertions, n);
    pthread_rwlock_unlock(layout->commit_lock);
    for (size_t i = 0; i < n; i++)
        insertions[i].record->exists |= !insertions[i].error;
}

static int insert(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record)
{
    struct insertion insertion = {scaled, encoded, record, 0};
    insert_many(layout, &insertion, 1);
    return insertion.error;
}

static_assert(LAYOUT_MOST_INSERTED <= HDF5_MOST_STORED, "each call is one question");

const struct layout_ops layout_chunked = {.lookup = lookup,
                                          .decode_bytes = decode_bytes,
                                          .decode = decode,
                                          .can_hold = can_hold,
                                          .encode_bytes = encode_bytes,
                                          .encode = encode,
                                          .insert = insert,
                                          .insert_many = insert_many};
const struct layout_ops layout_chunked_plain = {
    .lookup = lookup, .can_hold = can_hold, .insert = insert, .insert_many = insert_many};
