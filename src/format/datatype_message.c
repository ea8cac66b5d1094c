/* Walking through datatype messages. */
#include "format/datatype_message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/why.h"
#include "format/cursor.h"
#include "format/section_heap.h"
#include "sparsefs/sparsefs.h"

#define NAME        "datatype"
#define MAX_NESTING 32
#define MAX_RANK    32
#define OLD_RANK    4  /* of a member of a compound, as of old */
#define OLD_DIMS    12 /* bytes of it before these dims: rank, permutation, reserved */
#define MOST_LAYOUT                                                                                \
    ((size_t)4 << 20) /* bytes of a message whose layout is wanted; an object header has 64 KiB */

/* Of an encoded datatype: the type of a message, and the version of the encoding. */
#define PREFIX_BYTES 2
#define MESSAGE_TYPE 3

/* Versions: in 4 only references differ from 3, which libhdf5 1.10 knows, too. */
#define NEWEST  4
#define LOWERED 3

/* What libhdf5 converts numbers in, without asking: a float, and its exponent. */
#define MOST_FLOAT_BYTES   256
#define MOST_EXPONENT_BITS 64

enum {
    CLASS_INTEGER,
    CLASS_FLOAT,
    CLASS_TIME,
    CLASS_STRING,
    CLASS_BITFIELD,
    CLASS_OPAQUE,
    CLASS_COMPOUND,
    CLASS_REFERENCE,
    CLASS_ENUM,
    CLASS_VARIABLE,
    CLASS_ARRAY,
};

#define VARIABLE_STRING 1  /* of the bits of class 9 */
#define OBJECT_BYTES    8  /* of a reference to an object, */
#define REGION_BYTES    12 /* and to a region */

/* Of an element. */
struct sizes {
    uint64_t stored;    /* as the message says */
    uint64_t in_chunks; /* in structured chunks, where references have slots; modulo 2^64, which no
                         * sound datatype comes near */
    bool has_pointers;
    struct sfs_type *layout; /* to be made, or NULL */
};

/* Through a message and those in it. */
struct walk {
    struct cursor c;
    int depth;
    struct why *why;
    const unsigned char *message;
    unsigned char *lowered; /* a copy of it, of which versions are changed; or NULL */
};

static int check(struct walk *walk, struct sizes *sizes);

/* A name and its NUL; before version 3 a multiple of 8 bytes. */
static void skip_name(struct cursor *c, unsigned version)
{
    const unsigned char *end = c->left > 0 ? memchr(c->at, 0, c->left) : NULL;
    if (!end) {
        c->failed = true;
        return;
    }
    size_t n = (size_t)(end - c->at) + 1;
    cursor_skip(c, version < 3 ? (n + 7) / 8 * 8 : n);
}

/* Bytes of a member's offset. */
static unsigned offset_width(unsigned version, uint64_t size)
{
    unsigned width = 1;
    while (version >= 3 && width < 4 && size >> 8 * width)
        width++;
    return version < 3 ? 4 : width;
}

/* The bits of a number: those that count, in an element of size bytes. */
static int check_bits(struct walk *walk, uint64_t size, uint64_t *precision)
{
    struct cursor *c = &walk->c;
    uint64_t offset = cursor_uint(c, 2);
    *precision = cursor_uint(c, 2);
    if (!c->failed && (*precision == 0 || offset + *precision > 8 * size))
        return why_damaged(walk->why,
                           NAME ": %" PRIu64 " bits from bit %" PRIu64 " on, of %" PRIu64 " bytes",
                           *precision, offset, size);
    return 0;
}

static int check_float(struct walk *walk, unsigned version, uint64_t bits, uint64_t size)
{
    struct cursor *c = &walk->c;
    uint64_t precision, sign = bits >> 8 & 0xff;
    int error = check_bits(walk, size, &precision);
    if (error)
        return error;
    uint64_t exponent_at = cursor_uint(c, 1), exponent = cursor_uint(c, 1);
    uint64_t mantissa_at = cursor_uint(c, 1), mantissa = cursor_uint(c, 1);
    bool is_vax = version >= 3 && bits & 0x40; /* pairs of bytes are swapped */
    cursor_skip(c, 4);                         /* bias */
    if (!c->failed &&
        (size > MOST_FLOAT_BYTES || (is_vax && size % 2 != 0) || sign >= precision ||
         exponent < 1 || exponent > MOST_EXPONENT_BITS || exponent_at + exponent > precision ||
         mantissa < 1 || mantissa_at + mantissa > precision))
        return why_damaged(walk->why, NAME ": a float whose parts lie outside of it");
    return 0;
}

