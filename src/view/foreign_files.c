/* Which decoder takes which view, and what it is to find. */
#include "view/foreign_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/views_memory.h"

/* What a file is compared with, so that the geometry need not be looked at meanwhile. */
struct wanted {
    size_t bytes;
    struct view_head head; /* VIEW_NPY */
    struct image image;    /* VIEW_TIFF */
};

/* Out of this machine's order into the dataset's. */
static void order_bytes(const struct sfs_type *type, char *bytes, size_t n)
{
    const bool is_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    if (type->big_endian != is_big)
        swap_units(bytes, n, type->size);
}

/* Frames that have a TIFF view have two dims of 32 bits, or a third one of colours, and such
 * numbers. */
static int want_image(const struct views *views, struct image *image)
{
    const struct sfs_type *type = &views->info->type;
    const uint64_t *dims = views->dims + views->info->rank - views->frame_rank;
    if ((views->frame_rank != 2 && views->frame_rank != 3) || (type->size & (type->size - 1)) != 0)
        return -EOPNOTSUPP;
    *image = (struct image){.width = (uint32_t)dims[1],
                            .height = (uint32_t)dims[0],
                            .samples = views->frame_rank == 3 ? (uint16_t)dims[2] : 1,
                            .bits = (uint16_t)(8 * type->size),
                            .format = (uint16_t)tiff_sample_format(type),
                            .is_boolean = type->is_boolean};
    return 0;
}

/* wanted->head.bytes is to be freed. */
static int want(struct views *views, enum view_kind kind, size_t most_bytes, struct wanted *wanted)
{
    LOOKING_AT(views);
    const struct view_head *head = &views->heads[kind];
    if ((kind != VIEW_NPY && kind != VIEW_TIFF) || !has_view(views, kind))
        return -EOPNOTSUPP;
    if (views->frame_bytes > most_bytes)
        return -EFBIG;
    wanted->bytes = (size_t)views->frame_bytes;
    if (kind == VIEW_TIFF)
        return want_image(views, &wanted->image);
    wanted->head = (struct view_head){malloc(head->n ? head->n : 1), head->n};
    if (!wanted->head.bytes)
        return -ENOMEM;
    if (head->n > 0)
        memcpy(wanted->head.bytes, head->bytes, head->n);
    return 0;
}

/* ---- An image that was added ---- */

/* A number of n bytes in a TIFF file, in the order of that. */
static uint64_t number_at(const char *bytes, size_t at, size_t n)
{
    const unsigned char *from = (const unsigned char *)bytes + at;
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | from[bytes[0] == 'M' ? i : n - 1 - i];
    return value;
}

/* Where a frame's file has the offset of the next directory: behind the entries of the first one,
 * which begins at 8 (TIFF 6.0, section 2). */
static size_t place_of_next(const char *bytes)
{
    return 8 + 2 + 12 * (size_t)number_at(bytes, 8, 2);
}

/* Whether a file of more than `size` bytes begins with those of an empty frame's file, and says that the
 * next directory is behind them. */
static bool is_addition(const char *empty, size_t size, const char *bytes)
{
    const size_t next = place_of_next(empty), behind = next + 4;
    return number_at(empty, 2, 2) == 42 && number_at(empty, 4, 4) == 8 && behind <= size &&
           memcmp(bytes, empty, next) == 0 && number_at(bytes, next, 4) == size &&
           memcmp(bytes + behind, empty + behind, size - behind) == 0;
}

/* *out: n bytes of such a file with that image as the only one, which the caller frees; NULL: it is no such file. */
static int take_addition(struct views *views, const struct foreign *file, char **out)
{
    uint64_t size;
    size_t got, n = file->n;
    *out = NULL;
    if (view_size(views, VIEW_TIFF, 0, &size) != 0 || n <= size)
        return 0;
    char *empty = malloc((size_t)size), *bytes = NULL;
    int error = empty ? view_read_empty(views, VIEW_TIFF, 0, (size_t)size, empty, &got) : -ENOMEM;
    if (!error && is_addition(empty, got, file->bytes)) {
        error = (bytes = malloc(n)) ? 0 : -ENOMEM;
        if (!error) {
            memcpy(bytes, file->bytes, n);
            memcpy(bytes + 4, file->bytes + place_of_next(empty), 4);
        }
    }
    free(empty);
    *out = bytes;
    return error;
}

/* ---- All of it ---- */

static int decode_tiff(struct views *views, const struct foreign *file, const struct wanted *wanted,
                       char *dense, struct why *why)
{
    char *added;
    int error = take_addition(views, file, &added);
    if (!error)
        error = image_decode(&wanted->image, added ? added : file->bytes, file->n, dense, why);
    free(added);
    if (!error)
        order_bytes(&views->info->type, dense, wanted->bytes);
    return error;
}

/* With what else there is of a TIFF file at a time: one to which an image was added, and that of the process. */
static size_t memory_for(const struct foreign *file, const struct wanted *wanted)
{
    return wanted->bytes +
           (file->kind == VIEW_TIFF ? 2 * file->n + image_memory(&wanted->image) : 0);
}

static int decode(struct views *views, const struct foreign *file, const struct wanted *wanted,
                  char **out, struct why *why)
{
    size_t memory = memory_for(file, wanted);
    int error = decoding_memory_take(memory);
    if (error)
        return error;
    char *dense = malloc(wanted->bytes ? wanted->bytes : 1);
    error = !dense ? -ENOMEM
            : file->kind == VIEW_NPY
                ? numpy_decode(&wanted->head, wanted->bytes, file->bytes, file->n, dense, why)
                : decode_tiff(views, file, wanted, dense, why);
    decoding_memory_give_back(error ? memory : memory - wanted->bytes);
    if (error)
        free(dense);
    else
        *out = dense;
    return error;
}

int foreign_decode(struct views *views, const struct foreign *file, size_t most_bytes, char **out,
                   size_t *size, struct why *why)
{
    struct wanted wanted = {0};
    *why = (struct why){""};
    int error = want(views, file->kind, most_bytes, &wanted);
    if (!error)
        error = decode(views, file, &wanted, out, why);
    *size = wanted.bytes;
    free(wanted.head.bytes);
    return error;
}

bool view_takes_foreign(enum view_kind kind, const void *bytes, size_t n)
{
    static const char *const tiffs[] = {"II*\0", "MM\0*", "II+\0", "MM\0+"};
    if (kind == VIEW_NPY)
        return memcmp(bytes, "\x93NUMPY", n < 6 ? n : 6) == 0;
    for (size_t i = 0; kind == VIEW_TIFF && i < sizeof(tiffs) / sizeof(*tiffs); i++)
        if (memcmp(bytes, tiffs[i], n < 4 ? n : 4) == 0)
            return true;
    return false;
}
