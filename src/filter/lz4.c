/* The LZ4 filter: 8 bytes big-endian for the number of bytes, 4 for the bytes of a block, then the
 * blocks, each behind 4 bytes for its stored size; one that did not become smaller is stored as it
 * is. Parameter: bytes of a block, 0 or none: 1 GiB (HDF5_LZ4.pdf of the HDF Group, and what its
 * plugin does). */
#include <errno.h>
#include <lz4.h>
#include <string.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"

#define SIZE_BYTES    8
#define BLOCK_BYTES   4
#define HEADER_BYTES  (SIZE_BYTES + BLOCK_BYTES)
#define DEFAULT_BLOCK ((size_t)1 << 30)
#define MOST_BYTES    INT32_MAX /* the plugin takes no more */

/* Bytes of the blocks; no more than there are. */
static size_t block_of(const struct sfs_filter *filter, size_t size)
{
    size_t block = filter_value(filter, 0, 0) ? filter->values[0] : DEFAULT_BLOCK;
    return block < size ? block : size;
}

static bool takes(const struct sfs_filter *filter)
{
    return filter_value(filter, 0, 0) <= lz4_codec.most_bytes;
}

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    size_t block = block_of(filter, size), blocks = block ? size / block + 1 : 0, heads, all;
    /* The last one is compressed with room to grow, even if it is not stored so. */
    size_t room = block ? lz4_codec.bound(block) - block : 0;
    return __builtin_mul_overflow(blocks, (size_t)BLOCK_BYTES, &heads) ||
                   __builtin_add_overflow(heads, room + HEADER_BYTES, &all) ||
                   __builtin_add_overflow(all, size, &all)
               ? SIZE_MAX
               : all;
}

static int decode_blocks(const unsigned char *in, size_t in_size, size_t block, unsigned char *out,
                         size_t size)
{
    for (size_t stored; size > 0; in += stored, in_size -= stored) {
        if (in_size < BLOCK_BYTES)
            return -EILSEQ;
        block = block < size ? block : size;
        int error = cpu_limit_check(block);
        if (error)
            return error;
        stored = (size_t)filter_load_be(in, BLOCK_BYTES);
        in += BLOCK_BYTES;
        in_size -= BLOCK_BYTES;
        if (stored > in_size)
            return -EILSEQ;
        if (stored == block)
            memcpy(out, in, block);
        else if (lz4_codec.decode(in, stored, out, block) != 0)
            return -EILSEQ;
        out += block;
        size -= block;
    }
    return 0;
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    *size = in_size < SIZE_BYTES ? 0 : filter_load_be(in, SIZE_BYTES);
    return in_size >= SIZE_BYTES;
}

/* Bytes behind the last block are none of its business: libhdf5's filter does not look at them. */
static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter; /* the stream says how large its blocks are */
    const unsigned char *bytes = in;
    if (in_size < HEADER_BYTES || filter_load_be(bytes, SIZE_BYTES) != size)
        return -EILSEQ;
    size_t block = (size_t)filter_load_be(bytes + SIZE_BYTES, BLOCK_BYTES);
    if (block == 0 && size > 0)
        return -EILSEQ;
    return decode_blocks(bytes + HEADER_BYTES, in_size - HEADER_BYTES, block, out, size);
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    const unsigned char *from = in;
    unsigned char *to = (unsigned char *)out + HEADER_BYTES;
    size_t block = block_of(filter, size);
    if (size > MOST_BYTES)
        return -EINVAL;
    filter_store_be(out, SIZE_BYTES, size);
    filter_store_be((unsigned char *)out + SIZE_BYTES, BLOCK_BYTES, block);
    for (size_t left = size, n, stored; left > 0; left -= n, from += n) {
        n = block < left ? block : left;
        int error = lz4_codec.encode(0, from, n, to + BLOCK_BYTES, lz4_codec.bound(n), &stored);
        if (error)
            return error;
        if (stored >= n) {
            memcpy(to + BLOCK_BYTES, from, n);
            stored = n;
        }
        filter_store_be(to, BLOCK_BYTES, stored);
        to += BLOCK_BYTES + stored;
    }
    *out_size = (size_t)(to - (unsigned char *)out);
    return 0;
}

const struct filter_kind filter_lz4 = {
    .id = FILTER_LZ4,
    .effect = COMPRESSES,
    .most_inflated = MOST_INFLATED_BY_lz4,
    .takes = takes,
    .bound = bound,
    .plain_size = plain_size,
    .decode = decode,
    .encode = encode,
    .made_with = "liblz4",
    .version = LZ4_versionString,
};
