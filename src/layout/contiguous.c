/* Contiguous storage: the whole dataset is one chunk, stored as it is. */
#include "layout/layout.h"

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_location *location)
{
    (void)scaled;
    location->exists = layout->data_address != UINT64_MAX;
    location->address = layout->data_address;
    location->size = layout->chunk_bytes;
    return 0;
}

const struct layout_ops layout_contiguous = {.lookup = lookup};
