/* Boxes of a dataset cut into the pieces that lie in one chunk each. All in elements; knows nothing
 * of what chunks hold. */
#ifndef SPARSEFS_CHUNK_CHUNKS_OF_BOX_H
#define SPARSEFS_CHUNK_CHUNKS_OF_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/box.h"

struct layout;

struct piece {
    uint64_t scaled[SFS_MAX_RANK];   /* the chunk */
    uint64_t in_chunk[SFS_MAX_RANK]; /* start, in the chunk */
    uint64_t in_box[SFS_MAX_RANK];   /* start, in the box */
    uint64_t count[SFS_MAX_RANK];
    uint64_t first[SFS_MAX_RANK], last[SFS_MAX_RANK]; /* chunks that the box touches */
};

/* The piece of the box in the first chunk that it touches, in row-major order of chunks; false if
 * the box is empty. Then piece_next gives the others until it returns false. */
bool piece_first(const struct layout *layout, const struct box *box, struct piece *piece);
bool piece_next(const struct layout *layout, const struct box *box, struct piece *piece);

/* The piece of the box in a chunk that it touches. */
void piece_at(const struct layout *layout, const struct box *box, const uint64_t *scaled,
              struct piece *piece);

/* How many chunks the box touches, whether they are stored or not; UINT64_MAX: or more. */
uint64_t piece_number(const struct layout *layout, const struct box *box);

/* Whether the piece is the whole box. */
bool piece_is_all(const struct layout *layout, const struct box *box, const struct piece *piece);

#endif
