/* Datatypes as bytes, as H5Tencode writes them: two bytes of prefix and the datatype message of an
 * object header. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/why.h"
#include "format/datatype_message.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define PREFIX_BYTES 2
#define MESSAGE_TYPE 3 /* of a datatype; then the version of the encoding, 0 */

int type_check_encoded(const void *type, size_t n)
{
    struct why why;
    struct datatype_element element;
    int error = datatype_measure_encoded(type, n, &element, &why);
    return error ? library_failed_because(-EINVAL, why.text) : 0;
}

int type_decode(const void *type, size_t n, hid_t *id)
{
    *id = H5I_INVALID_HID;
    int error = type_check_encoded(type, n);
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

int type_has_pointers(hid_t type, bool *has_pointers)
{
    struct sfs_type description;
    int error = type_describe(type, &description);
    if (error)
        return error;
    *has_pointers = description.has_pointers;
    hdf5_type_free(&description);
    return 0;
}

int hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                 void *buffer, void *background)
{
    H5T_cdata_t *data;
    bool source_has_pointers, target_has_pointers;
    hid_t source, target = H5I_INVALID_HID;
    library_enter();
    int error = type_decode(from->bytes, from->n, &source);
    if (!error)
        error = type_decode(to->bytes, to->n, &target);
    if (!error)
        error = type_has_pointers(source, &source_has_pointers);
    if (!error)
        error = type_has_pointers(target, &target_has_pointers);
    if (error)
        goto done;
    if (source_has_pointers || target_has_pointers || H5Tfind(source, target, &data) == NULL)
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
