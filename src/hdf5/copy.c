/* Copying objects from one file to another, and links: what a copy of a whole file is made of. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/private.h"

static hid_t utf8_links(void)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE);
    if (lcpl >= 0 && H5Pset_char_encoding(lcpl, H5T_CSET_UTF8) < 0) {
        H5Pclose(lcpl);
        return H5I_INVALID_HID;
    }
    return lcpl;
}

/* ---- Committed datatypes ---- */

void types_clear(struct hdf5 *hdf5)
{
    while (hdf5->n_types > 0)
        free(hdf5->types[--hdf5->n_types]);
    free(hdf5->types);
    hdf5->types = NULL;
}

static int types_note(struct hdf5 *hdf5, const char *path)
{
    char **types = reallocarray(hdf5->types, hdf5->n_types + 1, sizeof(*types));
    if (types)
        hdf5->types = types;
    char *copy = types ? strdup(path) : NULL;
    if (!copy)
        return -ENOMEM;
    types[hdf5->n_types++] = copy;
    return 0;
}

static H5O_mcdt_search_ret_t stop_searching(void *data)
{
    (void)data;
    return H5O_MCDT_SEARCH_STOP;
}

/* Datatypes are looked for among those that were copied before. libhdf5 would look through the
 * whole file for every dataset, and crashes where it meets a sparse one. */
static hid_t object_copying(const struct hdf5 *to)
{
    hid_t ocpypl = H5Pcreate(H5P_OBJECT_COPY);
    herr_t result = ocpypl < 0 || to->n_types == 0
                        ? 0
                        : H5Pset_copy_object(ocpypl, H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG);
    if (result >= 0 && ocpypl >= 0 && to->n_types > 0)
        result = H5Pset_mcdt_search_cb(ocpypl, stop_searching, NULL);
    for (size_t i = 0; i < to->n_types && ocpypl >= 0 && result >= 0; i++)
        result = H5Padd_merge_committed_dtype_path(ocpypl, to->types[i]);
    if (result < 0) {
        H5Pclose(ocpypl);
        return H5I_INVALID_HID;
    }
    return ocpypl;
}

/* ---- Objects ---- */

static bool has_variable(hid_t type);

static bool has_variable_member(hid_t compound)
{
    bool has = false;
    int n = H5Tget_nmembers(compound);
    for (int i = 0; i < n && !has; i++) {
        hid_t member = H5Tget_member_type(compound, (unsigned)i);
        has = has_variable(member);
        H5Tclose(member);
    }
    return has;
}

/* Whether elements have variable length, wholly or in part; those of types that are nested too
 * deeply are not opened, and so not copied. */
static bool has_variable(hid_t type)
{
    switch (H5Tget_class(type)) {
    case H5T_VLEN:
        return true;
    case H5T_STRING:
        return H5Tis_variable_str(type) > 0;
    case H5T_COMPOUND:
        return has_variable_member(type);
    case H5T_ARRAY: {
        hid_t base = H5Tget_super(type);
        bool has = has_variable(base);
        H5Tclose(base);
        return has;
    }
    default:
        return false;
    }
}

/* Whether a chunk was stored with one of these filters. */
static bool uses(hid_t dataset, uint32_t filters)
{
    bool does = false;
    hsize_t n = 0, start[SFS_MAX_RANK], bytes;
    haddr_t address;
    unsigned left_out = 0;
    if (filters == 0)
        return false;
    hid_t space = H5Dget_space(dataset); /* all of it; H5S_ALL is not enough for every version */
    does = space < 0 || H5Dget_num_chunks(dataset, space, &n) < 0;
    for (hsize_t i = 0; i < n && !does; i++)
        does = H5Dget_chunk_info(dataset, space, i, start, &left_out, &address, &bytes) < 0 ||
               (filters & ~left_out);
    if (space >= 0)
        H5Sclose(space);
    return does;
}

/* libhdf5 copies chunks as they are stored, but for those of elements of variable length, which are
 * elsewhere: these it decodes. If it cannot it crashes. */
static int check_filters(hid_t dataset)
{
    char why[160];
    int first = 0;
    hid_t type = H5Dget_type(dataset);
    uint32_t missing = has_variable(type) ? dataset_register_filters(dataset, &first) : 0;
    if (type >= 0)
        H5Tclose(type);
    if (!uses(dataset, missing))
        return 0;
    snprintf(why, sizeof(why),
             "its elements have variable length, and libhdf5 cannot undo their filter %d here",
             first);
    return library_failed_because(-EIO, why);
}