/* The dims of a member, as of old; no rank: it is no array. */
static int take_old_dims(struct walk *walk, struct sfs_type *array)
{
    struct cursor *c = &walk->c;
    *array = (struct sfs_type){.class = SFS_ARRAY, .array_rank = (int)cursor_uint(c, 1)};
    cursor_skip(c, OLD_DIMS - 1);
    if (array->array_rank > OLD_RANK)
        return why_damaged(walk->why, NAME ": a member of rank %d", array->array_rank);
    for (int i = 0; i < OLD_RANK; i++) {
        uint64_t length = cursor_uint(c, 4);
        array->array_dims[i] = i < array->array_rank ? length : 0;
    }
    return 0;
}

/* Makes an array of these dims of a member. */
static int make_array(struct walk *walk, const struct sfs_type *array, struct sizes *member)
{
    uint64_t n = 1;
    bool overflow = false;
    for (int i = 0; i < array->array_rank; i++)
        overflow |= __builtin_mul_overflow(n, array->array_dims[i], &n);
    overflow |= __builtin_mul_overflow(member->stored, n, &member->stored);
    member->in_chunks *= n;
    if (overflow || n == 0 || member->stored > UINT32_MAX)
        return why_damaged(walk->why, NAME ": a member that is an array of impossible dims");
    if (!member->layout || array->array_rank == 0)
        return 0;
    struct sfs_type *base = malloc(sizeof(*base));
    if (!base)
        return -ENOMEM;
    *base = *member->layout;
    *member->layout = *array;
    member->layout->base = base;
    member->layout->size = (size_t)member->stored;
    member->layout->has_pointers = member->has_pointers;
    return 0;
}

static int check_member(struct walk *walk, unsigned version, uint64_t size, struct sizes *member,
                        uint64_t *offset)
{
    struct sfs_type array = {0};
    skip_name(&walk->c, version);
    *offset = cursor_uint(&walk->c, offset_width(version, size));
    int error = version == 1 ? take_old_dims(walk, &array) : 0;
    if (!error)
        error = check(walk, member);
    return error ? error : make_array(walk, &array, member);
}

/* Room for so many in what is made. */
static int make_members(struct walk *walk, unsigned n, struct sfs_type *layout)
{
    if (n > walk->c.left) { /* bytes */
        walk->c.failed = true;
        return 0;
    }
    layout->members = calloc(n, sizeof(*layout->members));
    return layout->members ? 0 : -ENOMEM;
}

static int check_compound(struct walk *walk, unsigned version, unsigned n, struct sizes *sizes)
{
    uint64_t size = sizes->stored;
    int error = n > 0 ? 0 : why_damaged(walk->why, NAME ": a compound without members");
    if (!error && sizes->layout)
        error = make_members(walk, n, sizes->layout);
    for (unsigned i = 0; i < n && !error && !walk->c.failed; i++) {
        struct sfs_member *made =
            sizes->layout ? &sizes->layout->members[sizes->layout->n_members++] : NULL;
        struct sizes member = {.layout = made ? &made->type : NULL};
        uint64_t offset;
        error = check_member(walk, version, size, &member, &offset);
        if (!error && (member.stored > size || offset > size - member.stored))
            error = why_damaged(walk->why, NAME ": member %u lies outside of its compound", i);
        if (!error && made)
            made->offset = (size_t)offset;
        if (!error) {
            sizes->in_chunks += member.in_chunks - member.stored;
            sizes->has_pointers |= member.has_pointers;
        }
    }
    return error;
}

static int check_enum(struct walk *walk, unsigned version, unsigned n, uint64_t size)
{
    struct cursor *c = &walk->c;
    struct sizes base = {0};
    if (c->left > 0 && (c->at[0] & 15) != CLASS_INTEGER)
        return why_damaged(walk->why, NAME ": an enumeration of what are no integers");
    int error = check(walk, &base);
    if (error)
        return error;
    if (base.stored != size)
        return why_damaged(walk->why, NAME ": an enumeration of other size than its base");
    for (unsigned i = 0; i < n && !c->failed; i++)
        skip_name(c, version);
    cursor_skip(c, n * base.stored);
    return 0;
}

