/* A frame is a header in msgpack, the chunk, an index that is a chunk, too, and a trailer. */
#include "filter/blosc2_frame.h"

#include <string.h>

#include "filter/kind.h"

enum {
    HEADER_SIZE = 11,
    FRAME_SIZE = 16,
    FLAGS = 25,
    TYPE = 26,
    CODEC = 27,
    BYTES = 30,
    STORED = 39,
    ELEMENT = 48,
    BLOCK = 53,
    CHUNK = 58,
    FILTERS = 71,
    CODEC_AGAIN = 77,
    METALAYERS = 92,
    FIRST_METALAYER = 94,
    HEADER_BYTES = 97 /* if there is no metalayer */
};

/* As the plugin makes it, without the numbers of this frame. */
static const unsigned char header[HEADER_BYTES] = {
    0x9E,         0xA8,        'b',         '2',         'f',         'r',         'a',
    'm',          'e',         0,           0xD2,        0,           0,           0,
    HEADER_BYTES, 0xCF,        [24] = 0xA4, [25] = 0x12, /* format 2, offsets of 64 bits */
    [28] = 3,     [29] = 0xD3, [38] = 0xD3, [47] = 0xD2, [52] = 0xD2, [57] = 0xD2, [62] = 0xD1,
    [65] = 0xD1,  [67] = 1,    [68] = 0xC2, [69] = 0xD8, [70] = 6,    [87] = 0x93, [88] = 0xCD,
    [90] = 7,     [91] = 0xDE, [94] = 0xDC,
};

#define INDEX_BYTES 40
static const unsigned char index_chunk[INDEX_BYTES] = {
    5, 1, 7, 8, 8, [8] = 8, [12] = INDEX_BYTES, [21] = 1,
};

#define TRAILER_BYTES 35
static const unsigned char trailer[TRAILER_BYTES] = {
    0x94, 1, 0x93, 0xCD, 0, 6, 0xDE, 0, 0, 0xDC, 0, 0, 0xCE, 0, 0, 0, TRAILER_BYTES, 0xD8,
};

static uint64_t load_le(const unsigned char *p, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | p[bytes];
    return value;
}

/* ---- Metalayers ---- */

/* Takes an array of as many numbers as there are axes, each behind a byte for its type. */
static bool take_numbers(const unsigned char **at, size_t *left, unsigned rank, unsigned bytes,
                         uint32_t *numbers)
{
    size_t n = 1 + (size_t)rank * (1 + bytes);
    if (*left < n || **at != (0x90 | rank))
        return false;
    for (unsigned i = 0; i < rank; i++) {
        const unsigned char *number = *at + 1 + (size_t)i * (1 + bytes);
        uint64_t value = filter_load_be(number + 1, bytes);
        if (*number != (bytes == 8 ? 0xD3 : 0xD2) || value == 0 || value > B2FRAME_MOST_BYTES)
            return false;
        numbers[i] = (uint32_t)value;
    }
    *at += n;
    *left -= n;
    return true;
}

/* Shape of the array, of its chunks and of their blocks. There is one chunk, which is all of it. */
static bool read_axes(const unsigned char *at, size_t left, struct b2frame *frame)
{
    uint32_t chunk[B2FRAME_MOST_AXES];
    if (left < 3 || (*at & 0xF0) != 0x90 || at[2] == 0 || at[2] > B2FRAME_MOST_AXES)
        return false;
    frame->rank = at[2];
    at += 3;
    left -= 3;
    return take_numbers(&at, &left, frame->rank, 8, frame->dims) &&
           take_numbers(&at, &left, frame->rank, 4, chunk) &&
           take_numbers(&at, &left, frame->rank, 4, frame->blocks) &&
           memcmp(chunk, frame->dims, frame->rank * sizeof(*chunk)) == 0;
}

/* The bytes of the chunk, and with whole blocks. */
static bool count_bytes(struct b2frame *frame)
{
    uint64_t bytes = frame->element, padded = bytes;
    for (unsigned i = 0; i < frame->rank; i++) {
        uint64_t dim = frame->dims[i], block = frame->blocks[i];
        if (block > dim)
            return false;
        bytes *= dim;
        padded *= (dim + block - 1) / block * block;
        if (padded > B2FRAME_MOST_BYTES) /* it is no less than bytes */
            return false;
    }
    if (padded != frame->padded)
        return false;
    frame->bytes = bytes;
    return true;
}

