/* The bitshuffle filter: in blocks of elements all first bits of the elements together, then all
 * second ones, and so on; each block may be compressed then. Elements at the end that do not fill
 * eight are stored as they are. Parameters (its HDF5 filter's set_local): major and minor version,
 * bytes of an element, elements of a block (0: some 8 KiB), compression, its level.
 *
 * What is compressed begins with the number of bytes, 8 bytes big-endian, and the bytes of a block,
 * 4 bytes big-endian; before each block stand 4 bytes, its compressed size. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"
#include "filter/transpose.h"

#define GROUP             8 /* elements, whose bits make whole bytes */
#define TARGET_BYTES      8192
#define LEAST_ELEMENTS    128
#define HEADER_BYTES      12
#define BLOCK_HEAD_BYTES  4
#define BLOCK_ON_STACK    16384
#define TILE              SHUFFLE_MOST_PARTS /* elements turned at once, in the processor's cache */
#define SIZE_FIELD_BYTES  8
#define BLOCK_FIELD_BYTES 4

enum { MAJOR, MINOR, ELEMENT, BLOCK, COMPRESSION, LEVEL };
enum { NOT_COMPRESSED = 0, BY_LZ4 = 2, BY_ZSTD = 3 };

/* ---- Blocks ---- */

/* Blocks of a string of bytes. All of them have `block` elements but the last, which has the groups
 * that are left. */
struct blocks {
    size_t element, block, left;
};

static size_t default_block(size_t element)
{
    size_t block = TARGET_BYTES / element / GROUP * GROUP;
    return block > LEAST_ELEMENTS ? block : LEAST_ELEMENTS;
}

/* -EINVAL: the bytes are no whole number of elements. */
static int divide(size_t element, size_t block, size_t size, struct blocks *blocks)
{
    *blocks = (struct blocks){element, block ? block : default_block(element), size / element};
    return size % element == 0 ? 0 : -EINVAL;
}

/* Elements of the next block; 0: there are no more blocks. */
static size_t next_block(struct blocks *blocks)
{
    size_t groups = blocks->left - blocks->left % GROUP;
    size_t n = groups < blocks->block ? groups : blocks->block;
    blocks->left -= n;
    return n;
}

/* n elements, a multiple of 8. */
static void shuffle_block(const unsigned char *in, size_t n, size_t element, unsigned char *out)
{
    unsigned char planes[8 * TILE];
    size_t row = n / GROUP;
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < TILE ? n - first : TILE;
        for (size_t k = 0, part; k < element; k += part) {
            part = shuffle_separate(in + first * element + k, element, element - k, planes, TILE,
                                    count);
            for (size_t i = 0; i < part; i++)
                transpose_to_rows(planes + i * TILE, count / GROUP,
                                  out + 8 * (k + i) * row + first / GROUP, row);
        }
    }
}

static void unshuffle_block(const unsigned char *in, size_t n, size_t element, unsigned char *out)
{
    unsigned char planes[8 * TILE];
    size_t row = n / GROUP;
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < TILE ? n - first : TILE;
        for (size_t k = 0, part; k < element; k += part) {
            part = element - k >= 8 ? 8 : element - k >= 4 ? 4 : element - k >= 2 ? 2 : 1;
            for (size_t i = 0; i < part; i++)
                transpose_to_plane(in + 8 * (k + i) * row + first / GROUP, row, count / GROUP,
                                   planes + i * TILE);
            shuffle_interleave(planes, TILE, element - k, out + first * element + k, element,
                               count);
        }
    }
}

bool filter_is_left_out(const struct sfs_filter *filter)
{
    unsigned compression = filter_value(filter, COMPRESSION, NOT_COMPRESSED);
    return filter->id == FILTER_BITSHUFFLE &&
           ((compression == BY_LZ4 && !HAVE_LZ4) || (compression == BY_ZSTD && !HAVE_ZSTD));
}

/* ---- Not compressed ---- */

/* Blocks whose bytes have 32 bits, as the format has it. */
static bool takes(const struct sfs_filter *filter, unsigned compression, size_t most_bytes)
{
    if (filter->n_values <= ELEMENT || filter->values[ELEMENT] == 0 ||
        filter_value(filter, COMPRESSION, NOT_COMPRESSED) != compression ||
        filter_value(filter, BLOCK, 0) % GROUP != 0)
        return false;
    uint64_t element = filter->values[ELEMENT], block = filter_value(filter, BLOCK, 0);
    return element * (block ? block : default_block((size_t)element)) <= most_bytes;
}

static bool takes_plain(const struct sfs_filter *filter)
{
    return takes(filter, NOT_COMPRESSED, UINT32_MAX);
}

static int shuffle_one(const unsigned char *in, size_t n, size_t element, unsigned char *out)
{
    shuffle_block(in, n, element, out);
    return 0;
}

static int unshuffle_one(const unsigned char *in, size_t n, size_t element, unsigned char *out)
{
    int error = cpu_limit_check(n * element);
    if (!error)
        unshuffle_block(in, n, element, out);
    return error;
}

