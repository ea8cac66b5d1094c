/* Parameters of filters that the datatype and the chunk dims decide, which only a plugin can work
 * out, for datasets that are made where it is not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/private.h"

#define LAST_BUILT_IN H5Z_FILTER_SCALEOFFSET

bool filter_is_built_in(int id)
{
    return id <= LAST_BUILT_IN || filter_has_own(id);
}

/* It runs on nothing: chunks come to libhdf5 filtered. */
static size_t fail_to_run(unsigned flags, size_t n_values, const unsigned *values, size_t n,
                          size_t *buffer_size, void **buffer)
{
    (void)flags, (void)n_values, (void)values, (void)n, (void)buffer_size, (void)buffer;
    return 0;
}

bool filter_stand_in(int id, const char *name)
{
    if (H5Zfilter_avail(id) > 0)
        return true;
    char *kept = strdup(name); /* as long as this process runs */
    const H5Z_class2_t class = {
        .version = H5Z_CLASS_T_VERS,
        .id = id,
        .encoder_present = 1,
        .decoder_present = 1,
        .name = kept,
        .filter = fail_to_run,
    };
    bool is_there = kept && H5Zregister(&class) >= 0;
    if (!is_there)
        free(kept);
    return is_there;
}

static hid_t properties(const struct sfs_filter *filter, int rank, const uint64_t *chunk_dims)
{
    hsize_t dims[SFS_MAX_RANK];
    hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    for (int i = 0; i < rank; i++)
        dims[i] = chunk_dims[i];
    if (how >= 0 &&
        (H5Pset_chunk(how, rank, dims) < 0 ||
         H5Pset_filter(how, (H5Z_filter_t)filter->id, 0, filter->n_values, filter->values) < 0)) {
        H5Pclose(how);
        how = H5I_INVALID_HID;
    }
    return how;
}

static int take_values(hid_t dataset, struct completed *completed)
{
    unsigned flags;
    hid_t how = H5Dget_create_plist(dataset);
    completed->n = COMPLETED_MOST;
    int error = how < 0 || H5Pget_filter2(how, 0, &flags, &completed->n, completed->values,
                                          sizeof(completed->name), completed->name, NULL) < 0
                    ? library_failed(-EINVAL)
                : completed->n > COMPLETED_MOST
                    ? library_failed_because(-EINVAL, "a filter has too many parameters")
                    : 0;
    completed->name[sizeof(completed->name) - 1] = '\0';
    if (how >= 0)
        H5Pclose(how);
    return error;
}

/* Of a dataset that is of one chunk, in a file in memory. */
static int complete(const struct sfs_filter *filter, hid_t type, int rank,
                    const uint64_t *chunk_dims, struct completed *completed)
{
    hsize_t dims[SFS_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = chunk_dims[i];
    hid_t file = filter_scratch_file(), space = H5Screate_simple(rank, dims, NULL);
    hid_t how = properties(filter, rank, chunk_dims), dataset = H5I_INVALID_HID;
    if (file >= 0 && space >= 0 && how >= 0)
        dataset = H5Dcreate_anon(file, type, space, how, H5P_DEFAULT);
    int error = dataset < 0 ? library_failed(-EINVAL) : take_values(dataset, completed);
    if (dataset >= 0)
        H5Dclose(dataset);
    if (how >= 0)
        H5Pclose(how);
    if (space >= 0)
        H5Sclose(space);
    if (file >= 0)
        H5Fclose(file);
    return error;
}

int local_filter_complete(const struct sfs_filter *filter, const struct sfs_encoded *type, int rank,
                          const uint64_t *chunk_dims, struct completed *completed)
{
    hid_t id;
    if (rank < 1 || rank > SFS_MAX_RANK)
        return -EINVAL;
    library_enter();
    int error = type_decode(type->bytes, type->n, &id);
    if (!error) {
        error = filter_is_available(filter->id)
                    ? complete(filter, id, rank, chunk_dims, completed)
                    : library_failed_because(-EOPNOTSUPP, "a filter is not available");
        H5Tclose(id);
    }
    library_leave();
    return error;
}
