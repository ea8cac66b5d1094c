/* New groups and datasets. A sparse dataset begins as an ordinary chunked one, which others turn
 * into a sparse one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/growing_array.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

#define MAX_COPIED_BYTES  ((uint64_t)64 << 20) /* of one attribute, in memory */
#define MAX_CHUNK_BYTES   UINT32_MAX
#define SELECTION_VERSION "sparsefs.selection_version"
#define MOST_COMPACT                                                                               \
    65535 /* attributes in the header itself: more than libhdf5 can count there                    \
           */

/* ---- Paths ---- */

/* Whether what stands at a path, which exists, is a group. */
static int check_group(struct hdf5 *hdf5, const char *path, hid_t lapl)
{
    H5O_info_t info;
    if (H5Oget_info_by_name2(hdf5->file, path, &info, H5O_INFO_BASIC, lapl) < 0)
        return library_failed(-ENOENT);
    return info.type == H5O_TYPE_GROUP
               ? 0
               : library_failed_because(-ENOTDIR, "a part of the path is not a group");
}

/* Walks down a path as far as it exists; nothing may stand at its end. path is changed on the way
 * and restored. */
static int walk_down(struct hdf5 *hdf5, char *path, hid_t lapl)
{
    for (char *end = path; *end;) {
        end += 1 + strcspn(end + 1, "/");
        char slash = *end;
        *end = '\0';
        htri_t exists = H5Lexists(hdf5->file, path, lapl);
        int error = exists < 0        ? library_failed(-EIO)
                    : exists && slash ? check_group(hdf5, path, lapl)
                    : exists          ? library_failed_because(-EEXIST, "the name is in use")
                                      : 0;
        *end = slash;
        if (error || !exists)
            return error;
    }
    return 0;
}

/* Absolute, and no part of it empty or ".". */
static bool is_path(const char *path)
{
    bool good = *path == '/';
    while (good && *path == '/') {
        size_t n = strcspn(++path, "/");
        good = n > 0 && (n > 1 || *path != '.');
        path += n;
    }
    return good;
}

/* Whether something can be made at a path. */
static int check_path(struct hdf5 *hdf5, const char *path)
{
    if (!is_path(path))
        return library_failed_because(-EINVAL, "not an absolute path of an object");
    hid_t lapl = tree_link_access();
    char *copy = strdup(path);
    int error = lapl < 0 ? library_failed(-EIO) : copy ? walk_down(hdf5, copy, lapl) : -ENOMEM;
    free(copy);
    if (lapl >= 0)
        H5Pclose(lapl);
    return error;
}

/* Missing groups on the way are made; names are UTF-8. */
static hid_t link_creation(void)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE);
    if (lcpl >= 0 && (H5Pset_create_intermediate_group(lcpl, 1) < 0 ||
                      H5Pset_char_encoding(lcpl, H5T_CSET_UTF8) < 0)) {
        H5Pclose(lcpl);
        return H5I_INVALID_HID;
    }
    return lcpl;
}

int local_create_group(struct hdf5 *hdf5, const char *path)
{
    library_enter();
    names_outdate(hdf5);
    int error = check_path(hdf5, path);
    hid_t lcpl = error ? H5I_INVALID_HID : link_creation();
    if (!error) {
        hid_t group = lcpl < 0 ? H5I_INVALID_HID
                               : H5Gcreate2(hdf5->file, path, lcpl, H5P_DEFAULT, H5P_DEFAULT);
        error = group < 0 ? library_failed(-EIO) : 0;
        if (group >= 0)
            H5Gclose(group);
    }
    if (lcpl >= 0)
        H5Pclose(lcpl);
    library_leave();
    return error;
}

/* Whether what a path, which must be absolute, leads to is an empty group, and no link to one. */
static int check_empty(struct hdf5 *hdf5, const char *path, hid_t lapl)
{
    H5L_info_t link;
    H5G_info_t group;
    if (H5Lget_info(hdf5->file, path, &link, lapl) < 0)
        return library_failed(-ENOENT);
    if (link.type != H5L_TYPE_HARD || H5Gget_info_by_name(hdf5->file, path, &group, lapl) < 0)
        return library_failed_because(-ENOTDIR, "it is not a group");
    return group.nlinks > 0 ? library_failed_because(-ENOTEMPTY, "the group is not empty") : 0;
}

int local_remove_group(struct hdf5 *hdf5, const char *path)
{
    library_enter();
    names_outdate(hdf5);
    hid_t lapl = tree_link_access();
    int error = lapl < 0        ? library_failed(-EIO)
                : is_path(path) ? check_empty(hdf5, path, lapl)
                                : library_failed_because(-EINVAL, "not an absolute path");
    if (!error && H5Ldelete(hdf5->file, path, lapl) < 0)
        error = library_failed(-EIO);
    if (lapl >= 0)
        H5Pclose(lapl);
    library_leave();
    return error;
}

