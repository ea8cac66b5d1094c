/* Datasets that are open: by which address, and opened again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

#define SOURCE_SLOTS 521 /* chunks that one source of a virtual dataset keeps, at most */

static void close_ids(struct open_dataset *dataset)
{
    if (dataset->space >= 0)
        H5Sclose(dataset->space);
    if (dataset->type >= 0)
        H5Tclose(dataset->type);
    if (dataset->id >= 0)
        H5Oclose(dataset->id); /* which may be no dataset */
    dataset->id = dataset->type = dataset->space = H5I_INVALID_HID;
}

static void close_dataset(struct open_dataset *dataset)
{
    close_ids(dataset);
    free(dataset->path);
    free(dataset);
}

/* By its path, which alone can be told how large the chunk caches of its sources are, if that leads
 * to it within the file. */
static hid_t open_virtual(struct hdf5 *hdf5, const struct open_dataset *dataset)
{
    H5L_info_t link;
    hid_t id = H5I_INVALID_HID, lapl = tree_link_access(), dapl = H5Pcreate(H5P_DATASET_ACCESS);
    if (lapl >= 0 && dapl >= 0 && H5Lget_info(hdf5->file, dataset->path, &link, lapl) >= 0 &&
        link.type == H5L_TYPE_HARD && link.u.address == dataset->address &&
        H5Pset_chunk_cache(dapl, SOURCE_SLOTS, dataset->source_bytes, 0) >= 0)
        id = H5Dopen2(hdf5->file, dataset->path, dapl);
    if (dapl >= 0)
        H5Pclose(dapl);
    if (lapl >= 0)
        H5Pclose(lapl);
    return id;
}

int dataset_count_external(hid_t dataset)
{
    hid_t dcpl = H5Dget_create_plist(dataset);
    int n = dcpl < 0 ? -1 : H5Pget_external_count(dcpl);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    return n;
}

int dataset_check_readable(const struct open_dataset *dataset)
{
    if (dataset->is_external)
        return library_failed_because(-EIO, "external raw data of this datatype are not read");
    return 0;
}

/* Of what libhdf5 has failed at: whether it had no memory. */
static herr_t look_for_memory(unsigned n, const H5E_error2_t *error, void *lacked)
{
    (void)n;
    *(bool *)lacked |= error->maj_num == H5E_RESOURCE;
    return 0;
}

/* otherwise: the error if what is there is no dataset, and could be read. */
static int open_ids(struct hdf5 *hdf5, struct open_dataset *dataset, int otherwise)
{
    bool lacked = hdf5->file < 0;
    if (dataset->path)
        dataset->id = open_virtual(hdf5, dataset);
    if (dataset->id < 0)
        dataset->id = H5Oopen_by_addr(hdf5->file, dataset->address);
    if (dataset->id >= 0) {
        dataset->type = H5Dget_type(dataset->id);
        dataset->space = H5Dget_space(dataset->id);
    }
    if (dataset->type < 0 || dataset->space < 0) {
        H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_for_memory, &lacked);
        return library_failed(lacked ? -EIO : otherwise);
    }
    if (store_is_following(hdf5->store)) /* else it stays as it was described */
        dataset->is_external = dataset_count_external(dataset->id) != 0;
    dataset->rank = H5Sget_simple_extent_ndims(dataset->space);
    return dataset->rank < 0 ? library_failed(-EIO) : 0;
}

void datasets_close_all(struct hdf5 *hdf5)
{
    struct open_dataset *dataset, *next;
    HASH_ITER (hh, hdf5->datasets, dataset, next) {
        close_ids(dataset);
    }
}

int datasets_open_all(struct hdf5 *hdf5)
{
    struct open_dataset *dataset, *next;
    int error = 0;
    HASH_ITER (hh, hdf5->datasets, dataset, next) {
        if (!error)
            error = open_ids(hdf5, dataset, -EIO);
        if (error == -EIO && store_is_following(hdf5->store)) {
            close_ids(dataset);
            error = 0;
        }
    }
    return error;
}

int dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                 struct hdf5_storage *storage, struct open_dataset **out)
{
    struct open_dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return -ENOMEM;
    dataset->address = address;
    dataset->id = dataset->type = dataset->space = H5I_INVALID_HID;
    int error = open_ids(hdf5, dataset, -EIO);
    dataset->size = error ? 0 : H5Tget_size(dataset->type);
    if (!error && info)
        error = describe_dataset(dataset, info, storage);
    if (!error) {
        HASH_ADD(hh, hdf5->datasets, address, sizeof(dataset->address), dataset);
        error = hash_failed() ? -ENOMEM : 0;
    }
    if (error)
        close_dataset(dataset);
    else
        *out = dataset;
    return error;
}

