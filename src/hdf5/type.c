/* Datatypes as bytes, as H5Tencode writes them: two bytes of prefix and the datatype message of an
 * object header. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/datatype_message.h"
#include "common/why.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define PREFIX_BYTES 2
#define MESSAGE_TYPE 3 /* of a datatype; then the version of the encoding, 0 */

/* libhdf5 1.10 does not ask how many bytes there are: the message is checked before. */
static int check(const void *type, size_t n)
{
    const unsigned char *bytes = type;
    struct why why;
    if (n < PREFIX_BYTES || bytes[0] != MESSAGE_TYPE || bytes[1] != 0)
        return library_failed_because(-EINVAL, "not an encoded datatype");
    int error = datatype_check(bytes + PREFIX_BYTES, n - PREFIX_BYTES, &why);
    return error ? library_failed_because(-EINVAL, why.text) : 0;
}

int type_decode(const void *type, size_t n, hid_t *id)
{
    *id = H5I_INVALID_HID;
    int error = check(type, n);
    if (error)
        return error;
    unsigned char *lowered = malloc(n);
    if (!lowered)
        return -ENOMEM;
    memcpy(lowered, type, n);
    datatype_lower(lowered + PREFIX_BYTES, n - PREFIX_BYTES);
    *id = H5Tdecode(lowered);
    error = *id < 0 ? library_failed(-EINVAL) : 0;
    free(lowered);
    return error;
}

int type_encode(hid_t type, void **out, size_t *n)
{
    size_t size = 0;
    if (H5Tencode(type, NULL, &size) < 0)
        return library_failed(-EIO);
    void *bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    if (H5Tencode(type, bytes, &size) < 0) {
        free(bytes);
        return library_failed(-EIO);
    }
    datatype_lower((char *)bytes + PREFIX_BYTES, size - PREFIX_BYTES);
    *out = bytes;
    *n = size;
    return 0;
}

int local_type_of_message(const void *message, size_t n, void **out, size_t *type_n)
{
    unsigned char *bytes = malloc(n + PREFIX_BYTES);
    if (!bytes)
        return -ENOMEM;
    bytes[0] = MESSAGE_TYPE;
    bytes[1] = 0;
    if (n > 0)
        memcpy(bytes + PREFIX_BYTES, message, n);
    library_enter();
    hid_t type;
    int error = type_decode(bytes, n + PREFIX_BYTES, &type);
    if (!error)
        error = type_encode(type, out, type_n);
    if (type >= 0)
        H5Tclose(type);
    library_leave();
    free(bytes);
    return error;
}

/* ---- Names of NumPy ---- */

/* IEEE 754 binary16, which libhdf5 1.10 has no name for. */
static hid_t half_float(void)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
                      H5Tset_ebias(type, 15) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t number(char kind, unsigned long size)
{
    if (kind == 'f')
        return size == 2   ? half_float()
               : size == 4 ? H5Tcopy(H5T_IEEE_F32LE)
               : size == 8 ? H5Tcopy(H5T_IEEE_F64LE)
                           : H5I_INVALID_HID;
    switch (size) {
    case 1:
        return H5Tcopy(kind == 'u' ? H5T_STD_U8LE : H5T_STD_I8LE);
    case 2:
        return H5Tcopy(kind == 'u' ? H5T_STD_U16LE : H5T_STD_I16LE);
    case 4:
        return H5Tcopy(kind == 'u' ? H5T_STD_U32LE : H5T_STD_I32LE);
    case 8:
        return H5Tcopy(kind == 'u' ? H5T_STD_U64LE : H5T_STD_I64LE);
    default:
        return H5I_INVALID_HID;
    }
}

