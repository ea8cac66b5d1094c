/* Numbers are written here, as there may be very many of them; the rest through the library. */
#include "cli/print_element.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/float_text.h"
#include "view/element_number.h"

/* Whether it was a number that is written here. */
static bool write_number(FILE *out, const struct sfs_type *type, const void *element)
{
    size_t size = type->size;
    bool is_float = type->class == SFS_FLOAT && (size == 4 || size == 8);
    if (!is_float &&
        (type->class != SFS_INTEGER || (size != 1 && size != 2 && size != 4 && size != 8)))
        return false;
    if (is_float)
        float_write(out, number_value(type, element), size == 4);
    else if (type->is_signed)
        fprintf(out, "%" PRId64, number_signed(type, number_bits(type, element)));
    else
        fprintf(out, "%" PRIu64, number_bits(type, element));
    return true;
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

int value_write(FILE *out, const struct sfs_dataset_info *info, const void *element, bool is_field)
{
    if (write_number(out, &info->type, element))
        return 0;
    char *json;
    int error = sfs_element_json(&info->encoded_type, element, &json);
    if (error)
        return error;
    if (is_field)
        field_write_csv(out, json, strlen(json));
    else
        fputs(json, out);
    free(json);
    return 0;
}