int local_copy_object(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of)
{
    library_enter();
    names_outdate(to);
    hid_t object = H5Oopen_by_addr(from->file, of), lcpl = utf8_links();
    hid_t ocpypl = object_copying(to);
    int error = object >= 0 && H5Iget_type(object) == H5I_DATASET ? check_filters(object) : 0;
    if (!error && (object < 0 || lcpl < 0 || ocpypl < 0 ||
                   H5Ocopy(object, ".", to->file, path, ocpypl, lcpl) < 0))
        error = library_failed(-EIO);
    if (!error && H5Iget_type(object) == H5I_DATATYPE)
        error = types_note(to, path);
    if (ocpypl >= 0)
        H5Pclose(ocpypl);
    if (lcpl >= 0)
        H5Pclose(lcpl);
    if (object >= 0)
        H5Oclose(object);
    return library_leave_with(error);
}

static herr_t copy_pipeline(hid_t to, hid_t from)
{
    int n = H5Pget_nfilters(from);
    herr_t result = n < 0 ? -1 : 0;
    for (int i = 0; i < n && result >= 0; i++) {
        unsigned values[32], flags, config;
        size_t n_values = 32;
        H5Z_filter_t filter =
            H5Pget_filter2(from, (unsigned)i, &flags, &n_values, values, 0, NULL, &config);
        result =
            filter < 0 || n_values > 32 ? -1 : H5Pset_filter(to, filter, flags, n_values, values);
    }
    return result;
}

/* How a group is to be made, of one that is there. What libhdf5 gives for it is not only that: also
 * where its links are, if there are many, which would be taken for the place of those of the new
 * one. A negative number: failed. */
static hid_t group_creation(hid_t group)
{
    hid_t from = H5Gget_create_plist(group), to = H5Pcreate(H5P_GROUP_CREATE);
    unsigned order, compact, dense, number, length, attribute_order, attribute_compact,
        attribute_dense;
    size_t hint;
    hbool_t has_times;
    bool done = from >= 0 && to >= 0 && H5Pget_link_creation_order(from, &order) >= 0 &&
                H5Pset_link_creation_order(to, order) >= 0 &&
                H5Pget_link_phase_change(from, &compact, &dense) >= 0 &&
                H5Pset_link_phase_change(to, compact, dense) >= 0 &&
                H5Pget_est_link_info(from, &number, &length) >= 0 &&
                H5Pset_est_link_info(to, number, length) >= 0 &&
                H5Pget_local_heap_size_hint(from, &hint) >= 0 &&
                H5Pset_local_heap_size_hint(to, hint) >= 0 &&
                H5Pget_attr_creation_order(from, &attribute_order) >= 0 &&
                H5Pset_attr_creation_order(to, attribute_order) >= 0 &&
                H5Pget_attr_phase_change(from, &attribute_compact, &attribute_dense) >= 0 &&
                H5Pset_attr_phase_change(to, attribute_compact, attribute_dense) >= 0 &&
                H5Pget_obj_track_times(from, &has_times) >= 0 &&
                H5Pset_obj_track_times(to, has_times) >= 0 && copy_pipeline(to, from) >= 0;
    if (from >= 0)
        H5Pclose(from);
    if (to >= 0 && !done) {
        H5Pclose(to);
        to = H5I_INVALID_HID;
    }
    return to;
}

int local_copy_group(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of)
{
    library_enter();
    names_outdate(to);
    hid_t group = H5Oopen_by_addr(from->file, of), lcpl = utf8_links(), made = H5I_INVALID_HID;
    hid_t gcpl = group < 0 ? H5I_INVALID_HID : group_creation(group);
    if (gcpl >= 0 && lcpl >= 0)
        made = H5Gcreate2(to->file, path, lcpl, gcpl, H5P_DEFAULT);
    int error = made < 0 ? library_failed(-EIO) : 0;
    if (made >= 0)
        H5Gclose(made);
    if (gcpl >= 0)
        H5Pclose(gcpl);
    if (lcpl >= 0)
        H5Pclose(lcpl);
    if (group >= 0)
        H5Oclose(group);
    return library_leave_with(error);
}

/* ---- Links ---- */

static herr_t create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link,
                          hid_t lcpl)
{
    if (link->type == SFS_LINK_SOFT)
        return H5Lcreate_soft(link->target, hdf5->file, path, lcpl, H5P_DEFAULT);
    if (link->type == SFS_LINK_EXTERNAL)
        return H5Lcreate_external(link->target_file, link->target, hdf5->file, path, lcpl,
                                  H5P_DEFAULT);
    return H5Lcreate_hard(hdf5->file, link->target, hdf5->file, path, lcpl, H5P_DEFAULT);
}

int local_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link)
{
    if (link->type == SFS_LINK_USER)
        return -EOPNOTSUPP;
    library_enter();
    names_outdate(hdf5);
    hid_t lcpl = utf8_links();
    int error = lcpl < 0 || create_link(hdf5, path, link, lcpl) < 0 ? library_failed(-EIO) : 0;
    if (lcpl >= 0)
        H5Pclose(lcpl);
    library_leave();
    return error;
}
