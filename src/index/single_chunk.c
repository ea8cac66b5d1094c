/* The index of a dataset that is one chunk: its record stands in the layout message, and here in
 * index->kind; index->address says whether it exists. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/private.h"
#include "store/store.h"

static int single_open(struct index *index, const struct layout_message *layout, struct why *why)
{
    bool filtered = index->format.form == CHUNK_STRUCTURED_FILTERED;
    for (int i = 0; i < index->rank; i++)
        if (index->max_chunks[i] > 1)
            return why_damaged(why,
                               "data layout message: a single chunk is smaller than the max "
                               "dims of axis %d",
                               i);
    if (!layout->single.exists)
        return 0;
    if (filtered != layout->single_filtered)
        return why_damaged(why,
                           "data layout message: the flag of filters of its single chunk is "
                           "%s",
                           filtered ? "missing" : "set without filters");
    int error = chunk_record_check(&index->format, store_size(index->store), layout->single.address,
                                   &layout->single, why);
    if (error)
        return error;
    struct chunk_record *record = malloc(sizeof(*record));
    if (!record)
        return -ENOMEM;
    *record = layout->single;
    index->kind = record;
    return 0;
}

static void single_close(struct index *index)
{
    free(index->kind);
}

static int single_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                         struct why *why)
{
    (void)scaled, (void)why; /* it is within the max dims: the only one */
    *record = *(const struct chunk_record *)index->kind;
    return 0;
}

static int single_iterate(struct index *index, const struct index_range *range,
                          index_each_function each, void *context, struct why *why)
{
    (void)why;
    const uint64_t origin[SFS_MAX_RANK] = {0};
    return range && range->behind ? 0 : each(context, origin, index->kind);
}

static int single_insert(struct index *index, const uint64_t *scaled,
                         const struct chunk_record *record, struct why *why)
{
    (void)scaled, (void)why; /* it is within the max dims: the only one */
    if (!index->kind && !(index->kind = malloc(sizeof(*record))))
        return -ENOMEM;
    *(struct chunk_record *)index->kind = *record;
    index->address = record->address;
    return 0;
}

static int single_remove(struct index *index, const uint64_t *scaled, struct why *why)
{
    (void)scaled, (void)why;
    index->address = NO_ADDRESS;
    return 0;
}

const struct index_ops index_single = {
    .open = single_open,
    .close = single_close,
    .lookup = single_lookup,
    .iterate = single_iterate,
    .insert = single_insert,
    .remove = single_remove,
};
