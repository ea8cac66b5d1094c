/* Dense datasets of very many chunks. */
#include "cli/dense_many_chunks.h"

#include <inttypes.h>

/* More chunks than this in the max dims, and libhdf5 reserves too much for their index. */
#define MOST_CHUNKS ((uint64_t)1 << 22)
#define MOST_LISTED ((uint64_t)1 << 32) /* of a dataset with one axis */

/* Chunks that there may be in all, as far as that is limited. */
static uint64_t possible_chunks(const struct sfs_dataset_create *create)
{
    uint64_t n = 1;
    for (int i = 0; i < create->rank; i++) {
        bool limited = create->max_dims[i] != SFS_UNLIMITED;
        uint64_t dim = limited ? create->max_dims[i] : create->dims[i];
        uint64_t chunks = dim / create->chunk_dims[i] + (dim % create->chunk_dims[i] > 0);
        if (__builtin_mul_overflow(n, chunks ? chunks : 1, &n))
            return UINT64_MAX;
    }
    return n;
}

/* The index of a chunked dataset of libhdf5 has an element for every chunk that is possible, unless
 * two axes have no limit: then only for those that are stored. One axis can have no such index. */
int dense_limit(const char *file, const char *path, struct sfs_dataset_create *create)
{
    uint64_t n = possible_chunks(create);
    if (n <= MOST_CHUNKS)
        return 0;
    if (create->rank == 1 && n > MOST_LISTED)
        return fail_because("%s:%s: %" PRIu64 " chunks of %" PRIu64
                            " elements are more than a dense "
                            "dataset can have",
                            file, path, n, create->chunk_dims[0]);
    for (int i = 0; i < create->rank && i < 2; i++)
        create->max_dims[i] = SFS_UNLIMITED;
    return 0;
}
