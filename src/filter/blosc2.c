/* The Blosc2 filter: a frame of one chunk. Parameters (its HDF5 filter's set_local): version of the
 * filter, bytes of a block or 0, of an element, of a chunk, level, shuffling, compressor, and rank
 * and dims of the chunk, where the plugin stores it block by block. That is decoded; what we make
 * is in order, which the plugin reads, too. libblosc2 is not initialized: it knows no plugins then.
 */
#include <blosc2.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filter/blosc2_frame.h"
#include "filter/kind.h"

enum { REVISION, BLOCK, ELEMENT, CHUNK, LEVEL, SHUFFLING, COMPRESSOR };

#define DEFAULT_LEVEL 5
#define HIGHEST_LEVEL 9

/* What a chunk may have more with whole blocks: as much as it can have of four axes, or of small
 * ones. */
#define MOST_TIMES 16
#define MARGIN     ((uint64_t)1 << 20)

/* What others do, or the library has not, is for the plugin. */
static bool takes(const struct sfs_filter *filter)
{
    const char *name;
    unsigned compressor = filter_value(filter, COMPRESSOR, BLOSC_BLOSCLZ);
    return filter_value(filter, SHUFFLING, BLOSC_SHUFFLE) <= BLOSC_BITSHUFFLE &&
           compressor <= BLOSC_ZSTD && blosc2_compcode_to_compname((int)compressor, &name) >= 0;
}

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    size_t more = BLOSC2_MAX_OVERHEAD + B2FRAME_OVERHEAD;
    return size > SIZE_MAX - more ? SIZE_MAX : size + more;
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    struct b2frame frame;
    if (!b2frame_read(in, in_size, &frame))
        return false;
    *size = frame.bytes;
    return true;
}

static bool complete(size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room)
{
    if (room <= CHUNK || chunk_bytes > UINT32_MAX || element_size > UINT32_MAX)
        return false;
    for (; *n <= CHUNK; ++*n)
        values[*n] = 0;
    values[REVISION] = 1;
    values[ELEMENT] = (unsigned)element_size;
    values[CHUNK] = (unsigned)chunk_bytes;
    return true;
}

/* ---- Decoding ---- */

static int repeat(const void *value, size_t n, unsigned char *out, size_t size)
{
    if (size % n != 0)
        return -EILSEQ;
    for (size_t i = 0; i < size; i += n)
        memcpy(out + i, value, n);
    return 0;
}

static int make_special(enum b2special special, unsigned element, unsigned char *out, size_t size)
{
    const float nan4 = __builtin_nanf("");
    const double nan8 = __builtin_nan("");
    if (special == B2NANS && element == sizeof(nan4))
        return repeat(&nan4, sizeof(nan4), out, size);
    if (special == B2NANS && element == sizeof(nan8))
        return repeat(&nan8, sizeof(nan8), out, size);
    memset(out, 0, size);
    return special == B2NANS ? -EILSEQ : 0;
}

static int decompress(const unsigned char *in, const struct b2chunk *chunk, void *out)
{
    blosc2_dparams parameters = BLOSC2_DPARAMS_DEFAULTS;
    blosc2_context *context = blosc2_create_dctx(parameters);
    if (!context)
        return -ENOMEM;
    int made =
        blosc2_decompress_ctx(context, in, (int32_t)chunk->stored, out, (int32_t)chunk->bytes);
    blosc2_free_ctx(context);
    return made == (int)chunk->bytes ? 0 : -EILSEQ;
}

static int decode_chunk(const unsigned char *in, size_t in_size, unsigned char *out, size_t size)
{
    struct b2chunk chunk;
    if (!b2chunk_read(in, in_size, &chunk) || chunk.bytes != size)
        return -EILSEQ;
    if (chunk.special == B2VALUE)
        return repeat(in + B2CHUNK_HEAD, chunk.stored - B2CHUNK_HEAD, out, size);
    if (chunk.special != B2BLOCKS)
        return make_special(chunk.special, chunk.element, out, size);
    if (!chunk.is_copy)
        return decompress(in, &chunk, out);
    memcpy(out, in + B2CHUNK_HEAD, size);
    return 0;
}

