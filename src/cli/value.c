/* Numbers are written here, as there may be very many of them; the rest through the library. */
#include "cli/value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/float_text.h"

/* The bits of an element of 1, 2, 4 or 8 bytes, in this machine's order. */
static uint64_t bits_of(const struct sfs_type *type, const void *element)
{
    const unsigned char *bytes = element;
    uint64_t bits = 0;
    for (size_t i = 0; i < type->size; i++)
        bits = bits << 8 | bytes[type->big_endian ? i : type->size - 1 - i];
    return bits;
}

/* Whether it was a number that is written here. */
static bool write_number(FILE *out, const struct sfs_type *type, const void *element)
{
    size_t size = type->size;
    bool is_float = type->class == SFS_FLOAT && (size == 4 || size == 8);
    if (!is_float &&
        (type->class != SFS_INTEGER || (size != 1 && size != 2 && size != 4 && size != 8)))
        return false;
    uint64_t bits = bits_of(type, element);
    if (is_float) {
        uint32_t half = (uint32_t)bits;
        float single;
        double value;
        memcpy(&single, &half, sizeof(single));
        memcpy(&value, &bits, sizeof(value));
        float_write(out, size == 4 ? (double)single : value, size == 4);
    } else if (type->is_signed) {
        unsigned shift = 64 - 8 * (unsigned)size;
        fprintf(out, "%" PRId64, (int64_t)(bits << shift) >> shift);
    } else {
        fprintf(out, "%" PRIu64, bits);
    }
    return true;
}

int value_write(FILE *out, const struct sfs_dataset_info *info, const void *element)
{
    if (write_number(out, &info->type, element))
        return 0;
    char *json;
    int error = sfs_element_json(&info->encoded_type, element, &json);
    if (error)
        return error;
    fputs(json, out);
    free(json);
    return 0;
}

void field_write_csv(FILE *out, const char *text, size_t n)
{
    const char *end = text + n;
    bool quoted = false;
    for (const char *c = text; c < end && !quoted; c++)
        quoted = strchr(",\"\n\r", *c) != NULL;
    if (quoted)
        putc('"', out);
    for (const char *c = text; c < end; c++) {
        if (*c == '"')
            putc('"', out);
        putc(*c, out);
    }
    if (quoted)
        putc('"', out);
}

int value_write_csv(FILE *out, const struct sfs_dataset_info *info, const void *element)
{
    if (write_number(out, &info->type, element))
        return 0;
    char *json;
    int error = sfs_element_json(&info->encoded_type, element, &json);
    if (error)
        return error;
    field_write_csv(out, json, strlen(json));
    free(json);
    return 0;
}