/* In both directions. */
static int turn_blocks(const struct sfs_filter *filter, const unsigned char *in, size_t size,
                       unsigned char *out,
                       int (*turn)(const unsigned char *, size_t, size_t, unsigned char *))
{
    struct blocks blocks;
    int error = divide(filter->values[ELEMENT], filter_value(filter, BLOCK, 0), size, &blocks);
    if (error)
        return error;
    for (size_t n; !error && (n = next_block(&blocks)) > 0;) {
        error = turn(in, n, blocks.element, out);
        in += n * blocks.element;
        out += n * blocks.element;
    }
    if (!error && blocks.left > 0)
        memcpy(out, in, blocks.left * blocks.element);
    return error;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)in_size;
    int error = turn_blocks(filter, in, size, out, unshuffle_one);
    return error == -EINVAL ? -EILSEQ : error;
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    *out_size = size;
    return turn_blocks(filter, in, size, out, shuffle_one);
}

#define FORMAT_MINOR 4 /* of version 0, as the plugin's that knows all compressions */

/* What is given becomes the parameters behind the first three. */
static bool complete(size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room)
{
    (void)chunk_bytes;
    if (*n > LEVEL - BLOCK + 1 || *n + BLOCK > room || element_size > UINT32_MAX)
        return false;
    memmove(values + BLOCK, values, *n * sizeof(*values));
    values[MAJOR] = 0;
    values[MINOR] = FORMAT_MINOR;
    values[ELEMENT] = (unsigned)element_size;
    *n += BLOCK;
    const struct sfs_filter filter = {.id = FILTER_BITSHUFFLE, .n_values = *n, .values = values};
    return filter_kind_of(&filter) != NULL;
}

/* More parameters than can be given are those of a header, and so are three of which the second, its
 * minor version, is no compression that can be. */
static bool is_of_header(const struct sfs_filter *filter)
{
    const size_t most_given = LEVEL - BLOCK + 1;
    unsigned compression = filter_value(filter, COMPRESSION - BLOCK, NOT_COMPRESSED);
    return filter->n_values > most_given ||
           (filter->n_values == most_given && compression != NOT_COMPRESSED &&
            compression != BY_LZ4 && compression != BY_ZSTD);
}

struct sfs_filter filter_to_create_with(const struct sfs_filter *filter)
{
    struct sfs_filter given = *filter;
    if (filter->id == FILTER_BITSHUFFLE && is_of_header(filter)) {
        given.values += BLOCK;
        given.n_values -= BLOCK;
    }
    return given;
}

const struct filter_kind filter_bitshuffle = {
    .id = FILTER_BITSHUFFLE,
    .effect = KEEPS_SIZE,
    .takes = takes_plain,
    .complete = complete,
    .decode = decode,
    .encode = encode,
};

/* ---- Compressed ---- */

#if HAVE_LZ4 || HAVE_ZSTD

static size_t bound(const struct block_codec *codec, const struct sfs_filter *filter, size_t size)
{
    struct blocks blocks;
    (void)divide(filter->values[ELEMENT], filter_value(filter, BLOCK, 0), size, &blocks);
    size_t block = blocks.block * blocks.element, number = size / block + 1, more, all;
    block = block < size ? block : size;
    more = codec->bound(block);
    if (more == SIZE_MAX)
        return SIZE_MAX;
    more += BLOCK_HEAD_BYTES - block;
    return __builtin_mul_overflow(number, more, &all) || __builtin_add_overflow(all, size, &all) ||
                   __builtin_add_overflow(all, HEADER_BYTES, &all)
               ? SIZE_MAX
               : all;
}

static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    (void)filter;
    *size = in_size < HEADER_BYTES ? 0 : filter_load_be(in, SIZE_FIELD_BYTES);
    return in_size >= HEADER_BYTES;
}

static size_t largest_bytes(const struct blocks *blocks)
{
    struct blocks copy = *blocks;
    return next_block(&copy) * blocks->element;
}

/* Bytes of a block between compression and shuffling: what is given or, for large ones, allocated.
 * NULL: no memory. */
static unsigned char *room_for(size_t bytes, unsigned char *given)
{
    return bytes <= BLOCK_ON_STACK ? given : malloc(bytes);
}

static void give_back(unsigned char *room, const unsigned char *given)
{
    if (room != given)
        free(room);
}

/* Bytes behind the last block are none of its business: libhdf5's filter does not look at them. */
static int decode_blocks(const struct block_codec *codec, struct blocks *blocks,
                         const unsigned char *in, size_t in_size, unsigned char *room,
                         unsigned char *out)
{
    for (size_t n, stored; (n = next_block(blocks)) > 0; in += stored, in_size -= stored) {
        if (in_size < BLOCK_HEAD_BYTES)
            return -EILSEQ;
        stored = (size_t)filter_load_be(in, BLOCK_HEAD_BYTES);
        in += BLOCK_HEAD_BYTES;
        in_size -= BLOCK_HEAD_BYTES;
        if (stored > in_size)
            return -EILSEQ;
        int error = cpu_limit_check(n * blocks->element);
        if (!error)
            error = codec->decode(in, stored, room, n * blocks->element);
        if (error)
            return error;
        unshuffle_block(room, n, blocks->element, out);
        out += n * blocks->element;
    }
    if (in_size < blocks->left * blocks->element)
        return -EILSEQ;
    if (blocks->left > 0)
        memcpy(out, in, blocks->left * blocks->element);
    return 0;
}

