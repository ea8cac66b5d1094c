/* A dataset as an array of Zarr, version 2 of its storage specification: a text that says what it
 * is, its attributes, and the frames as chunks, uncompressed, whose names are their places among
 * the chunks of every dim. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "view/pixel.h"

/* Types that readers have: numbers, strings of fixed length, complex numbers of h5py. */
static bool has_type(const struct sfs_type *type)
{
    return type->class == SFS_FLOAT ? pixel_is_number(type)
           : type->class == SFS_STRING || is_complex(type)
               ? true
               : is_number(type) &&
                     (type->size == 1 || type->size == 2 || type->size == 4 || type->size == 8);
}

static bool zarr_exists(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    if (info->type.has_pointers || info->space == SFS_SPACE_NULL || !has_type(&info->type) ||
        views->frame_bytes == 0 || views->frame_bytes > INT64_MAX ||
        views->elements == UINT64_MAX || views->elements > INT64_MAX)
        return false;
    for (int i = 0; i < info->rank; i++) /* no chunk has no elements */
        if (views->dims[i] == 0 && i > 0)
            return false;
    return true;
}

static void write_dims(FILE *out, const char *key, int rank, const uint64_t *dims, int ones)
{
    fprintf(out, "  \"%s\": [", key);
    for (int i = 0; i < rank; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", i < ones ? 1 : dims[i]);
    fputs("],\n", out);
}

/* Every chunk is there, so it is not needed; but it says what undefined elements are. */
static void write_fill(FILE *out, const struct views *views)
{
    const struct sfs_type *type = &views->info->type;
    const unsigned char *fill = views->info->fill;
    if (!fill || views->has_padding || !pixel_is_number(type)) {
        fputs("null", out);
    } else if (type->class == SFS_FLOAT) {
        double value = number_value(type, fill);
        if (isnan(value))
            fputs("\"NaN\"", out);
        else if (isinf(value))
            fputs(value > 0 ? "\"Infinity\"" : "\"-Infinity\"", out);
        else
            fprintf(out, "%.17g", value);
    } else if (type->is_boolean) {
        fputs(*fill ? "true" : "false", out);
    } else if (type->is_signed) {
        fprintf(out, "%" PRId64, number_signed(type, number_bits(type, fill)));
    } else {
        fprintf(out, "%" PRIu64, number_bits(type, fill));
    }
}

int zarr_array(const struct views *views, struct view_head *head)
{
    const struct sfs_dataset_info *info = views->info;
    if (!zarr_exists(views))
        return 0;
    FILE *out = head_begin(head);
    if (!out)
        return -ENOMEM;
    fputs("{\n", out);
    write_dims(out, "chunks", info->rank, views->dims, info->rank - views->frame_rank);
    fputs("  \"compressor\": null,\n  \"dtype\": ", out);
    numpy_type(out, &info->type, NUMPY_JSON);
    fputs(",\n  \"fill_value\": ", out);
    write_fill(out, views);
    fputs(",\n  \"filters\": null,\n  \"order\": \"C\",\n", out);
    write_dims(out, "shape", info->rank, views->dims, 0);
    fputs("  \"zarr_format\": 2\n}\n", out);
    return head_end(out, head);
}

int zarr_attributes(struct views *views, struct view_head *head)
{
    struct sfs_attributes attributes;
    int error = sfs_attributes(views->file, views->address, &attributes);
    if (error)
        return error;
    FILE *out = head_begin(head);
    if (out) {
        fputs("{\n", out);
        for (size_t i = 0, n = 0; i < attributes.n; i++) {
            const struct sfs_attribute *attribute = &attributes.attribute[i];
            if (!attribute->json)
                continue;
            fputs(n++ ? ",\n  " : "  ", out);
            json_string(out, attribute->name, strlen(attribute->name));
            fprintf(out, ": %s", attribute->json);
        }
        fputs("\n}\n", out);
    }
    sfs_attributes_free(&attributes);
    return out ? head_end(out, head) : -ENOMEM;
}

/* ---- Names of chunks ---- */

void view_chunk_name(struct views *views, uint64_t frame, char *name, size_t n)
{
    LOOKING_AT(views);
    int rank = views->info->rank;
    uint64_t place[SFS_MAX_RANK] = {0};
    for (int i = rank - views->frame_rank - 1; i >= 0; i--) {
        uint64_t most =
            i > 0 && views->dims[i] > 0 ? views->dims[i] : UINT64_MAX; /* it may be gone */
        place[i] = frame % most;
        frame /= most;
    }
    size_t at = (size_t)snprintf(name, n, "%" PRIu64, place[0]);
    for (int i = 1; i < rank && at < n; i++)
        at += (size_t)snprintf(name + at, n - at, ".%" PRIu64, place[i]);
}

/* A decimal as it is written: no sign, no zeros before it. */
static bool parse_number(const char **text, uint64_t *number)
{
    const char *c = *text;
    *number = 0;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*c - '0'), number))
            return false;
    bool is_one = c != *text && (**text != '0' || c == *text + 1);
    *text = c;
    return is_one;
}

bool view_chunk_frame(struct views *views, const char *name, uint64_t *frame)
{
    LOOKING_AT(views);
    int rank = views->info->rank, nav_rank = rank - views->frame_rank;
    uint64_t number, result = 0;
    for (int i = 0; i == 0 || i < rank; i++) {
        if (i > 0 && *name++ != '.')
            return false;
        uint64_t end = i >= nav_rank ? 1 : i > 0 ? views->dims[i] : UINT64_MAX; /* it may grow */
        if (!parse_number(&name, &number) || number >= end)
            return false;
        if (i < nav_rank && (__builtin_mul_overflow(result, views->dims[i], &result) ||
                             __builtin_add_overflow(result, number, &result)))
            return false;
    }
    *frame = result;
    return *name == '\0';
}