/* The one that has axes, under its name of today or under that of before. */
static bool read_metalayers(const unsigned char *in, size_t size, struct b2frame *frame)
{
    unsigned n = (unsigned)filter_load_be(in + METALAYERS, 2);
    for (size_t at = FIRST_METALAYER; n > 0; n--) {
        size_t length = in[at] & 0x1F, next = at + 1 + length + 5;
        if ((in[at] & 0xE0) != 0xA0 || next >= size)
            return false;
        const char *name = (const char *)in + at + 1;
        uint64_t content = filter_load_be(in + next - 4, 4);
        at = next;
        if (!(length == 4 && !memcmp(name, "b2nd", 4)) &&
            !(length == 7 && !memcmp(name, "caterva", 7)))
            continue;
        if (content > size - 5 || in[content] != 0xC6)
            return false;
        uint64_t bytes = filter_load_be(in + content + 1, 4);
        return bytes <= size - 5 - content && read_axes(in + content + 5, (size_t)bytes, frame) &&
               count_bytes(frame);
    }
    return true;
}

/* ---- Frames ---- */

bool b2frame_read(const void *in, size_t in_size, struct b2frame *frame)
{
    const unsigned char *bytes = in;
    if (in_size < HEADER_BYTES || memcmp(bytes, header, HEADER_SIZE) != 0)
        return false;
    uint64_t head = filter_load_be(bytes + HEADER_SIZE, 4);
    uint64_t all = filter_load_be(bytes + FRAME_SIZE, 8);
    uint64_t stored = filter_load_be(bytes + STORED, 8);
    uint64_t plain = filter_load_be(bytes + BYTES, 8);
    uint64_t element = filter_load_be(bytes + ELEMENT, 4);
    if (head < HEADER_BYTES || head > all || all > in_size || stored > all - head ||
        (bytes[FLAGS] & 0x30) != 0x10 || (bytes[TYPE] & 0x0F) != 0 || plain > B2FRAME_MOST_BYTES ||
        element == 0 || element > B2FRAME_MOST_BYTES)
        return false;
    *frame = (struct b2frame){
        .bytes = plain,
        .padded = plain,
        .element = (unsigned)element,
        .chunks = bytes + head,
        .chunks_size = (size_t)stored,
        .index = bytes + head + stored,
        .index_size = (size_t)(all - head - stored),
    };
    return read_metalayers(bytes, (size_t)head, frame);
}

bool b2frame_find(const struct b2frame *frame, uint64_t offset, enum b2special *special,
                  const unsigned char **chunk, size_t *size)
{
    *special = B2BLOCKS;
    if (offset >> 63) {
        *special = (enum b2special)(offset >> 56 & 7);
        return *special == B2ZEROS || *special == B2NANS || *special == B2UNSET;
    }
    if (offset >= frame->chunks_size)
        return false;
    *chunk = frame->chunks + offset;
    *size = frame->chunks_size - (size_t)offset;
    return true;
}

unsigned char *b2frame_chunk(unsigned char *out)
{
    return out + HEADER_BYTES;
}

/* What has no blocks is told by the index alone, but for an element that is repeated. */
size_t b2frame_put(unsigned element, unsigned compressor, unsigned level, unsigned char *out)
{
    unsigned char *chunk = out + HEADER_BYTES;
    enum b2special special = (enum b2special)(chunk[B2CHUNK_HEAD - 1] >> 4 & 7);
    uint64_t bytes = load_le(chunk + 4, 4), block = load_le(chunk + 8, 4);
    uint64_t stored = load_le(chunk + 12, 4);
    unsigned char filters[6];
    memcpy(filters, chunk + 16, sizeof(filters));
    if (special != B2BLOCKS && special != B2VALUE)
        stored = 0;
    memcpy(out, header, HEADER_BYTES);
    filter_store_be(out + FRAME_SIZE, 8, stored + B2FRAME_OVERHEAD);
    out[CODEC] = (unsigned char)(level << 4 | compressor);
    filter_store_be(out + BYTES, 8, bytes);
    filter_store_be(out + STORED, 8, stored);
    filter_store_be(out + ELEMENT, 4, element);
    filter_store_be(out + BLOCK, 4, block);
    filter_store_be(out + CHUNK, 4, bytes);
    memcpy(out + FILTERS, filters, sizeof(filters));
    out[CODEC_AGAIN] = (unsigned char)compressor;
    memcpy(chunk + stored, index_chunk, INDEX_BYTES);
    if (stored == 0)
        chunk[INDEX_BYTES - 1] = (unsigned char)(0x80 | special);
    memcpy(chunk + stored + INDEX_BYTES, trailer, TRAILER_BYTES);
    return (size_t)stored + B2FRAME_OVERHEAD;
}

