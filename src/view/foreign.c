/* Which decoder takes which view, and what it is to find. */
#include "view/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Out of this machine's order into the dataset's. */
static void order_bytes(const struct sfs_type *type, char *bytes, size_t n)
{
    const bool is_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    if (type->big_endian != is_big)
        swap_units(bytes, n, type->size);
}

/* A program that has found a frame's header in a truncated file, and goes on behind it. */
static int refuse_addition(struct foreign_why *why)
{
    snprintf(why->text, sizeof(why->text),
             "it has no beginning: what adds an image to the file that it finds (fabio) must write "
             "to a new name, and rename that");
    return -EINVAL;
}

/* Frames that have a TIFF view have two dims of 32 bits, or a third one of colours, and such
 * numbers. */
static int decode_tiff(const struct views *views, const char *bytes, size_t n, char *dense,
                       struct foreign_why *why)
{
    const struct sfs_type *type = &views->info->type;
    const uint64_t *dims = views->dims + views->info->rank - views->frame_rank;
    const struct image image = {.width = (uint32_t)dims[1],
                                .height = (uint32_t)dims[0],
                                .samples = views->frame_rank == 3 ? (uint16_t)dims[2] : 1,
                                .bits = (uint16_t)(8 * type->size),
                                .format = type->class == SFS_FLOAT ? 3
                                          : type->is_signed        ? 2
                                                                   : 1};
    if ((views->frame_rank != 2 && views->frame_rank != 3) || (type->size & (type->size - 1)) != 0)
        return -EOPNOTSUPP;
    if (n >= 2 && bytes[0] == 0 && bytes[1] == 0)
        return refuse_addition(why);
    int error = image_decode(&image, bytes, n, dense, why);
    if (!error)
        order_bytes(type, dense, (size_t)views->frame_bytes);
    return error;
}

int foreign_decode(struct views *views, const struct foreign *file, size_t most_bytes, char **out,
                   size_t *size, struct foreign_why *why)
{
    LOOKING_AT(views);
    enum view_kind kind = file->kind;
    *why = (struct foreign_why){""};
    if ((kind != VIEW_NPY && kind != VIEW_TIFF) || !has_view(views, kind))
        return -EOPNOTSUPP;
    if (views->frame_bytes > most_bytes)
        return -EFBIG;
    *size = (size_t)views->frame_bytes;
    char *dense = malloc(*size ? *size : 1);
    int error = !dense ? -ENOMEM
                : kind == VIEW_NPY
                    ? numpy_decode(&views->heads[kind], *size, file->bytes, file->n, dense, why)
                    : decode_tiff(views, file->bytes, file->n, dense, why);
    if (error)
        free(dense);
    else
        *out = dense;
    return error;
}
