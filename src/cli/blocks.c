/* Cutting a dataset into slabs. */
#include "cli/blocks.h"

#include <errno.h>
#include <stdlib.h>
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

static int of_chunks(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                     uint64_t wanted_bytes, struct blocks *blocks)
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
    for (int i = blocks->rank - 1; i >= 0 && bytes && bytes < wanted_bytes; i--) {
        uint64_t chunk = blocks->block[i], chunks = (blocks->dims[i] - 1) / chunk + 1;
        uint64_t wanted = wanted_bytes / bytes;
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

int blocks_of_chunks(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                     struct blocks *blocks)
{
    return of_chunks(info, chunk_dims, BLOCK_BYTES, blocks);
}

int blocks_of_both(const struct sfs_dataset_info *from, const struct sfs_dataset_info *to,
                   struct blocks *blocks)
{
    uint64_t chunk = to->type.size, source = from->type.size;
    for (int i = 0; i < to->rank; i++) {
        chunk *= to->chunk_dims[i] < to->dims[i] ? to->chunk_dims[i] : to->dims[i];
        source *= from->chunk_dims[i] < from->dims[i] ? from->chunk_dims[i] : from->dims[i];
    }
    bool covers = from->layout == SFS_CHUNKED && source > BLOCK_BYTES && source <= MOST_BYTES;
    return of_chunks(to, to->chunk_dims, covers ? source + chunk - 1 : BLOCK_BYTES, blocks);
}

int blocks_of_one_chunk(const struct sfs_dataset_info *info, const uint64_t *chunk_dims,
                        struct blocks *blocks)
{
    return of_chunks(info, chunk_dims, 0, blocks);
}

int blocks_in_order(const struct sfs_dataset_info *info, struct blocks *blocks)
{
    int error = begin(info, blocks);
    if (error)
        return error;
    uint64_t bytes = info->type.size;
    for (int i = blocks->rank - 1; i >= 0 && bytes > 0; i--) {
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

/* ---- Those of stored chunks ---- */

struct listing {
    const struct blocks *blocks;
    const uint64_t *origin, *chunk_dims;
    struct block_list *list;
};

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* In order, each once. */
static void sort(struct block_list *list)
{
    size_t n = 0;
    if (list->n > 0)
        qsort(list->number, list->n, sizeof(*list->number), compare);
    for (size_t i = 0; i < list->n; i++)
        if (n == 0 || list->number[n - 1] != list->number[i])
            list->number[n++] = list->number[i];
    list->n = n;
}

/* Several chunks may name the same block: there is more room only if they do not. */
static int add(struct block_list *list, uint64_t number)
{
    if (list->n > 0 && list->number[list->n - 1] == number)
        return 0;
    if (list->n == list->room)
        sort(list);
    if (list->n >= list->room - list->room / 4) {
        size_t room = list->room ? 2 * list->room : 1024;
        uint64_t *grown = reallocarray(list->number, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        list->number = grown;
        list->room = room;
    }
    list->number[list->n++] = number;
    return 0;
}

/* The blocks that a chunk touches: first to last on every axis; false: none. */
static bool touched(const struct listing *listing, const uint64_t *start, uint64_t *first,
                    uint64_t *last)
{
    const struct blocks *blocks = listing->blocks;
    for (int i = 0; i < blocks->rank; i++) {
        uint64_t origin = listing->origin[i], end = start[i] + listing->chunk_dims[i];
        uint64_t begin = start[i] > origin ? start[i] - origin : 0;
        if (end <= origin || begin >= blocks->dims[i])
            return false;
        end = end - origin < blocks->dims[i] ? end - origin : blocks->dims[i];
        first[i] = begin / blocks->block[i];
        last[i] = (end - 1) / blocks->block[i];
    }
    return true;
}

static int add_touched(void *context, const struct sfs_chunk_info *chunk)
{
    const struct listing *listing = context;
    const struct blocks *blocks = listing->blocks;
    uint64_t first[SFS_MAX_RANK], last[SFS_MAX_RANK], at[SFS_MAX_RANK];
    if (!touched(listing, chunk->start, first, last))
        return 0;
    memcpy(at, first, sizeof(at));
    for (;;) {
        uint64_t number = 0;
        for (int i = 0; i < blocks->rank; i++)
            number = number * blocks->blocks[i] + at[i];
        int error = interrupted ? -EINTR : add(listing->list, number), axis = blocks->rank - 1;
        while (axis >= 0 && at[axis] == last[axis]) {
            at[axis] = first[axis];
            axis--;
        }
        if (error || axis < 0)
            return error;
        at[axis]++;
    }
}

int blocks_stored(const struct blocks *blocks, struct sfs_dataset *dataset, const uint64_t *origin,
                  struct block_list *list)
{
    struct listing listing = {blocks, origin, sfs_dataset_info(dataset)->chunk_dims, list};
    *list = (struct block_list){0};
    int error = blocks->n > 0 ? sfs_chunk_iterate(dataset, add_touched, &listing) : 0;
    sort(list);
    return error;
}

uint64_t slab_elements(const struct sfs_slab *slab)
{
    uint64_t n = 1;
    for (int i = 0; i < slab->rank; i++)
        n *= slab->count[i];
    return n;
}
