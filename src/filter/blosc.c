/* The Blosc filter: one buffer of libblosc, whose header says its sizes and its compressor.
 * Parameters (its HDF5 filter's set_local): versions of filter and format, bytes of an element, of
 * a chunk, level, shuffling, compressor. Calls have a context of their own and no threads. */
#include <blosc.h>
#include <errno.h>

#include "filter/kind.h"

enum { REVISION, FORMAT, ELEMENT, CHUNK, LEVEL, SHUFFLING, COMPRESSOR };

#define DEFAULT_LEVEL 5
#define HIGHEST_LEVEL 9

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    return size > SIZE_MAX - BLOSC_MAX_OVERHEAD ? SIZE_MAX : size + BLOSC_MAX_OVERHEAD;
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    size_t made = 0, taken, block;
    if (in_size >= BLOSC_MIN_HEADER_LENGTH)
        blosc_cbuffer_sizes(in, &made, &taken, &block);
    *size = made;
    return in_size >= BLOSC_MIN_HEADER_LENGTH;
}

/* Both versions are 2. */
static bool complete(size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room)
{
    if (room <= CHUNK || chunk_bytes > UINT32_MAX)
        return false;
    for (; *n <= CHUNK; ++*n)
        values[*n] = 0;
    values[REVISION] = values[FORMAT] = 2;
    values[ELEMENT] = element_size > BLOSC_MAX_TYPESIZE ? 1 : (unsigned)element_size;
    values[CHUNK] = (unsigned)chunk_bytes;
    return true;
}

/* libblosc divides by what the header says of elements, and allocates what it says of blocks. */
static bool is_sound(const void *in, size_t in_size, size_t size)
{
    size_t made, taken, block, element;
    int flags;
    if (in_size < BLOSC_MIN_HEADER_LENGTH)
        return false;
    blosc_cbuffer_sizes(in, &made, &taken, &block);
    blosc_cbuffer_metainfo(in, &element, &flags);
    return made == size && size <= BLOSC_MAX_BUFFERSIZE && taken <= in_size && element > 0 &&
           (size == 0 || (block > 0 && block <= size)) &&
           blosc_cbuffer_validate(in, taken, &made) == 0 && made == size;
}

/* Bytes behind the buffer are none of its business: libhdf5's filter does not look at them. */
static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter;
    if (!is_sound(in, in_size, size))
        return -EILSEQ;
    if (size == 0)
        return 0;
    return blosc_decompress_ctx(in, out, size, 1) == (int)size ? 0 : -EILSEQ;
}

/* What does not get smaller is an error of libhdf5's filter, which can be left out if it is
 * optional. If it is not, the buffer holds the bytes as they are, behind its header. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    unsigned level = filter_value(filter, LEVEL, DEFAULT_LEVEL);
    unsigned shuffling = filter_value(filter, SHUFFLING, BLOSC_SHUFFLE);
    unsigned element = filter_value(filter, ELEMENT, 0);
    const char *compressor = BLOSC_BLOSCLZ_COMPNAME;
    if (element == 0 || level > HIGHEST_LEVEL || shuffling > BLOSC_BITSHUFFLE ||
        size > BLOSC_MAX_BUFFERSIZE)
        return -EINVAL;
    if (filter->n_values > COMPRESSOR &&
        (filter->values[COMPRESSOR] > INT32_MAX ||
         blosc_compcode_to_compname((int)filter->values[COMPRESSOR], &compressor) < 0))
        return -EINVAL;
    element = element > size ? 1 : element; /* blocks of no whole element have no bytes for it */
    int made =
        blosc_compress_ctx((int)level, (int)shuffling, element, size, in, out,
                           filter->optional ? size : size + BLOSC_MAX_OVERHEAD, compressor, 0, 1);
    if (made <= 0)
        return -EINVAL;
    *out_size = (size_t)made;
    return 0;
}

static const char *version(void)
{
    return blosc_get_version_string();
}

const struct filter_kind filter_blosc = {
    .id = FILTER_BLOSC,
    .effect = COMPRESSES,
    .most_inflated = INFLATES_ANYHOW, /* some of its compressors */
    .bound = bound,
    .plain_size = plain_size,
    .complete = complete,
    .decode = decode,
    .encode = encode,
    .made_with = "libblosc",
    .version = version,
};