/* What an array or a sequence is of. */
static int check_base(struct walk *walk, const struct sizes *sizes, struct sizes *base)
{
    *base = (struct sizes){0};
    if (sizes->layout) {
        base->layout = sizes->layout->base = calloc(1, sizeof(*base->layout));
        if (!base->layout)
            return -ENOMEM;
    }
    return check(walk, base);
}

static int check_array(struct walk *walk, unsigned version, struct sizes *sizes)
{
    struct cursor *c = &walk->c;
    unsigned rank = (unsigned)cursor_uint(c, 1);
    if (version < 2 || rank < 1 || rank > MAX_RANK)
        return why_damaged(walk->why, NAME ": an array of version %u and rank %u", version, rank);
    uint64_t dims = 1, size;
    struct sizes base;
    bool overflow = false;
    if (version == 2)
        cursor_skip(c, 3);
    for (unsigned i = 0; i < rank; i++) {
        uint64_t length = cursor_uint(c, 4);
        overflow |= __builtin_mul_overflow(dims, length, &dims);
        if (sizes->layout)
            sizes->layout->array_dims[i] = length;
    }
    if (version == 2)
        cursor_skip(c, 4 * rank); /* permutation */
    int error = check_base(walk, sizes, &base);
    if (error)
        return error;
    if (overflow || __builtin_mul_overflow(dims, base.stored, &size) || size != sizes->stored)
        return why_damaged(walk->why, NAME ": an array of other size than its elements");
    sizes->in_chunks = dims * base.in_chunks;
    sizes->has_pointers = base.has_pointers;
    if (sizes->layout)
        sizes->layout->array_rank = (int)rank;
    return 0;
}

/* A string, or a sequence. */
static int check_variable(struct walk *walk, uint64_t bits, struct sizes *sizes)
{
    bool is_string = (bits & 15) == VARIABLE_STRING;
    struct sizes base = {0};
    sizes->has_pointers = true;
    if (sizes->layout)
        sizes->layout->is_string = is_string;
    return is_string ? check(walk, &base) : check_base(walk, sizes, &base);
}

static enum sfs_reference reference_of(uint64_t bits, uint64_t size)
{
    return (bits & 15) == 0 && size == OBJECT_BYTES   ? SFS_REFERENCE_OBJECT
           : (bits & 15) == 1 && size == REGION_BYTES ? SFS_REFERENCE_REGION
                                                      : SFS_REFERENCE_ANY;
}

static void check_reference(uint64_t bits, struct sizes *sizes)
{
    sizes->in_chunks = HEAP_ELEMENT_BYTES;
    sizes->has_pointers = true;
    if (sizes->layout)
        sizes->layout->reference = reference_of(bits, sizes->stored);
}

static int check_properties(struct walk *walk, unsigned class, unsigned version, uint64_t bits,
                            struct sizes *sizes)
{
    struct cursor *c = &walk->c;
    uint64_t size = sizes->stored, precision;
    switch (class) {
    case CLASS_INTEGER:
    case CLASS_BITFIELD:
        return check_bits(walk, size, &precision);
    case CLASS_FLOAT:
        return check_float(walk, version, bits, size);
    case CLASS_TIME:
        cursor_skip(c, 2);
        return 0;
    case CLASS_STRING:
        return 0;
    case CLASS_REFERENCE:
        check_reference(bits, sizes);
        return 0;
    case CLASS_OPAQUE:
        cursor_skip(c, bits & 0xff); /* a tag */
        return 0;
    case CLASS_COMPOUND:
        return check_compound(walk, version, (unsigned)(bits & 0xffff), sizes);
    case CLASS_ENUM:
        return check_enum(walk, version, (unsigned)(bits & 0xffff), size);
    case CLASS_VARIABLE:
        return check_variable(walk, bits, sizes);
    case CLASS_ARRAY:
        return check_array(walk, version, sizes);
    default:
        return why_damaged(walk->why, NAME ": class %u", class);
    }
}

/* Of what has no parts it does not matter. */
static enum sfs_type_class class_of(unsigned class)
{
    return class == CLASS_COMPOUND    ? SFS_COMPOUND
           : class == CLASS_REFERENCE ? SFS_REFERENCE
           : class == CLASS_VARIABLE  ? SFS_VARIABLE
           : class == CLASS_ARRAY     ? SFS_ARRAY
                                      : SFS_OPAQUE;
}