/* ---- Datasets ---- */

static int check_dims(const struct hdf5_create *create)
{
    if (create->rank < (create->chunk_dims ? 1 : 0) || create->rank > SFS_MAX_RANK)
        return library_failed_because(-EINVAL, "this rank is not possible");
    for (int i = 0; i < create->rank; i++)
        if (create->max_dims && create->max_dims[i] < create->dims[i])
            return library_failed_because(-EINVAL,
                                          "a maximum dimension is less than the dimension");
    if (!create->chunk_dims)
        return 0;
    for (int i = 0; i < create->rank; i++) {
        uint64_t max = create->max_dims ? create->max_dims[i] : create->dims[i];
        if (create->chunk_dims[i] == 0 || (max > 0 && create->chunk_dims[i] > max))
            return library_failed_because(-EINVAL, "a chunk dimension is 0 or exceeds the dataset");
    }
    return 0;
}

static int set_filters(hid_t dcpl, const struct hdf5_create *create)
{
    for (size_t i = 0; i < create->n_filters; i++) {
        const struct sfs_filter *filter = &create->filters[i];
        unsigned flags = 0;
        bool available = filter_is_available(filter->id);
        if (available && (H5Zget_filter_info(filter->id, &flags) < 0 ||
                          !(flags & H5Z_FILTER_CONFIG_ENCODE_ENABLED)))
            available = false;
        if (!available && !filter->optional) {
            char why[96];
            snprintf(why, sizeof(why), "filter %d is not available for writing", filter->id);
            return library_failed_because(-EOPNOTSUPP, why);
        }
        H5Eclear2(H5E_DEFAULT);
        /* libhdf5 reads the first two without asking whether they are there. */
        if ((filter->id == H5Z_FILTER_SZIP || filter->id == H5Z_FILTER_SCALEOFFSET) &&
            filter->n_values < 2)
            return library_failed_because(-EINVAL, "szip and scale-offset want two parameters");
        if (H5Pset_filter(dcpl, filter->id, filter->optional ? H5Z_FLAG_OPTIONAL : 0,
                          filter->n_values, filter->values) < 0)
            return library_failed(-EINVAL);
    }
    return 0;
}

static int set_times(hid_t dcpl, const struct hdf5_create *create)
{
    static const H5D_alloc_time_t allocations[] = {[SFS_ALLOCATION_INCREMENTAL] =
                                                       H5D_ALLOC_TIME_INCR,
                                                   [SFS_ALLOCATION_EARLY] = H5D_ALLOC_TIME_EARLY,
                                                   [SFS_ALLOCATION_LATE] = H5D_ALLOC_TIME_LATE};
    static const H5D_fill_time_t fill_times[] = {[SFS_FILL_IF_SET] = H5D_FILL_TIME_IFSET,
                                                 [SFS_FILL_ALLOCATED] = H5D_FILL_TIME_ALLOC,
                                                 [SFS_FILL_NEVER] = H5D_FILL_TIME_NEVER};
    /* A contiguous one has one time by itself, which incremental allocation is not. */
    bool is_default = create->allocation == SFS_ALLOCATION_INCREMENTAL && !create->chunk_dims;
    if ((!is_default && H5Pset_alloc_time(dcpl, allocations[create->allocation]) < 0) ||
        H5Pset_fill_time(dcpl, fill_times[create->fill_time]) < 0)
        return library_failed(-EINVAL);
    return 0;
}

static int set_properties(hid_t dcpl, hid_t type, const struct hdf5_create *create)
{
    hsize_t chunk_dims[SFS_MAX_RANK];
    uint64_t bytes;
    if (create->chunk_dims) {
        if (!box_product(create->chunk_dims, create->rank, H5Tget_size(type), &bytes) ||
            bytes > MAX_CHUNK_BYTES)
            return library_failed_because(-EFBIG, "a chunk has 4 GiB or more");
        for (int i = 0; i < create->rank; i++)
            chunk_dims[i] = create->chunk_dims[i];
        unsigned options = create->unfiltered_edges ? H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS : 0;
        if (H5Pset_chunk(dcpl, create->rank, chunk_dims) < 0 ||
            H5Pset_chunk_opts(dcpl, options) < 0)
            return library_failed(-EINVAL);
    }
    int error = set_times(dcpl, create);
    if (error)
        return error;
    if ((create->fill && H5Pset_fill_value(dcpl, type, create->fill) < 0) ||
        (create->selection_version_1 && H5Pset_attr_phase_change(dcpl, MOST_COMPACT, 0) < 0))
        return library_failed(-EINVAL);
    return set_filters(dcpl, create);
}

