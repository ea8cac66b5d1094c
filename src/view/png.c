/* The preview of a frame as a PNG image of 8 bits (Portable Network Graphics, second edition, ISO
 * 15948; RFC 1950 and 1951 for what is in IDAT).
 *
 * Its size must be known of every frame without reading any: file managers and `ls -l` ask for the
 * sizes of all. So the image data is in deflate's stored blocks, not compressed, and numbers are
 * indices of a palette of 255 greys and one transparent entry, a byte for each pixel: half of what
 * grey and alpha would take. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "view/pixel.h"
#include "view/views_memory.h"

#define SIGNATURE     "\x89PNG\r\n\x1a\n"
#define CHUNK_BYTES   12 /* of a chunk, besides its data */
#define HEADER_BYTES  13
#define PALETTE_BYTES (256 * 3)
#define BLOCK_BYTES   65535 /* the most that a stored block holds */
#define SAMPLES       ((size_t)1 << 16)
#define GREYS         ((size_t)1 << 16) /* are computed before they are needed */

/* Between these parts of all pixels is what is shown: a few hot pixels do not make all else black.
 */
#define LOW_PART  0.01
#define HIGH_PART 0.999

#define FLOAT_CONTRAST                                                                             \
    1000.0 /* of numbers that are no counts: the largest to the least that shows */

enum { COLOUR_RGB = 2, COLOUR_PALETTE = 3, COLOUR_RGBA = 6 };

struct png {
    uint64_t rows, columns;
    unsigned samples; /* of a pixel in the dataset */
    unsigned bytes;   /* of a pixel in the image */
};

/* Frames of numbers, or of three or four colours of 8 or 16 bits. */
static bool png_of(const struct views *views, struct png *png)
{
    const struct sfs_type *type = &views->info->type;
    const uint64_t *dims = views->dims + views->info->rank - views->frame_rank;
    if (type->has_pointers || views->frames == 0 || views->frame_elements > PIXELS_MOST ||
        views->frame_elements == 0 || !pixel_is_number(type))
        return false;
    *png = (struct png){.samples = 1, .bytes = 1};
    if (is_colour(type, views->frame_rank, dims)) {
        png->samples = (unsigned)dims[2];
        png->bytes = views->is_sparse ? 4 : png->samples;
    } else if (views->frame_rank != 2) {
        return false;
    }
    png->rows = dims[0];
    png->columns = dims[1];
    return true;
}

static uint64_t raster_bytes(const struct png *png)
{
    return png->rows * (1 + png->columns * png->bytes);
}

static uint64_t data_bytes(const struct png *png)
{
    uint64_t raster = raster_bytes(png);
    return 2 + raster + 5 * ((raster + BLOCK_BYTES - 1) / BLOCK_BYTES) + 4;
}

uint64_t png_bytes(const struct views *views)
{
    struct png png;
    if (!png_of(views, &png))
        return 0;
    uint64_t palette = png.bytes == 1 ? CHUNK_BYTES + PALETTE_BYTES + CHUNK_BYTES + 1 : 0;
    return strlen(SIGNATURE) + CHUNK_BYTES + HEADER_BYTES + palette + CHUNK_BYTES +
           data_bytes(&png) + CHUNK_BYTES;
}

/* ---- From numbers to greys ---- */

struct scale {
    const struct sfs_type *type;
    unsigned char *shown;   /* of every pixel: 0 is transparent */
    double *sample;         /* values of some pixels, evenly among those that are shown */
    size_t n;               /* of them */
    uint64_t every, passed; /* one of so many is taken; shown pixels since the last one */
    double low, high, contrast;
    unsigned char *greys; /* of low, low + 1, ... up to high; NULL: they are no integers, or many */
};

/* When there is no room for more every second one is given up. */
static void take_sample(struct scale *scale, double value)
{
    if (++scale->passed < scale->every)
        return;
    scale->passed = 0;
    if (scale->n == SAMPLES) {
        for (size_t i = 0; i < SAMPLES / 2; i++)
            scale->sample[i] = scale->sample[2 * i];
        scale->n = SAMPLES / 2;
        scale->every *= 2;
    }
    scale->sample[scale->n++] = value;
}

/* First pass: what is no measurement is transparent, and of all else samples are taken. */
static void look_at(void *context, uint64_t first, size_t n, const unsigned char *elements)
{
    struct scale *scale = context;
    const struct sfs_type *type = scale->type;
    unsigned char *shown = scale->shown + first;
    for (size_t i = 0; i < n; i++, elements += type->size) {
        double value = number_value(type, elements);
        shown[i] =
            shown[i] && !isnan(value) && !number_is_marked(type, number_bits(type, elements));
        if (shown[i] && isfinite(value))
            take_sample(scale, value);
    }
}

