/* TIFF files by libtiff, in memory: one image of the size and type that is wanted, in strips or
 * tiles, plain or by a codec that loses nothing. Sizes are compared before anything is made of
 * them. */
#include <errno.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#include "config.h"
#include "view/foreign_files.h"

#define MOST_TILE_BYTES  ((uint64_t)64 << 20)
#define MOST_OTHER_BYTES ((size_t)256 << 20) /* that libtiff takes at once */

/* The file. */
struct source {
    const char *bytes;
    size_t n;
    uint64_t at;
};

static tmsize_t read_source(thandle_t handle, void *buffer, tmsize_t n)
{
    struct source *source = (struct source *)handle;
    size_t left = source->at < source->n ? source->n - (size_t)source->at : 0;
    size_t got = n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
    if (got > 0)
        memcpy(buffer, source->bytes + source->at, got);
    source->at += got;
    return (tmsize_t)got;
}

static tmsize_t write_nothing(thandle_t handle, void *buffer, tmsize_t n)
{
    (void)handle, (void)buffer, (void)n;
    return -1;
}

static toff_t seek_source(thandle_t handle, toff_t offset, int whence)
{
    struct source *source = (struct source *)handle;
    uint64_t base = whence == SEEK_CUR ? source->at : whence == SEEK_END ? source->n : 0;
    source->at = base + offset; /* behind the end nothing is read */
    return source->at;
}

static int close_nothing(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t size_of_source(thandle_t handle)
{
    return ((struct source *)handle)->n;
}

/* ---- Messages: the first one is the reason ---- */

static struct why *reason;

static void take_error(const char *module, const char *format, va_list arguments)
{
    (void)module;
    if (reason && !*reason->text)
        vsnprintf(reason->text, sizeof(reason->text), format, arguments);
}

static int refuse(struct why *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!*why->text)
        vsnprintf(why->text, sizeof(why->text), format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* ---- What it is ---- */

static bool is_codec(uint16_t compression)
{
    return compression == COMPRESSION_NONE || compression == COMPRESSION_LZW ||
           compression == COMPRESSION_ADOBE_DEFLATE || compression == COMPRESSION_DEFLATE ||
           compression == COMPRESSION_PACKBITS;
}

/* Elements of a bit each, eight in a byte. */
static bool is_bilevel(TIFF *tiff, const struct image *image)
{
    uint16_t bits = 1, format = SAMPLEFORMAT_UINT;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &format);
    return image->is_boolean && bits == 1 && format == SAMPLEFORMAT_UINT;
}

static int check_type(TIFF *tiff, const struct image *image, struct why *why)
{
    static const char *const formats[] = {"other", "unsigned", "signed", "floating-point", "other"};
    uint16_t bits = 1, samples = 1, format = SAMPLEFORMAT_UINT;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &format);
    if (samples != image->samples)
        return refuse(why, "a pixel has %u samples, not %u", samples, image->samples);
    if (!is_bilevel(tiff, image) && (bits != image->bits || format != image->format))
        return refuse(why, "elements are %s numbers of %u bits, not %s ones of %u",
                      formats[format < 4 ? format : 4], bits, formats[image->format], image->bits);
    return 0;
}

static size_t pixel_bytes(const struct image *image)
{
    return (size_t)image->samples * (image->bits / 8);
}

/* What the samples of a pixel mean, and that they stand together. */
static int check_pixels(TIFF *tiff, const struct image *image, struct why *why)
{
    uint16_t photometric = image->samples > 1 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK;
    uint16_t wanted = photometric, planes = PLANARCONFIG_CONTIG;
    TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planes);
    if (photometric != wanted)
        return refuse(why, "%s (PhotometricInterpretation %u)",
                      image->samples > 1 ? "its colours are not red, green and blue"
                                         : "black is not 0",
                      photometric);
    return planes == PLANARCONFIG_CONTIG || image->samples == 1
               ? 0
               : refuse(why, "each colour is an image of its own (PlanarConfiguration %u)", planes);
}

static int check(TIFF *tiff, const struct image *image, struct why *why)
{
    uint32_t width = 0, height = 0;
    uint16_t compression = COMPRESSION_NONE, orientation = ORIENTATION_TOPLEFT;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
    if (width != image->width || height != image->height)
        return refuse(why, "the image has %u x %u pixels, not %u x %u", width, height, image->width,
                      image->height);
    int error = check_type(tiff, image, why);
    if (error)
        return error;
    if (!is_codec(compression))
        return refuse(why, "compression %u is none of those that are taken", compression);
    error = check_pixels(tiff, image, why);
    if (error)
        return error;
    if (orientation != ORIENTATION_TOPLEFT)
        return refuse(why, "the first row is not the top (Orientation %u)", orientation);
    if (!TIFFLastDirectory(tiff))
        return refuse(why, "it has several images");
    uint64_t row_bytes =
        is_bilevel(tiff, image) ? ((uint64_t)width + 7) / 8 : (uint64_t)width * pixel_bytes(image);
    return TIFFScanlineSize64(tiff) == row_bytes
               ? 0
               : refuse(why, "a row has another size than its pixels");
}

