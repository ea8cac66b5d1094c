/* Zstandard frames (RFC 8878), by libzstd. */
#include <errno.h>
#include <zstd.h>

#include "common/thread.h"
#include "filter/kind.h"

/* Making them costs more than a small block: every thread keeps those that it has used, unless the
 * level made one large. */
#define MOST_KEPT_BYTES ((size_t)16 << 20)

struct coders {
    ZSTD_DCtx *decompressor;
    ZSTD_CCtx *compressor;
};

static void free_coders(void *of_thread)
{
    struct coders *coders = of_thread;
    ZSTD_freeDCtx(coders->decompressor);
    ZSTD_freeCCtx(coders->compressor);
}

static struct own own = {.size = sizeof(struct coders), .end = free_coders};

static size_t bound(size_t size)
{
    size_t bytes = ZSTD_compressBound(size);
    return ZSTD_isError(bytes) || bytes < size ? SIZE_MAX : bytes;
}

/* Of one pass into memory, which makes no window of its own: what a frame claims is not allocated.
 */
static int decode(const void *in, size_t in_size, void *out, size_t size)
{
    struct coders *coders = own_get(&own);
    if (coders && !coders->decompressor)
        coders->decompressor = ZSTD_createDCtx();
    if (!coders || !coders->decompressor)
        return -ENOMEM;
    size_t made = ZSTD_decompressDCtx(coders->decompressor, out, size, in, in_size);
    return !ZSTD_isError(made) && made == size ? 0 : -EILSEQ;
}

static int encode(int level, const void *in, size_t size, void *out, size_t capacity,
                  size_t *out_size)
{
    struct coders *coders = own_get(&own);
    if (coders && !coders->compressor)
        coders->compressor = ZSTD_createCCtx();
    if (!coders || !coders->compressor)
        return -ENOMEM;
    size_t made = ZSTD_compressCCtx(coders->compressor, out, capacity, in, size, level);
    if (ZSTD_sizeof_CCtx(coders->compressor) > MOST_KEPT_BYTES) {
        ZSTD_freeCCtx(coders->compressor);
        coders->compressor = NULL;
    }
    if (ZSTD_isError(made))
        return -ENOMEM;
    *out_size = made;
    return 0;
}

const struct block_codec zstd_codec = {
    .most_bytes = (size_t)UINT32_MAX >> 1,
    .bound = bound,
    .decode = decode,
    .encode = encode,
};
