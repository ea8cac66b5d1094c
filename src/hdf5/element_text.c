/* Elements of every datatype as text: for attributes, value.txt and dataset.json. Works on elements
 * in memory form, as H5Dread and H5Aread give them for the native type, so that variable-length
 * parts and references can be followed. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/escape_lines.h"
#include "common/json.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define MAX_ATTRIBUTE_BYTES ((uint64_t)64 << 20) /* in memory form */
#define MAX_EMPTY_LISTS     ((uint64_t)1 << 16)  /* of an attribute without elements */

static int text_failed(const char *why)
{
    library_reason(why);
    return -EIO;
}

/* The fewest digits that read back as the same number. */
static void write_float(FILE *out, long double value, int digits, int max_digits, bool quote)
{
    if (!isfinite(value)) {
        const char *word = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
        fprintf(out, quote ? "\"%s\"" : "%s", word);
        return;
    }
    char text[64];
    for (; digits <= max_digits; digits++) {
        snprintf(text, sizeof(text), "%.*Lg", digits, value);
        bool same = max_digits == 9    ? strtof(text, NULL) == (float)value
                    : max_digits == 17 ? strtod(text, NULL) == (double)value
                                       : strtold(text, NULL) == value;
        if (same)
            break;
    }
    fputs(text, out);
}

/* IEEE 754 binary16, for which libhdf5 has a native type from 1.14.4 on, and C17 has none. */
static float half_float(const void *element)
{
    uint16_t bits;
    memcpy(&bits, element, sizeof(bits));
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? fraction ? NAN : INFINITY
                  : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                 : ldexpf((float)fraction, -24);
    return bits >> 15 ? -value : value;
}

static int write_number(FILE *out, const struct text_type *type, const void *element,
                        enum text_style style)
{
    size_t size = type->size;
    if (type->class == H5T_FLOAT) {
        float f;
        double d;
        long double l;
        if (size == sizeof(uint16_t))
            write_float(out, half_float(element), 6, 9, style == TEXT_JSON);
        else if (size == sizeof(f))
            write_float(out, (memcpy(&f, element, size), f), 6, 9, style == TEXT_JSON);
        else if (size == sizeof(d))
            write_float(out, (memcpy(&d, element, size), d), 15, 17, style == TEXT_JSON);
        else if (size == sizeof(l))
            write_float(out, (memcpy(&l, element, size), l), 18, 21, style == TEXT_JSON);
        else
            return text_failed("a floating-point format of unknown size");
        return 0;
    }
    if (size > sizeof(uint64_t))
        return text_failed("an integer of more than 8 bytes");
    uint64_t value = text_integer(element, size);
    if (type->is_signed) {
        unsigned shift = (unsigned)(64 - 8 * size);
        fprintf(out, "%" PRId64, (int64_t)(value << shift) >> shift);
    } else {
        fprintf(out, "%" PRIu64, value);
    }
    return 0;
}

static void write_string(FILE *out, const char *bytes, size_t n, enum text_style style)
{
    if (style == TEXT_BARE)
        fwrite(bytes, 1, n, out);
    else
        json_string(out, bytes, n);
}

/* The characters of a string, of either kind. */
static const char *string_of(const struct text_type *type, const void *element, size_t *n)
{
    const char *string = element;
    if (type->has_pointers) {
        memcpy(&string, element, sizeof(string));
        *n = string ? strlen(string) : 0;
        return string ? string : "";
    }
    *n = strnlen(string, type->size);
    while (type->is_space_padded && *n > 0 && string[*n - 1] == ' ')
        --*n;
    return string;
}

static int write_enum(FILE *out, const struct text_type *type, const void *element,
                      enum text_style style)
{
    const char *name = text_value_name(type, element);
    if (!name)
        return write_number(out, type->base, element, style);
    if (style == TEXT_JSON && type->is_boolean)
        fputs(!strcmp(name, "TRUE") ? "true" : "false", out);
    else
        write_string(out, name, strlen(name), style == TEXT_JSON ? style : TEXT_BARE);
    return 0;
}