/* ---- Its elements ---- */

static int read_strips(TIFF *tiff, const struct image *image, char *dense, struct why *why)
{
    uint32_t rows = 0;
    size_t row_bytes = image->width * pixel_bytes(image);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
    if (rows == 0)
        return refuse(why, "strips have no rows");
    rows = rows < image->height ? rows : image->height;
    if (TIFFNumberOfStrips(tiff) != (image->height - 1) / rows + 1)
        return refuse(why, "the number of strips is not that of the rows");
    for (uint32_t first = 0, strip = 0; first < image->height; first += rows, strip++) {
        uint32_t left = image->height - first;
        size_t n = (left < rows ? left : rows) * row_bytes;
        if (TIFFReadEncodedStrip(tiff, strip, dense + first * row_bytes, (tmsize_t)n) !=
            (tmsize_t)n)
            return refuse(why, "strip %u cannot be read", strip);
        if (left <= rows)
            break;
    }
    return 0;
}

/* Its first pixel is at x, y of the image, over whose edges it may reach. */
struct tile {
    char *pixels;
    uint32_t x, y, width, height;
};

static void copy_tile(const struct image *image, const struct tile *tile, char *dense)
{
    size_t item = pixel_bytes(image);
    uint32_t in_image = image->width - tile->x, below = image->height - tile->y;
    uint32_t width = in_image < tile->width ? in_image : tile->width;
    uint32_t height = below < tile->height ? below : tile->height;
    for (uint32_t row = 0; row < height; row++)
        memcpy(dense + (((size_t)tile->y + row) * image->width + tile->x) * item,
               tile->pixels + (size_t)row * tile->width * item, width * item);
}

static int read_tiles(TIFF *tiff, const struct image *image, char *dense, struct why *why)
{
    struct tile tile = {0};
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &tile.width);
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &tile.height);
    uint64_t size = (uint64_t)tile.width * tile.height; /* of 32 bits each */
    if (size == 0 || size > MOST_TILE_BYTES / pixel_bytes(image) ||
        TIFFTileSize64(tiff) != size * pixel_bytes(image))
        return refuse(why, "tiles of %u x %u pixels are not taken", tile.width, tile.height);
    size *= pixel_bytes(image);
    tile.pixels = malloc((size_t)size);
    int error = tile.pixels ? 0 : -ENOMEM;
    for (uint64_t y = 0; y < image->height && !error; y += tile.height) {
        for (uint64_t x = 0; x < image->width && !error; x += tile.width) {
            tile.x = (uint32_t)x;
            tile.y = (uint32_t)y;
            uint32_t number = TIFFComputeTile(tiff, tile.x, tile.y, 0, 0);
            if (TIFFReadEncodedTile(tiff, number, tile.pixels, (tmsize_t)size) != (tmsize_t)size)
                error = refuse(why, "tile %u cannot be read", number);
            else
                copy_tile(image, &tile, dense);
        }
    }
    free(tile.pixels);
    return error;
}

static int read_bits(TIFF *tiff, const struct image *image, char *dense, struct why *why)
{
    if (TIFFIsTiled(tiff))
        return refuse(why, "elements of a bit are in tiles, and taken in strips only");
    unsigned char *row = malloc((size_t)TIFFScanlineSize64(tiff));
    int error = row ? 0 : -ENOMEM;
    for (uint32_t y = 0; y < image->height && !error; y++) {
        if (TIFFReadScanline(tiff, row, y, 0) < 0)
            error = refuse(why, "row %u cannot be read", y);
        for (uint32_t x = 0; x < image->width && !error; x++)
            *dense++ = (char)(row[x / 8] >> (7 - x % 8) & 1);
    }
    free(row);
    return error;
}

/* Without a map: what is read is copied, and checked against the end. */
static TIFF *open_source(struct source *source)
{
#if HAVE_TIFF_OPTIONS
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (options)
        TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)MOST_OTHER_BYTES);
    TIFF *tiff = TIFFClientOpenExt("frame", "rm", (thandle_t)source, read_source, write_nothing,
                                   seek_source, close_nothing, size_of_source, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
#else
    return TIFFClientOpen("frame", "rm", (thandle_t)source, read_source, write_nothing, seek_source,
                          close_nothing, size_of_source, NULL, NULL);
#endif
}

int tiff_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                struct why *why)
{
    struct source source = {bytes, n, 0};
    *why = (struct why){""};
    reason = why;
    TIFFSetErrorHandler(take_error);
    TIFFSetWarningHandler(NULL); /* tags that it does not know are no fault */
    TIFF *tiff = open_source(&source);
    int error = tiff ? check(tiff, image, why) : refuse(why, "it is no TIFF file");
    if (!error)
        error = is_bilevel(tiff, image) ? read_bits(tiff, image, dense, why)
                : TIFFIsTiled(tiff)     ? read_tiles(tiff, image, dense, why)
                                        : read_strips(tiff, image, dense, why);
    if (tiff)
        TIFFClose(tiff);
    reason = NULL;
    return error;
}
