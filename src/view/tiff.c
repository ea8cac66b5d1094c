/* TIFF: the header of a frame, one uncompressed strip of samples in the file's byte order behind
 * it, and the directories of a stack, whose pages are the frames of the whole dataset, one strip
 * each (TIFF 6.0; BigTIFF where 32-bit offsets do not reach).
 *
 * A stack has its first directory before all strips, which follow each other without a gap, and the
 * others behind them, all of one length: every byte of it can be computed by itself, and readers
 * that look at the first directory only find the whole array, as ImageJ and tifffile write it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "view/private.h"

#define HEADER_BYTES        256
#define COLOUR_BYTES        512                      /* the same of RGB, which has more tags */
#define STACK_ALIGNMENT     256                      /* of the strips of a stack */
#define DIRECTORY_BYTES     (8 + 20 * MOST_TAGS + 8) /* no directory is longer */
#define DIRECTORY_ALIGNMENT 16
#define PROLOGUE_BYTES      16 /* of BigTIFF, which is the longer one */
#define ALIGNED(n, to)      (((n) + (to)-1) / (to) * (to))
#define MOST_SAMPLES        4
#define MOST_TAGS           13
#define DESCRIPTION_BYTES   (SFS_MAX_RANK * 22 + 16)

enum { ASCII = 2, SHORT = 3, LONG = 4, LONG8 = 16 };

/* What all pages of a file have in common. */
struct image {
    const struct sfs_type *type;
    uint64_t rows, columns, bytes; /* bytes: of the strip */
    unsigned samples;              /* of a pixel */
    bool big_endian, big_tiff;
    uint64_t bits_at;        /* where BitsPerSample stands, if it does not fit into the directory */
    uint64_t description_at; /* 0: there is none */
    size_t description_bytes;
};

struct writer {
    const struct image *image;
    unsigned char *bytes;
    size_t at;
};

static void put(struct writer *w, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        w->bytes[w->at++] = (unsigned char)(value >> (8 * (w->image->big_endian ? n - 1 - i : i)));
}

/* One directory entry with n values, which stand at the left of its field if they fit into it; else
 * value says where they are. */
static void put_tag(struct writer *w, unsigned tag, unsigned type, uint64_t n, uint64_t value)
{
    int field = w->image->big_tiff ? 8 : 4;
    int width = n > 1 ? field : type == SHORT ? 2 : type == LONG ? 4 : 8;
    put(w, tag, 2);
    put(w, type, 2);
    put(w, n, field);
    put(w, value, width);
    put(w, 0, field - width);
}

/* BitsPerSample: one for each sample, which only a directory of BigTIFF has room for. */
static void put_bits(struct writer *w)
{
    const struct image *image = w->image;
    unsigned bits = 8 * (unsigned)image->type->size;
    if (image->samples == 1 || !image->big_tiff) {
        put_tag(w, 258, SHORT, image->samples, image->samples == 1 ? bits : image->bits_at);
        return;
    }
    put(w, 258, 2);
    put(w, SHORT, 2);
    put(w, image->samples, 8);
    for (unsigned i = 0; i < MOST_SAMPLES; i++)
        put(w, i < image->samples ? bits : 0, 2);
}

unsigned tiff_sample_format(const struct sfs_type *type)
{
    return type->class == SFS_FLOAT ? 3 : type->is_signed && !type->is_boolean ? 2 : 1;
}

static unsigned tags_of(const struct image *image)
{
    return 10 + (image->samples == 3) + 2 * (image->samples == 4) - (image->samples > 1) +
           (image->description_at > 0);
}

static size_t directory_bytes(const struct image *image)
{
    return image->big_tiff ? 8 + 20 * (size_t)tags_of(image) + 8
                           : 2 + 12 * (size_t)tags_of(image) + 4;
}

/* The directory of a page whose strip begins at `strip`; next: where the one of the next page is, 0
 * if there is none. */