/* ---- Chunks ---- */

enum { SHUFFLED = 1, COPIED = 2, BIT_SHUFFLED = 4 };
enum { SPECIAL = 0x70, LAST_CODEC = 4, LAST_SHUFFLE = 2 };

static bool is_plain(const unsigned char *in)
{
    unsigned flags = in[2], extended = SHUFFLED | BIT_SHUFFLED;
    bool shuffles = true;
    for (unsigned i = 16; i < 22; i++)
        shuffles &= in[i] <= LAST_SHUFFLE;
    return (flags & extended) == extended && flags >> 5 <= LAST_CODEC && shuffles &&
           (in[B2CHUNK_HEAD - 1] & ~SPECIAL) == 0;
}

bool b2chunk_read(const unsigned char *in, size_t in_size, struct b2chunk *chunk)
{
    if (in_size < B2CHUNK_HEAD || !is_plain(in))
        return false;
    *chunk = (struct b2chunk){
        .element = in[3],
        .bytes = (uint32_t)load_le(in + 4, 4),
        .block = (uint32_t)load_le(in + 8, 4),
        .stored = (uint32_t)load_le(in + 12, 4),
        .is_copy = in[2] & COPIED,
        .special = (enum b2special)((in[B2CHUNK_HEAD - 1] & SPECIAL) >> 4),
    };
    if (chunk->element == 0 || chunk->bytes > B2FRAME_MOST_BYTES || chunk->stored > in_size ||
        chunk->stored < B2CHUNK_HEAD || chunk->special > B2UNSET)
        return false;
    if (chunk->special == B2VALUE)
        return chunk->stored > B2CHUNK_HEAD;
    if (chunk->special != B2BLOCKS)
        return true;
    if (chunk->is_copy)
        return chunk->stored == (uint64_t)chunk->bytes + B2CHUNK_HEAD;
    return chunk->block > 0 && chunk->block <= chunk->bytes; /* libblosc2 allocates as much */
}

/* ---- Axes ---- */

/* Blocks are then one of some axis, all of those behind and single elements of those before. */
bool b2frame_is_in_order(const struct b2frame *frame)
{
    unsigned i = 0;
    while (i < frame->rank && frame->blocks[i] == 1)
        i++;
    for (i++; i < frame->rank; i++)
        if (frame->blocks[i] != frame->dims[i])
            return false;
    return frame->padded == frame->bytes;
}

/* The next of all positions below n, which have steps; false: there are no more. */
static bool advance(unsigned rank, const uint32_t *n, const uint32_t *step, uint32_t *position)
{
    while (rank-- > 0) {
        position[rank] += step ? step[rank] : 1;
        if (position[rank] < n[rank])
            return true;
        position[rank] = 0;
    }
    return false;
}

/* Moves the rows of a block that begins there, but what lies beyond the chunk. */
static void gather_block(const struct b2frame *frame, const uint32_t *begin,
                         const unsigned char *block, unsigned char *out)
{
    unsigned last = frame->rank - 1;
    uint32_t row[B2FRAME_MOST_AXES] = {0}, left = frame->dims[last] - begin[last];
    size_t step = (size_t)frame->blocks[last] * frame->element;
    size_t n = left < frame->blocks[last] ? (size_t)left * frame->element : step;
    do {
        uint64_t to = 0;
        bool is_in = true;
        for (unsigned i = 0; i <= last; i++) {
            is_in &= (uint64_t)begin[i] + row[i] < frame->dims[i];
            to = to * frame->dims[i] + begin[i] + row[i];
        }
        if (is_in)
            memcpy(out + to * frame->element, block, n);
        block += step;
    } while (advance(last, frame->blocks, NULL, row));
}

void b2frame_gather(const struct b2frame *frame, const unsigned char *padded, unsigned char *out)
{
    uint32_t begin[B2FRAME_MOST_AXES] = {0};
    size_t block = frame->element;
    for (unsigned i = 0; i < frame->rank; i++)
        block *= frame->blocks[i];
    do {
        gather_block(frame, begin, padded, out);
        padded += block;
    } while (advance(frame->rank, frame->dims, frame->blocks, begin));
}