static int by_value(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static void find_limits(struct scale *scale)
{
    if (scale->n == 0)
        return;
    qsort(scale->sample, scale->n, sizeof(*scale->sample), by_value);
    scale->low = scale->sample[(size_t)(LOW_PART * (double)(scale->n - 1))];
    scale->high = scale->sample[(size_t)(HIGH_PART * (double)(scale->n - 1))];
    scale->contrast = scale->type->class == SFS_FLOAT ? FLOAT_CONTRAST : scale->high - scale->low;
}

static unsigned char compute_grey(const struct scale *scale, double value)
{
    if (value <= scale->low)
        return 1;
    if (value >= scale->high)
        return 255;
    double range = scale->high / 2 - scale->low / 2; /* halves, as the whole may be infinite */
    double part = range > 0 ? (value / 2 - scale->low / 2) / range : 1;
    return (unsigned char)(1 +
                           254 * log1p(scale->contrast * fmin(part, 1)) / log1p(scale->contrast));
}

static int make_greys(struct scale *scale)
{
    double n = scale->high - scale->low + 1;
    if (scale->type->class == SFS_FLOAT || n > (double)GREYS)
        return 0;
    scale->greys = malloc((size_t)n);
    if (!scale->greys)
        return -ENOMEM;
    for (size_t i = 0; i < (size_t)n; i++)
        scale->greys[i] = compute_grey(scale, scale->low + (double)i);
    return 0;
}

static unsigned char grey(const struct scale *scale, double value)
{
    if (!scale->greys || value <= scale->low || value >= scale->high)
        return compute_grey(scale, value);
    return scale->greys[(size_t)(value - scale->low)];
}

/* Second pass. */
static void shade(void *context, uint64_t first, size_t n, const unsigned char *elements)
{
    struct scale *scale = context;
    const struct sfs_type *type = scale->type;
    unsigned char *shown = scale->shown + first;
    for (size_t i = 0; i < n; i++, elements += type->size)
        if (shown[i])
            shown[i] = grey(scale, number_value(type, elements));
}

static int draw_numbers(struct views *views, uint64_t frame, unsigned char *pixels)
{
    const unsigned char *mask;
    struct scale scale = {.type = &views->info->type,
                          .shown = pixels,
                          .every = 1,
                          .sample = malloc(SAMPLES * sizeof(double))};
    int error = scale.sample ? pixel_mask_get(views, &mask) : -ENOMEM;
    if (!error)
        error = pixels_clear_undefined(views, frame, pixels);
    for (uint64_t i = 0; i < views->frame_elements && !error && mask; i++)
        pixels[i] &= mask[i] == PIXEL_GOOD;
    if (!error)
        error = pixels_read(views, frame, look_at, &scale);
    if (!error) {
        find_limits(&scale);
        error = make_greys(&scale);
    }
    if (!error)
        error = pixels_read(views, frame, shade, &scale);
    free(scale.greys);
    free(scale.sample);
    return error;
}

/* ---- Colours ---- */

struct colours {
    const struct sfs_type *type;
    const struct png *png;
    unsigned char *pixels;
    const unsigned char *is_there; /* of every sample; NULL: all are */
};

static void paint(void *context, uint64_t first, size_t n, const unsigned char *elements)
{
    const struct colours *colours = context;
    const struct png *png = colours->png;
    for (uint64_t i = first; i < first + n; i++, elements += colours->type->size) {
        unsigned char *pixel = colours->pixels + i / png->samples * png->bytes;
        uint64_t bits = number_bits(colours->type, elements);
        pixel[i % png->samples] =
            (unsigned char)(colours->type->size == 1 ? bits : (bits * 255 + 32767) / 65535);
        if (png->bytes > png->samples && i % png->samples == 0)
            pixel[3] = 255;
    }
}

/* Of a sparse dataset: a pixel of which not all samples are defined is transparent. */
static void clear_undefined(const struct colours *colours, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!colours->is_there[i])
            memset(colours->pixels + i / colours->png->samples * 4, 0, 4);
}

static int draw_colours(struct views *views, uint64_t frame, const struct png *png,
                        unsigned char *pixels)
{
    unsigned char *is_there = NULL;
    struct colours colours = {.type = &views->info->type, .png = png, .pixels = pixels};
    int error = 0;
    if (views->is_sparse) {
        is_there = malloc((size_t)views->frame_elements);
        error = is_there ? pixels_clear_undefined(views, frame, is_there) : -ENOMEM;
    }
    colours.is_there = is_there;
    if (!error)
        error = pixels_read(views, frame, paint, &colours);
    if (!error && is_there)
        clear_undefined(&colours, views->frame_elements);
    free(is_there);
    return error;
}

