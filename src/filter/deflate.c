/* Inflating zlib streams (RFC 1950): with libdeflate where the build found it, else with zlib. */
#include <errno.h>
#include <stdlib.h>

#include "config.h"
#include "filter/filter.h"

#if HAVE_LIBDEFLATE

#include <libdeflate.h>
#include <pthread.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_decompressor(void *decompressor)
{
    libdeflate_free_decompressor(decompressor);
}

static void make_key(void)
{
    if (pthread_key_create(&key, free_decompressor) != 0)
        abort(); /* no key at the process's first use: nothing can work */
}

int deflate_decode(const void *in, size_t in_size, void *out, size_t size)
{
    pthread_once(&once, make_key);
    struct libdeflate_decompressor *decompressor = pthread_getspecific(key);
    if (!decompressor) {
        decompressor = libdeflate_alloc_decompressor();
        if (!decompressor)
            return -ENOMEM;
        if (pthread_setspecific(key, decompressor) != 0) {
            libdeflate_free_decompressor(decompressor);
            return -ENOMEM;
        }
    }
    /* NULL for the actual size: anything but exactly `size` bytes is an error. */
    return libdeflate_zlib_decompress(decompressor, in, in_size, out, size, NULL) ==
                   LIBDEFLATE_SUCCESS
               ? 0
               : -EILSEQ;
}

#else

#include <zlib.h>

int deflate_decode(const void *in, size_t in_size, void *out, size_t size)
{
    uLongf made = size, taken = in_size;
    int status = uncompress2(out, &made, in, &taken);
    if (status == Z_MEM_ERROR)
        return -ENOMEM;
    return status == Z_OK && made == size ? 0 : -EILSEQ;
}

#endif
