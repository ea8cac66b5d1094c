/* Looking at the values of a block, image by image: the last two axes are an image. */
#include "cli/above_and_mask.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/above_sigma.h"
#include "cli/blocks.h"
#include "view/element_number.h"

/* ---- What is asked for ---- */

int criteria_ask_above(struct criteria_asked *asked, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number))
        return refuse("import", "--above %s: not a number", text);
    asked->above = text;
    return 0;
}

int criteria_ask_sigma(struct criteria_asked *asked, const char *text)
{
    char *end;
    asked->sigma = strtod(text, &end);
    if (end == text || *end || !isfinite(asked->sigma) || asked->sigma <= 0)
        return refuse("import", "--sigma %s: not a number above 0", text);
    return 0;
}

int criteria_ask_mask(struct criteria_asked *asked, const char *text)
{
    asked->mask = text;
    if (strcmp(text, "none") != 0 && !strstr(text, ":/"))
        return refuse("import", "--mask %s: not FILE:DATASET, or none", text);
    return 0;
}

/* Doubles do not hold all integers of 8 bytes: these are compared with the integer that is the
 * number, or the next one below it. */
static void set_above(struct criteria *criteria, const char *text)
{
    static const double most = 18446744073709551616.0; /* 2^64 */
    double number = floor(criteria->above);
    bool is_less = number < -most / 2; /* than every integer */
    if (!text[strspn(text, "+-0123456789")]) {
        errno = 0;
        criteria->above_signed = strtoll(text, NULL, 10);
        is_less = errno == ERANGE && criteria->above < 0;
        criteria->above_unsigned = strtoull(text, NULL, 10);
    } else {
        criteria->above_signed = number >= most / 2 ? INT64_MAX
                                 : is_less          ? INT64_MIN
                                                    : (int64_t)number;
        criteria->above_unsigned = number >= most ? UINT64_MAX : number < 0 ? 0 : (uint64_t)number;
    }
    criteria->all_above = criteria->info->type.is_signed ? is_less : criteria->above < 0;
}

static bool has_values(const struct sfs_type *type)
{
    size_t size = type->size;
    return (type->class == SFS_INTEGER && (size == 1 || size == 2 || size == 4 || size == 8)) ||
           (type->class == SFS_FLOAT && (size == 2 || size == 4 || size == 8));
}

int criteria_fit(const struct criteria_asked *asked, struct sfs_file *file, const char *path,
                 const struct sfs_dataset_info *info, struct criteria *criteria)
{
    bool has_mask = asked->mask && strcmp(asked->mask, "none") != 0;
    *criteria = (struct criteria){.is_used = asked->above || asked->sigma > 0 || has_mask,
                                  .info = info,
                                  .has_above = asked->above,
                                  .sigma = asked->sigma};
    if (!criteria->is_used)
        return 0;
    if (info->rank < 2)
        return fail_because("%s: --above, --sigma and --mask want a dataset of rank 2 or more",
                            path);
    if (!has_values(&info->type))
        return fail_because("%s: --above, --sigma and --mask want integers or floating-point "
                            "elements of at most 8 bytes, not %s",
                            path, info->type.description);
    if (asked->above) {
        criteria->above = strtod(asked->above, NULL);
        set_above(criteria, asked->above);
    }
    return pixel_mask_read(asked->mask, file, path, info, &criteria->mask);
}

void criteria_free(struct criteria *criteria)
{
    pixel_mask_free(&criteria->mask);
}

void kept_free(struct kept *kept)
{
    free(kept->keep.at);
    free(kept->values.at);
    free(kept->around.at);
    free(kept->good.at);
    free(kept->found.at);
    *kept = (struct kept){0};
}

/* What was in it is lost. */
static int make_room(struct room *room, size_t bytes)
{
    if (bytes <= room->bytes)
        return 0;
    free(room->at);
    room->at = malloc(bytes);
    room->bytes = room->at ? bytes : 0;
    return room->at ? 0 : -ENOMEM;
}

/* ---- Values ---- */

#define CONVERT(NAME)                                                                              \
    for (size_t i = 0; i < n; i++) {                                                               \
        NAME number;                                                                               \
        memcpy(&number, elements + i * sizeof(number), sizeof(number));                            \
        values[i] = (double)number;                                                                \
    }