static void write_hex(FILE *out, const unsigned char *bytes, size_t n, enum text_style style)
{
    fputs(style == TEXT_JSON ? "\"" : "", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    fputs(style == TEXT_JSON ? "\"" : "", out);
}

/* What a region reference selects of which object, its bounds being " {(0,0)-(4,5)}". The library
 * lock is held. */
static bool find_region(FILE *out, hid_t file, const void *element, uint64_t *address)
{
    hsize_t first[SFS_MAX_RANK], last[SFS_MAX_RANK];
    H5O_info_t info;
    hid_t object = H5Rdereference2(file, H5P_DEFAULT, H5R_DATASET_REGION, element);
    hid_t region = H5Rget_region(file, H5R_DATASET_REGION, element);
    bool found = object >= 0 && H5Oget_info2(object, &info, H5O_INFO_BASIC) >= 0;
    *address = found ? info.addr : 0;
    int rank = region < 0 ? -1 : H5Sget_simple_extent_ndims(region);
    if (rank > 0 && H5Sget_select_bounds(region, first, last) >= 0) {
        fputs(" {", out);
        for (int end = 0; end < 2; end++) {
            fputs(end ? "-" : "", out);
            for (int i = 0; i < rank; i++)
                fprintf(out, "%c%llu", i ? ',' : '(', (unsigned long long)(end ? last : first)[i]);
            putc(')', out);
        }
        putc('}', out);
    }
    if (region >= 0)
        H5Sclose(region);
    if (object >= 0)
        H5Oclose(object);
    H5Eclear2(H5E_DEFAULT);
    return found;
}

static bool is_null(const void *element, size_t n)
{
    const char *bytes = element;
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* The path of what a reference leads to, and which part of it. *text stays NULL if it leads
 * nowhere. One of any kind is in a form of libhdf5's own. */
static int reference_text(const struct text_source *source, const struct text_type *type,
                          const void *element, char **text)
{
    size_t n = 0;
    uint64_t address = 0;
    char *path = NULL, *bounds = NULL;
    *text = NULL;
    if (is_null(element, type->size))
        return 0;
    if (type->reference == SFS_REFERENCE_ANY)
        return (*text = strdup("reference")) ? 0 : -ENOMEM;
    FILE *out = open_memstream(&bounds, &n);
    if (!out)
        return -ENOMEM;
    int error = 0;
    bool found = true;
    if (type->reference == SFS_REFERENCE_REGION) {
        library_enter();
        found = find_region(out, source->hdf5->file, element, &address);
        error = library_leave_with(0);
    } else {
        memcpy(&address, element, sizeof(address));
    }
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (!error && found)
        error = names_path(source->names, address, &path);
    if (error == -EFBIG && asprintf(text, "object at address %" PRIu64, address) < 0)
        error = -ENOMEM;
    else if (!error && path && asprintf(text, "%s%s", path, bounds) < 0)
        error = -ENOMEM;
    free(path);
    free(bounds);
    if (error == -ENOMEM)
        *text = NULL;
    return error == -ENOENT || error == -EFBIG ? 0 : error;
}

static int write_reference(const struct text_writer *writer, const struct text_type *type,
                           const void *element, enum text_style style)
{
    FILE *out = writer->out;
    char *text;
    if (type->is_text) {
        size_t n;
        const char *string = string_of(type, element, &n);
        write_string(out, n > 0 ? string : "null", n > 0 ? n : 4, n > 0 ? style : TEXT_BARE);
        return 0;
    }
    int error = reference_text(writer->source, type, element, &text);
    if (error)
        return error;
    if (text)
        write_string(out, text, strlen(text), style);
    else
        fputs("null", out);
    free(text);
    return 0;
}

static int write_compound(const struct text_writer *writer, const struct text_type *type,
                          const char *element, enum text_style style)
{
    enum text_style inner = style == TEXT_JSON ? TEXT_JSON : TEXT_QUOTED;
    FILE *out = writer->out;
    int error = 0;
    putc('{', out);
    for (size_t i = 0; i < type->n_members && !error; i++) {
        const struct text_member *member = &type->members[i];
        fputs(i ? ", " : "", out);
        write_string(out, member->name, strlen(member->name),
                     style == TEXT_JSON ? TEXT_JSON : TEXT_BARE);
        fputs(": ", out);
        error = text_element(writer, &member->type, element + member->offset, inner);
    }
    putc('}', out);
    return error;
}

/* n elements as "[a, b]", nested along rank dims. */
static int write_list(const struct text_writer *writer, const struct text_type *type,
                      const char **elements, int rank, const hsize_t *dims, enum text_style style)
{
    FILE *out = writer->out;
    int error = 0;
    putc('[', out);
    for (hsize_t i = 0; i < dims[0] && !error; i++) {
        fputs(i ? ", " : "", out);
        if (rank > 1) {
            error = write_list(writer, type, elements, rank - 1, dims + 1, style);
        } else {
            error = text_element(writer, type, *elements, style);
            *elements += type->size;
        }
    }
    putc(']', out);
    return error;
}

static int write_sequence(const struct text_writer *writer, const struct text_type *type,
                          const void *element, enum text_style style)
{
    hvl_t sequence;
    memcpy(&sequence, element, sizeof(sequence));
    const char *elements = sequence.p;
    hsize_t n = sequence.p ? sequence.len : 0;
    return write_list(writer, type->base, &elements, 1, &n, style);
}

int text_element(const struct text_writer *writer, const struct text_type *type,
                 const void *element, enum text_style style)
{
    enum text_style inner = style == TEXT_JSON ? TEXT_JSON : TEXT_QUOTED;
    const char *elements = element, *string;
    FILE *out = writer->out;
    size_t n;
    switch (type->class) {
    case H5T_INTEGER:
    case H5T_FLOAT:
    case H5T_BITFIELD:
        return write_number(out, type, element, style);
    case H5T_STRING:
        string = string_of(type, element, &n);
        write_string(out, string, n, style);
        return 0;
    case H5T_ENUM:
        return write_enum(out, type, element, style);
    case H5T_COMPOUND:
        return write_compound(writer, type, element, style);
    case H5T_ARRAY:
        return write_list(writer, type->base, &elements, type->rank, type->dims, inner);
    case H5T_VLEN:
        return write_sequence(writer, type, element, inner);
    case H5T_REFERENCE:
        return write_reference(writer, type, element, style);
    default:
        write_hex(out, element, type->size, style);
        return 0;
    }
}

hid_t text_memory_type(hid_t type)
{
    hid_t native = H5Tget_native_type(type, H5T_DIR_ASCEND);
    if (native < 0) {
        H5Eclear2(H5E_DEFAULT);
        native = H5Tcopy(type);
    }
    return native;
}

/* Frees what the variable-length parts of n elements point to. In one dimension: walking a space of
 * 32 dimensions libhdf5 1.10 divides by zero. */
void text_reclaim(hid_t type, hsize_t n, void *elements)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    if (space >= 0) {
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, elements);
        H5Sclose(space);
    }
    H5Eclear2(H5E_DEFAULT);
}

