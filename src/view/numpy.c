/* NumPy: names of datatypes and the header of .npy files (NumPy Enhancement Proposal 1). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "view/private.h"

#define ALIGNMENT 64 /* of the data behind the header: what np.memmap and vector loads like */

bool is_number(const struct sfs_type *type)
{
    return type->class == SFS_INTEGER || type->class == SFS_FLOAT || type->class == SFS_ENUM ||
           type->class == SFS_BITFIELD;
}

static void write_string(FILE *out, const char *string, enum numpy_style style)
{
    if (style == NUMPY_JSON) {
        json_string(out, string, strlen(string));
        return;
    }
    putc('\'', out);
    for (const char *c = string; *c;) {
        size_t length = utf8_length(c, strlen(c));
        if (*c == '\'' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (length == 0 || (unsigned char)*c < 0x20) /* not UTF-8: taken as Latin-1 */
            fprintf(out, "\\x%02x", (unsigned char)*c);
        else
            fwrite(c, 1, length, out);
        c += length ? length : 1;
    }
    putc('\'', out);
}

/* h5py's convention: a compound of two floats "r" and "i" is a complex number. */
bool is_complex(const struct sfs_type *type)
{
    if (type->class != SFS_COMPOUND || type->n_members != 2)
        return false;
    const struct sfs_member *r = &type->members[0], *i = &type->members[1];
    return !strcmp(r->name, "r") && !strcmp(i->name, "i") && r->type.class == SFS_FLOAT &&
           i->type.class == SFS_FLOAT && r->type.size == i->type.size &&
           r->type.size >= sizeof(float) && r->type.big_endian == i->type.big_endian &&
           r->offset == 0 && i->offset == r->type.size && type->size == 2 * r->type.size;
}

static void write_code(FILE *out, char kind, size_t size, bool ordered, bool big_endian,
                       enum numpy_style style)
{
    char code[32];
    snprintf(code, sizeof(code), "%c%c%zu", !ordered ? '|' : big_endian ? '>' : '<', kind, size);
    write_string(out, code, style);
}

static void write_padding(FILE *out, size_t n, bool *first, enum numpy_style style)
{
    fputs(*first ? "" : ", ", out);
    *first = false;
    putc(style == NUMPY_JSON ? '[' : '(', out);
    write_string(out, "", style);
    fputs(", ", out);
    write_code(out, 'V', n, false, false, style);
    putc(style == NUMPY_JSON ? ']' : ')', out);
}

int numpy_array_dims(FILE *out, const struct sfs_type *type, int n)
{
    for (; type->class == SFS_ARRAY; type = type->base)
        for (int i = 0; i < type->array_rank; i++, n++)
            fprintf(out, "%s%" PRIu64, n ? ", " : "", type->array_dims[i]);
    return n;
}

static int by_offset(const void *a, const void *b)
{
    const struct sfs_member *const *left = a, *const *right = b;
    return (*left)->offset < (*right)->offset ? -1 : (*left)->offset > (*right)->offset;
}

/* The members in the order of their offsets, with unnamed padding between, as np.lib.format writes
 * and reads them. Overlapping members have no such form: false. */
static bool write_members(FILE *out, const struct sfs_type *type, enum numpy_style style)
{
    const struct sfs_member **sorted = calloc(type->n_members, sizeof(*sorted));
    if (!sorted)
        return false;
    for (size_t i = 0; i < type->n_members; i++)
        sorted[i] = &type->members[i];
    qsort(sorted, type->n_members, sizeof(*sorted), by_offset);

    size_t end = 0;
    bool first = true, good = true;
    for (size_t i = 0; i < type->n_members && good; i++) {
        const struct sfs_member *member = sorted[i];
        good = member->offset >= end;
        if (!good)
            break;
        if (member->offset > end)
            write_padding(out, member->offset - end, &first, style);
        fputs(first ? "" : ", ", out);
        first = false;
        putc(style == NUMPY_JSON ? '[' : '(', out);
        write_string(out, member->name, style);
        fputs(", ", out);
        numpy_type(out, &member->type, style);
        if (member->type.class == SFS_ARRAY) {
            fputs(style == NUMPY_JSON ? ", [" : ", (", out);
            numpy_array_dims(out, &member->type, 0);
            fputs(style == NUMPY_JSON ? "]" : ",)", out);
        }
        putc(style == NUMPY_JSON ? ']' : ')', out);
        end = member->offset + member->type.size;
    }
    if (good && end < type->size)
        write_padding(out, type->size - end, &first, style);
    free(sorted);
    return good;
}

static void write_compound(FILE *out, const struct sfs_type *type, enum numpy_style style)
{
    struct view_head members = {0};
    FILE *list = head_begin(&members);
    bool good = list && write_members(list, type, style);
    if (list && head_end(list, &members) == 0 && good)
        fprintf(out, "[%s]", members.bytes);
    else
        write_code(out, 'V', type->size, false, false, style);
    free(members.bytes);
}

void numpy_type(FILE *out, const struct sfs_type *type, enum numpy_style style)
{
    bool ordered = type->size > 1;
    switch (type->class) {
    case SFS_INTEGER:
        write_code(out, type->is_signed ? 'i' : 'u', type->size, ordered, type->big_endian, style);
        break;
    case SFS_ENUM:
        write_code(out,
                   type->is_boolean  ? 'b'
                   : type->is_signed ? 'i'
                                     : 'u',
                   type->size, ordered, type->big_endian, style);
        break;
    case SFS_BITFIELD:
        write_code(out, 'u', type->size, ordered, type->big_endian, style);
        break;
    case SFS_FLOAT:
        write_code(out, 'f', type->size, ordered, type->big_endian, style);
        break;
    case SFS_STRING:
        write_code(out, 'S', type->size, false, false, style);
        break;
    case SFS_COMPOUND:
        if (is_complex(type))
            write_code(out, 'c', type->size, true, type->members[0].type.big_endian, style);
        else
            write_compound(out, type, style);
        break;
    case SFS_ARRAY:
        numpy_type(out, type->base, style);
        break;
    default:
        write_code(out, 'V', type->size, false, false, style);
    }
}

/* "{'descr': ..., 'fortran_order': False, 'shape': (...), }": the dims of the dataset, then those
 * of an array type, of arrays of arrays too. */
static int write_dictionary(const struct sfs_type *type, int rank, const uint64_t *dims,
                            struct view_head *dictionary)
{
    FILE *out = head_begin(dictionary);
    if (!out)
        return -ENOMEM;
    fputs("{'descr': ", out);
    numpy_type(out, type, NUMPY_PYTHON);
    fputs(", 'fortran_order': False, 'shape': (", out);
    int n = 0;
    for (int i = 0; i < rank; i++, n++)
        fprintf(out, "%s%" PRIu64, n ? ", " : "", dims[i]);
    n = numpy_array_dims(out, type, n);
    fputs(n == 1 ? ",), }" : "), }", out);
    return head_end(out, dictionary);
}

int numpy_header(const struct sfs_type *type, int rank, const uint64_t *dims,
                 struct view_head *head)
{
    struct view_head dictionary = {0};
    int error = write_dictionary(type, rank, dims, &dictionary);
    if (error)
        return error;

    /* Version 1 has a length of two bytes, 2 of four, 3 is 2 in UTF-8 instead of Latin-1. */
    bool ascii = true;
    for (size_t i = 0; i < dictionary.n; i++)
        ascii &= (unsigned char)dictionary.bytes[i] < 0x80;
    size_t prefix = 10;
    size_t total = (prefix + dictionary.n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    int version = 1;
    if (!ascii || total - prefix > UINT16_MAX) {
        prefix = 12;
        total = (prefix + dictionary.n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        version = ascii ? 2 : 3;
    }

    unsigned char *bytes = malloc(total);
    if (!bytes) {
        free(dictionary.bytes);
        return -ENOMEM;
    }
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)version;
    bytes[7] = 0;
    for (size_t i = 8; i < prefix; i++)
        bytes[i] = (unsigned char)((total - prefix) >> (8 * (i - 8)));
    memset(bytes + prefix, ' ', total - prefix);
    memcpy(bytes + prefix, dictionary.bytes, dictionary.n);
    bytes[total - 1] = '\n';
    free(dictionary.bytes);
    *head = (struct view_head){(char *)bytes, total};
    return 0;
}
