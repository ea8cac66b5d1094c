/* zlib streams (RFC 1950): with libdeflate where the build found it, else with zlib. */
#include <errno.h>

#include "common/thread.h"
#include "filter/kind.h"

#define HIGHEST_LEVEL 9

#if HAVE_LIBDEFLATE

#include <libdeflate.h>

#define LIBRARY "libdeflate"

/* There is no call for it. */
static const char *version(void)
{
    return LIBDEFLATE_VERSION_STRING;
}

/* Making one costs more than a small chunk: every thread keeps those that it has used. */
struct coders {
    struct libdeflate_decompressor *decompressor;
    struct libdeflate_compressor *compressor[HIGHEST_LEVEL + 1]; /* by level */
};

static void free_coders(void *of_thread)
{
    struct coders *coders = of_thread;
    if (coders->decompressor)
        libdeflate_free_decompressor(coders->decompressor);
    for (unsigned level = 0; level <= HIGHEST_LEVEL; level++)
        if (coders->compressor[level])
            libdeflate_free_compressor(coders->compressor[level]);
}

static struct own own = {.size = sizeof(struct coders), .end = free_coders};

/* made NULL: anything but exactly `room` bytes is an error. */
static int inflate_into(const void *in, size_t in_size, void *out, size_t room, size_t *made)
{
    struct coders *coders = own_get(&own);
    if (coders && !coders->decompressor)
        coders->decompressor = libdeflate_alloc_decompressor();
    if (!coders || !coders->decompressor)
        return -ENOMEM;
    return libdeflate_zlib_decompress(coders->decompressor, in, in_size, out, room, made) ==
                   LIBDEFLATE_SUCCESS
               ? 0
               : -EILSEQ;
}

int deflate_decode(const void *in, size_t in_size, void *out, size_t size)
{
    return inflate_into(in, in_size, out, size, NULL);
}

size_t deflate_bound(size_t size)
{
    size_t bound = libdeflate_zlib_compress_bound(NULL, size);
    return bound < size ? SIZE_MAX : bound;
}

int deflate_encode(unsigned level, const void *in, size_t size, void *out, size_t capacity,
                   size_t *out_size)
{
    if (level > HIGHEST_LEVEL)
        return -EINVAL;
    struct coders *coders = own_get(&own);
    if (coders && !coders->compressor[level])
        coders->compressor[level] = libdeflate_alloc_compressor((int)level);
    if (!coders || !coders->compressor[level])
        return -ENOMEM;
    size_t made = libdeflate_zlib_compress(coders->compressor[level], in, size, out, capacity);
    if (made == 0)
        return -ENOSPC;
    *out_size = made;
    return 0;
}

#else

#include <limits.h>
#include <zlib.h>

#define LIBRARY      "zlib"

static const char *version(void)
{
    return zlibVersion();
}

/* The highest level at which zlib takes the first match that is long enough, which is inflated
 * twice as fast as what it finds by looking for a longer one at the next byte. It looks at 32
 * places there; at all there are it makes hardly more bytes of selections than level 6. */
#define GREEDY_LEVEL 3
#define GREEDY_GOOD  4
#define GREEDY_LAZY  6
#define GREEDY_NICE  258
#define GREEDY_CHAIN 1024

static int inflate_into(const void *in, size_t in_size, void *out, size_t room, size_t *made)
{
    uLongf bytes = room, taken = in_size;
    int status = uncompress2(out, &bytes, in, &taken);
    *made = bytes;
    return status == Z_MEM_ERROR ? -ENOMEM : status == Z_OK ? 0 : -EILSEQ;
}

int deflate_decode(const void *in, size_t in_size, void *out, size_t size)
{
    size_t made;
    int error = inflate_into(in, in_size, out, size, &made);
    return !error && made != size ? -EILSEQ : error;
}

size_t deflate_bound(size_t size)
{
    size_t bound = compressBound(size);
    return bound < size ? SIZE_MAX : bound;
}

int deflate_encode(unsigned level, const void *in, size_t size, void *out, size_t capacity,
                   size_t *out_size)
{
    if (level > HIGHEST_LEVEL)
        return -EINVAL;
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)in, .next_out = out};
    if (deflateInit(&stream, (int)level) != Z_OK)
        return -ENOMEM;
    if (level == GREEDY_LEVEL)
        deflateTune(&stream, GREEDY_GOOD, GREEDY_LAZY, GREEDY_NICE, GREEDY_CHAIN);
    int status = Z_OK;
    for (size_t left_in = size, left_out = capacity; status == Z_OK;) {
        stream.avail_in = (uInt)(left_in < UINT_MAX ? left_in : UINT_MAX);
        stream.avail_out = (uInt)(left_out < UINT_MAX ? left_out : UINT_MAX);
        left_in -= stream.avail_in;
        left_out -= stream.avail_out;
        if (stream.avail_out == 0)
            break;
        status = deflate(&stream, left_in > 0 ? Z_NO_FLUSH : Z_FINISH);
        left_in += stream.avail_in;
        left_out += stream.avail_out;
    }
    *out_size = stream.total_out;
    deflateEnd(&stream);
    return status == Z_STREAM_END ? 0 : -ENOSPC;
}

#endif

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    return deflate_bound(size);
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter;
    return deflate_decode(in, in_size, out, size);
}

static int decode_most(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                       size_t room, size_t *size)
{
    (void)filter;
    return inflate_into(in, in_size, out, room, size);
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    return filter->n_values == 1
               ? deflate_encode(filter->values[0], in, size, out, capacity, out_size)
               : -EINVAL;
}

const struct filter_kind filter_deflate = {
    .id = FILTER_DEFLATE,
    .effect = COMPRESSES,
    .most_inflated = 1032, /* zlib's documentation */
    .bound = bound,
    .decode = decode,
    .encode = encode,
    .decode_most = decode_most,
    .made_with = LIBRARY,
    .version = version,
};