/* Whether an attribute of these dims is written as more lists than anyone reads though it has no
 * elements: dims of 2^40 and 0 are 2^40 empty lists. */
static bool is_all_brackets(int rank, const hsize_t *dims)
{
    uint64_t lists = 1;
    for (int i = 0; i < rank && dims[i] > 0; i++)
        if (__builtin_mul_overflow(lists, dims[i], &lists))
            lists = UINT64_MAX;
    return lists > MAX_EMPTY_LISTS;
}

/* ---- Attributes ---- */

/* Once as text and once as JSON. */
static int write_attribute(const struct text_source *source, const struct read_attribute *attribute,
                           char **text, enum text_style style)
{
    size_t n;
    const char *elements = attribute->elements;
    const hsize_t *dims = attribute->dims;
    int rank = attribute->rank;
    FILE *out = open_memstream(text, &n);
    if (!out)
        return -ENOMEM;
    const struct text_writer writer = {out, source};
    int error = 0;
    if (attribute->is_null)
        fputs(style == TEXT_JSON ? "null" : "", out);
    else if (attribute->n == 1 && (rank == 0 || style != TEXT_JSON))
        error = text_element(&writer, &attribute->type, elements, style);
    else if (attribute->n == 0 && is_all_brackets(rank, dims))
        error = -EFBIG;
    else
        error = write_list(&writer, &attribute->type, &elements, rank, dims,
                           style == TEXT_JSON ? style : TEXT_QUOTED);
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*text);
        *text = NULL;
    }
    return error;
}

