/* Arrays that grow by one item at a time. */
#ifndef SPARSEFS_COMMON_GROWING_ARRAY_H
#define SPARSEFS_COMMON_GROWING_ARRAY_H

#include <stddef.h>
#include <stdlib.h>

/* An array of n items with room for one more: as it is, or a longer one in its place, of which *room says for how
 * many. NULL: no memory, and the array is as it was. */
static inline void *room_for_one(void *array, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return array;
    size_t more = *room + *room / 2 + 16;
    void *grown = reallocarray(array, more, size);
    if (grown)
        *room = more;
    return grown;
}

#endif
