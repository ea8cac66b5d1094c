/* Chunks noted while an index is walked, for what must not be done meanwhile: whoever reads or
 * changes a chunk may have to wait for others, who wait for the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/private.h"

int chunk_list_add(struct chunk_list *list, int rank, const uint64_t *scaled)
{
    size_t n = (size_t)rank;
    if (list->n == list->capacity) {
        size_t capacity = list->capacity + list->capacity / 2 + 64;
        uint64_t *grown = reallocarray(list->scaled, capacity, n * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        list->scaled = grown;
        list->capacity = capacity;
    }
    memcpy(list->scaled + list->n++ * n, scaled, n * sizeof(*scaled));
    return 0;
}
