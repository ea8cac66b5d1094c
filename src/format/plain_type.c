/* Decoding plain datatypes. */
#include "format/plain_type.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/why.h"
#include "format/cursor.h"

#define NAME         "datatype"
#define MOST_NESTING 16
#define MOST_PARTS   1024 /* members and values of one, and of all that it is made of */
#define NEWEST       4  /* version of a message; in this one only references are others than in 3 */
#define OLD_MEMBER   28 /* bytes that a member of a compound of version 1 once had dims in */

struct decoder {
    struct cursor cursor;
    unsigned parts;
    struct why *why;
};

struct head {
    enum type_class class;
    unsigned version;
    uint64_t bits;
    uint64_t size;
};

void plain_type_free(struct plain_type *type)
{
    if (!type)
        return;
    for (size_t i = 0; i < type->n_members; i++) {
        free(type->member[i].name);
        plain_type_free(&type->member[i].type);
    }
    for (size_t i = 0; i < type->n_values; i++)
        free(type->value[i].name);
    free(type->member);
    free(type->value);
    plain_type_free(type->base);
    free(type->base);
    *type = (struct plain_type){0};
}

bool plain_type_has_pointers(const struct plain_type *type)
{
    bool has = type->class == TYPE_REFERENCE || type->class == TYPE_VARIABLE ||
               (type->class == TYPE_ARRAY && plain_type_has_pointers(type->base));
    for (size_t i = 0; i < type->n_members && !has; i++)
        has = plain_type_has_pointers(&type->member[i].type);
    return has;
}

static int unusual(struct decoder *decoder, const char *what)
{
    return why_unsupported(decoder->why, NAME ": %s", what);
}

static int decode(struct decoder *decoder, unsigned most_version, int depth,
                  struct plain_type *type);

static int decode_base(struct decoder *decoder, const struct head *head, int depth,
                       struct plain_type *type)
{
    type->base = calloc(1, sizeof(*type->base));
    return type->base ? decode(decoder, head->version, depth + 1, type->base) : -ENOMEM;
}

static bool are_zeros(struct cursor *c, uint64_t n)
{
    const unsigned char *bytes = cursor_bytes(c, n);
    for (uint64_t i = 0; bytes && i < n; i++)
        if (bytes[i])
            return false;
    return bytes;
}

/* A name that is not empty and, before version 3, is filled up with zeros. */
static int take_name(struct decoder *decoder, unsigned version, char **name)
{
    struct cursor *c = &decoder->cursor;
    const unsigned char *at = c->at, *end = c->left > 0 ? memchr(at, '\0', c->left) : NULL;
    size_t n = end ? (size_t)(end - at) + 1 : 0;
    cursor_skip(c, n);
    if (n < 2 || (version < 3 && n % 8 != 0 && !are_zeros(c, 8 - n % 8)))
        return unusual(decoder, "a name");
    if (decoder->parts++ == MOST_PARTS)
        return unusual(decoder, "too many parts");
    *name = strdup((const char *)at);
    return *name ? 0 : -ENOMEM;
}

static bool is_machine_size(uint64_t size)
{
    return size == 1 || size == 2 || size == 4 || size == 8;
}

static int decode_number(struct decoder *decoder, const struct head *head, struct plain_type *type)
{
    uint64_t known = head->class == TYPE_INTEGER ? 0x09 : 0x01; /* sign, byte order */
    uint64_t offset = cursor_uint(&decoder->cursor, 2), bits = cursor_uint(&decoder->cursor, 2);
    if (head->bits & ~known || offset != 0 || bits != 8 * head->size ||
        !is_machine_size(head->size))
        return unusual(decoder, "an integer that does not fill its bytes");
    type->big_endian = head->bits & 0x01;
    type->is_signed = head->bits & 0x08;
    return 0;
}

/* Offset and bits of the number, of exponent and mantissa, and the bias, as they are stored. */
struct float_format {
    uint64_t size, sign;
    unsigned char stored[12];
};

static const struct float_format float_formats[] = {
    {2, 15, {0, 0, 16, 0, 10, 5, 0, 10, 15, 0, 0, 0}},
    {4, 31, {0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0}},
    {8, 63, {0, 0, 64, 0, 52, 11, 0, 52, 0xff, 3, 0, 0}},
};

#define FLOAT_BITS 0x20 /* the first bit of the mantissa is implied; no padding */

static int decode_float(struct decoder *decoder, const struct head *head, struct plain_type *type)
{
    const unsigned char *stored = cursor_bytes(&decoder->cursor, sizeof(float_formats[0].stored));
    type->big_endian = head->bits & 0x01;
    for (size_t i = 0; stored && i < sizeof(float_formats) / sizeof(*float_formats); i++) {
        const struct float_format *format = &float_formats[i];
        if (head->size == format->size &&
            (head->bits & ~(uint64_t)1) == (format->sign << 8 | FLOAT_BITS) &&
            !memcmp(stored, format->stored, sizeof(format->stored)))
            return 0;
    }
    return unusual(decoder, "a float that is not of IEEE 754");
}