static hid_t make_space(const struct hdf5_create *create)
{
    hsize_t dims[SFS_MAX_RANK], max_dims[SFS_MAX_RANK];
    if (create->rank == 0)
        return H5Screate(H5S_SCALAR);
    for (int i = 0; i < create->rank; i++) {
        uint64_t max =
            create->max_dims && create->chunk_dims ? create->max_dims[i] : create->dims[i];
        dims[i] = create->dims[i];
        max_dims[i] = max == SFS_UNLIMITED ? H5S_UNLIMITED : max;
    }
    return H5Screate_simple(create->rank, dims, max_dims);
}

static int create_id(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                     hid_t *dataset)
{
    hid_t type;
    int error = type_decode(create->type, create->type_size, &type);
    if (error)
        return error;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = link_creation();
    hid_t space = make_space(create);
    error = dcpl < 0 || lcpl < 0 ? library_failed(-EIO)
            : space < 0          ? library_failed(-EINVAL)
                                 : set_properties(dcpl, type, create);
    if (!error) {
        *dataset = H5Dcreate2(hdf5->file, path, type, space, lcpl, dcpl, H5P_DEFAULT);
        error = *dataset < 0 ? library_failed(-EIO) : 0;
    }
    if (space >= 0)
        H5Sclose(space);
    if (lcpl >= 0)
        H5Pclose(lcpl);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    H5Tclose(type);
    return error;
}

/* ---- Attributes ---- */

struct copying {
    hid_t to;
    const char *path; /* for messages */
    char **copied;    /* names, to be removed if one cannot be copied */
    size_t n_copied, room;
};

/* -EOPNOTSUPP here: libhdf5 cannot do it, and will not another time; -EIO is an error of a disk. */

/* Copies elements in the form in which they stand in memory, so that strings of variable length go
 * along. */
static int copy_elements(hid_t from, hid_t to, hid_t type, hid_t space)
{
    hssize_t n = H5Sget_simple_extent_npoints(space);
    uint64_t bytes;
    if (n < 0)
        return library_failed(-EOPNOTSUPP);
    if (n == 0)
        return 0;
    if (!box_product(&(uint64_t){(uint64_t)n}, 1, H5Tget_size(type), &bytes) ||
        bytes > MAX_COPIED_BYTES)
        return library_failed_because(-EFBIG, "it is too large");
    void *elements = calloc(bytes, 1);
    if (!elements)
        return -ENOMEM;
    int error = 0;
    if (H5Aread(from, type, elements) < 0) {
        error = library_failed(-EOPNOTSUPP);
    } else {
        error = H5Awrite(to, type, elements) < 0 ? library_failed(-EOPNOTSUPP) : 0;
        text_reclaim(type, (hsize_t)n, elements);
    }
    free(elements);
    return error;
}

/* Not committed, and of a version that libhdf5 1.10 knows, as it is encoded here. */
static hid_t plain_type(hid_t stored)
{
    void *bytes;
    size_t n;
    hid_t type = H5I_INVALID_HID;
    if (type_encode(stored, &bytes, &n) == 0) {
        (void)type_decode(bytes, n, &type);
        free(bytes);
    }
    return type < 0 ? H5Tcopy(stored) : type;
}

static int copy_attribute(hid_t from, const char *name, hid_t object)
{
    hid_t stored = H5Aget_type(from), space = H5Aget_space(from);
    hid_t acpl = H5Aget_create_plist(from), to = H5I_INVALID_HID;
    hid_t type = stored < 0 ? H5I_INVALID_HID : plain_type(stored);
    int error = 0;
    if (type < 0 || space < 0 || acpl < 0)
        error = library_failed(-EOPNOTSUPP);
    else if (H5Tdetect_class(type, H5T_REFERENCE) > 0)
        error = library_failed_because(-EOPNOTSUPP, "references mean nothing elsewhere");
    if (!error) {
        to = H5Acreate2(object, name, type, space, acpl, H5P_DEFAULT);
        error = to < 0 ? library_failed(-EOPNOTSUPP) : copy_elements(from, to, type, space);
    }
    if (to >= 0) {
        H5Aclose(to);
        if (error && H5Adelete(object, name) < 0)
            H5Eclear2(H5E_DEFAULT);
    }
    if (type >= 0)
        H5Tclose(type);
    if (acpl >= 0)
        H5Pclose(acpl);
    if (space >= 0)
        H5Sclose(space);
    if (stored >= 0)
        H5Tclose(stored);
    return error;
}