static void put_directory(struct writer *w, uint64_t strip, uint64_t next)
{
    const struct image *image = w->image;
    unsigned offset = image->big_tiff ? LONG8 : LONG;
    bool colours = image->samples > 1;
    put(w, tags_of(image), image->big_tiff ? 8 : 2);
    put_tag(w, 256, LONG, 1, image->columns);   /* ImageWidth */
    put_tag(w, 257, LONG, 1, image->rows);      /* ImageLength */
    put_bits(w);                                /* BitsPerSample */
    put_tag(w, 259, SHORT, 1, 1);               /* Compression: none */
    put_tag(w, 262, SHORT, 1, colours ? 2 : 1); /* PhotometricInterpretation: RGB, 0 is black */
    if (image->description_at > 0)              /* ImageDescription */
        put_tag(w, 270, ASCII, image->description_bytes, image->description_at);
    put_tag(w, 273, offset, 1, strip);         /* StripOffsets */
    put_tag(w, 277, SHORT, 1, image->samples); /* SamplesPerPixel */
    put_tag(w, 278, LONG, 1, image->rows);     /* RowsPerStrip */
    put_tag(w, 279, offset, 1, image->bytes);  /* StripByteCounts */
    if (colours)
        put_tag(w, 284, SHORT, 1, 1); /* PlanarConfiguration: the samples of a pixel together */
    if (image->samples == 4)
        put_tag(w, 338, SHORT, 1, 2); /* ExtraSamples: alpha, by which nothing is multiplied */
    if (!colours)                     /* of colours this is the default */
        put_tag(w, 339, SHORT, 1, tiff_sample_format(image->type));
    put(w, next, image->big_tiff ? 8 : 4);
}

/* What a file begins with; the first directory follows. */
static void put_prologue(struct writer *w)
{
    put(w, w->image->big_endian ? 0x4D4D : 0x4949, 2);
    put(w, w->image->big_tiff ? 43 : 42, 2);
    if (w->image->big_tiff) {
        put(w, 8, 2); /* bytes of an offset */
        put(w, 0, 2);
        put(w, 16, 8); /* where the directory is */
    } else {
        put(w, 8, 4);
    }
}

static void put_bits_apart(struct writer *w)
{
    for (unsigned i = 0; i < w->image->samples; i++)
        put(w, 8 * w->image->type->size, 2);
}

/* Whether frames of these dims are images (which_views.c) whose bytes can be counted, and which. */
static bool is_image(const struct sfs_type *type, int rank, const uint64_t *dims,
                     struct image *image)
{
    bool colour = is_colour(type, rank, dims);
    if (!are_images(type, rank, dims))
        return false;
    *image = (struct image){.type = type,
                            .rows = dims[0],
                            .columns = dims[1],
                            .samples = colour ? (unsigned)dims[2] : 1,
                            .big_endian = type->big_endian && type->size > 1};
    return !__builtin_mul_overflow(dims[0] * dims[1], (uint64_t)(image->samples * type->size),
                                   &image->bytes);
}

int tiff_header(const struct sfs_type *type, int rank, const uint64_t *dims, struct view_head *head)
{
    struct image image;
    if (!is_image(type, rank, dims, &image))
        return 0;
    size_t n = image.samples > 1 ? COLOUR_BYTES : HEADER_BYTES;
    struct writer w = {.image = &image, .bytes = calloc(1, n)};
    if (!w.bytes)
        return -ENOMEM;
    image.big_tiff = image.bytes > UINT32_MAX - n;
    image.bits_at = n - sizeof(uint64_t);
    put_prologue(&w);
    put_directory(&w, n, 0);
    if (image.samples > 1 && !image.big_tiff) {
        w.at = (size_t)image.bits_at;
        put_bits_apart(&w);
    }
    *head = (struct view_head){(char *)w.bytes, n};
    return 0;
}

/* ---- Stacks ---- */

struct stack {
    struct image image; /* of all pages; description: of the first one */
    char description[DESCRIPTION_BYTES];
    uint64_t head_bytes;
    uint64_t directories; /* where those of the other pages begin */
    uint64_t pages;
};

/* The dims of the dataset as tifffile writes and reads them, so that it shows one array of all dims
 * instead of pages; others show a text. */
static void describe(const struct views *views, struct stack *stack)
{
    char *out = stack->description;
    size_t room = sizeof(stack->description);
    int n = snprintf(out, room, "{\"shape\": [");
    for (int i = 0; i < views->info->rank; i++)
        n += snprintf(out + n, room - (size_t)n, "%s%" PRIu64, i ? ", " : "", views->dims[i]);
    n += snprintf(out + n, room - (size_t)n, "]}");
    stack->image.description_bytes = (size_t)n + 1;
}

