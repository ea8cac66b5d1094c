/* HDF5 datatypes as plain descriptions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "hdf5/private.h"

#define MAX_NESTING 32 /* compounds in arrays in compounds: a file may hold a bomb */

void hdf5_type_free(struct sfs_type *type)
{
    if (!type)
        return;
    for (size_t i = 0; i < type->n_members; i++) {
        free(type->members[i].name);
        hdf5_type_free(&type->members[i].type);
    }
    free(type->members);
    hdf5_type_free(type->base);
    free(type->base);
    free(type->description);
    memset(type, 0, sizeof(*type));
}

static size_t string_bytes(const char *string)
{
    return string ? strlen(string) + SIZE_OF_ALLOCATION : 0;
}

size_t hdf5_type_bytes(const struct sfs_type *type)
{
    size_t n = string_bytes(type->description) + type->n_members * sizeof(*type->members);
    for (size_t i = 0; i < type->n_members; i++)
        n += string_bytes(type->members[i].name) + hdf5_type_bytes(&type->members[i].type);
    return n + (type->base ? sizeof(*type->base) + hdf5_type_bytes(type->base) : 0);
}

/* A number without padding bits, as every machine type has. */
static bool fills_its_bytes(hid_t type)
{
    return H5Tget_offset(type) == 0 && H5Tget_precision(type) == 8 * H5Tget_size(type);
}

static bool is_power_of_two_up_to_8(size_t size)
{
    return size == 1 || size == 2 || size == 4 || size == 8;
}

/* IEEE 754 binary16, 32 and 64, and the x87 format as C stores it in 16 bytes on x86. */
static bool is_machine_float(hid_t type)
{
    static const struct {
        size_t size, sign, exponent, exponent_bits, mantissa_bits, bias;
        H5T_norm_t norm;
    } formats[] = {
        {2, 15, 10, 5, 10, 15, H5T_NORM_IMPLIED},
        {4, 31, 23, 8, 23, 127, H5T_NORM_IMPLIED},
        {8, 63, 52, 11, 52, 1023, H5T_NORM_IMPLIED},
        {16, 79, 64, 15, 64, 16383, H5T_NORM_NONE},
    };
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    if (H5Tget_offset(type) != 0 ||
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return false;
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (H5Tget_size(type) == formats[i].size && sign == formats[i].sign &&
            exponent == formats[i].exponent && exponent_bits == formats[i].exponent_bits &&
            mantissa == 0 && mantissa_bits == formats[i].mantissa_bits &&
            H5Tget_ebias(type) == formats[i].bias && H5Tget_norm(type) == formats[i].norm)
            return true;
    return false;
}

/* h5py and PyTables write booleans as an 8-bit enumeration of FALSE = 0 and TRUE = 1. */
static bool is_boolean(hid_t type)
{
    int8_t no = -1, yes = -1;
    if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2)
        return false;
    bool found =
        H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0;
    H5Eclear2(H5E_DEFAULT);
    return found && no == 0 && yes == 1;
}

/* Of an integer with padding bits. */
static void describe_bits(hid_t type, struct sfs_type *out)
{
    size_t bits = H5Tget_precision(type);
    int offset = H5Tget_offset(type);
    if (is_power_of_two_up_to_8(out->size) && bits > 0 && offset >= 0 &&
        bits + (size_t)offset <= 8 * out->size) {
        out->bits = (unsigned)bits;
        out->bit_offset = (unsigned)offset;
    }
}

/* By their sizes, which differ: H5Tequal does not find those that are the base of a sequence equal to
 * H5T_STD_REF_OBJ or, since libhdf5 1.12, to H5T_STD_REF_DSETREG. */
enum sfs_reference type_reference(hid_t type)
{
    size_t size = H5Tget_size(type);
    return size == sizeof(hobj_ref_t)        ? SFS_REFERENCE_OBJECT
           : size == sizeof(hdset_reg_ref_t) ? SFS_REFERENCE_REGION
                                             : SFS_REFERENCE_ANY;
}

