/* Contiguous frames of Blosc2, in which its filter stores a chunk: reading what a frame says of its
 * chunk, and making one. Nothing here calls libblosc2. The filter gives libblosc2 only the chunk
 * inside a frame, and only after the checks here. (README_CFRAME_FORMAT.rst,
 * README_CHUNK_FORMAT.rst and README_B2ND_METALAYER.rst of c-blosc2.) */
#ifndef SPARSEFS_FILTER_BLOSC2_FRAME_H
#define SPARSEFS_FILTER_BLOSC2_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define B2FRAME_MOST_AXES  15        /* that an array of the format has */
#define B2FRAME_MOST_BYTES INT32_MAX /* of a chunk */
#define B2FRAME_OVERHEAD   (97 + 40 + 35)
#define B2CHUNK_HEAD       32 /* bytes before the blocks */

/* What stands for a chunk that needs no blocks. */
enum b2special {
    B2BLOCKS = 0, /* it has some */
    B2ZEROS = 1,
    B2NANS = 2,
    B2VALUE = 3, /* one element behind the head, again and again */
    B2UNSET = 4, /* any values */
};

/* A frame. Axes, slowest first, are those of a chunk that is compressed block by block; they are
 * > 0, and no block is longer than the chunk. */
struct b2frame {
    uint64_t bytes, padded; /* of its chunk, and with whole blocks: at most B2FRAME_MOST_BYTES */
    unsigned element;       /* bytes, > 0 */
    const unsigned char *chunks, *index;
    size_t chunks_size, index_size;
    unsigned rank; /* 0: no axes */
    uint32_t dims[B2FRAME_MOST_AXES], blocks[B2FRAME_MOST_AXES];
};

/* false: it is not sound. Bytes behind it are not looked at. */
bool b2frame_read(const void *in, size_t in_size, struct b2frame *frame);

/* Where a chunk is that the (decoded) index has at this offset; a special one is nowhere. false:
 * not in this frame. */
bool b2frame_find(const struct b2frame *frame, uint64_t offset, enum b2special *special,
                  const unsigned char **chunk, size_t *size);

/* Whether the decoded elements are in their places. If not, b2frame_gather copies them there: from
 * frame->padded bytes into frame->bytes. */
bool b2frame_is_in_order(const struct b2frame *frame);
void b2frame_gather(const struct b2frame *frame, const unsigned char *padded, unsigned char *out);

/* Makes a frame of the chunk at b2frame_chunk(out): writes header and trailer around it; `out` has
 * room for that chunk and B2FRAME_OVERHEAD. The level and the code of the compressor are
 * informative only. Returns the bytes of the frame. */
unsigned char *b2frame_chunk(unsigned char *out);
size_t b2frame_put(unsigned element, unsigned compressor, unsigned level, unsigned char *out);

/* What the head of a chunk says. */
struct b2chunk {
    uint32_t bytes, block, stored; /* decoded, of a block, with the head */
    unsigned element;
    bool is_copy; /* not compressed */
    enum b2special special;
};

/* false: in_size bytes are no whole chunk, or one that needs more than the compressors and shuffles
 * of libblosc2 itself: codecs or filters of others, a dictionary, another file. */
bool b2chunk_read(const unsigned char *in, size_t in_size, struct b2chunk *chunk);

#endif
