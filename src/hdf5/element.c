/* Elements outside of a file: as JSON, as text, and single ones out of text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

/* Room for an element of either type, and what else converting compounds takes. */
struct room {
    void *element;
    void *background;
};

static int room_init(struct room *room, hid_t a, hid_t b)
{
    size_t a_size = H5Tget_size(a), b_size = H5Tget_size(b);
    size_t size = a_size > b_size ? a_size : b_size;
    room->element = calloc(1, size);
    room->background = calloc(1, size);
    return room->element && room->background ? 0 : -ENOMEM;
}

static void room_free(struct room *room)
{
    free(room->element);
    free(room->background);
}

int element_json(hid_t type, const void *element, char **json)
{
    size_t n;
    struct room room = {0};
    struct text_type text_type = {0};
    hid_t native = text_memory_type(type);
    if (native < 0)
        return library_failed(-EIO);
    FILE *out = open_memstream(json, &n);
    int error = out ? text_type_make(native, &text_type) : -ENOMEM;
    if (!error)
        error = room_init(&room, type, native);
    if (!error) {
        memcpy(room.element, element, H5Tget_size(type));
        error = H5Tconvert(type, native, 1, room.element, room.background, H5P_DEFAULT) < 0
                    ? library_failed(-EOPNOTSUPP)
                    : text_element(&(struct text_writer){.out = out}, &text_type, room.element,
                                   TEXT_JSON);
    }
    room_free(&room);
    text_type_free(&text_type);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*json);
        *json = NULL;
    }
    H5Tclose(native);
    return error;
}

int local_element_json(const void *type, size_t n, const void *element, char **json)
{
    hid_t id;
    char *text = NULL;
    bool has_pointers;
    library_enter();
    int error = type_decode(type, n, &id);
    if (!error)
        error = type_has_pointers(id, &has_pointers);
    if (!error && has_pointers)
        error = library_failed_because(-EOPNOTSUPP, "elements with pointers are not bytes");
    if (!error)
        error = element_json(id, element, &text);
    if (id >= 0)
        H5Tclose(id);
    library_leave();
    if (!error)
        *json = text;
    return error;
}

/* Converts elements to their native form in a buffer of their own, which the caller frees. */
static int make_native(hid_t type, hid_t native, const struct sfs_encoded *elements, uint64_t n,
                       char **out)
{
    uint64_t bytes;
    size_t size = H5Tget_size(type), native_size = H5Tget_size(native);
    if (!box_product(&n, 1, size, &bytes) || bytes != elements->n)
        return library_failed_because(-EINVAL, "there are not as many bytes as elements have");
    char *converted = calloc(n ? n : 1, size > native_size ? size : native_size);
    char *background = calloc(n ? n : 1, native_size);
    int error = converted && background ? 0 : -ENOMEM;
    if (!error) {
        if (n > 0)
            memcpy(converted, elements->bytes, elements->n);
        if (H5Tconvert(type, native, n, converted, background, H5P_DEFAULT) < 0)
            error = library_failed(-EIO);
    }
    free(background);
    if (error)
        free(converted);
    else
        *out = converted;
    return error;
}

/* `shown` has strings in place of the references of the type. */
static int write_text(hid_t type, hid_t shown, const struct hdf5_elements *elements, char **text,
                      size_t *text_n)
{
    char *converted = NULL;
    uint64_t n = elements->n, first = elements->first;
    bool has_pointers = false;
    struct text_type text_type = {0};
    hid_t native = text_memory_type(shown);
    int error = native < 0 ? library_failed(-EIO) : text_type_make(native, &text_type);
    if (!error)
        error = type_has_pointers(shown, &has_pointers);
    if (!error)
        error = shown_mark(type, &text_type);
    if (!error)
        error = has_pointers ? stored_native(shown, native, n, &elements->elements, &converted)
                             : make_native(shown, native, &elements->elements, n, &converted);
    FILE *out = error ? NULL : open_memstream(text, text_n);
    if (!error && !out)
        error = -ENOMEM;
    if (!error)
        error = text_elements(&(struct text_writer){.out = out}, &text_type, converted, n,
                              elements->row_length, &first);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*text);
        *text = NULL;
    }
    if (has_pointers && converted)
        text_reclaim(native, n, converted);
    free(converted);
    text_type_free(&text_type);
    if (native >= 0)
        H5Tclose(native);
    return error;
}

int local_elements_text(const struct hdf5_elements *elements, char **text, size_t *text_n)
{
    hid_t id, shown = H5I_INVALID_HID;
    struct sfs_type description = {0};
    library_enter();
    int error = type_decode(elements->type->bytes, elements->type->n, &id);
    if (!error)
        error = type_describe(id, &description); /* it is not nested too deeply */
    hdf5_type_free(&description);
    if (!error)
        error = shown_type(id, &shown);
    if (!error)
        error = write_text(id, shown, elements, text, text_n);
    if (shown >= 0)
        H5Tclose(shown);
    if (id >= 0)
        H5Tclose(id);
    library_leave();
    return error;
}