static int decode_string(struct decoder *decoder, const struct head *head, struct plain_type *type)
{
    uint64_t padding = head->bits & 0x0f, characters = head->bits >> 4;
    type->is_space_padded = padding == 2;
    return padding > 2 || characters > 1 ? unusual(decoder, "a string's padding or characters") : 0;
}

/* A tag takes a multiple of 8 bytes, and none if it is empty. */
static int decode_opaque(struct decoder *decoder, const struct head *head)
{
    struct cursor *c = &decoder->cursor;
    uint64_t n = head->bits;
    const unsigned char *tag = n <= 0xff ? cursor_bytes(c, n) : NULL;
    size_t length = tag ? strnlen((const char *)tag, (size_t)n) : 0;
    if (!tag || n % 8 != 0 || (length + 7) / 8 * 8 != n)
        return unusual(decoder, "a tag");
    for (size_t i = length; i < n; i++)
        if (tag[i])
            return unusual(decoder, "a tag");
    return 0;
}

static int decode_reference(struct decoder *decoder, const struct head *head,
                            struct plain_type *type)
{
    type->is_region = head->bits == 1;
    bool is_plain = head->version < 4 && head->bits <= 1 && head->size == (head->bits ? 12 : 8);
    return is_plain ? 0 : unusual(decoder, "a reference");
}

/* Bytes of a member's offset. */
static unsigned offset_width(const struct head *head)
{
    unsigned width = 1;
    while (head->version >= 3 && width < 4 && head->size >> 8 * width)
        width++;
    return head->version < 3 ? 4 : width;
}

static bool is_new_name(const struct plain_type *type, const char *name)
{
    for (size_t i = 0; i + 1 < type->n_members; i++)
        if (!strcmp(type->member[i].name, name))
            return false;
    for (size_t i = 0; i + 1 < type->n_values; i++)
        if (!strcmp(type->value[i].name, name))
            return false;
    return true;
}

static int decode_member(struct decoder *decoder, const struct head *head, int depth,
                         struct plain_type *type)
{
    struct plain_member *member = &type->member[type->n_members++];
    const struct plain_member *before = type->n_members > 1 ? member - 1 : NULL;
    size_t least = before ? before->offset + before->type.size : 0;
    int error = take_name(decoder, head->version, &member->name);
    if (error)
        return error;
    member->offset = (size_t)cursor_uint(&decoder->cursor, offset_width(head));
    if (!is_new_name(type, member->name) ||
        (head->version == 1 && !are_zeros(&decoder->cursor, OLD_MEMBER)))
        return unusual(decoder, "a member");
    error = decode(decoder, head->version, depth + 1, &member->type);
    if (error)
        return error;
    return member->offset < least || member->offset > head->size ||
                   member->type.size > head->size - member->offset
               ? unusual(decoder, "members that overlap, or are not in their order")
               : 0;
}

static int decode_compound(struct decoder *decoder, const struct head *head, int depth,
                           struct plain_type *type)
{
    size_t n = (size_t)head->bits;
    if (n == 0 || n > MOST_PARTS - decoder->parts)
        return unusual(decoder, "number of members");
    type->member = calloc(n, sizeof(*type->member));
    int error = type->member ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && !error; i++)
        error = decode_member(decoder, head, depth, type);
    return error;
}

static int decode_values(struct decoder *decoder, const struct head *head, struct plain_type *type)
{
    size_t n = (size_t)head->bits;
    int error = 0;
    for (size_t i = 0; i < n && !error; i++) {
        struct plain_value *value = &type->value[type->n_values++];
        error = take_name(decoder, head->version, &value->name);
        if (!error && !is_new_name(type, value->name))
            error = unusual(decoder, "a name twice");
    }
    for (size_t i = 0; i < n && !error; i++) {
        const unsigned char *bytes = cursor_bytes(&decoder->cursor, head->size);
        type->value[i].bytes = bytes;
        for (size_t k = 0; k < i && bytes; k++)
            if (!memcmp(bytes, type->value[k].bytes, (size_t)head->size))
                return unusual(decoder, "a value twice");
    }
    return error;
}

/* h5py has them of one byte, in any byte order; of others libhdf5 reads values that have no name in
 * another way, if it has to swap their bytes. */