/* The size of blocks is the one in the stream. */
static int decode_compressed(const struct block_codec *codec, const struct sfs_filter *filter,
                             const unsigned char *in, size_t in_size, unsigned char *out,
                             size_t size)
{
    unsigned char small[BLOCK_ON_STACK];
    struct blocks blocks;
    if (in_size < HEADER_BYTES || filter_load_be(in, SIZE_FIELD_BYTES) != size)
        return -EILSEQ;
    size_t element = filter->values[ELEMENT];
    size_t block = (size_t)filter_load_be(in + SIZE_FIELD_BYTES, BLOCK_FIELD_BYTES) / element;
    if (block % GROUP != 0 || divide(element, block, size, &blocks) != 0)
        return -EILSEQ;
    unsigned char *room = room_for(largest_bytes(&blocks), small);
    if (!room)
        return -ENOMEM;
    int error = decode_blocks(codec, &blocks, in + HEADER_BYTES, in_size - HEADER_BYTES, room, out);
    give_back(room, small);
    return error;
}

static int encode_blocks(const struct block_codec *codec, int level, struct blocks *blocks,
                         const unsigned char *in, unsigned char *room, unsigned char **out)
{
    for (size_t n, stored; (n = next_block(blocks)) > 0; *out += BLOCK_HEAD_BYTES + stored) {
        size_t bytes = n * blocks->element;
        shuffle_block(in, n, blocks->element, room);
        int error = codec->encode(level, room, bytes, *out + BLOCK_HEAD_BYTES, codec->bound(bytes),
                                  &stored);
        if (error)
            return error;
        filter_store_be(*out, BLOCK_HEAD_BYTES, stored);
        in += bytes;
    }
    if (blocks->left > 0)
        memcpy(*out, in, blocks->left * blocks->element);
    *out += blocks->left * blocks->element;
    return 0;
}

static int encode_compressed(const struct block_codec *codec, const struct sfs_filter *filter,
                             const void *in, size_t size, unsigned char *out, size_t *out_size)
{
    unsigned char small[BLOCK_ON_STACK], *end = out + HEADER_BYTES;
    struct blocks blocks;
    if (divide(filter->values[ELEMENT], filter_value(filter, BLOCK, 0), size, &blocks) != 0)
        return -EINVAL;
    filter_store_be(out, SIZE_FIELD_BYTES, size);
    filter_store_be(out + SIZE_FIELD_BYTES, BLOCK_FIELD_BYTES, blocks.block * blocks.element);
    unsigned char *room = room_for(largest_bytes(&blocks), small);
    if (!room)
        return -ENOMEM;
    int error = encode_blocks(codec, (int)filter_value(filter, LEVEL, 0), &blocks, in, room, &end);
    give_back(room, small);
    *out_size = (size_t)(end - out);
    return error;
}

/* capacity is at least what bound says: it need not be looked at. */
#define COMPRESSED(NAME, COMPRESSION)                                                              \
    static bool takes_##NAME(const struct sfs_filter *filter)                                      \
    {                                                                                              \
        return takes(filter, COMPRESSION, NAME##_codec.most_bytes);                                \
    }                                                                                              \
                                                                                                   \
    static size_t bound_##NAME(const struct sfs_filter *filter, size_t size)                       \
    {                                                                                              \
        return bound(&NAME##_codec, filter, size);                                                 \
    }                                                                                              \
                                                                                                   \
    static int decode_##NAME(const struct sfs_filter *filter, const void *in, size_t in_size,      \
                             void *out, size_t size)                                               \
    {                                                                                              \
        return decode_compressed(&NAME##_codec, filter, in, in_size, out, size);                   \
    }                                                                                              \
                                                                                                   \
    static int encode_##NAME(const struct sfs_filter *filter, const void *in, size_t size,         \
                             void *out, size_t capacity, size_t *out_size)                         \
    {                                                                                              \
        (void)capacity;                                                                            \
        return encode_compressed(&NAME##_codec, filter, in, size, out, out_size);                  \
    }                                                                                              \
                                                                                                   \
    const struct filter_kind filter_bitshuffle_##NAME = {                                          \
        .id = FILTER_BITSHUFFLE,                                                                   \
        .effect = COMPRESSES,                                                                      \
        .most_inflated = MOST_INFLATED_BY_##NAME,                                                  \
        .takes = takes_##NAME,                                                                     \
        .bound = bound_##NAME,                                                                     \
        .plain_size = plain_size,                                                                  \
        .decode = decode_##NAME,                                                                   \
        .encode = encode_##NAME,                                                                   \
    }

#if HAVE_LZ4
COMPRESSED(lz4, BY_LZ4);
#endif
#if HAVE_ZSTD
COMPRESSED(zstd, BY_ZSTD);
#endif

#endif