/* ---- Out of text ---- */

static int refuse(const char *why)
{
    return library_failed_because(-EINVAL, why);
}

/* Puts a number of the machine into an element, if it is the same number there. */
static int put_number(hid_t type, hid_t native, const void *value, void *element)
{
    struct room room = {0};
    size_t size = H5Tget_size(type), native_size = H5Tget_size(native);
    int error = room_init(&room, type, native);
    if (error)
        goto done;
    memcpy(room.element, value, native_size);
    if (H5Tconvert(native, type, 1, room.element, NULL, H5P_DEFAULT) < 0) {
        error = library_failed(-EOPNOTSUPP);
        goto done;
    }
    memcpy(room.background, room.element, size);
    if (H5Tconvert(type, native, 1, room.element, NULL, H5P_DEFAULT) < 0) {
        error = library_failed(-EOPNOTSUPP);
        goto done;
    }
    if (H5Tget_class(native) == H5T_FLOAT) {
        double before, after;
        memcpy(&before, value, sizeof(before));
        memcpy(&after, room.element, sizeof(after));
        if (isfinite(before) && !isfinite(after))
            error = refuse("the number does not fit into the datatype");
    } else if (memcmp(value, room.element, native_size) != 0) {
        error = refuse("the number does not fit into the datatype");
    }
    if (!error)
        memcpy(element, room.background, size);

done:
    room_free(&room);
    return error;
}

int element_parse_integer(hid_t type, const char *text, void *element)
{
    char *end;
    int base = strncmp(text, "0x", 2) == 0 || strncmp(text, "0X", 2) == 0 ? 16 : 10;
    if (strchr(" \t\r\n", *text)) /* the empty text, too */
        return refuse("not a number");
    errno = 0;
    if (*text == '-') {
        long long value = strtoll(text, &end, base);
        return *end || errno || end == text ? refuse("not a number that fits")
                                            : put_number(type, H5T_NATIVE_LLONG, &value, element);
    }
    unsigned long long value = strtoull(text, &end, base);
    return *end || errno || end == text ? refuse("not a number that fits")
                                        : put_number(type, H5T_NATIVE_ULLONG, &value, element);
}

static int parse_float(hid_t type, const char *text, void *element)
{
    char *end;
    double value = strtod(text, &end);
    if (strchr(" \t\r\n", *text) || end == text || *end)
        return refuse("not a number");
    /* Too large for a double: strtod gives infinity where none was asked for. */
    if (isinf(value) && strpbrk(text, "0123456789"))
        return refuse("the number does not fit into the datatype");
    return put_number(type, H5T_NATIVE_DOUBLE, &value, element);
}

/* A name of the enumeration (of booleans also true and false), else a number. */
static int parse_enum(hid_t type, const char *text, void *element)
{
    const char *name = !strcmp(text, "true") ? "TRUE" : !strcmp(text, "false") ? "FALSE" : text;
    if (H5Tenum_valueof(type, name, element) >= 0 ||
        (name != text && H5Tenum_valueof(type, text, element) >= 0))
        return 0;
    H5Eclear2(H5E_DEFAULT);
    hid_t base = H5Tget_super(type);
    if (base < 0)
        return library_failed(-EIO);
    int error = element_parse_integer(base, text, element);
    H5Tclose(base);
    return error;
}

static int parse_string(hid_t type, const char *text, void *element)
{
    size_t size = H5Tget_size(type), n = strlen(text);
    H5T_str_t padding = H5Tget_strpad(type);
    if (n > size || (padding == H5T_STR_NULLTERM && n == size))
        return refuse("the string is longer than an element");
    memset(element, padding == H5T_STR_SPACEPAD ? ' ' : 0, size);
    memcpy(element, text, n);
    return 0;
}

static int parse(hid_t type, const char *text, void *element)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_BITFIELD:
        return element_parse_integer(type, text, element);
    case H5T_FLOAT:
        return parse_float(type, text, element);
    case H5T_ENUM:
        return parse_enum(type, text, element);
    case H5T_STRING:
        if (H5Tis_variable_str(type) == 0)
            return parse_string(type, text, element);
        /* fall through */
    default:
        return library_failed_because(-EOPNOTSUPP, "elements of this datatype cannot be given as "
                                                   "text");
    }
}

int local_element_parse(const void *type, size_t n, const char *text, void *element)
{
    hid_t id;
    library_enter();
    int error = type_decode(type, n, &id);
    if (!error)
        error = parse(id, text, element);
    if (id >= 0)
        H5Tclose(id);
    library_leave();
    return error;
}