/* As h5py writes them. */
static hid_t boolean(void)
{
    const signed char no = 0, yes = 1;
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type >= 0 &&
        (H5Tenum_insert(type, "FALSE", &no) < 0 || H5Tenum_insert(type, "TRUE", &yes) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t complex_of(hid_t part)
{
    size_t size = H5Tget_size(part);
    hid_t type = H5Tcreate(H5T_COMPOUND, 2 * size);
    if (type >= 0 && (H5Tinsert(type, "r", 0, part) < 0 || H5Tinsert(type, "i", size, part) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t string(unsigned long size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, size) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t make_type(char kind, unsigned long size, bool big_endian)
{
    hid_t type;
    if (kind == 'b')
        return size == 1 ? boolean() : H5I_INVALID_HID;
    if (kind == 'S')
        return string(size);
    if (kind == 'V')
        return H5Tcreate(H5T_OPAQUE, size);
    type = kind == 'c' ? size == 8 || size == 16 ? number('f', size / 2) : H5I_INVALID_HID
                       : number(kind, size);
    if (type >= 0 && big_endian && H5Tset_order(type, H5T_ORDER_BE) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    if (type >= 0 && kind == 'c') {
        hid_t part = type;
        type = complex_of(part);
        H5Tclose(part);
    }
    return type;
}

/* "<u2" or "uint16" as kind, bytes and byte order. */
static bool parse_name(const char *name, char *kind, unsigned long *size, bool *big_endian)
{
    static const struct {
        const char *word;
        char kind;
    } words[] = {{"int", 'i'}, {"uint", 'u'}, {"float", 'f'}, {"complex", 'c'}};
    *big_endian = *name == '>';
    bool has_order = *name && strchr("<>=|", *name);
    name += has_order;
    *kind = 'b';
    *size = 1;
    if (!strcmp(name, "?") || (!has_order && (!strcmp(name, "bool") || !strcmp(name, "bool_"))))
        return true;

    unsigned bits = 1;
    const char *digits = name;
    if (*name && strchr("iufcbSV", *name) && strspn(name + 1, "0123456789") > 0) {
        *kind = *name;
        digits = name + 1;
    } else {
        for (size_t i = 0; i < sizeof(words) / sizeof(*words) && bits == 1 && !has_order; i++) {
            size_t n = strlen(words[i].word);
            if (strncmp(name, words[i].word, n) == 0) {
                *kind = words[i].kind;
                digits = name + n;
                bits = 8;
            }
        }
        if (bits == 1)
            return false;
    }
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 9 || digits[n])
        return false;
    *size = strtoul(digits, NULL, 10);
    bool whole = *size % bits == 0;
    *size /= bits;
    return whole && *size > 0;
}

/* A string of any length in UTF-8, as h5py's string_dtype() has it. */
static hid_t variable_string(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

/* "str" and "string", and "vlen:" before the name of what sequences are of. */
static hid_t named_type(const char *name)
{
    static const char sequence[] = "vlen:";
    char kind;
    unsigned long size;
    bool big_endian, is_sequence = !strncmp(name, sequence, strlen(sequence));
    if (!strcmp(name, "str") || !strcmp(name, "string"))
        return variable_string();
    name += is_sequence ? strlen(sequence) : 0;
    hid_t type = parse_name(name, &kind, &size, &big_endian) ? make_type(kind, size, big_endian)
                                                             : H5I_INVALID_HID;
    if (type < 0 || !is_sequence)
        return type;
    hid_t base = type;
    type = H5Tvlen_create(base);
    H5Tclose(base);
    return type;
}

int hdf5_type_of_name(const char *numpy, void **out, size_t *n)
{
    library_enter();
    hid_t type = H5open() < 0 ? H5I_INVALID_HID : named_type(numpy);
    int error = type < 0 ? library_failed_because(-EINVAL, "not the name of a NumPy datatype")
                         : type_encode(type, out, n);
    if (type >= 0)
        H5Tclose(type);
    library_leave();
    return error;
}

/* ---- Questions ---- */

int local_type_describe(const void *type, size_t n, struct sfs_type *description)
{
    hid_t id;
    library_enter();
    int error = type_decode(type, n, &id);
    if (!error)
        error = type_describe(id, description);
    if (id >= 0)
        H5Tclose(id);
    library_leave();
    return error;
}

bool local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n)
{
    hid_t left, right = H5I_INVALID_HID;
    library_enter();
    bool equal = type_decode(a, a_n, &left) == 0 && type_decode(b, b_n, &right) == 0 &&
                 H5Tequal(left, right) > 0;
    if (right >= 0)
        H5Tclose(right);
    if (left >= 0)
        H5Tclose(left);
    H5Eclear2(H5E_DEFAULT);
    library_leave();
    return equal;
}

int local_type_size(const void *type, size_t n, size_t *size)
{
    hid_t id;
    library_enter();
    int error = type_decode(type, n, &id);
    if (!error)
        *size = H5Tget_size(id);
    if (id >= 0)
        H5Tclose(id);
    library_leave();
    return error;
}

bool type_has_pointers(hid_t type)
{
    struct sfs_type description;
    if (type_describe(type, &description) < 0)
        return true;
    bool has_pointers = description.has_pointers;
    hdf5_type_free(&description);
    return has_pointers;
}

int hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                 void *buffer, void *background)
{
    H5T_cdata_t *data;
    hid_t source, target = H5I_INVALID_HID;
    library_enter();
    int error = type_decode(from->bytes, from->n, &source);
    if (!error)
        error = type_decode(to->bytes, to->n, &target);
    if (error)
        goto done;
    if (type_has_pointers(source) || type_has_pointers(target) ||
        H5Tfind(source, target, &data) == NULL)
        error = library_failed_because(-EOPNOTSUPP, "there is no conversion of these datatypes");
    else if (H5Tconvert(source, target, n, buffer, background, H5P_DEFAULT) < 0)
        error = library_failed(-EIO);

done:
    if (target >= 0)
        H5Tclose(target);
    if (source >= 0)
        H5Tclose(source);
    library_leave();
    return error;
}
