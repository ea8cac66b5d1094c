/* References in a copy of a file: they name objects by their addresses, which are others there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define MAX_NAME  65536                 /* bytes */
#define MAX_BYTES ((uint64_t)256 << 20) /* of one dataset or attribute, in memory */

struct translation {
    struct hdf5 *to, *from;
    const struct copied_paths *paths;
};

static int compare_moved(const void *a, const void *b)
{
    const struct sfs_moved *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

const char *moved_path(const struct sfs_moved *moved, size_t n, uint64_t address)
{
    const struct sfs_moved key = {.address = address};
    const struct sfs_moved *found =
        n > 0 ? bsearch(&key, moved, n, sizeof(*moved), compare_moved) : NULL;
    return found ? found->path : NULL;
}

static const char *find_path(const struct translation *t, uint64_t address)
{
    return t->paths->find ? t->paths->find(address)
                          : moved_path(t->paths->moved, t->paths->n, address);
}

/* What leads nowhere, or to what was not copied, becomes null. */
static void translate_object(const struct translation *t, void *element)
{
    hobj_ref_t old, new = 0;
    memcpy(&old, element, sizeof(old));
    const char *path = find_path(t, old);
    if (path && H5Rcreate(&new, t->to->file, path, H5R_OBJECT, H5I_INVALID_HID) < 0)
        new = 0;
    memcpy(element, &new, sizeof(new));
}

static void translate_region(const struct translation *t, void *element)
{
    static const hdset_reg_ref_t null;
    hdset_reg_ref_t new;
    H5O_info_t info;
    bool done = false;
    memset(&new, 0, sizeof(new));
    if (memcmp(element, &null, sizeof(null)) == 0)
        return;
    hid_t object = H5Rdereference2(t->from->file, H5P_DEFAULT, H5R_DATASET_REGION, element);
    hid_t space = H5Rget_region(t->from->file, H5R_DATASET_REGION, element);
    if (object >= 0 && space >= 0 && H5Oget_info2(object, &info, H5O_INFO_BASIC) >= 0) {
        const char *path = find_path(t, info.addr);
        done = path && H5Rcreate(&new, t->to->file, path, H5R_DATASET_REGION, space) >= 0;
    }
    memcpy(element, done ? (const void *)&new : (const void *)&null, sizeof(new));
    if (space >= 0)
        H5Sclose(space);
    if (object >= 0)
        H5Oclose(object);
}

/* One of any kind has the name of its file, too, if that is another. */
static void translate_reference(const struct translation *t, enum sfs_reference reference,
                                void *element)
{
    if (reference == SFS_REFERENCE_OBJECT)
        translate_object(t, element);
    else if (reference == SFS_REFERENCE_REGION)
        translate_region(t, element);
}

static void translate(const struct translation *t, hid_t type, char *element);

static void translate_members(const struct translation *t, hid_t type, char *element)
{
    int n = H5Tget_nmembers(type);
    for (int i = 0; i < n; i++) {
        hid_t member = H5Tget_member_type(type, (unsigned)i);
        translate(t, member, element + H5Tget_member_offset(type, (unsigned)i));
        H5Tclose(member);
    }
}

/* n elements of the base of an array or a sequence. */
static void translate_each(const struct translation *t, hid_t type, char *elements, size_t n)
{
    hid_t base = H5Tget_super(type);
    size_t size = H5Tget_size(base);
    for (size_t i = 0; i < n && H5Tdetect_class(base, H5T_REFERENCE) > 0; i++)
        translate(t, base, elements + i * size);
    H5Tclose(base);
}

static void translate(const struct translation *t, hid_t type, char *element)
{
    hvl_t sequence;
    switch (H5Tget_class(type)) {
    case H5T_REFERENCE:
        translate_reference(t, type_reference(type), element);
        break;
    case H5T_COMPOUND:
        translate_members(t, type, element);
        break;
    case H5T_ARRAY: {
        hid_t base = H5Tget_super(type);
        size_t size = H5Tget_size(base);
        H5Tclose(base);
        translate_each(t, type, element, size ? H5Tget_size(type) / size : 0);
        break;
    }
    case H5T_VLEN:
        memcpy(&sequence, element, sizeof(sequence));
        if (sequence.p)
            translate_each(t, type, sequence.p, sequence.len);
        break;
    default:
        break;
    }
}

/* An attribute or a dataset; the one in the copy has the same type and dims. */
static herr_t read_all(hid_t id, hid_t type, void *elements)
{
    return H5Iget_type(id) == H5I_ATTR ? H5Aread(id, type, elements)
                                       : H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements);
}

