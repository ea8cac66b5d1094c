/* Walking over the chunks that a box touches. */
#include "chunk/chunks_of_box.h"

#include <string.h>

#include "layout/layout.h"

/* The part of box in the chunk at piece->scaled, which it touches. */
static void cut(const struct layout *layout, const struct box *box, struct piece *piece)
{
    for (int i = 0; i < layout->rank; i++) {
        uint64_t chunk_start = piece->scaled[i] * layout->chunk_dims[i];
        uint64_t start = box->start[i] > chunk_start ? box->start[i] : chunk_start;
        uint64_t left_in_box = box->start[i] + box->count[i] - start;
        uint64_t left_in_chunk = layout->chunk_dims[i] - (start - chunk_start);
        piece->in_chunk[i] = start - chunk_start;
        piece->in_box[i] = start - box->start[i];
        piece->count[i] = left_in_box < left_in_chunk ? left_in_box : left_in_chunk;
    }
}

bool piece_first(const struct layout *layout, const struct box *box, struct piece *piece)
{
    for (int i = 0; i < layout->rank; i++) {
        if (box->count[i] == 0)
            return false;
        piece->first[i] = piece->scaled[i] = box->start[i] / layout->chunk_dims[i];
        piece->last[i] = (box->start[i] + box->count[i] - 1) / layout->chunk_dims[i];
    }
    cut(layout, box, piece);
    return true;
}

bool piece_next(const struct layout *layout, const struct box *box, struct piece *piece)
{
    int axis = layout->rank - 1;
    while (axis >= 0 && piece->scaled[axis] == piece->last[axis]) {
        piece->scaled[axis] = piece->first[axis];
        axis--;
    }
    if (axis < 0)
        return false;
    piece->scaled[axis]++;
    cut(layout, box, piece);
    return true;
}

void piece_at(const struct layout *layout, const struct box *box, const uint64_t *scaled,
              struct piece *piece)
{
    memcpy(piece->scaled, scaled, (size_t)layout->rank * sizeof(*scaled));
    cut(layout, box, piece);
}

uint64_t piece_number(const struct layout *layout, const struct box *box)
{
    struct piece piece;
    uint64_t n = 1;
    if (!piece_first(layout, box, &piece))
        return 0;
    for (int i = 0; i < layout->rank; i++)
        if (__builtin_mul_overflow(n, piece.last[i] - piece.first[i] + 1, &n))
            return UINT64_MAX;
    return n;
}

bool piece_is_all(const struct layout *layout, const struct box *box, const struct piece *piece)
{
    return memcmp(piece->count, box->count, (size_t)layout->rank * sizeof(*box->count)) == 0;
}