int text_attribute(const struct text_source *source, const struct read_attribute *attribute,
                   char **text, char **json)
{
    int error = write_attribute(source, attribute, text, TEXT_BARE);
    return error ? error : write_attribute(source, attribute, json, TEXT_JSON);
}

static int read_as(void *attribute, hid_t type, void *buffer)
{
    return H5Aread(*(hid_t *)attribute, type, buffer) < 0 ? library_failed(-EIO) : 0;
}

static int read_elements(hid_t id, hid_t type, struct read_attribute *attribute)
{
    uint64_t bytes;
    if (!box_product(&attribute->n, 1, attribute->type.size, &bytes) || bytes > MAX_ATTRIBUTE_BYTES)
        return -EFBIG;
    struct lengths_source source = {read_as, &id};
    int error = lengths_check(&source, type, attribute->n, MAX_ATTRIBUTE_BYTES - bytes);
    if (error)
        return error;
    attribute->elements = calloc(bytes ? bytes : 1, 1);
    if (!attribute->elements)
        return -ENOMEM;
    if (attribute->n > 0 && H5Aread(id, attribute->native, attribute->elements) < 0) {
        error = library_failed(-EIO);
        attribute->n = 0;
        return error;
    }
    return 0;
}

int text_read_attribute(hid_t id, struct read_attribute *attribute)
{
    int error = 0;
    hid_t type = H5Aget_type(id), space = H5Aget_space(id);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    attribute->native = type < 0 ? H5I_INVALID_HID : text_memory_type(type);
    attribute->rank = n < 0 ? -1 : H5Sget_simple_extent_dims(space, attribute->dims, NULL);
    if (attribute->native < 0 || attribute->rank < 0) {
        error = library_failed(-EIO);
    } else {
        attribute->n = (uint64_t)n;
        attribute->is_null = H5Sget_simple_extent_type(space) == H5S_NULL;
        error = text_type_make(attribute->native, &attribute->type);
    }
    if (!error)
        error = read_elements(id, type, attribute);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    H5Eclear2(H5E_DEFAULT);
    return error;
}

void text_close_attribute(struct read_attribute *attribute)
{
    if (attribute->elements && attribute->n > 0)
        text_reclaim(attribute->native, attribute->n, attribute->elements);
    if (attribute->native >= 0)
        H5Tclose(attribute->native);
    text_type_free(&attribute->type);
    free(attribute->elements);
}

int text_line(const struct text_writer *writer, const struct text_type *type, const void *element)
{
    FILE *out = writer->out;
    char *text;
    size_t n;
    if (type->class == H5T_STRING) {
        const char *string = string_of(type, element, &n);
        lines_escape(out, string, n);
        putc('\n', out);
        return 0;
    }
    FILE *bare = open_memstream(&text, &n);
    if (!bare)
        return -ENOMEM;
    int error = text_element(&(struct text_writer){bare, writer->source}, type, element, TEXT_BARE);
    if (fclose(bare) != 0 && !error)
        error = -ENOMEM;
    /* What is composed has its strings in quotes, and no line breaks. */
    bool is_bare = type->class == H5T_ENUM || type->class == H5T_REFERENCE;
    if (!error && is_bare)
        lines_escape(out, text, n);
    else if (!error)
        fwrite(text, 1, n, out);
    putc('\n', out);
    free(text);
    return error;
}

int text_elements(const struct text_writer *writer, const struct text_type *type,
                  const char *elements, uint64_t n, uint64_t row_length, uint64_t *position)
{
    bool single = row_length == 0, is_json = row_length == HDF5_JSON;
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++, ++*position) {
        if (row_length == HDF5_LINES) {
            error = text_line(writer, type, elements + i * type->size);
            continue;
        }
        error = text_element(writer, type, elements + i * type->size,
                             is_json  ? TEXT_JSON
                             : single ? TEXT_BARE
                                      : TEXT_QUOTED);
        putc(single || is_json || (*position + 1) % row_length == 0 ? '\n' : ' ', writer->out);
    }
    return error;
}