static herr_t write_all(hid_t id, hid_t type, const void *elements)
{
    return H5Iget_type(id) == H5I_ATTR
               ? H5Awrite(id, type, elements)
               : H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements);
}

static int translate_all(const struct translation *t, hid_t from, hid_t to, hid_t type, hid_t space)
{
    hssize_t n = H5Sget_simple_extent_npoints(space);
    size_t size = H5Tget_size(type);
    uint64_t bytes;
    if (n < 0 || size == 0)
        return library_failed(-EIO);
    if (n == 0)
        return 0;
    if (!box_product(&(uint64_t){(uint64_t)n}, 1, size, &bytes) || bytes > MAX_BYTES)
        return library_failed_because(-EFBIG, "there are too many references");
    char *elements = calloc(bytes, 1);
    if (!elements)
        return -ENOMEM;
    int error = read_all(from, type, elements) < 0 ? library_failed(-EIO) : 0;
    if (!error) {
        for (hssize_t i = 0; i < n; i++)
            translate(t, type, elements + (size_t)i * size);
        error = library_has_read(0); /* what could not be read may lead somewhere */
        if (!error)
            error = write_all(to, type, elements) < 0 ? library_failed(-EIO) : 0;
        text_reclaim(type, (hsize_t)n, elements);
    }
    free(elements);
    return error;
}

static int translate_pair(const struct translation *t, hid_t from, hid_t to)
{
    bool attribute = H5Iget_type(from) == H5I_ATTR;
    if (!attribute && dataset_count_external(from) != 0)
        return 0; /* both have the same files: what these say stays */
    hid_t stored = attribute ? H5Aget_type(from) : H5Dget_type(from);
    hid_t space = attribute ? H5Aget_space(from) : H5Dget_space(from);
    hid_t type = H5I_INVALID_HID;
    int error = stored < 0 || space < 0 ? library_failed(-EIO) : 0;
    if (!error && H5Tdetect_class(stored, H5T_REFERENCE) > 0) {
        type = H5Tget_native_type(stored, H5T_DIR_DEFAULT);
        error = type < 0 ? library_failed(-EIO) : translate_all(t, from, to, type, space);
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    if (stored >= 0)
        H5Tclose(stored);
    return error;
}

static int translate_attributes(const struct translation *t, hid_t from, hid_t to)
{
    H5O_info_t info;
    if (H5Oget_info2(from, &info, H5O_INFO_NUM_ATTRS) < 0)
        return library_failed(-EIO);
    int error = 0;
    for (hsize_t i = 0; i < info.num_attrs && !error; i++) {
        char name[MAX_NAME];
        hid_t a =
            H5Aopen_by_idx(from, ".", H5_INDEX_NAME, H5_ITER_NATIVE, i, H5P_DEFAULT, H5P_DEFAULT);
        hid_t b = H5I_INVALID_HID;
        if (a < 0 || H5Aget_name(a, sizeof(name), name) < 0)
            error = library_failed(-EIO);
        else if (H5Aexists(to, name) > 0) {
            b = H5Aopen(to, name, H5P_DEFAULT);
            error = b < 0 ? library_failed(-EIO) : translate_pair(t, a, b);
        }
        if (b >= 0)
            H5Aclose(b);
        if (a >= 0)
            H5Aclose(a);
    }
    return error;
}

int local_copy_references(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of,
                          const struct copied_paths *paths)
{
    const struct translation t = {to, from, paths};
    library_enter();
    hid_t source = H5Oopen_by_addr(from->file, of);
    hid_t copy = H5Oopen(to->file, path, H5P_DEFAULT);
    int error = source < 0 || copy < 0 ? library_failed(-EIO) : 0;
    if (!error && H5Iget_type(source) == H5I_DATASET)
        error = translate_pair(&t, source, copy);
    if (!error)
        error = translate_attributes(&t, source, copy);
    if (copy >= 0)
        H5Oclose(copy);
    if (source >= 0)
        H5Oclose(source);
    return library_leave_with(error);
}