static int describe(hid_t type, struct sfs_type *out, int depth);

/* Describes the base type of an array, enumeration or sequence into *out, newly allocated. */
static int describe_base(hid_t type, struct sfs_type **out, int depth)
{
    hid_t base = H5Tget_super(type);
    if (base < 0)
        return library_failed(-EIO);
    *out = calloc(1, sizeof(**out));
    int error = *out ? describe(base, *out, depth + 1) : -ENOMEM;
    H5Tclose(base);
    return error;
}

static int describe_compound(hid_t type, struct sfs_type *out, int depth)
{
    int n = H5Tget_nmembers(type);
    if (n < 0)
        return library_failed(-EIO);
    out->members = calloc((size_t)n, sizeof(*out->members));
    if (!out->members && n > 0)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        struct sfs_member *member = &out->members[out->n_members++];
        char *name = H5Tget_member_name(type, (unsigned)i);
        hid_t member_type = H5Tget_member_type(type, (unsigned)i);
        int error = 0;
        if (!name || member_type < 0) {
            error = library_failed(-EIO);
        } else {
            member->name = strdup(name);
            member->offset = H5Tget_member_offset(type, (unsigned)i);
            error = member->name ? describe(member_type, &member->type, depth + 1) : -ENOMEM;
        }
        if (!error &&
            (member->offset > out->size || member->type.size > out->size - member->offset))
            error = library_failed_because(-EIO, "a compound's member lies outside of it");
        H5free_memory(name);
        if (member_type >= 0)
            H5Tclose(member_type);
        if (error)
            return error;
        out->has_pointers |= member->type.has_pointers;
    }
    return 0;
}

static int describe_enum(hid_t type, struct sfs_type *out, int depth)
{
    struct sfs_type *base = NULL;
    int error = describe_base(type, &base, depth);
    if (!error) {
        out->class = base->class == SFS_INTEGER ? SFS_ENUM : SFS_OPAQUE;
        out->big_endian = base->big_endian;
        out->is_signed = base->is_signed;
        out->is_boolean = out->class == SFS_ENUM && is_boolean(type);
    }
    hdf5_type_free(base);
    free(base);
    return error;
}

static int describe_array(hid_t type, struct sfs_type *out, int depth)
{
    hsize_t dims[SFS_MAX_RANK];
    out->array_rank = H5Tget_array_ndims(type);
    if (out->array_rank < 1 || out->array_rank > SFS_MAX_RANK || H5Tget_array_dims2(type, dims) < 0)
        return library_failed(-EIO);
    for (int i = 0; i < out->array_rank; i++)
        out->array_dims[i] = dims[i];
    int error = describe_base(type, &out->base, depth);
    if (!error)
        out->has_pointers = out->base->has_pointers;
    return error;
}