static int check_one(struct walk *walk, struct sizes *sizes)
{
    struct cursor *c = &walk->c;
    size_t at = (size_t)(c->at - walk->message);
    unsigned head = (unsigned)cursor_uint(c, 1), version = head >> 4, class = head & 15;
    uint64_t bits = cursor_uint(c, 3);
    sizes->stored = sizes->in_chunks = cursor_uint(c, 4);
    sizes->has_pointers = false;
    if (c->failed)
        return why_damaged(walk->why, NAME ": it is cut short");
    if (version < 1 || version > NEWEST)
        return why_damaged(walk->why, NAME ": version %u", version);
    if (sizes->stored == 0)
        return why_damaged(walk->why, NAME ": an element has no bytes");
    if (walk->lowered && version > LOWERED && class != CLASS_REFERENCE)
        walk->lowered[at] = (unsigned char)(LOWERED << 4 | class);
    int error = check_properties(walk, class, version, bits, sizes);
    if (!error && c->failed)
        error = why_damaged(walk->why, NAME ": it is cut short");
    if (sizes->layout) {
        sizes->layout->class = class_of(class);
        sizes->layout->size = (size_t)sizes->stored;
        sizes->layout->has_pointers = sizes->has_pointers;
    }
    return error;
}

static int check(struct walk *walk, struct sizes *sizes)
{
    if (walk->depth > MAX_NESTING)
        return why_damaged(walk->why, NAME ": nested too deeply");
    walk->depth++;
    int error = check_one(walk, sizes);
    walk->depth--;
    return error;
}

static struct walk walk_of(const void *message, size_t n, struct why *why)
{
    return (struct walk){.c = cursor_over(message, n), .why = why, .message = message};
}

int datatype_measure(const void *message, size_t n, struct datatype_element *element,
                     struct why *why)
{
    struct walk walk = walk_of(message, n, why);
    struct sizes sizes = {0};
    int error = check(&walk, &sizes);
    if (!error)
        *element = (struct datatype_element){sizes.stored, sizes.has_pointers};
    return error;
}

int datatype_layout(const void *message, size_t n, struct sfs_type *layout, struct why *why)
{
    struct walk walk = walk_of(message, n, why);
    struct sizes sizes = {.layout = layout};
    *layout = (struct sfs_type){0};
    if (n > MOST_LAYOUT)
        return why_damaged(why, NAME ": it has more than %zu MiB", MOST_LAYOUT >> 20);
    int error = check(&walk, &sizes);
    if (error)
        datatype_layout_free(layout);
    return error;
}

void datatype_layout_free(struct sfs_type *layout)
{
    for (size_t i = 0; i < layout->n_members; i++)
        datatype_layout_free(&layout->members[i].type);
    if (layout->base)
        datatype_layout_free(layout->base);
    free(layout->members);
    free(layout->base);
    *layout = (struct sfs_type){0};
}

int datatype_check(const void *message, size_t n, struct why *why)
{
    struct datatype_element element;
    return datatype_measure(message, n, &element, why);
}

/* The message in it. */
static int find_message(const void *type, size_t n, const void **message, struct why *why)
{
    const unsigned char *bytes = type;
    if (n < PREFIX_BYTES || bytes[0] != MESSAGE_TYPE || bytes[1] != 0)
        return why_damaged(why, "not an encoded datatype");
    *message = bytes + PREFIX_BYTES;
    return 0;
}

int datatype_measure_encoded(const void *type, size_t n, struct datatype_element *element,
                             struct why *why)
{
    const void *message = NULL;
    int error = find_message(type, n, &message, why);
    return error ? error : datatype_measure(message, n - PREFIX_BYTES, element, why);
}

int datatype_layout_encoded(const void *type, size_t n, struct sfs_type *layout, struct why *why)
{
    const void *message = NULL;
    int error = find_message(type, n, &message, why);
    *layout = (struct sfs_type){0};
    return error ? error : datatype_layout(message, n - PREFIX_BYTES, layout, why);
}

void datatype_lower(void *message, size_t n)
{
    struct sizes sizes = {0};
    struct why why;
    struct walk walk = walk_of(message, n, &why);
    walk.lowered = message;
    (void)check(&walk, &sizes);
}

uint64_t datatype_size_in_chunks(const void *message, size_t n)
{
    struct sizes sizes = {0};
    struct why why;
    struct walk walk = walk_of(message, n, &why);
    return check(&walk, &sizes) ? 0 : sizes.in_chunks;
}

size_t datatype_stored_size(const void *message)
{
    struct cursor c = cursor_over(message, 8);
    cursor_skip(&c, 4); /* class, version and bits */
    return (size_t)cursor_uint(&c, 4);
}
