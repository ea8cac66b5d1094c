/* Cutting a dataset into slabs. */
#include "cli/blocks.h"

#include <errno.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)4 << 20) /* that blocks grow to */
#define MOST_BYTES  ((uint64_t)32 << 20)

/* The dims of the dataset, of which a block begins as one element. */
static int begin(const struct sfs_dataset_info *info, struct blocks *blocks)
{
    *blocks = (struct blocks){.rank = info->rank ? info->rank : 1, .dims = {1}};
    if (info->rank)
        memcpy(blocks->dims, info->dims, sizeof(blocks->dims));
    return info->elements > (uint64_t)INT64_MAX / info->type.size ? -EFBIG : 0;
}

static void finish(struct blocks *blocks)
{
    blocks->n = blocks->most_elements = 1;
    for (int i = 0; i < blocks->rank; i++) {
        if (blocks->block[i] > blocks->dims[i])
            blocks->block[i] = blocks->dims[i];
        if (blocks->block[i] == 0) {
            blocks->n = blocks->most_elements = 0;
            return;
        }
        blocks->blocks[i] = (blocks->dims[i] - 1) / blocks->block[i] + 1;
        blocks->n *= blocks->blocks[i];
        blocks->most_elements *= blocks->block[i];
    }
}

int blocks_of_chunks(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                     struct blocks *blocks)
{
    int error = begin(info, blocks);
    if (error)
        return error;
    uint64_t bytes = info->type.size;
    for (int i = 0; i < blocks->rank; i++) {
        uint64_t length = info->rank ? chunk_dims[i] : 1;
        blocks->block[i] = length < blocks->dims[i] ? length : blocks->dims[i];
        bytes *= blocks->block[i];
    }
    /* Whole chunks along the fastest axes, or a part of one, cut along the slowest. */
    for (int i = blocks->rank - 1; i >= 0 && bytes && bytes < BLOCK_BYTES; i--) {
        uint64_t chunk = blocks->block[i], chunks = (blocks->dims[i] - 1) / chunk + 1;
        uint64_t wanted = BLOCK_BYTES / bytes;
        blocks->block[i] = chunk * (wanted < chunks ? wanted : chunks);
        bytes = bytes / chunk * blocks->block[i];
    }
    for (int i = 0; i < blocks->rank && bytes > MOST_BYTES; i++) {
        uint64_t slice = bytes / blocks->block[i];
        blocks->block[i] = MOST_BYTES / slice ? MOST_BYTES / slice : 1;
        bytes = slice * blocks->block[i];
    }
    finish(blocks);
    return 0;
}

int blocks_in_order(const struct sfs_dataset_info *info, struct blocks *blocks)
{
    int error = begin(info, blocks);
    if (error)
        return error;
    uint64_t bytes = info->type.size;
    for (int i = blocks->rank - 1; i >= 0; i--) {
        uint64_t most = bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
        blocks->block[i] = blocks->dims[i] < most ? blocks->dims[i] : most;
        /* Once an axis is cut all before it have one element. */
        bytes = blocks->block[i] < blocks->dims[i] ? BLOCK_BYTES : bytes * blocks->block[i];
    }
    finish(blocks);
    return 0;
}

void blocks_at(const struct blocks *blocks, uint64_t i, struct sfs_slab *slab)
{
    slab->rank = blocks->rank;
    for (int axis = blocks->rank - 1; axis >= 0; axis--) {
        slab->start[axis] = i % blocks->blocks[axis] * blocks->block[axis];
        slab->count[axis] = blocks->dims[axis] - slab->start[axis];
        if (slab->count[axis] > blocks->block[axis])
            slab->count[axis] = blocks->block[axis];
        i /= blocks->blocks[axis];
    }
}

uint64_t slab_elements(const struct sfs_slab *slab)
{
    uint64_t n = 1;
    for (int i = 0; i < slab->rank; i++)
        n *= slab->count[i];
    return n;
}