static int copy_or_leave_out(hid_t from, const char *name, void *context)
{
    const struct copying *copying = context;
    if (!strcmp(name, SELECTION_VERSION)) /* says how the original is written */
        return 0;
    int error = from < 0 ? library_failed(-EOPNOTSUPP) : copy_attribute(from, name, copying->to);
    if (error == -EOPNOTSUPP || error == -EFBIG) {
        log_warning("%s: attribute %s is left out: %s", copying->path, name, hdf5_error());
        error = 0;
    }
    return error;
}

/* libhdf5 cannot tell that from other errors. */
static int copy_new_attribute(hid_t from, const char *name, void *context)
{
    struct copying *copying = context;
    htri_t exists = H5Aexists(copying->to, name);
    if (exists > 0)
        return library_failed_because(-EEXIST, "an attribute is there already");
    if (exists < 0)
        return library_failed(-EIO);
    char **grown = room_for_one(copying->copied, copying->n_copied, &copying->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    copying->copied = grown;
    grown[copying->n_copied] = strdup(name);
    if (!grown[copying->n_copied])
        return -ENOMEM;
    copying->n_copied++;
    return copy_or_leave_out(from, name, context);
}

/* All of them, or none. */
static void end_copying(struct copying *copying, bool keep)
{
    for (size_t i = 0; i < copying->n_copied; i++) {
        char *name = copying->copied[i];
        if (!keep && H5Aexists(copying->to, name) > 0 && H5Adelete(copying->to, name) < 0)
            log_error("%s: attribute %s, one of several to be copied, stays: %s", copying->path,
                      name, (library_failed(-EIO), hdf5_error()));
        free(name);
    }
    free(copying->copied);
}

int local_copy_attributes(struct hdf5 *to, uint64_t object, struct hdf5 *from, uint64_t of)
{
    library_enter();
    struct copying copying = {.to = H5Oopen_by_addr(to->file, object),
                              .path = store_path(to->store)};
    int error = copying.to < 0 ? library_failed(-EIO)
                               : attributes_each(from, of, copy_new_attribute, &copying);
    end_copying(&copying, !error);
    if (copying.to >= 0)
        H5Oclose(copying.to);
    return library_leave_with(error);
}

static int mark_selection_version(hid_t dataset)
{
    const unsigned char version = 1;
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = space < 0 ? H5I_INVALID_HID
                                : H5Acreate2(dataset, SELECTION_VERSION, H5T_STD_U8LE, space,
                                             H5P_DEFAULT, H5P_DEFAULT);
    int error = attribute < 0 || H5Awrite(attribute, H5T_NATIVE_UCHAR, &version) < 0
                    ? library_failed(-EIO)
                    : 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    if (space >= 0)
        H5Sclose(space);
    return error;
}

static int create_dataset(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                          uint64_t *address)
{
    struct copying copying = {.path = path};
    H5O_info_t info;
    int error = check_path(hdf5, path);
    if (!error)
        error = check_dims(create);
    if (!error)
        error = create_id(hdf5, path, create, &copying.to);
    if (error)
        return error;
    if (create->selection_version_1)
        error = mark_selection_version(copying.to);
    if (!error && create->attributes_from)
        error = attributes_each(create->attributes_from, create->attributes_of, copy_or_leave_out,
                                &copying);
    if (!error)
        error = driver_moved();
    if (!error && H5Oget_info2(copying.to, &info, H5O_INFO_BASIC) < 0)
        error = library_failed(-EIO);
    if (H5Dclose(copying.to) < 0 && !error)
        error = library_failed(-EIO);
    if (error) {
        if (H5Ldelete(hdf5->file, path, H5P_DEFAULT) < 0)
            H5Eclear2(H5E_DEFAULT);
        return error;
    }
    *address = info.addr;
    return 0;
}

int local_create_dataset(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                         uint64_t *address)
{
    library_enter();
    names_outdate(hdf5);
    int error = create->chunk_dims ? create_dataset(hdf5, path, create, address)
                                   : library_failed_because(-EINVAL, "chunk dims are missing");
    return library_leave_with(error);
}

int local_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                       uint64_t *address)
{
    library_enter();
    names_outdate(hdf5);
    int error = create_dataset(hdf5, path, create, address);
    return library_leave_with(error);
}

int local_unlink(struct hdf5 *hdf5, const char *path)
{
    library_enter();
    names_outdate(hdf5);
    int error = H5Ldelete(hdf5->file, path, H5P_DEFAULT) < 0 ? library_failed(-EIO) : 0;
    library_leave();
    return error;
}
