/* The szip filter: 4 bytes little-endian for the number of bytes, and what libaec makes of them.
 * Parameters as in H5Zszip of libhdf5: options, pixels of a block, bits of a pixel, pixels of a
 * line. libaec has no state between calls, and no call that tells its version. */
#include <errno.h>
#include <szlib.h>

#include "filter/kind.h"

#define SIZE_BYTES        4
#define MOST_BLOCK_PIXELS 32
#define MOST_LINE_BLOCKS  128

enum { OPTIONS, BLOCK, BITS, LINE, VALUES };

/* What libhdf5 writes; with others libaec is not called. */
static bool takes(const struct sfs_filter *filter)
{
    if (filter->n_values != VALUES)
        return false;
    unsigned block = filter->values[BLOCK], line = filter->values[LINE];
    unsigned bits = filter->values[BITS];
    return block >= 2 && block <= MOST_BLOCK_PIXELS && block % 2 == 0 && line >= 1 &&
           line <= MOST_LINE_BLOCKS * block && ((bits >= 1 && bits <= 32) || bits == 64);
}

static size_t pixel_bytes(const struct sfs_filter *filter)
{
    unsigned bits = filter->values[BITS];
    return bits > 32 ? 8 : bits > 16 ? 4 : bits > 8 ? 2 : 1;
}

static SZ_com_t parameters(const struct sfs_filter *filter)
{
    return (SZ_com_t){
        .options_mask = (int)filter->values[OPTIONS],
        .bits_per_pixel = (int)filter->values[BITS],
        .pixels_per_block = (int)filter->values[BLOCK],
        .pixels_per_scanline = (int)filter->values[LINE],
    };
}

/* A block that is stored as it is has an identifier of some bits before it. */
static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    size_t bytes;
    return __builtin_add_overflow(size, size / 2 + 64, &bytes) ? SIZE_MAX : bytes;
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    const unsigned char *bytes = in;
    if (in_size <= SIZE_BYTES)
        return false;
    *size =
        bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return true;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    const unsigned char *bytes = in;
    uint64_t claimed;
    if (!plain_size(filter, in, in_size, &claimed) || size % pixel_bytes(filter) != 0 ||
        claimed != size || size == 0)
        return -EILSEQ;
    SZ_com_t with = parameters(filter);
    size_t made = size;
    int status =
        SZ_BufftoBuffDecompress(out, &made, bytes + SIZE_BYTES, in_size - SIZE_BYTES, &with);
    if (status == SZ_MEM_ERROR)
        return -ENOMEM;
    return status == SZ_OK && made == size ? 0 : -EILSEQ;
}

/* What does not get smaller is an error of libhdf5's filter, which can be left out if it is
 * optional. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    unsigned char *bytes = out;
    if (size > UINT32_MAX || size == 0 || size % pixel_bytes(filter) != 0)
        return -EINVAL;
    SZ_com_t with = parameters(filter);
    size_t made = filter->optional ? size : capacity - SIZE_BYTES;
    for (int i = 0; i < SIZE_BYTES; i++)
        bytes[i] = (unsigned char)(size >> 8 * i);
    int status = SZ_BufftoBuffCompress(bytes + SIZE_BYTES, &made, in, size, &with);
    if (status != SZ_OK)
        return status == SZ_MEM_ERROR ? -ENOMEM : -EINVAL;
    *out_size = SIZE_BYTES + made;
    return 0;
}

const struct filter_kind filter_szip = {
    .id = FILTER_SZIP,
    .effect = COMPRESSES,
    .most_inflated = INFLATES_ANYHOW,
    .takes = takes,
    .bound = bound,
    .plain_size = plain_size,
    .decode = decode,
    .encode = encode,
    .made_with = "libaec",
};
