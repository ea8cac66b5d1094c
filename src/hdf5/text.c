/* Elements of every datatype as text: for attributes, value.txt and dataset.json. Works on elements
 * in memory form, as H5Dread and H5Aread give them for the native type, so that variable-length
 * parts and references can be followed. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/json.h"
#include "hdf5/private.h"

#define MAX_ATTRIBUTE_BYTES ((uint64_t)64 << 20) /* in memory form */
#define MAX_EMPTY_LISTS     ((uint64_t)1 << 16)  /* of an attribute without elements */
#define BATCH_BYTES         ((uint64_t)1 << 20)  /* of a dataset, in memory form */

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

static int write_number(FILE *out, hid_t type, const void *element, enum text_style style)
{
    size_t size = H5Tget_size(type);
    if (H5Tget_class(type) == H5T_FLOAT) {
        float f;
        double d;
        long double l;
        if (size == sizeof(f))
            write_float(out, (memcpy(&f, element, size), f), 6, 9, style == TEXT_JSON);
        else if (size == sizeof(d))
            write_float(out, (memcpy(&d, element, size), d), 15, 17, style == TEXT_JSON);
        else if (size == sizeof(l))
            write_float(out, (memcpy(&l, element, size), l), 18, 21, style == TEXT_JSON);
        else
            return library_failed_because(-EIO, "a floating-point format of unknown size");
        return 0;
    }
    uint64_t value = 0; /* native order: little-endian machines keep the low bytes first */
    if (size > sizeof(value))
        return library_failed_because(-EIO, "an integer of more than 8 bytes");
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    memcpy((char *)&value + sizeof(value) - size, element, size);
#else
    memcpy(&value, element, size);
#endif
    if (H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2) {
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

static void write_fixed_string(FILE *out, hid_t type, const char *bytes, enum text_style style)
{
    size_t n = strnlen(bytes, H5Tget_size(type));
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD)
        while (n > 0 && bytes[n - 1] == ' ')
            n--;
    write_string(out, bytes, n, style);
}

static int write_enum(FILE *out, hid_t type, const void *element, enum text_style style)
{
    char name[1024];
    if (H5Tenum_nameof(type, element, name, sizeof(name)) >= 0) {
        bool boolean = H5Tget_nmembers(type) == 2 && H5Tget_size(type) == 1 &&
                       (!strcmp(name, "TRUE") || !strcmp(name, "FALSE"));
        if (style == TEXT_JSON && boolean)
            fputs(name[0] == 'T' ? "true" : "false", out);
        else
            write_string(out, name, strlen(name), style == TEXT_JSON ? style : TEXT_BARE);
        return 0;
    }
    H5Eclear2(H5E_DEFAULT);
    hid_t base = H5Tget_super(type);
    int error = base < 0 ? library_failed(-EIO) : write_number(out, base, element, style);
    if (base >= 0)
        H5Tclose(base);
    return error;
}

static void write_hex(FILE *out, const unsigned char *bytes, size_t n, enum text_style style)
{
    fputs(style == TEXT_JSON ? "\"" : "", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    fputs(style == TEXT_JSON ? "\"" : "", out);
}

/* The bounds of a region reference's selection: " {(0,0)-(4,5)}". */
static void write_region(FILE *out, hid_t object, const void *element)
{
    hid_t region = H5Rget_region(object, H5R_DATASET_REGION, element);
    hsize_t first[SFS_MAX_RANK], last[SFS_MAX_RANK];
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
    H5Eclear2(H5E_DEFAULT);
}

static int write_reference(FILE *out, hid_t object, hid_t type, const void *element,
                           enum text_style style)
{
    bool is_region = H5Tequal(type, H5T_STD_REF_DSETREG) > 0;
    H5R_type_t kind = is_region ? H5R_DATASET_REGION : H5R_OBJECT;
    ssize_t n = H5Rget_name(object, kind, element, NULL, 0);
    H5Eclear2(H5E_DEFAULT);
    if (n <= 0) {
        fputs("null", out);
        return 0;
    }
    char *text = NULL, *name = malloc((size_t)n + 1);
    size_t length = 0;
    FILE *words = open_memstream(&text, &length);
    int error = name && words ? 0 : -ENOMEM;
    if (!error) {
        if (H5Rget_name(object, kind, element, name, (size_t)n + 1) < 0)
            error = library_failed(-EIO);
        fwrite(name, 1, strlen(name), words);
        if (is_region)
            write_region(words, object, element);
    }
    if (words && fclose(words) != 0)
        error = -ENOMEM;
    if (!error)
        write_string(out, text, length, style);
    free(text);
    free(name);
    return error;
}

static int write_compound(FILE *out, hid_t object, hid_t type, const char *element,
                          enum text_style style)
{
    enum text_style inner = style == TEXT_JSON ? TEXT_JSON : TEXT_QUOTED;
    int n = H5Tget_nmembers(type);
    putc('{', out);
    for (int i = 0; i < n; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        hid_t member = H5Tget_member_type(type, (unsigned)i);
        int error = 0;
        fputs(i ? ", " : "", out);
        if (!name || member < 0) {
            error = library_failed(-EIO);
        } else {
            write_string(out, name, strlen(name), style == TEXT_JSON ? TEXT_JSON : TEXT_BARE);
            fputs(": ", out);
            error = text_element(out, object, member,
                                 element + H5Tget_member_offset(type, (unsigned)i), inner);
        }
        H5free_memory(name);
        if (member >= 0)
            H5Tclose(member);
        if (error)
            return error;
    }
    putc('}', out);
    return 0;
}

/* n elements as "[a, b]", nested along rank dims. */
static int write_list(FILE *out, hid_t object, hid_t type, const char **elements, int rank,
                      const hsize_t *dims, enum text_style style)
{
    putc('[', out);
    for (hsize_t i = 0; i < dims[0]; i++) {
        fputs(i ? ", " : "", out);
        int error;
        if (rank > 1) {
            error = write_list(out, object, type, elements, rank - 1, dims + 1, style);
        } else {
            error = text_element(out, object, type, *elements, style);
            *elements += H5Tget_size(type);
        }
        if (error)
            return error;
    }
    putc(']', out);
    return 0;
}

static int write_array(FILE *out, hid_t object, hid_t type, const char *element,
                       enum text_style style)
{
    hsize_t dims[SFS_MAX_RANK];
    int rank = H5Tget_array_ndims(type);
    hid_t base = H5Tget_super(type);
    int error = rank < 1 || rank > SFS_MAX_RANK || base < 0 || H5Tget_array_dims2(type, dims) < 0
                    ? library_failed(-EIO)
                    : write_list(out, object, base, &element, rank, dims, style);
    if (base >= 0)
        H5Tclose(base);
    return error;
}

static int write_sequence(FILE *out, hid_t object, hid_t type, const void *element,
                          enum text_style style)
{
    hvl_t sequence;
    memcpy(&sequence, element, sizeof(sequence));
    const char *elements = sequence.p;
    hsize_t n = sequence.p ? sequence.len : 0;
    hid_t base = H5Tget_super(type);
    int error =
        base < 0 ? library_failed(-EIO) : write_list(out, object, base, &elements, 1, &n, style);
    if (base >= 0)
        H5Tclose(base);
    return error;
}

int text_element(FILE *out, hid_t object, hid_t type, const void *element, enum text_style style)
{
    enum text_style inner = style == TEXT_JSON ? TEXT_JSON : TEXT_QUOTED;
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
    case H5T_BITFIELD:
        return write_number(out, type, element, style);
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0) {
            const char *string;
            memcpy(&string, element, sizeof(string));
            write_string(out, string ? string : "", string ? strlen(string) : 0, style);
        } else {
            write_fixed_string(out, type, element, style);
        }
        return 0;
    case H5T_ENUM:
        return write_enum(out, type, element, style);
    case H5T_COMPOUND:
        return write_compound(out, object, type, element, style);
    case H5T_ARRAY:
        return write_array(out, object, type, element, inner);
    case H5T_VLEN:
        return write_sequence(out, object, type, element, inner);
    case H5T_REFERENCE:
        return write_reference(out, object, type, element, style);
    default:
        write_hex(out, element, H5Tget_size(type), style);
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

/* The attribute's elements once as text and once as JSON. */
static int write_attribute(hid_t attribute, hid_t type, hid_t space, const char *elements,
                           char **text, enum text_style style)
{
    size_t n;
    FILE *out = open_memstream(text, &n);
    if (!out)
        return -ENOMEM;

    hsize_t dims[SFS_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    int error = 0;
    if (rank < 0)
        error = library_failed(-EIO);
    else if (H5Sget_simple_extent_type(space) == H5S_NULL)
        fputs(style == TEXT_JSON ? "null" : "", out);
    else if (H5Sget_simple_extent_npoints(space) == 1 && (rank == 0 || style != TEXT_JSON))
        error = text_element(out, attribute, type, elements, style);
    else if (H5Sget_simple_extent_npoints(space) == 0 && is_all_brackets(rank, dims))
        error = -EFBIG;
    else
        error = write_list(out, attribute, type, &elements, rank, dims,
                           style == TEXT_JSON ? style : TEXT_QUOTED);

    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*text);
        *text = NULL;
    }
    return error;
}

int text_attribute(hid_t attribute, char **text, char **json)
{
    int error = 0;
    char *elements = NULL;
    hid_t type = H5Aget_type(attribute), native = H5I_INVALID_HID;
    hid_t space = H5Aget_space(attribute);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (type >= 0)
        native = text_memory_type(type);
    if (native < 0 || n < 0) {
        error = library_failed(-EIO);
        goto done;
    }
    uint64_t bytes;
    if (!box_product(&(uint64_t){(uint64_t)n}, 1, H5Tget_size(native), &bytes) ||
        bytes > MAX_ATTRIBUTE_BYTES) {
        error = -EFBIG;
        goto done;
    }
    elements = calloc(bytes ? bytes : 1, 1);
    if (!elements) {
        error = -ENOMEM;
        goto done;
    }
    if (n > 0 && H5Aread(attribute, native, elements) < 0) {
        error = library_failed(-EIO);
        goto done;
    }
    error = write_attribute(attribute, native, space, elements, text, TEXT_BARE);
    if (!error)
        error = write_attribute(attribute, native, space, elements, json, TEXT_JSON);
    if (n > 0)
        text_reclaim(native, (hsize_t)n, elements);

done:
    H5Eclear2(H5E_DEFAULT);
    free(elements);
    if (native >= 0)
        H5Tclose(native);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return error;
}

int text_elements(FILE *out, hid_t object, hid_t type, const char *elements, uint64_t n,
                  uint64_t row_length, uint64_t *position)
{
    bool single = row_length == 0;
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++, ++*position) {
        error = text_element(out, object, type, elements + i * H5Tget_size(type),
                             single ? TEXT_BARE : TEXT_QUOTED);
        putc(single || (*position + 1) % row_length == 0 ? '\n' : ' ', out);
    }
    return error;
}

