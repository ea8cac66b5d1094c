/* The mappings of virtual datasets, as plain numbers and names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define ASK_EVERY 256 /* mappings, whether the call is to end early */

static void free_mapping(struct hdf5_mapping *mapping)
{
    free(mapping->file);
    free(mapping->dataset);
    free(mapping->shown.axis);
    free(mapping->source.axis);
}

void hdf5_mappings_free(struct hdf5_mappings *mappings)
{
    for (size_t i = 0; i < mappings->n; i++)
        free_mapping(&mappings->mapping[i]);
    free(mappings->mapping);
    *mappings = (struct hdf5_mappings){0};
}

/* Both calls of libhdf5 that give a name of a mapping are alike. */
typedef ssize_t (*name_function)(hid_t dcpl, size_t index, char *name, size_t size);

static int read_name(hid_t dcpl, size_t i, name_function get, char **name)
{
    ssize_t n = get(dcpl, i, NULL, 0);
    if (n < 0)
        return library_failed(-EIO);
    *name = malloc((size_t)n + 1);
    if (!*name)
        return -ENOMEM;
    return get(dcpl, i, *name, (size_t)n + 1) < 0 ? library_failed(-EIO) : 0;
}

static uint64_t size_of(hsize_t size)
{
    return size == H5S_UNLIMITED ? SFS_UNLIMITED : size;
}

static int read_axes(hid_t space, struct hdf5_slab *slab)
{
    hsize_t start[SFS_MAX_RANK], stride[SFS_MAX_RANK], count[SFS_MAX_RANK], block[SFS_MAX_RANK];
    slab->rank = H5Sget_simple_extent_ndims(space);
    if (slab->rank < 1 || H5Sis_regular_hyperslab(space) <= 0)
        return -EOPNOTSUPP;
    if (H5Sget_regular_hyperslab(space, start, stride, count, block) < 0)
        return library_failed(-EIO);
    slab->axis = calloc((size_t)slab->rank, sizeof(*slab->axis));
    if (!slab->axis)
        return -ENOMEM;
    for (int i = 0; i < slab->rank; i++) {
        slab->axis[i] =
            (struct hdf5_axis){start[i], stride[i], size_of(count[i]), size_of(block[i])};
        if (stride[i] == 0 || count[i] == 0 || block[i] == 0 ||
            (count[i] > 1 && block[i] > stride[i]))
            return -EOPNOTSUPP;
    }
    return 0;
}

/* Takes over the dataspace. */
static int read_slab(hid_t space, struct hdf5_slab *slab)
{
    if (space < 0)
        return library_failed(-EIO);
    int error = -EOPNOTSUPP;
    H5S_sel_type type = H5Sget_select_type(space);
    slab->is_all = type == H5S_SEL_ALL;
    if (slab->is_all)
        error = 0;
    else if (type == H5S_SEL_HYPERSLABS)
        error = read_axes(space, slab);
    H5Sclose(space);
    return error;
}

static int read_mapping(hid_t dcpl, size_t i, struct hdf5_mapping *mapping)
{
    int error = read_name(dcpl, i, H5Pget_virtual_filename, &mapping->file);
    if (!error)
        error = read_name(dcpl, i, H5Pget_virtual_dsetname, &mapping->dataset);
    if (!error)
        error = read_slab(H5Pget_virtual_vspace(dcpl, i), &mapping->shown);
    if (!error)
        error = read_slab(H5Pget_virtual_srcspace(dcpl, i), &mapping->source);
    mapping->is_regular = !error;
    return error == -EOPNOTSUPP ? 0 : error;
}

static int read_mappings(hid_t dcpl, struct hdf5_mappings *mappings)
{
    size_t n;
    if (H5Pget_virtual_count(dcpl, &n) < 0)
        return library_failed(-EIO);
    mappings->mapping = calloc(n ? n : 1, sizeof(*mappings->mapping));
    if (!mappings->mapping)
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; i < n && !error; i++) {
        mappings->n = i + 1;
        error = read_mapping(dcpl, i, &mappings->mapping[i]);
        if (!error && i % ASK_EVERY == ASK_EVERY - 1)
            error = interrupt_check();
    }
    return error;
}

int local_mappings(struct hdf5 *hdf5, uint64_t address, struct hdf5_mappings *mappings)
{
    *mappings = (struct hdf5_mappings){0};
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    hid_t dcpl = dataset ? H5Dget_create_plist(dataset->id) : H5I_INVALID_HID;
    int error = !dataset ? -EBADF : dcpl < 0 ? library_failed(-EIO) : read_mappings(dcpl, mappings);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    error = library_leave_with(error);
    if (error)
        hdf5_mappings_free(mappings);
    return error;
}
