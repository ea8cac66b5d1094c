/* The number of a chunk in an array: coordinates in row-major order, those of the unlimited axis slowest; and
 * how many chunks an array can have. */
#include "index/private.h"

bool index_number(int rank, const uint64_t *max_chunks, const uint64_t *scaled, uint64_t *number)
{
    uint64_t i = 0;
    for (int axis = 0; axis < rank; axis++)
        if (max_chunks[axis] == SFS_UNLIMITED)
            i = scaled[axis];
    for (int axis = 0; axis < rank; axis++)
        if (max_chunks[axis] != SFS_UNLIMITED && (__builtin_mul_overflow(i, max_chunks[axis], &i) ||
                                                  __builtin_add_overflow(i, scaled[axis], &i)))
            return false;
    *number = i;
    return true;
}

void index_coordinates(const struct index *index, uint64_t number, uint64_t *scaled)
{
    int unlimited = -1;
    for (int axis = index->rank - 1; axis >= 0; axis--) {
        if (index->max_chunks[axis] == SFS_UNLIMITED && unlimited < 0) {
            unlimited = axis;
            continue;
        }
        scaled[axis] = number % index->max_chunks[axis];
        number /= index->max_chunks[axis];
    }
    if (unlimited >= 0)
        scaled[unlimited] = number;
}

uint64_t index_most_length(const struct index *index)
{
    return UINT64_MAX >> (64 - 8 * index->superblock->length_size);
}

uint64_t index_most_elements(const struct index *index)
{
    uint64_t most = index_most_length(index);
    return most < INDEX_MOST_ELEMENTS ? most : INDEX_MOST_ELEMENTS;
}
