/* Chunks at the edge of a dataset, which reach beyond it. */
#include "layout/layout.h"

void layout_inside(const struct layout *layout, const uint64_t *scaled, uint64_t *start,
                   uint64_t *count)
{
    for (int i = 0; i < layout->rank; i++) {
        start[i] = scaled[i] * layout->chunk_dims[i];
        uint64_t left = layout->dims[i] - start[i];
        count[i] = left < layout->chunk_dims[i] ? left : layout->chunk_dims[i];
    }
}

bool layout_is_edge(const struct layout *layout, const uint64_t *scaled)
{
    for (int i = 0; i < layout->rank; i++)
        if (layout->chunk_dims[i] > layout->dims[i] - scaled[i] * layout->chunk_dims[i])
            return true;
    return false;
}

bool layout_is_unfiltered(const struct layout *layout, const uint64_t *scaled)
{
    return layout->unfiltered_edges && layout_is_edge(layout, scaled);
}
