/* Plain datatypes as libhdf5 would describe them, and elements of them as text and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/why.h"
#include "format/datatype_message.h"
#include "format/plain_type.h"
#include "hdf5/own_reader.h"
#include "hdf5/private.h"

#define PREFIX_BYTES 2 /* of an encoded datatype: the type of the message, and a version */
#define MESSAGE_TYPE 3
#define SIZE_AT      4 /* in a datatype message */

/* ---- Descriptions ---- */

enum order { ORDER_NONE, ORDER_LITTLE, ORDER_BIG, ORDER_MIXED };

/* As libhdf5 has it: that of what it is made of, if all of that has the same. */
static enum order order_of(const struct plain_type *type)
{
    enum order order = ORDER_NONE;
    while (type->base)
        type = type->base;
    if (type->class == TYPE_INTEGER || type->class == TYPE_FLOAT || type->class == TYPE_BITFIELD)
        return type->big_endian ? ORDER_BIG : ORDER_LITTLE;
    for (size_t i = 0; i < type->n_members; i++) {
        enum order other = order_of(&type->member[i].type);
        if (order == ORDER_NONE)
            order = other;
        else if (other != ORDER_NONE && other != order)
            return ORDER_MIXED;
    }
    return order;
}

/* Of an element in memory. */
static size_t memory_size(const struct plain_type *type)
{
    return type->class != TYPE_VARIABLE ? type->size
           : type->is_string            ? sizeof(char *)
                                        : sizeof(hvl_t);
}

static void write_words(FILE *out, const struct plain_type *type)
{
    size_t size = memory_size(type), bits = 8 * size;
    const char *order = bits <= 8                     ? ""
                        : order_of(type) == ORDER_BIG ? " big-endian"
                                                      : " little-endian";
    switch (type->class) {
    case TYPE_INTEGER:
        fprintf(out, "%zu-bit%s %sinteger", bits, order, type->is_signed ? "" : "unsigned ");
        break;
    case TYPE_FLOAT:
        fprintf(out, "%zu-bit%s floating-point", bits, order);
        break;
    case TYPE_BITFIELD:
        fprintf(out, "%zu-bit%s bitfield", bits, order);
        break;
    case TYPE_STRING:
        fprintf(out, "%zu-byte string", size);
        break;
    case TYPE_OPAQUE:
        fprintf(out, "%zu opaque bytes", size);
        break;
    case TYPE_COMPOUND:
        fprintf(out, "compound of %zu members", type->n_members);
        break;
    case TYPE_REFERENCE:
        fputs(type->is_region ? "region reference" : "object reference", out);
        break;
    case TYPE_ENUM:
        fprintf(out, "%zu-bit%s enumeration of %zu names", bits, order, type->n_values);
        break;
    case TYPE_VARIABLE:
        fputs(type->is_string ? "variable-length string" : "variable-length sequence", out);
        break;
    case TYPE_ARRAY:
        fputs("array", out);
        break;
    }
    if (type->class == TYPE_ARRAY || (type->class == TYPE_VARIABLE && !type->is_string)) {
        fputs(" of ", out);
        write_words(out, type->base);
    }
}