/* The values of n elements in the byte order of this machine. */
static void convert(const struct sfs_type *type, const unsigned char *elements, size_t n,
                    double *values)
{
    bool is_signed = type->is_signed;
    if (type->class == SFS_FLOAT && type->size == 4)
        CONVERT(float)
    else if (type->class == SFS_FLOAT)
        CONVERT(double)
    else if (type->size == 1 && is_signed)
        CONVERT(int8_t)
    else if (type->size == 1)
        CONVERT(uint8_t)
    else if (type->size == 2 && is_signed)
        CONVERT(int16_t)
    else if (type->size == 2)
        CONVERT(uint16_t)
    else if (type->size == 4 && is_signed)
        CONVERT(int32_t)
    else if (type->size == 4)
        CONVERT(uint32_t)
    else if (is_signed)
        CONVERT(int64_t)
    else
        CONVERT(uint64_t)
}

static void take_values(const struct sfs_type *type, const unsigned char *elements, size_t n,
                        double *values)
{
    bool is_native =
        type->size == 1 || type->big_endian == (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    if (is_native && !(type->class == SFS_FLOAT && type->size == 2))
        convert(type, elements, n, values);
    else
        for (size_t i = 0; i < n; i++)
            values[i] = number_value(type, elements + i * type->size);
}

/* Sets for n elements of an image whether they have a value that means something. masked: NULL, or
 * of these elements. */
static void find_good(const struct criteria *criteria, const unsigned char *elements,
                      const double *values, const unsigned char *masked, size_t n,
                      unsigned char *good)
{
    const struct sfs_type *type = &criteria->info->type;
    bool is_marking = type->class == SFS_INTEGER && !type->is_signed && !criteria->mask.is_none;
    double mark = ldexp(1, 8 * (int)type->size) - 1;
    if (type->class == SFS_FLOAT)
        for (size_t i = 0; i < n; i++)
            good[i] = isfinite(values[i]) != 0;
    else if (is_marking && type->size == sizeof(uint64_t))
        for (size_t i = 0; i < n; i++)
            good[i] = !number_is_marked(type, number_bits(type, elements + i * type->size));
    else
        for (size_t i = 0; i < n; i++)
            good[i] = !is_marking || values[i] != mark;
    for (size_t i = 0; i < n && masked; i++)
        good[i] &= !masked[i];
}

/* Leaves out what is not above the threshold. */
static void find_above(const struct criteria *criteria, const unsigned char *elements,
                       const double *values, size_t n, unsigned char *keep)
{
    const struct sfs_type *type = &criteria->info->type;
    if (type->class == SFS_FLOAT || type->size < sizeof(uint64_t)) {
        for (size_t i = 0; i < n; i++)
            keep[i] &= values[i] > criteria->above;
        return;
    }
    for (size_t i = 0; i < n && !criteria->all_above; i++) {
        uint64_t bits = number_bits(type, elements + i * type->size);
        keep[i] &= type->is_signed ? number_signed(type, bits) > criteria->above_signed
                                   : bits > criteria->above_unsigned;
    }
}

/* ---- Images ---- */

/* A part of an image. */
struct part {
    const struct criteria *criteria;
    const unsigned char *elements, *masked; /* of the image, or NULL */
    uint64_t y, x, width;                   /* where it begins, and of the whole image */
    size_t rows, columns;
    double *values; /* room for a row */
};

static const unsigned char *elements_of(const struct part *part, size_t row)
{
    return part->elements + row * part->columns * part->criteria->info->type.size;
}

static void take_row(const void *context, size_t row, double *values)
{
    const struct part *part = context;
    take_values(&part->criteria->info->type, elements_of(part, row), part->columns, values);
}

/* Those that have a value, and if is_all are above the threshold. */
static void find_in_rows(const struct part *part, bool is_all, unsigned char *keep)
{
    const struct criteria *criteria = part->criteria;
    for (size_t row = 0; row < part->rows; row++, keep += part->columns) {
        const unsigned char *masked =
            part->masked ? part->masked + (part->y + row) * part->width + part->x : NULL;
        take_row(part, row, part->values);
        find_good(criteria, elements_of(part, row), part->values, masked, part->columns, keep);
        if (is_all && criteria->has_above)
            find_above(criteria, elements_of(part, row), part->values, part->columns, keep);
    }
}

/* A range of an axis and what surrounds it, as far as there is any. */
static void widen(uint64_t *start, uint64_t *count, uint64_t length)
{
    uint64_t before = *start < BACKGROUND_REACH ? *start : BACKGROUND_REACH;
    uint64_t behind = length - *start - *count;
    *start -= before;
    *count += before + (behind < BACKGROUND_REACH ? behind : BACKGROUND_REACH);
}

/* Leaves out what does not stand out of what surrounds it. image: what the part shows of the
 * dataset. */
static int find_sigma(const struct part *part, struct sfs_dataset *dataset,
                      const struct sfs_slab *image, struct kept *kept, unsigned char *keep)
{
    const struct sfs_dataset_info *info = part->criteria->info;
    struct sfs_slab slab = *image;
    struct part around = *part;
    uint64_t *start = slab.start + slab.rank - 2, *count = slab.count + slab.rank - 2;
    for (int i = 0; i < 2; i++)
        widen(&start[i], &count[i], info->dims[info->rank - 2 + i]);
    around.y = start[0];
    around.x = start[1];
    around.rows = (size_t)count[0];
    around.columns = (size_t)count[1];
    size_t n = around.rows * around.columns, bytes = n * info->type.size;
    int error = make_room(&kept->good, n);
    if (!error)
        error = make_room(&kept->found, n);
    if (!error && n > part->rows * part->columns) {
        error = make_room(&kept->around, bytes);
        around.elements = kept->around.at;
        error = error ? error : sfs_read(dataset, &slab, 0, kept->around.at, bytes);
    }
    if (error)
        return error;
    find_in_rows(&around, false, kept->good.at);
    struct image values = {around.columns, around.rows, kept->good.at, take_row, &around};
    error = find_spots(&values, part->criteria->sigma, kept->found.at);
    const unsigned char *found = kept->found.at;
    found += (size_t)(part->y - around.y) * around.columns + (size_t)(part->x - around.x);
    for (size_t row = 0; row < part->rows && !error; row++)
        for (size_t x = 0; x < part->columns; x++)
            keep[row * part->columns + x] &= found[row * around.columns + x];
    return error;
}

/* The i-th image of a block, and which of its frame it is. */
static uint64_t image_at(const struct sfs_dataset_info *info, const struct sfs_slab *block,
                         uint64_t i, struct sfs_slab *image)
{
    uint64_t number = 0, images = 1;
    *image = *block;
    for (int axis = block->rank - 3; axis >= 0; axis--) {
        image->start[axis] += i % block->count[axis];
        image->count[axis] = 1;
        i /= block->count[axis];
        if (axis > 0) {
            number += image->start[axis] * images;
            images *= info->dims[axis];
        }
    }
    return number;
}

int criteria_apply(const struct criteria *criteria, struct sfs_dataset *dataset,
                   const struct sfs_slab *slab, const void *elements, struct kept *kept)
{
    const struct sfs_dataset_info *info = criteria->info;
    const uint64_t *count = slab->count + slab->rank - 2, *dims = info->dims + info->rank - 2;
    uint64_t n = slab_elements(slab), in_image = count[0] * count[1];
    int error = make_room(&kept->keep, (size_t)n);
    if (!error)
        error = make_room(&kept->values, (size_t)dims[1] * sizeof(double));
    for (uint64_t i = 0; i * in_image < n && !error; i++) {
        struct sfs_slab image;
        uint64_t number = image_at(info, slab, i, &image);
        const uint64_t *start = image.start + image.rank - 2;
        const unsigned char *masked = criteria->mask.masked;
        if (masked && criteria->mask.n > dims[0] * dims[1])
            masked += number * dims[0] * dims[1];
        struct part part = {.criteria = criteria,
                            .elements =
                                (const unsigned char *)elements + i * in_image * info->type.size,
                            .masked = masked,
                            .y = start[0],
                            .x = start[1],
                            .width = dims[1],
                            .rows = (size_t)count[0],
                            .columns = (size_t)count[1],
                            .values = kept->values.at};
        unsigned char *keep = (unsigned char *)kept->keep.at + i * in_image;
        find_in_rows(&part, true, keep);
        if (criteria->sigma > 0)
            error = find_sigma(&part, dataset, &image, kept, keep);
    }
    return error;
}

/* ---- What is kept ---- */

int criteria_scan(const struct kept *kept, struct findings *findings,
                  const struct undefined *undefined, uint64_t first, uint64_t n,
                  const char *elements)
{
    const unsigned char *keep = kept->keep.at, *end = keep + first + n, *at = keep + first;
    int error = 0;
    while (at < end && !error) {
        at = memchr(at, 1, (size_t)(end - at));
        if (!at)
            break;
        const unsigned char *last = memchr(at, 0, (size_t)(end - at));
        if (!last)
            last = end;
        uint64_t position = (uint64_t)(at - keep);
        error = findings_scan(findings, undefined, position, (uint64_t)(last - at),
                              elements + position * undefined->type->size);
        at = last;
    }
    return error;
}