int local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                       struct hdf5_storage *storage)
{
    struct open_dataset *dataset;
    memset(info, 0, sizeof(*info));
    memset(storage, 0, sizeof(*storage));
    library_enter();
    int error = dataset_open(hdf5, address, info, storage, &dataset);
    bool made = !error;
    error = library_leave_with(error);
    if (error && made)
        local_dataset_close(hdf5, address);
    if (error) {
        hdf5_info_free(info);
        hdf5_segments_free(storage->n_segments, storage->segments);
        *storage = (struct hdf5_storage){0};
    }
    return error;
}

struct open_dataset *dataset_find(struct hdf5 *hdf5, uint64_t address)
{
    struct open_dataset *dataset;
    HASH_FIND(hh, hdf5->datasets, &address, sizeof(address), dataset);
    return dataset;
}

void local_dataset_close(struct hdf5 *hdf5, uint64_t address)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    if (dataset) {
        HASH_DEL(hdf5->datasets, dataset);
        close_dataset(dataset);
    }
    library_leave();
}

/* The name of a mapping's source: that of the file, behind its length, and of the dataset. NULL: no
 * memory. */
static char *name_of_source(hid_t dcpl, size_t mapping)
{
    char length[24];
    ssize_t file = H5Pget_virtual_filename(dcpl, mapping, NULL, 0);
    ssize_t dataset = H5Pget_virtual_dsetname(dcpl, mapping, NULL, 0);
    size_t n = (size_t)snprintf(length, sizeof(length), "%zd:", file);
    char *name = file < 0 || dataset < 0 ? NULL : malloc(n + (size_t)file + (size_t)dataset + 1);
    if (name) {
        memcpy(name, length, n);
        H5Pget_virtual_filename(dcpl, mapping, name + n, (size_t)file + 1);
        H5Pget_virtual_dsetname(dcpl, mapping, name + n + file, (size_t)dataset + 1);
    }
    return name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* How many sources the mappings name, in doubt all are different. */
static size_t count_sources(hid_t dcpl)
{
    size_t n = 0, read = 0, different = 0;
    if (H5Pget_virtual_count(dcpl, &n) < 0 || n == 0)
        return 1;
    char **name = calloc(n, sizeof(*name));
    while (name && read < n && (name[read] = name_of_source(dcpl, read)))
        read++;
    if (name && read == n) {
        qsort(name, n, sizeof(*name), by_name);
        for (size_t i = 0; i < n; i++)
            different += i == 0 || strcmp(name[i - 1], name[i]) != 0;
    }
    for (size_t i = 0; i < read; i++)
        free(name[i]);
    free(name);
    return different ? different : n;
}

static int cache_sources(struct hdf5 *hdf5, struct open_dataset *dataset, const char *path,
                         size_t bytes)
{
    hid_t dcpl = H5Dget_create_plist(dataset->id);
    char *kept = strdup(path);
    if (dcpl < 0 || !kept) {
        free(kept);
        if (dcpl >= 0)
            H5Pclose(dcpl);
        return kept ? library_failed(-EIO) : -ENOMEM;
    }
    dataset->source_bytes = bytes / count_sources(dcpl);
    H5Pclose(dcpl);
    free(dataset->path);
    dataset->path = kept;
    close_ids(dataset);
    return open_ids(hdf5, dataset, -EIO);
}

int local_cache_sources(struct hdf5 *hdf5, uint64_t address, const char *path, size_t bytes)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? cache_sources(hdf5, dataset, path, bytes) : -EBADF;
    return library_leave_with(error);
}

/* One that could not be opened with the file is tried again, to tell why. */
static int renew_dataset(struct hdf5 *hdf5, struct open_dataset *dataset, int rank,
                         struct hdf5_renewed *renewed)
{
    struct sfs_dataset_info info = {0};
    struct hdf5_storage storage = {0};
    int error = dataset->id < 0 ? open_ids(hdf5, dataset, -ESTALE) : 0;
    if (error)
        close_ids(dataset);
    if (error || dataset->rank != rank)
        return error ? error : -ESTALE;
    error = describe_dataset(dataset, &info, &storage);
    if (!error) {
        memcpy(renewed->dims, info.dims, sizeof(renewed->dims));
        renewed->data_address = info.layout == SFS_CONTIGUOUS ? storage.address : UINT64_MAX;
        renewed->form = hdf5_form(&info, &storage);
    }
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    return error;
}

int local_dataset_renew(struct hdf5 *hdf5, uint64_t address, int rank, struct hdf5_renewed *renewed)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    return library_leave_with(dataset ? renew_dataset(hdf5, dataset, rank, renewed) : -EBADF);
}