static int words(const struct plain_type *type, char **text)
{
    size_t n;
    FILE *out = open_memstream(text, &n);
    if (!out)
        return -ENOMEM;
    write_words(out, type);
    if (fclose(out) == 0)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

static const enum sfs_type_class classes[] = {
    [TYPE_INTEGER] = SFS_INTEGER,     [TYPE_FLOAT] = SFS_FLOAT,   [TYPE_STRING] = SFS_STRING,
    [TYPE_BITFIELD] = SFS_BITFIELD,   [TYPE_OPAQUE] = SFS_OPAQUE, [TYPE_COMPOUND] = SFS_COMPOUND,
    [TYPE_REFERENCE] = SFS_REFERENCE, [TYPE_ENUM] = SFS_ENUM,     [TYPE_VARIABLE] = SFS_VARIABLE,
    [TYPE_ARRAY] = SFS_ARRAY,
};

static bool is_boolean(const struct plain_type *type)
{
    int8_t no = -1, yes = -1;
    if (type->class != TYPE_ENUM || type->size != 1 || type->n_values != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        const struct plain_value *value = &type->value[i];
        memcpy(!strcmp(value->name, "FALSE") ? &no : &yes, value->bytes, 1);
        if (strcmp(value->name, "FALSE") != 0 && strcmp(value->name, "TRUE") != 0)
            return false;
    }
    return no == 0 && yes == 1;
}

static int describe(const struct plain_type *type, struct sfs_type *out);

static int describe_members(const struct plain_type *type, struct sfs_type *out)
{
    out->members = calloc(type->n_members, sizeof(*out->members));
    int error = out->members ? 0 : -ENOMEM;
    for (size_t i = 0; i < type->n_members && !error; i++) {
        struct sfs_member *member = &out->members[out->n_members++];
        member->name = strdup(type->member[i].name);
        member->offset = type->member[i].offset;
        error = member->name ? describe(&type->member[i].type, &member->type) : -ENOMEM;
    }
    return error;
}

static int describe(const struct plain_type *type, struct sfs_type *out)
{
    const struct plain_type *number = type->class == TYPE_ENUM ? type->base : type;
    bool has_base = type->class == TYPE_ARRAY || (type->class == TYPE_VARIABLE && !type->is_string);
    *out = (struct sfs_type){
        .class = classes[type->class],
        .size = memory_size(type),
        .big_endian = order_of(type) == ORDER_BIG,
        .is_signed = number->class == TYPE_INTEGER && number->is_signed,
        .is_boolean = is_boolean(type),
        .is_string = type->is_string,
        .has_pointers = plain_type_has_pointers(type),
        .array_rank = type->rank,
        .reference = type->is_region ? SFS_REFERENCE_REGION : SFS_REFERENCE_OBJECT,
    };
    memcpy(out->array_dims, type->dims, (size_t)type->rank * sizeof(*type->dims));
    if (type->class == TYPE_COMPOUND)
        return describe_members(type, out);
    if (!has_base)
        return 0;
    out->base = calloc(1, sizeof(*out->base));
    return out->base ? describe(type->base, out->base) : -ENOMEM;
}

int direct_type_describe(const struct plain_type *type, struct sfs_type *out)
{
    int error = describe(type, out);
    if (!error)
        error = words(type, &out->description);
    if (error)
        hdf5_type_free(out);
    return error;
}

bool direct_type_is_known(const struct plain_type *type)
{
    return type->version < 4 || H5_VERSION_GE(1, 12, 0);
}

int direct_type_encode(const struct plain_type *type, const void *message, size_t n, void **out,
                       size_t *out_n)
{
    unsigned char *bytes = malloc(n + PREFIX_BYTES);
    size_t size = memory_size(type);
    if (!bytes)
        return -ENOMEM;
    bytes[0] = MESSAGE_TYPE;
    bytes[1] = 0;
    memcpy(bytes + PREFIX_BYTES, message, n);
    datatype_lower(bytes + PREFIX_BYTES, n);
    for (unsigned i = 0; i < 4; i++)
        bytes[PREFIX_BYTES + SIZE_AT + i] = (unsigned char)(size >> 8 * i);
    *out = bytes;
    *out_n = n + PREFIX_BYTES;
    return 0;
}

/* ---- Text and JSON ---- */

static const H5T_class_t text_classes[] = {
    [TYPE_INTEGER] = H5T_INTEGER,   [TYPE_FLOAT] = H5T_FLOAT,   [TYPE_STRING] = H5T_STRING,
    [TYPE_BITFIELD] = H5T_BITFIELD, [TYPE_OPAQUE] = H5T_OPAQUE, [TYPE_COMPOUND] = H5T_COMPOUND,
    [TYPE_ENUM] = H5T_ENUM,         [TYPE_ARRAY] = H5T_ARRAY,
};

/* Names are those of the plain type. */
static void free_text_type(struct text_type *type)
{
    for (size_t i = 0; i < type->n_members; i++)
        free_text_type(&type->members[i].type);
    if (type->base)
        free_text_type(type->base);
    free(type->base);
    free(type->members);
    free(type->values);
}

static int make_text_type(const struct plain_type *type, struct text_type *out);

static int make_members(const struct plain_type *type, struct text_type *out)
{
    int error = 0;
    out->members = calloc(type->n_members, sizeof(*out->members));
    if (!out->members)
        return -ENOMEM;
    for (size_t i = 0; i < type->n_members && !error; i++) {
        struct text_member *member = &out->members[out->n_members++];
        member->name = type->member[i].name;
        member->offset = type->member[i].offset;
        error = make_text_type(&type->member[i].type, &member->type);
    }
    return error;
}

/* Those of more than a byte are little-endian. */
static uint64_t value_of(const unsigned char *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

static int compare_values(const void *a, const void *b)
{
    const struct text_value *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int make_values(const struct plain_type *type, struct text_type *out)
{
    out->values = calloc(type->n_values, sizeof(*out->values));
    if (!out->values)
        return -ENOMEM;
    for (size_t i = 0; i < type->n_values; i++) {
        const struct plain_value *value = &type->value[i];
        out->values[out->n_values++] =
            (struct text_value){value_of(value->bytes, type->size), value->name};
        out->is_boolean |= type->n_values == 2 && type->size == 1 &&
                           (!strcmp(value->name, "TRUE") || !strcmp(value->name, "FALSE"));
    }
    qsort(out->values, out->n_values, sizeof(*out->values), compare_values);
    return 0;
}

/* Of elements in the file, but that numbers are of this machine. */
static int make_text_type(const struct plain_type *type, struct text_type *out)
{
    *out = (struct text_type){.class = text_classes[type->class],
                              .size = type->size,
                              .is_signed = type->is_signed,
                              .is_space_padded = type->is_space_padded,
                              .rank = type->rank};
    for (int i = 0; i < type->rank; i++)
        out->dims[i] = type->dims[i];
    if (type->base && !(out->base = calloc(1, sizeof(*out->base))))
        return -ENOMEM;
    int error = type->base ? make_text_type(type->base, out->base) : 0;
    if (!error && type->class == TYPE_COMPOUND)
        error = make_members(type, out);
    if (!error && type->class == TYPE_ENUM)
        error = make_values(type, out);
    return error;
}

static void reverse(unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        unsigned char byte = bytes[i];
        bytes[i] = bytes[n - 1 - i];
        bytes[n - 1 - i] = byte;
    }
}

static void make_native(const struct plain_type *type, unsigned char *element)
{
    bool is_native_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    bool is_number = type->class == TYPE_INTEGER || type->class == TYPE_FLOAT ||
                     type->class == TYPE_BITFIELD || type->class == TYPE_ENUM;
    if (is_number && type->big_endian != is_native_big)
        reverse(element, type->size);
    for (size_t i = 0; i < type->n_members; i++)
        make_native(&type->member[i].type, element + type->member[i].offset);
    for (size_t at = 0; type->class == TYPE_ARRAY && at < type->size; at += type->base->size)
        make_native(type->base, element + at);
}

static uint64_t most_json(const struct plain_type *type);

/* Names stand there once for each element. */
static uint64_t most_json_of_members(const struct plain_type *type)
{
    uint64_t all = 2;
    for (size_t i = 0; i < type->n_members; i++)
        all += 6 * strlen(type->member[i].name) + 8 + most_json(&type->member[i].type);
    return all;
}

static uint64_t most_json_of_values(const struct plain_type *type)
{
    uint64_t most = 0;
    for (size_t i = 0; i < type->n_values; i++)
        if (strlen(type->value[i].name) > most)
            most = strlen(type->value[i].name);
    return 6 * most + 64;
}

/* At least as many bytes as the JSON of an element has, where these are no more than some times
 * DIRECT_MOST_ELEMENT: no element has more than 2^32 bytes. */
static uint64_t most_json(const struct plain_type *type)
{
    uint64_t most = type->class == TYPE_COMPOUND ? most_json_of_members(type)
                    : type->class == TYPE_ENUM   ? most_json_of_values(type)
                                                 : 6 * (uint64_t)type->size + 64;
    if (type->class == TYPE_ARRAY) {
        uint64_t n = type->size / type->base->size, base = most_json(type->base) + 2;
        for (int i = 0; i < type->rank; i++)
            base += 2; /* brackets, of no more lists than elements */
        most = base > DIRECT_MOST_ELEMENT || n > DIRECT_MOST_ELEMENT / base
                   ? DIRECT_MOST_ELEMENT + 1
                   : n * base;
    }
    return most < DIRECT_MOST_ELEMENT + 1 ? most : DIRECT_MOST_ELEMENT + 1;
}

int direct_element_json(const struct plain_type *type, const void *element, char **json)
{
    size_t n;
    struct text_type text_type = {0};
    if (most_json(type) > DIRECT_MOST_ELEMENT)
        return -EAGAIN;
    unsigned char *native = malloc(type->size);
    FILE *out = native ? open_memstream(json, &n) : NULL;
    int error = out ? make_text_type(type, &text_type) : -ENOMEM;
    if (!error) {
        memcpy(native, element, type->size);
        make_native(type, native);
        error = text_element(&(struct text_writer){.out = out}, &text_type, native, TEXT_JSON);
    }
    free_text_type(&text_type);
    free(native);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*json);
        *json = NULL;
    }
    return error;
}

