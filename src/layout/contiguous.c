/* Contiguous storage: the whole dataset is one chunk, stored as it is. */
#include "layout/layout.h"

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)scaled;
    record->exists = layout->data_address != UINT64_MAX;
    record->address = layout->data_address;
    record->size = layout->chunk_bytes;
    return 0;
}

const struct layout_ops layout_contiguous = {.lookup = lookup};
