/* The bzip2 filter: one stream. Parameter: the level, 1 to 9, without one 9. */
#include <bzlib.h>
#include <errno.h>
#include <limits.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"

#define DEFAULT_LEVEL 9
#define PIECE_BYTES   ((size_t)1 << 20) /* between two looks whether decoding is to end */

/* As its documentation says, and a little for those of few bytes. */
static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    size_t bytes;
    return __builtin_add_overflow(size, size / 100 + 600, &bytes) ? SIZE_MAX : bytes;
}

/* Nothing says it: it is counted. */
static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    char made[4096];
    bz_stream stream = {.next_in = (char *)(uintptr_t)in, .avail_in = (unsigned)in_size};
    int status = in_size > UINT_MAX ? BZ_PARAM_ERROR : BZ2_bzDecompressInit(&stream, 0, 0);
    if (status != BZ_OK)
        return false;
    *size = 0;
    do {
        stream.next_out = made;
        stream.avail_out = sizeof(made);
        status = BZ2_bzDecompress(&stream);
        *size += sizeof(made) - stream.avail_out;
    } while (status == BZ_OK && stream.avail_out < sizeof(made));
    BZ2_bzDecompressEnd(&stream);
    return status == BZ_STREAM_END;
}

static int decode_most(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                       size_t room, size_t *size)
{
    (void)filter;
    bz_stream stream = {.next_in = (char *)(uintptr_t)in, .next_out = out};
    if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK)
        return -ENOMEM;
    size_t left_in = in_size, left_out = room, done;
    int status, error;
    do {
        const unsigned most_in = (unsigned)(left_in < PIECE_BYTES ? left_in : PIECE_BYTES);
        const unsigned most_out = (unsigned)(left_out < PIECE_BYTES ? left_out : PIECE_BYTES);
        stream.avail_in = most_in;
        stream.avail_out = most_out;
        status = BZ2_bzDecompress(&stream);
        left_in -= most_in - stream.avail_in;
        left_out -= most_out - stream.avail_out;
        done = most_in - stream.avail_in + most_out - stream.avail_out;
        error = cpu_limit_check(done);
    } while (!error && status == BZ_OK && done > 0);
    BZ2_bzDecompressEnd(&stream);
    *size = room - left_out;
    return error                    ? error
           : status == BZ_MEM_ERROR ? -ENOMEM
                                    : (status == BZ_STREAM_END ? 0 : -EILSEQ);
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    size_t made;
    int error = decode_most(filter, in, in_size, out, size, &made);
    return !error && made != size ? -EILSEQ : error;
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    unsigned level = filter_value(filter, 0, DEFAULT_LEVEL);
    unsigned made = capacity < UINT_MAX ? (unsigned)capacity : UINT_MAX;
    if (level < 1 || level > 9 || size > UINT_MAX)
        return -EINVAL;
    int status = BZ2_bzBuffToBuffCompress(out, &made, (char *)(uintptr_t)in, (unsigned)size,
                                          (int)level, 0, 0);
    if (status != BZ_OK)
        return status == BZ_MEM_ERROR ? -ENOMEM : -EINVAL;
    *out_size = made;
    return 0;
}

const struct filter_kind filter_bzip2 = {
    .id = FILTER_BZIP2,
    .effect = COMPRESSES,
    .most_inflated = INFLATES_ANYHOW, /* a byte of long runs becomes a million */
    .bound = bound,
    .plain_size = plain_size,
    .decode = decode,
    .encode = encode,
    .decode_most = decode_most,
    .made_with = "libbz2",
    .version = BZ2_bzlibVersion,
};
