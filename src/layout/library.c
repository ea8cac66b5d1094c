/* What only libhdf5 can read: filters that are not ours, virtual, external and compact storage. It
 * reads a piece at a time, under its one lock, into our cache. */
#include <errno.h>
#include <string.h>

#include "hdf5/hdf5.h"
#include "layout/layout.h"

/* Every piece "exists": where nothing is stored, libhdf5 gives the fill value itself. */
static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_location *location)
{
    (void)layout, (void)scaled;
    location->exists = true;
    location->size = 0;
    return 0;
}

static int decode(struct layout *layout, const uint64_t *scaled,
                  const struct chunk_location *location, const void *stored, void *scratch,
                  void *chunk)
{
    (void)location, (void)stored, (void)scratch;
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    for (int i = 0; i < layout->rank; i++) {
        start[i] = scaled[i] * layout->chunk_dims[i];
        uint64_t left = layout->dims[i] - start[i];
        count[i] = left < layout->chunk_dims[i] ? left : layout->chunk_dims[i];
    }
    int error = hdf5_read(layout->hdf5, layout->dataset, start, count, layout->chunk_dims, chunk);
    return error == -EIO ? layout_failed(layout, scaled, UINT64_MAX, hdf5_error()) : error;
}

const struct layout_ops layout_library = {.lookup = lookup, .decode = decode};
