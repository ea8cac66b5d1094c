/* The Zstandard filter: one frame. Parameter: the level, without one 3. */
#include <errno.h>
#include <zstd.h>

#include "filter/kind.h"

#define DEFAULT_LEVEL 3

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    return zstd_codec.bound(size);
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    unsigned long long bytes = ZSTD_getFrameContentSize(in, in_size);
    *size = bytes;
    return bytes != ZSTD_CONTENTSIZE_UNKNOWN && bytes != ZSTD_CONTENTSIZE_ERROR;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter;
    return zstd_codec.decode(in, in_size, out, size);
}

/* Levels that there are not are the nearest there are, as in its plugin. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    int level = (int)filter_value(filter, 0, DEFAULT_LEVEL), most = ZSTD_maxCLevel();
    level = level < 1 ? 1 : level > most ? most : level;
    return zstd_codec.encode(level, in, size, out, capacity, out_size);
}

const struct filter_kind filter_zstd = {
    .id = FILTER_ZSTD,
    .effect = COMPRESSES,
    .most_inflated = MOST_INFLATED_BY_zstd,
    .bound = bound,
    .plain_size = plain_size,
    .decode = decode,
    .encode = encode,
    .made_with = "libzstd",
    .version = ZSTD_versionString,
};
