/* Datatypes as far as text needs them: looked at once with libhdf5, so that elements become text
 * without it, and without its lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/private.h"

#define MAX_NESTING 32 /* compounds in arrays in compounds: a file may hold a bomb */

void text_type_free(struct text_type *type)
{
    if (!type)
        return;
    for (size_t i = 0; i < type->n_members; i++) {
        H5free_memory(type->members[i].name);
        text_type_free(&type->members[i].type);
    }
    for (size_t i = 0; i < type->n_values; i++)
        H5free_memory(type->values[i].name);
    text_type_free(type->base);
    free(type->base);
    free(type->members);
    free(type->values);
    memset(type, 0, sizeof(*type));
}

static int make(hid_t id, struct text_type *type, int depth);

static int make_base(hid_t id, struct text_type *type, int depth)
{
    hid_t base = H5Tget_super(id);
    if (base < 0)
        return library_failed(-EIO);
    type->base = calloc(1, sizeof(*type->base));
    int error = type->base ? make(base, type->base, depth + 1) : -ENOMEM;
    H5Tclose(base);
    if (!error)
        type->has_references |= type->base->has_references;
    return error;
}

static int make_compound(hid_t id, struct text_type *type, int depth)
{
    int n = H5Tget_nmembers(id), error = 0;
    if (n < 0)
        return library_failed(-EIO);
    type->members = calloc(n ? (size_t)n : 1, sizeof(*type->members));
    if (!type->members)
        return -ENOMEM;
    for (int i = 0; i < n && !error; i++) {
        struct text_member *member = &type->members[type->n_members++];
        hid_t member_id = H5Tget_member_type(id, (unsigned)i);
        member->name = H5Tget_member_name(id, (unsigned)i);
        member->offset = H5Tget_member_offset(id, (unsigned)i);
        error = member_id < 0 || !member->name ? library_failed(-EIO)
                                               : make(member_id, &member->type, depth + 1);
        type->has_references |= member->type.has_references;
        if (member_id >= 0)
            H5Tclose(member_id);
    }
    return error;
}

uint64_t text_integer(const void *element, size_t size)
{
    uint64_t value = 0;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    memcpy((char *)&value + sizeof(value) - size, element, size);
#else
    memcpy(&value, element, size);
#endif
    return value;
}

static int compare_values(const void *a, const void *b)
{
    const struct text_value *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int make_enum(hid_t id, struct text_type *type, int depth)
{
    int n = H5Tget_nmembers(id);
    int error = n < 0 ? library_failed(-EIO) : make_base(id, type, depth);
    if (error)
        return error;
    uint64_t element;
    if (type->size > sizeof(element))
        return library_failed_because(-EIO, "an enumeration of more than 8 bytes");
    type->values = calloc((size_t)n + 1, sizeof(*type->values));
    if (!type->values)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        struct text_value *value = &type->values[type->n_values++];
        value->name = H5Tget_member_name(id, (unsigned)i);
        if (!value->name || H5Tget_member_value(id, (unsigned)i, &element) < 0)
            return library_failed(-EIO);
        value->value = text_integer(&element, type->size);
        type->is_boolean |= n == 2 && type->size == 1 &&
                            (!strcmp(value->name, "TRUE") || !strcmp(value->name, "FALSE"));
    }
    qsort(type->values, type->n_values, sizeof(*type->values), compare_values);
    return 0;
}

const char *text_value_name(const struct text_type *type, const void *element)
{
    const struct text_value key = {.value = text_integer(element, type->size)};
    const struct text_value *found =
        bsearch(&key, type->values, type->n_values, sizeof(key), compare_values);
    return found ? found->name : NULL;
}

static int make_array(hid_t id, struct text_type *type, int depth)
{
    type->rank = H5Tget_array_ndims(id);
    if (type->rank < 1 || type->rank > SFS_MAX_RANK || H5Tget_array_dims2(id, type->dims) < 0)
        return library_failed(-EIO);
    return make_base(id, type, depth);
}

static int make(hid_t id, struct text_type *type, int depth)
{
    if (depth > MAX_NESTING)
        return library_failed_because(-EIO, "datatypes are nested too deeply");
    memset(type, 0, sizeof(*type));
    type->class = H5Tget_class(id);
    type->size = H5Tget_size(id);
    if (type->size == 0)
        return library_failed(-EIO);
    switch (type->class) {
    case H5T_INTEGER:
        type->is_signed = H5Tget_sign(id) == H5T_SGN_2;
        return 0;
    case H5T_STRING:
        type->has_pointers = H5Tis_variable_str(id) > 0;
        type->is_space_padded = H5Tget_strpad(id) == H5T_STR_SPACEPAD;
        return 0;
    case H5T_ENUM:
        return make_enum(id, type, depth);
    case H5T_COMPOUND:
        return make_compound(id, type, depth);
    case H5T_ARRAY:
        return make_array(id, type, depth);
    case H5T_VLEN:
        return make_base(id, type, depth);
    case H5T_REFERENCE:
        type->has_references = true;
        type->reference = type_reference(id);
        return 0;
    default:
        return 0;
    }
}

int text_type_make(hid_t id, struct text_type *type)
{
    int error = make(id, type, 0);
    if (error)
        text_type_free(type);
    return error;
}