/* Where everything is with offsets of 4 or 8 bytes; false: it is larger than such offsets, or a
 * file, can be. Behind a first directory of which the length does not depend on the pages. */
static bool lay_out(const struct views *views, struct stack *stack, bool big_tiff)
{
    struct image *image = &stack->image;
    uint64_t most = big_tiff ? INT64_MAX : UINT32_MAX, end; /* bytes of the other directories */
    image->big_tiff = big_tiff;
    image->bits_at = PROLOGUE_BYTES + DIRECTORY_BYTES;
    image->description_at = image->bits_at + MOST_SAMPLES * sizeof(uint16_t);
    stack->head_bytes = ALIGNED(image->description_at + image->description_bytes, STACK_ALIGNMENT);
    struct image other = *image;
    other.description_at = 0;
    if (__builtin_mul_overflow(stack->pages - 1, directory_bytes(&other), &end) ||
        end > INT64_MAX / 2 || views->total_bytes > INT64_MAX / 2 ||
        stack->head_bytes + views->total_bytes + DIRECTORY_ALIGNMENT + end > most)
        return false;
    stack->directories = ALIGNED(stack->head_bytes + views->total_bytes, DIRECTORY_ALIGNMENT);
    return true;
}

static bool stack_of(const struct views *views, struct stack *stack)
{
    const uint64_t *frame_dims = views->dims + views->info->rank - views->frame_rank;
    stack->pages = views->frames;
    if (views->info->type.has_pointers || views->frames == 0 || views->total_bytes > INT64_MAX ||
        !is_image(&views->info->type, views->frame_rank, frame_dims, &stack->image))
        return false;
    describe(views, stack);
    return lay_out(views, stack, false) || lay_out(views, stack, true);
}

static uint64_t directory_at(const struct stack *stack, uint64_t page)
{
    struct image other = stack->image;
    other.description_at = 0;
    return page < stack->pages ? stack->directories + (page - 1) * directory_bytes(&other) : 0;
}

int tiff_stack_head(const struct views *views, struct view_head *head, uint64_t *tail_bytes)
{
    struct stack stack;
    if (!stack_of(views, &stack))
        return 0;
    struct image *image = &stack.image;
    struct writer w = {.image = image, .bytes = calloc(1, (size_t)stack.head_bytes)};
    if (!w.bytes)
        return -ENOMEM;
    put_prologue(&w);
    put_directory(&w, stack.head_bytes, directory_at(&stack, 1));
    w.at = (size_t)image->bits_at;
    put_bits_apart(&w);
    memcpy(w.bytes + image->description_at, stack.description, image->description_bytes);
    *head = (struct view_head){(char *)w.bytes, (size_t)stack.head_bytes};
    uint64_t last = stack.pages - 1, end = stack.head_bytes + views->total_bytes;
    image->description_at = 0;
    *tail_bytes = last > 0 ? directory_at(&stack, last) + directory_bytes(image) - end : 0;
    return 0;
}

void tiff_stack_tail(const struct views *views, uint64_t offset, size_t n, char *out)
{
    struct stack stack;
    unsigned char directory[DIRECTORY_BYTES];
    memset(out, 0, n);
    if (!stack_of(views, &stack)) /* then it has no bytes either */
        return;
    struct image *image = &stack.image;
    uint64_t padding = stack.directories - (stack.head_bytes + views->total_bytes);
    uint64_t skipped = offset < padding ? padding - offset : 0;
    if (skipped >= n)
        return;
    image->description_at = 0;
    size_t length = directory_bytes(image);
    uint64_t at = offset + skipped - padding, page = 1 + at / length;
    out += skipped;
    n -= (size_t)skipped;
    for (size_t skip = (size_t)(at % length), here; n > 0; n -= here, out += here, skip = 0) {
        struct writer w = {.image = image, .bytes = directory};
        put_directory(&w, stack.head_bytes + page * views->frame_bytes,
                      directory_at(&stack, page + 1));
        page++;
        here = length - skip < n ? length - skip : n;
        memcpy(out, directory + skip, here);
    }
}