/* Writes the elements of one box of a dataset. */
static int write_box(FILE *out, const struct open_dataset *dataset, hid_t native,
                     const struct box *box, uint64_t row_length, uint64_t *position)
{
    uint64_t n = box_elements(box);
    hsize_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    for (int i = 0; i < box->rank; i++) {
        start[i] = box->start[i];
        count[i] = box->count[i];
    }
    /* Of the same shape in memory: with another one libhdf5 1.10 divides by zero at rank 32. */
    hid_t memory = H5Screate_simple(box->rank, count, NULL);
    char *elements = calloc(n, H5Tget_size(native));
    int error = 0;
    if (!elements)
        error = -ENOMEM;
    else if (memory < 0 ||
             (dataset->rank > 0 &&
              H5Sselect_hyperslab(dataset->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
             H5Dread(dataset->id, native, memory, dataset->space, H5P_DEFAULT, elements) < 0)
        error = library_failed(-EIO);

    if (!error) {
        error = text_elements(out, dataset->id, native, elements, n, row_length, position);
        text_reclaim(native, n, elements);
    }
    free(elements);
    if (memory >= 0)
        H5Sclose(memory);
    return error;
}

int text_dataset(const struct open_dataset *dataset, size_t limit, char **text, size_t *n)
{
    struct box slab = {.rank = 1, .count = {1}};
    hsize_t dims[SFS_MAX_RANK];
    if (dataset->rank > 0) {
        if (H5Sget_simple_extent_dims(dataset->space, dims, NULL) < 0)
            return library_failed(-EIO);
        slab.rank = dataset->rank;
        for (int i = 0; i < dataset->rank; i++)
            slab.count[i] = dims[i];
    } else if (H5Sget_simple_extent_type(dataset->space) == H5S_NULL) {
        slab.count[0] = 0;
    }
    uint64_t total;
    if (!box_product(slab.count, slab.rank, 1, &total))
        return -EFBIG;

    hid_t native = text_memory_type(dataset->type);
    if (native < 0)
        return library_failed(-EIO);
    FILE *out = open_memstream(text, n);
    if (!out) {
        H5Tclose(native);
        return -ENOMEM;
    }
    uint64_t batch = BATCH_BYTES / H5Tget_size(native);
    uint64_t row_length = total == 1 ? 0 : slab.count[slab.rank - 1];
    uint64_t position = 0;
    int error = 0;
    while (position < total && !error) {
        struct box box;
        uint64_t left = total - position;
        box_of_interval(&slab, position, left < batch ? left : batch ? batch : 1, &box);
        error = write_box(out, dataset, native, &box, row_length, &position);
        if (!error && (uint64_t)ftello(out) > limit)
            error = -EFBIG;
    }
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*text);
        *text = NULL;
    }
    H5Tclose(native);
    return error;
}
