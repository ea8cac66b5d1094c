/* The cache of a file, or of several: how large it is, and how many threads and which chunks it takes, if
 * nobody has said so. */
#include <errno.h>

#include "cache/cache.h"
#include "common/machine_memory.h"
#include "common/size.h"
#include "common/thread.h"
#include "dataset/private.h"
#include "dataset/read_ahead.h"

#define CHUNK_SHARE  4 /* of the machine's memory, for one chunk */
#define CHUNK_MEMORY ((uint64_t)4 << 30)

/* The largest chunk of HDF5, if the machine has memory for several. */
static size_t default_chunk_memory(void)
{
    uint64_t memory = machine_memory();
    uint64_t share = (memory > 0 ? memory : CHUNK_MEMORY) / CHUNK_SHARE;
    return size_of(share < CHUNK_MEMORY ? share : CHUNK_MEMORY);
}

int common_cache_create(const struct sfs_options *options, struct common_cache *common)
{
    size_t size = options && options->cache_size ? options->cache_size : SFS_DEFAULT_CACHE_SIZE;
    unsigned workers = options ? options->workers : 0;
    if (workers == 0)
        workers = thread_processors();
    enum sfs_policy policy = options ? options->policy : SFS_POLICY_DEFAULT;
    *common = (struct common_cache){0};
    if ((unsigned)policy > SFS_POLICY_S3_FIFO)
        return -EINVAL;
    int error = cache_create(size, workers, &common->cache);
    if (error)
        return error;
    bool given = options && options->chunk_memory;
    cache_set_policy(common->cache, policy);
    cache_limit_chunks(common->cache, given ? options->chunk_memory : default_chunk_memory());
    return ahead_create(common->cache, &common->ahead);
}

void common_cache_destroy(const struct common_cache *common)
{
    ahead_destroy(common->ahead);
    cache_destroy(common->cache);
}
