/* The TIFF header of a frame: one uncompressed strip of samples in the file's byte order behind it
 * (TIFF 6.0; BigTIFF where 32-bit offsets do not reach). */
#include <errno.h>
#include <stdlib.h>

#include "view/private.h"

#define HEADER_BYTES 256
#define TAGS         10

enum { SHORT = 3, LONG = 4, LONG8 = 16 };

struct writer {
    unsigned char *bytes;
    size_t at;
    bool big_endian;
    bool big_tiff;
};

static void put(struct writer *w, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        w->bytes[w->at++] = (unsigned char)(value >> (8 * (w->big_endian ? n - 1 - i : i)));
}

/* One directory entry with one value, which stands at the left of its field. */
static void put_tag(struct writer *w, unsigned tag, unsigned type, uint64_t value)
{
    int field = w->big_tiff ? 8 : 4;
    int width = type == SHORT ? 2 : type == LONG ? 4 : 8;
    put(w, tag, 2);
    put(w, type, 2);
    put(w, 1, field);
    put(w, value, width);
    put(w, 0, field - width);
}

/* SampleFormat: 1 unsigned, 2 signed, 3 IEEE floating point. */
static unsigned sample_format(const struct sfs_type *type)
{
    return type->class == SFS_FLOAT ? 3 : type->is_signed ? 2 : 1;
}

int tiff_header(const struct sfs_type *type, int rank, const uint64_t *dims, struct view_head *head)
{
    uint64_t data;
    if (rank != 2 || !is_number(type) || type->size > 8 || dims[0] == 0 || dims[1] == 0 ||
        dims[0] > UINT32_MAX || dims[1] > UINT32_MAX ||
        __builtin_mul_overflow(dims[0] * dims[1], (uint64_t)type->size, &data))
        return 0;

    struct writer w = {.bytes = calloc(1, HEADER_BYTES)};
    if (!w.bytes)
        return -ENOMEM;
    w.big_endian = type->big_endian && type->size > 1;
    w.big_tiff = data > UINT32_MAX - HEADER_BYTES;
    unsigned offset = w.big_tiff ? LONG8 : LONG;

    put(&w, w.big_endian ? 0x4D4D : 0x4949, 2);
    if (w.big_tiff) {
        put(&w, 43, 2);
        put(&w, 8, 2); /* bytes of an offset */
        put(&w, 0, 2);
        put(&w, 16, 8); /* where the directory is */
        put(&w, TAGS, 8);
    } else {
        put(&w, 42, 2);
        put(&w, 8, 4);
        put(&w, TAGS, 2);
    }
    put_tag(&w, 256, LONG, dims[1]);         /* ImageWidth */
    put_tag(&w, 257, LONG, dims[0]);         /* ImageLength */
    put_tag(&w, 258, SHORT, 8 * type->size); /* BitsPerSample */
    put_tag(&w, 259, SHORT, 1);              /* Compression: none */
    put_tag(&w, 262, SHORT, 1);              /* PhotometricInterpretation: 0 is black */
    put_tag(&w, 273, offset, HEADER_BYTES);  /* StripOffsets */
    put_tag(&w, 277, SHORT, 1);              /* SamplesPerPixel */
    put_tag(&w, 278, LONG, dims[0]);         /* RowsPerStrip */
    put_tag(&w, 279, offset, data);          /* StripByteCounts */
    put_tag(&w, 339, SHORT, sample_format(type));
    /* The next directory's offset is 0: there is none. */
    *head = (struct view_head){(char *)w.bytes, HEADER_BYTES};
    return 0;
}