static int describe(hid_t type, struct sfs_type *out, int depth)
{
    memset(out, 0, sizeof(*out));
    if (depth > MAX_NESTING)
        return library_failed_because(-EIO, "datatypes are nested too deeply");
    out->size = H5Tget_size(type);
    if (out->size == 0)
        return library_failed(-EIO);
    H5T_order_t order = H5Tget_order(type);
    out->big_endian = order == H5T_ORDER_BE;
    H5Eclear2(H5E_DEFAULT);

    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        out->is_signed = H5Tget_sign(type) == H5T_SGN_2;
        out->class =
            fills_its_bytes(type) && is_power_of_two_up_to_8(out->size) ? SFS_INTEGER : SFS_OPAQUE;
        if (out->class == SFS_OPAQUE)
            describe_bits(type, out);
        return 0;
    case H5T_FLOAT:
        out->class = is_machine_float(type) && order != H5T_ORDER_VAX ? SFS_FLOAT : SFS_OPAQUE;
        return 0;
    case H5T_BITFIELD:
        out->class =
            fills_its_bytes(type) && is_power_of_two_up_to_8(out->size) ? SFS_BITFIELD : SFS_OPAQUE;
        return 0;
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0) {
            out->class = SFS_VARIABLE;
            out->is_string = true;
            out->has_pointers = true;
        } else {
            out->class = SFS_STRING;
        }
        return 0;
    case H5T_REFERENCE:
        out->class = SFS_REFERENCE;
        out->reference = type_reference(type);
        out->has_pointers = true;
        return 0;
    case H5T_VLEN:
        out->class = SFS_VARIABLE;
        out->has_pointers = true;
        return describe_base(type, &out->base, depth);
    case H5T_COMPOUND:
        out->class = SFS_COMPOUND;
        return describe_compound(type, out, depth);
    case H5T_ENUM:
        return describe_enum(type, out, depth);
    case H5T_ARRAY:
        out->class = SFS_ARRAY;
        return describe_array(type, out, depth);
    case H5T_NO_CLASS:
        return library_failed(-EIO);
    default: /* opaque, time */
        out->class = SFS_OPAQUE;
        return 0;
    }
}

static const char *const reference_words[] = {[SFS_REFERENCE_OBJECT] = "object ",
                                              [SFS_REFERENCE_REGION] = "region ",
                                              [SFS_REFERENCE_ANY] = ""};

/* "32-bit little-endian integer" and the like. */
static void write_words(FILE *out, hid_t type)
{
    size_t bits = 8 * H5Tget_size(type);
    const char *order = bits <= 8                             ? ""
                        : H5Tget_order(type) == H5T_ORDER_BE  ? " big-endian"
                        : H5Tget_order(type) == H5T_ORDER_VAX ? " VAX-order"
                                                              : " little-endian";
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        fprintf(out, "%zu-bit%s %sinteger", bits, order,
                H5Tget_sign(type) == H5T_SGN_NONE ? "unsigned " : "");
        break;
    case H5T_FLOAT:
        fprintf(out, "%zu-bit%s floating-point", bits, order);
        break;
    case H5T_BITFIELD:
        fprintf(out, "%zu-bit%s bitfield", bits, order);
        break;
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0)
            fprintf(out, "variable-length string");
        else
            fprintf(out, "%zu-byte string", bits / 8);
        break;
    case H5T_REFERENCE:
        fprintf(out, "%sreference", reference_words[type_reference(type)]);
        break;
    case H5T_VLEN:
        fprintf(out, "variable-length sequence");
        break;
    case H5T_COMPOUND:
        fprintf(out, "compound of %d members", H5Tget_nmembers(type));
        break;
    case H5T_ENUM:
        fprintf(out, "%zu-bit%s enumeration of %d names", bits, order, H5Tget_nmembers(type));
        break;
    case H5T_ARRAY:
        fprintf(out, "array");
        break;
    case H5T_TIME:
        fprintf(out, "%zu-bit time", bits);
        break;
    default:
        fprintf(out, "%zu opaque bytes", bits / 8);
    }

    hid_t base = H5I_INVALID_HID;
    if (H5Tget_class(type) == H5T_ARRAY || H5Tget_class(type) == H5T_VLEN)
        base = H5Tget_super(type);
    if (base >= 0) {
        fprintf(out, " of ");
        write_words(out, base);
        H5Tclose(base);
    }
    H5Eclear2(H5E_DEFAULT);
}

int type_words(hid_t type, char **words)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return -ENOMEM;
    write_words(out, type);
    if (fclose(out) != 0) {
        free(text);
        return -ENOMEM;
    }
    *words = text;
    return 0;
}

int type_describe(hid_t type, struct sfs_type *out)
{
    int error = describe(type, out, 0);
    if (!error)
        error = type_words(type, &out->description);
    if (error)
        hdf5_type_free(out);
    return error;
}
