/* What the data of dense datasets take, and the indexes of chunks. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/box.h"
#include "dataset/unused_space.h"
#include "format/btree1_of_chunks.h"
#include "format/plain_dataset.h"

#define CHUNK "chunk"

static int add_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled;
    return looking_add_used(context, CHUNK, record->address, record->size);
}

int looking_at_index(struct looking *looking, struct index *index)
{
    int error = index_each_block(index, looking_add_used, looking, &looking->why);
    return error ? error : index_iterate(index, add_chunk, looking, &looking->why);
}

static int look_at_indexed(struct looking *looking, const struct plain_dataset *dataset,
                           uint64_t chunk_bytes)
{
    bool filtered = dataset->n_filters > 0;
    struct layout_message layout = {
        .rank = dataset->dataspace.rank,
        .element_size = dataset->type.size,
        .index = (enum chunk_index_kind)dataset->index,
        .address = dataset->address,
    };
    const struct chunk_record_format format = {
        .form = filtered ? CHUNK_DENSE_FILTERED : CHUNK_DENSE,
        .rank = layout.rank,
        .size_bytes = filtered ? chunk_record_size_bytes(0, 8, chunk_bytes) : 0,
        .chunk_bytes = chunk_bytes,
    };
    struct index *index;
    memcpy(layout.chunk_dims, dataset->chunk_dims, sizeof(layout.chunk_dims));
    int error = index_open(looking->store, &looking->superblock, &layout, &format,
                           dataset->dataspace.max_dims, &index, &looking->why);
    if (error)
        return error;
    error = looking_at_index(looking, index);
    index_close(index);
    return error;
}

/* All chunks, one behind the other. */
static int look_at_row(struct looking *looking, const struct plain_dataset *dataset,
                       uint64_t chunk_bytes)
{
    const struct dataspace_message *space = &dataset->dataspace;
    uint64_t chunks[SFS_MAX_RANK], bytes;
    for (int i = 0; i < space->rank; i++)
        chunks[i] = space->max_dims[i] / dataset->chunk_dims[i] +
                    (space->max_dims[i] % dataset->chunk_dims[i] != 0);
    return box_product(chunks, space->rank, chunk_bytes, &bytes)
               ? looking_add_used(looking, CHUNK, dataset->address, bytes)
               : why_damaged(&looking->why, "the number of chunks at address %" PRIu64,
                             dataset->address);
}

static int look_at_chunks(struct looking *looking, const struct plain_dataset *dataset)
{
    const struct plain_blocks blocks = {looking_add_used, looking};
    uint64_t bytes;
    (void)box_product(dataset->chunk_dims, dataset->dataspace.rank, dataset->type.size, &bytes);
    switch (dataset->chunks) {
    case CHUNKS_IN_OLD_TREE:
        return chunk_btree1_each(looking->store, &looking->superblock, dataset->address,
                                 dataset->dataspace.rank, &blocks, &looking->why);
    case CHUNKS_SINGLE:
        return looking_add_used(looking, CHUNK, dataset->address, dataset->single_bytes);
    case CHUNKS_IN_A_ROW:
        return look_at_row(looking, dataset, bytes);
    case CHUNKS_INDEXED:
        return look_at_indexed(looking, dataset, bytes);
    }
    return -EOPNOTSUPP;
}

int looking_at_dense(struct looking *looking, const struct object_header *header)
{
    struct plain_dataset dataset;
    int error = plain_dataset_decode(&looking->superblock, header, &dataset, &looking->why);
    if (error)
        return error;
    looking->all_collections |= looking_has_heap(&dataset.type);
    if (dataset.address == NO_ADDRESS || dataset.layout == SFS_COMPACT)
        error = 0;
    else if (dataset.layout == SFS_CHUNKED)
        error = look_at_chunks(looking, &dataset);
    else
        error = looking_add_used(looking, "data", dataset.address, dataset.bytes);
    plain_dataset_free(&dataset);
    return error;
}
