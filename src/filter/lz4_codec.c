/* One block of LZ4's block format, by liblz4. */
#include <errno.h>
#include <lz4.h>

#include "filter/kind.h"

static size_t bound(size_t size)
{
    return size + size / 255 + 16; /* as LZ4_compressBound, for a size_t */
}

static int decode(const void *in, size_t in_size, void *out, size_t size)
{
    if (in_size > INT32_MAX || size > LZ4_MAX_INPUT_SIZE)
        return -EILSEQ;
    return LZ4_decompress_safe(in, out, (int)in_size, (int)size) == (int)size ? 0 : -EILSEQ;
}

/* There is one level. */
static int encode(int level, const void *in, size_t size, void *out, size_t capacity,
                  size_t *out_size)
{
    (void)level;
    int room = capacity < INT32_MAX ? (int)capacity : INT32_MAX;
    int made = LZ4_compress_default(in, out, (int)size, room);
    if (made <= 0)
        return -ENOMEM;
    *out_size = (size_t)made;
    return 0;
}

const struct block_codec lz4_codec = {
    .most_bytes = LZ4_MAX_INPUT_SIZE,
    .bound = bound,
    .decode = decode,
    .encode = encode,
};