/* frame->padded bytes. */
static int decode_only_chunk(const struct b2frame *frame, unsigned char *out)
{
    unsigned char offset[8];
    enum b2special special;
    const unsigned char *chunk;
    size_t n;
    int error = decode_chunk(frame->index, frame->index_size, offset, sizeof(offset));
    if (error)
        return error;
    uint64_t at = 0;
    for (unsigned i = sizeof(offset); i-- > 0;)
        at = at << 8 | offset[i];
    if (!b2frame_find(frame, at, &special, &chunk, &n))
        return -EILSEQ;
    return special == B2BLOCKS ? decode_chunk(chunk, n, out, (size_t)frame->padded)
                               : make_special(special, frame->element, out, (size_t)frame->padded);
}

/* Bytes behind the frame are none of its business: libhdf5's filter does not look at them. */
static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter; /* the frame says it all */
    struct b2frame frame;
    if (!b2frame_read(in, in_size, &frame) || frame.bytes != size ||
        frame.padded / MOST_TIMES > size + MARGIN / MOST_TIMES)
        return -EILSEQ;
    if (size == 0)
        return 0;
    if (b2frame_is_in_order(&frame))
        return decode_only_chunk(&frame, out);
    unsigned char *padded = malloc((size_t)frame.padded);
    int error = padded ? decode_only_chunk(&frame, padded) : -ENOMEM;
    if (!error)
        b2frame_gather(&frame, padded, out);
    free(padded);
    return error;
}

/* ---- Encoding ---- */

/* What does not get smaller is stored as it is, in a frame. Variables such as BLOSC_DELTA can make
 * libblosc2 do what was not asked for: what we would not decode is not stored. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    unsigned level = filter_value(filter, LEVEL, DEFAULT_LEVEL);
    unsigned element = filter_value(filter, ELEMENT, 0), block = filter_value(filter, BLOCK, 0);
    if (element == 0 || level > HIGHEST_LEVEL || size > BLOSC2_MAX_BUFFERSIZE || block > INT32_MAX)
        return -EINVAL;
    blosc2_cparams parameters = BLOSC2_CPARAMS_DEFAULTS;
    parameters.compcode = (uint8_t)filter_value(filter, COMPRESSOR, BLOSC_BLOSCLZ);
    parameters.clevel = (uint8_t)level;
    parameters.typesize = element > BLOSC_MAX_TYPESIZE || element > size ? 1 : (int32_t)element;
    parameters.blocksize = (int32_t)block;
    parameters.filters[BLOSC2_MAX_FILTERS - 1] =
        (uint8_t)filter_value(filter, SHUFFLING, BLOSC_SHUFFLE);
    blosc2_context *context = blosc2_create_cctx(parameters);
    if (!context)
        return -ENOMEM;
    int made = blosc2_compress_ctx(context, in, (int32_t)size, b2frame_chunk(out),
                                   (int32_t)(size + BLOSC2_MAX_OVERHEAD));
    blosc2_free_ctx(context);
    struct b2chunk chunk;
    if (made <= 0 || !b2chunk_read(b2frame_chunk(out), (size_t)made, &chunk))
        return -EINVAL;
    *out_size = b2frame_put((unsigned)parameters.typesize, parameters.compcode, level, out);
    return 0;
}

static const char *version(void)
{
    return blosc2_get_version_string();
}

const struct filter_kind filter_blosc2 = {
    .id = FILTER_BLOSC2,
    .effect = COMPRESSES,
    .most_inflated = INFLATES_ANYHOW, /* chunks of zeros need no bytes */
    .takes = takes,
    .bound = bound,
    .plain_size = plain_size,
    .complete = complete,
    .decode = decode,
    .encode = encode,
    .made_with = "libblosc2",
    .version = version,
};