/* ---- The file ---- */

struct writer {
    unsigned char *bytes;
    size_t at, chunk; /* chunk: where the type of the one that is written stands */
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    memcpy(w->bytes + w->at, bytes, n);
    w->at += n;
}

static void put_number(struct writer *w, uint64_t value, int n)
{
    for (int i = n - 1; i >= 0; i--)
        w->bytes[w->at++] = (unsigned char)(value >> 8 * i);
}

static void begin_chunk(struct writer *w, const char *type, uint64_t n)
{
    put_number(w, n, 4);
    w->chunk = w->at;
    put(w, type, 4);
}

static void end_chunk(struct writer *w)
{
    put_number(w, crc32_z(0, w->bytes + w->chunk, w->at - w->chunk), 4);
}

static void put_header(struct writer *w, const struct png *png)
{
    begin_chunk(w, "IHDR", HEADER_BYTES);
    put_number(w, png->columns, 4);
    put_number(w, png->rows, 4);
    put_number(w, 8, 1); /* bits of a sample */
    put_number(w, png->bytes == 1 ? COLOUR_PALETTE : png->bytes == 3 ? COLOUR_RGB : COLOUR_RGBA, 1);
    put(w, "\0\0", 3); /* deflate, filters for each row, not interlaced */
    end_chunk(w);
    if (png->bytes > 1)
        return;
    begin_chunk(w, "PLTE", PALETTE_BYTES);
    for (unsigned i = 0; i < 256; i++) /* 1 is black, 255 white */
        for (unsigned k = 0; k < 3; k++)
            put_number(w, i == 0 ? 0 : ((i - 1) * 255 + 127) / 254, 1);
    end_chunk(w);
    begin_chunk(w, "tRNS", 1);
    put_number(w, 0, 1); /* the first entry is not seen at all */
    end_chunk(w);
}

/* Rows, a 0 (no filter) before each, in stored blocks. */
static void put_raster(struct writer *w, const unsigned char *raster, uint64_t n)
{
    begin_chunk(w, "IDAT", 2 + n + 5 * ((n + BLOCK_BYTES - 1) / BLOCK_BYTES) + 4);
    put_number(w, 0x7801, 2); /* a window of 32 KiB, not compressed */
    for (uint64_t at = 0, here; at < n; at += here) {
        here = n - at < BLOCK_BYTES ? n - at : BLOCK_BYTES;
        unsigned char block[] = {at + here == n, (unsigned char)here, (unsigned char)(here >> 8),
                                 (unsigned char)~here, (unsigned char)(~here >> 8)};
        put(w, block, sizeof(block));
        put(w, raster + at, (size_t)here);
    }
    put_number(w, adler32_z(adler32_z(0, NULL, 0), raster, (size_t)n), 4);
    end_chunk(w);
}

/* Pixels without a gap become rows with a byte before each, in the same memory. */
static void make_rows(const struct png *png, unsigned char *raster)
{
    size_t row = (size_t)png->columns * png->bytes;
    for (size_t i = (size_t)png->rows; i-- > 0;) {
        memmove(raster + i * (row + 1) + 1, raster + i * row, row);
        raster[i * (row + 1)] = 0;
    }
}

int png_make(struct views *views, uint64_t frame, struct view_head *out)
{
    struct png png;
    if (!png_of(views, &png) || frame >= views->frames)
        return -EINVAL;
    const size_t n = (size_t)png_bytes(views), raster_n = (size_t)raster_bytes(&png);
    const size_t besides = raster_n + (png.samples > 1 ? (size_t)views->frame_elements : 0);
    int error = made_memory_take(n + besides);
    if (error)
        return error;
    struct writer w = {.bytes = malloc(n)};
    unsigned char *raster = malloc(raster_n);
    error = !w.bytes || !raster ? -ENOMEM
            : png.samples > 1   ? draw_colours(views, frame, &png, raster)
                                : draw_numbers(views, frame, raster);
    if (!error) {
        make_rows(&png, raster);
        put(&w, SIGNATURE, strlen(SIGNATURE));
        put_header(&w, &png);
        put_raster(&w, raster, raster_n);
        begin_chunk(&w, "IEND", 0);
        end_chunk(&w);
        *out = (struct view_head){(char *)w.bytes, n};
    } else {
        free(w.bytes);
    }
    free(raster);
    made_memory_give_back(error ? n + besides : besides);
    return error;
}