/* At least as many bytes as the text of n elements has. */
static bool is_much(const struct plain_type *type, uint64_t n)
{
    uint64_t most;
    return !box_product(&n, 1, (size_t)most_json(type) + 1, &most) || most > DIRECT_MOST_TEXT;
}

static int write_elements(const struct plain_type *type, const struct hdf5_elements *elements,
                          FILE *out)
{
    struct text_type text_type;
    uint64_t position = elements->first;
    unsigned char *native = malloc(elements->elements.n + 1);
    int error = native ? make_text_type(type, &text_type) : -ENOMEM;
    if (native && !error) {
        memcpy(native, elements->elements.bytes, elements->elements.n);
        for (size_t at = 0; at < elements->elements.n; at += type->size)
            make_native(type, native + at);
        error = text_elements(&(struct text_writer){.out = out}, &text_type, (char *)native,
                              elements->n, elements->row_length, &position);
    }
    if (native)
        free_text_type(&text_type);
    free(native);
    return error;
}

static int text_of_elements(const struct plain_type *type, const struct hdf5_elements *elements,
                            char **text, size_t *text_n)
{
    uint64_t bytes;
    bool is_whole =
        box_product(&elements->n, 1, type->size, &bytes) && bytes == elements->elements.n;
    if (!is_whole || plain_type_has_pointers(type) || is_much(type, elements->n))
        return -EAGAIN;
    FILE *out = open_memstream(text, text_n);
    if (!out)
        return -ENOMEM;
    int error = write_elements(type, elements, out);
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*text);
        *text = NULL;
    }
    return error == -EIO ? -EAGAIN : error;
}

int direct_elements_text(const struct hdf5_elements *elements, char **text, size_t *text_n)
{
    const unsigned char *encoded = elements->type->bytes;
    size_t n = elements->type->n, used;
    struct plain_type type;
    struct why why;
    if (n < PREFIX_BYTES || encoded[0] != MESSAGE_TYPE || encoded[1] != 0)
        return -EAGAIN;
    int error = plain_type_decode(encoded + PREFIX_BYTES, n - PREFIX_BYTES, &type, &used, &why);
    if (!error) {
        error = text_of_elements(&type, elements, text, text_n);
        plain_type_free(&type);
    }
    return !error || error == -ENOMEM ? error : -EAGAIN;
}
