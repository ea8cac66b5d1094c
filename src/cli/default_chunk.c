/* The chunk dims of a dataset for which none are given. */
#include "cli/options.h"

#define MOST_CHUNK_BYTES ((uint64_t)16 << 20)
#define NEW_AXIS         1024 /* chunk dim along an axis that has no length yet and no limit */

void default_chunk(int rank, const uint64_t *dims, const uint64_t *max_dims, size_t element_size,
                   uint64_t *chunk_dims)
{
    for (int i = 0; i < rank; i++) {
        uint64_t length = dims[i] ? dims[i] : max_dims[i] == SFS_UNLIMITED ? NEW_AXIS : max_dims[i];
        chunk_dims[i] = rank >= 3 && i == 0 ? 1 : length ? length : 1;
    }
    for (;;) {
        uint64_t bytes = element_size;
        int longest = 0;
        bool is_large = false;
        for (int i = 0; i < rank; i++) {
            is_large = is_large || __builtin_mul_overflow(bytes, chunk_dims[i], &bytes);
            if (chunk_dims[i] > chunk_dims[longest])
                longest = i;
        }
        if ((!is_large && bytes <= MOST_CHUNK_BYTES) || chunk_dims[longest] == 1)
            return;
        chunk_dims[longest] = chunk_dims[longest] / 2 + chunk_dims[longest] % 2;
    }
}