static int decode_enum(struct decoder *decoder, const struct head *head, int depth,
                       struct plain_type *type)
{
    size_t n = (size_t)head->bits;
    int error = decode_base(decoder, head, depth, type);
    if (error)
        return error;
    type->big_endian = type->base->big_endian;
    if (n == 0 || n > MOST_PARTS - decoder->parts || type->base->class != TYPE_INTEGER ||
        type->base->size != head->size || type->big_endian) /* libhdf5 converts it */
        return unusual(decoder, "an enumeration");
    type->value = calloc(n, sizeof(*type->value));
    return type->value ? decode_values(decoder, head, type) : -ENOMEM;
}

/* Of strings type, padding and characters. */
static int decode_variable(struct decoder *decoder, const struct head *head, int depth,
                           struct plain_type *type)
{
    type->is_string = (head->bits & 0x0f) == 1;
    uint64_t padding = head->bits >> 4 & 0x0f, characters = head->bits >> 8;
    if (head->bits >> 12 || padding > 2 || characters > 1 || (head->bits & 0x0f) > 1 ||
        (!type->is_string && head->bits != 0) || depth > 0)
        return unusual(decoder, "elements of variable length");
    int error = decode_base(decoder, head, depth, type);
    if (!error &&
        (plain_type_has_pointers(type->base) ||
         (type->is_string && (type->base->size != 1 || (type->base->class != TYPE_INTEGER &&
                                                        type->base->class != TYPE_STRING)))))
        error = unusual(decoder, "elements of variable length of such");
    return error;
}

static int decode_array(struct decoder *decoder, const struct head *head, int depth,
                        struct plain_type *type)
{
    struct cursor *c = &decoder->cursor;
    uint64_t bytes = 1;
    bool is_odd = head->bits != 0 || head->version < 2;
    type->rank = (int)cursor_uint(c, 1);
    is_odd |= type->rank < 1 || type->rank > SFS_MAX_RANK;
    is_odd |= head->version == 2 && !are_zeros(c, 3);
    for (int i = 0; i < type->rank && !is_odd; i++) {
        type->dims[i] = cursor_uint(c, 4);
        is_odd |= type->dims[i] == 0 || __builtin_mul_overflow(bytes, type->dims[i], &bytes);
    }
    for (int i = 0; i < type->rank && !is_odd && head->version == 2; i++)
        is_odd |= cursor_uint(c, 4) != (uint64_t)i; /* a permutation, as it was once thought of */
    int error = is_odd ? unusual(decoder, "an array") : decode_base(decoder, head, depth, type);
    if (!error && (__builtin_mul_overflow(bytes, type->base->size, &bytes) || bytes != head->size))
        error = unusual(decoder, "an array of other size than its elements");
    return error;
}

static int decode_properties(struct decoder *decoder, const struct head *head, int depth,
                             struct plain_type *type)
{
    switch (head->class) {
    case TYPE_INTEGER:
    case TYPE_BITFIELD:
        return decode_number(decoder, head, type);
    case TYPE_FLOAT:
        return decode_float(decoder, head, type);
    case TYPE_STRING:
        return decode_string(decoder, head, type);
    case TYPE_OPAQUE:
        return decode_opaque(decoder, head);
    case TYPE_COMPOUND:
        return decode_compound(decoder, head, depth, type);
    case TYPE_REFERENCE:
        return decode_reference(decoder, head, type);
    case TYPE_ENUM:
        return decode_enum(decoder, head, depth, type);
    case TYPE_VARIABLE:
        return decode_variable(decoder, head, depth, type);
    case TYPE_ARRAY:
        return decode_array(decoder, head, depth, type);
    default:
        return unusual(decoder, "a class of its own");
    }
}

/* No part may be of a newer version than the whole: libhdf5 would write another one then. */
static int decode(struct decoder *decoder, unsigned most_version, int depth,
                  struct plain_type *type)
{
    struct cursor *c = &decoder->cursor;
    unsigned first = (unsigned)cursor_uint(c, 1);
    struct head head = {.class = (enum type_class)(first & 15), .version = first >> 4};
    head.bits = cursor_uint(c, 3);
    head.size = cursor_uint(c, 4);
    if (c->failed || head.version < 1 || head.version > most_version || head.size == 0 ||
        head.size > INT32_MAX || depth > MOST_NESTING)
        return unusual(decoder, "version, size or depth");
    type->class = head.class;
    type->version = head.version;
    type->size = (size_t)head.size;
    int error = decode_properties(decoder, &head, depth, type);
    return !error && c->failed ? unusual(decoder, "it is cut short") : error;
}

int plain_type_decode(const unsigned char *message, size_t n, struct plain_type *out, size_t *used,
                      struct why *why)
{
    struct decoder decoder = {.cursor = cursor_over(message, n), .why = why};
    struct plain_type type = {0};
    int error = decode(&decoder, NEWEST, 0, &type);
    if (error) {
        plain_type_free(&type);
        return error;
    }
    *used = n - decoder.cursor.left;
    *out = type;
    return 0;
}
