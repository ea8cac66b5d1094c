/* Datasets: their description, where their chunks are, and reading through libhdf5. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/box.h"
#include "common/size.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

#define SOURCE_SLOTS  521   /* chunks that one source of a virtual dataset keeps, at most */
#define MOST_SEGMENTS 65535 /* the message that has them counts so far */

static void free_filters(size_t n, struct sfs_filter *filters)
{
    for (size_t i = 0; i < n; i++)
        free((void *)filters[i].values);
    free(filters);
}

/* ---- Fill values ---- */

#define LARGE_FILL ((size_t)64 << 10)

/* Read-only memory that nothing was written to: the kernel has one page for all of it. */
static void *zeros;
static pthread_once_t zeros_once = PTHREAD_ONCE_INIT;

static void map_zeros(void)
{
    zeros = mmap(NULL, HDF5_MOST_ELEMENT_BYTES, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED)
        zeros = NULL;
}

static bool is_zero(const char *bytes, size_t n)
{
    return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static void free_fill(void *fill)
{
    if (fill != zeros)
        free(fill);
}

void hdf5_info_set_fill(struct sfs_dataset_info *info, void *fill)
{
    size_t size = info->type.size;
    info->fill = fill;
    info->fill_is_zero = is_zero(fill, size);
    if (!info->fill_is_zero || size < LARGE_FILL || size > HDF5_MOST_ELEMENT_BYTES)
        return;
    pthread_once(&zeros_once, map_zeros);
    if (!zeros)
        return;
    info->fill = zeros;
    free(fill);
}

void hdf5_info_set_fill_json(struct sfs_dataset_info *info, char *json)
{
    bool may = json && strlen(json) <= HDF5_MOST_FILL_JSON;
    if (!may)
        free(json);
    info->fill_json = may ? json : NULL;
}

void hdf5_info_free(struct sfs_dataset_info *info)
{
    if (!info)
        return;
    free_filters(info->n_filters, info->filters);
    free_filters(info->n_selection_filters, info->selection_filters);
    free_filters(info->n_heap_filters, info->heap_filters);
    free_fill(info->fill);
    free(info->fill_json);
    free((void *)info->encoded_type.bytes);
    hdf5_type_free(&info->type);
    memset(info, 0, sizeof(*info));
}

static size_t filters_bytes(size_t n, const struct sfs_filter *filters)
{
    size_t bytes = n * sizeof(*filters);
    for (size_t i = 0; i < n; i++)
        bytes += filters[i].n_values * sizeof(*filters[i].values) + SIZE_OF_ALLOCATION;
    return bytes;
}

size_t hdf5_info_bytes(const struct sfs_dataset_info *info)
{
    size_t n = hdf5_type_bytes(&info->type) + info->encoded_type.n;
    n += info->fill && info->fill != zeros ? info->type.size : 0;
    n += info->fill_json ? strlen(info->fill_json) : 0;
    n += filters_bytes(info->n_filters, info->filters);
    n += filters_bytes(info->n_selection_filters, info->selection_filters);
    return n + filters_bytes(info->n_heap_filters, info->heap_filters);
}

static int describe_space(hid_t space, struct sfs_dataset_info *info)
{
    hsize_t dims[SFS_MAX_RANK], max_dims[SFS_MAX_RANK];
    switch (H5Sget_simple_extent_type(space)) {
    case H5S_SCALAR:
        info->space = SFS_SPACE_SCALAR;
        info->elements = 1;
        return 0;
    case H5S_NULL:
        info->space = SFS_SPACE_NULL;
        return 0;
    case H5S_SIMPLE:
        info->space = SFS_SPACE_SIMPLE;
        break;
    default:
        return library_failed(-EIO);
    }
    info->rank = H5Sget_simple_extent_dims(space, dims, max_dims);
    if (info->rank < 0)
        return library_failed(-EIO);
    for (int i = 0; i < info->rank; i++) {
        info->dims[i] = dims[i];
        info->max_dims[i] = max_dims[i] == H5S_UNLIMITED ? SFS_UNLIMITED : max_dims[i];
    }
    if (!box_product(info->dims, info->rank, 1, &info->elements))
        info->elements = UINT64_MAX;
    return 0;
}

static int describe_filters(hid_t dcpl, struct sfs_dataset_info *info)
{
    int n = H5Pget_nfilters(dcpl);
    if (n < 0)
        return library_failed(-EIO);
    info->filters = calloc((size_t)n, sizeof(*info->filters));
    if (!info->filters && n > 0)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        struct sfs_filter *filter = &info->filters[i];
        unsigned flags, config;
        size_t n_values = 0;
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &n_values, NULL,
                                         sizeof(filter->name), filter->name, &config);
        if (id < 0)
            return library_failed(-EIO);
        unsigned *values = calloc(n_values ? n_values : 1, sizeof(*values));
        if (!values)
            return -ENOMEM;
        filter->values = values;
        filter->n_values = n_values;
        filter->id = id;
        filter->optional = flags & H5Z_FLAG_OPTIONAL;
        info->n_filters++;
        if (n_values > 0 &&
            H5Pget_filter2(dcpl, (unsigned)i, &flags, &n_values, values, 0, NULL, &config) < 0)
            return library_failed(-EIO);
    }
    return 0;
}

static int describe_fill(hid_t dcpl, hid_t type, struct sfs_dataset_info *info)
{
    H5D_fill_value_t defined;
    if (info->type.size > HDF5_MOST_ELEMENT_BYTES)
        return library_failed_because(-EIO, "its elements have too many bytes");
    void *fill = calloc(1, info->type.size);
    if (!fill)
        return -ENOMEM;
    bool is_read =
        H5Pfill_value_defined(dcpl, &defined) >= 0 &&
        (defined != H5D_FILL_VALUE_USER_DEFINED || H5Pget_fill_value(dcpl, type, fill) >= 0);
    hdf5_info_set_fill(info, fill);
    if (!is_read)
        return library_failed(-EIO);
    if (info->type.size > HDF5_MOST_FILL_JSON)
        return 0;
    char *json = NULL;
    int error = element_json(type, info->fill, &json);
    if (!error)
        hdf5_info_set_fill_json(info, json);
    return error;
}

/* Of contiguous elements; UINT64_MAX: they have no place yet, or no bytes. libhdf5 1.10 adds the
 * size of the user block to the address that means no place. */
static uint64_t data_address(hid_t dataset)
{
    haddr_t address = H5Dget_offset(dataset);
    if (address != HADDR_UNDEF && H5Dget_storage_size(dataset) > 0)
        return address;
    H5Eclear2(H5E_DEFAULT);
    return UINT64_MAX;
}

void hdf5_segments_free(size_t n, struct hdf5_segment *segments)
{
    for (size_t i = 0; i < n; i++)
        free(segments[i].name);
    free(segments);
}

static int describe_segment(hid_t dcpl, unsigned i, struct hdf5_segment *segment)
{
    char name[PATH_MAX];
    off_t offset;
    hsize_t size;
    if (H5Pget_external(dcpl, i, sizeof(name), name, &offset, &size) < 0)
        return library_failed(-EIO);
    if (offset < 0 || !memchr(name, '\0', sizeof(name)))
        return library_failed_because(-EIO, "the list of external files is damaged");
    *segment = (struct hdf5_segment){.name = strdup(name),
                                     .offset = (uint64_t)offset,
                                     .size = size == H5F_UNLIMITED ? UINT64_MAX : size};
    return segment->name ? 0 : -ENOMEM;
}

static int describe_segments(hid_t dcpl, struct hdf5_storage *storage)
{
    int n = H5Pget_external_count(dcpl), error = 0;
    if (n < 0)
        return library_failed(-EIO);
    if (n > MOST_SEGMENTS)
        return library_failed_because(-EIO, "it is in too many external files");
    storage->segments = calloc((size_t)n, sizeof(*storage->segments));
    if (!storage->segments)
        return -ENOMEM;
    for (int i = 0; i < n && !error; i++) {
        error = describe_segment(dcpl, (unsigned)i, &storage->segments[i]);
        storage->n_segments += !error;
    }
    return error;
}

static int describe_layout(hid_t dataset, hid_t dcpl, struct sfs_dataset_info *info,
                           struct hdf5_storage *storage)
{
    hsize_t chunk_dims[SFS_MAX_RANK];
    unsigned options;
    H5D_chunk_index_t index;
    switch (H5Pget_layout(dcpl)) {
    case H5D_COMPACT:
        info->layout = SFS_COMPACT;
        return 0;
    case H5D_CONTIGUOUS:
        if (H5Pget_external_count(dcpl) > 0) {
            info->layout = SFS_EXTERNAL;
            return describe_segments(dcpl, storage);
        }
        info->layout = SFS_CONTIGUOUS;
        storage->bytes = H5Dget_storage_size(dataset);
        storage->address = data_address(dataset);
        return 0;
    case H5D_CHUNKED:
        info->layout = SFS_CHUNKED;
        if (H5Pget_chunk(dcpl, SFS_MAX_RANK, chunk_dims) != info->rank || info->rank < 1)
            return library_failed_because(-EIO, "chunk rank and dataspace rank differ");
        for (int i = 0; i < info->rank; i++) {
            info->chunk_dims[i] = chunk_dims[i];
            if (chunk_dims[i] == 0)
                return library_failed_because(-EIO, "a chunk dimension is 0");
        }
        if (H5Pget_chunk_opts(dcpl, &options) < 0 || H5Dget_chunk_index_type(dataset, &index) < 0)
            return library_failed(-EIO);
        storage->in_array = index == H5D_CHUNK_IDX_FARRAY || index == H5D_CHUNK_IDX_EARRAY;
        storage->unfiltered_edges = info->unfiltered_edges =
            options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS;
        return 0;
    case H5D_VIRTUAL:
        info->layout = SFS_VIRTUAL;
        filter_register_all(); /* its sources may have any */
        return 0;
    default:
        return library_failed(-EIO);
    }
}

static int describe_times(hid_t dcpl, struct sfs_dataset_info *info)
{
    H5D_alloc_time_t allocation;
    H5D_fill_time_t fill;
    if (H5Pget_alloc_time(dcpl, &allocation) < 0 || H5Pget_fill_time(dcpl, &fill) < 0)
        return library_failed(-EIO);
    info->allocation = allocation == H5D_ALLOC_TIME_EARLY  ? SFS_ALLOCATION_EARLY
                       : allocation == H5D_ALLOC_TIME_LATE ? SFS_ALLOCATION_LATE
                                                           : SFS_ALLOCATION_INCREMENTAL;
    info->fill_time = fill == H5D_FILL_TIME_ALLOC   ? SFS_FILL_ALLOCATED
                      : fill == H5D_FILL_TIME_NEVER ? SFS_FILL_NEVER
                                                    : SFS_FILL_IF_SET;
    return 0;
}

static int describe_dataset(struct open_dataset *dataset, struct sfs_dataset_info *info,
                            struct hdf5_storage *storage)
{
    hid_t dcpl = H5Dget_create_plist(dataset->id);
    if (dcpl < 0)
        return library_failed(-EIO);
    void *encoded = NULL;
    int error = describe_space(dataset->space, info);
    if (!error)
        error = type_describe(dataset->type, &info->type);
    if (!error)
        error = type_encode(dataset->type, &encoded, &info->encoded_type.n);
    info->encoded_type.bytes = encoded;
    if (!error && type_check_encoded(encoded, info->encoded_type.n) < 0)
        error = -EIO; /* as whoever asks for it would find */
    if (!error)
        error = describe_filters(dcpl, info);
    if (!error && !info->type.has_pointers)
        error = describe_fill(dcpl, dataset->type, info);
    if (!error)
        error = describe_layout(dataset->id, dcpl, info, storage);
    if (!error)
        error = describe_times(dcpl, info);
    dataset->is_external = info->layout == SFS_EXTERNAL;
    H5Pclose(dcpl);
    return error;
}

/* What libhdf5 has of it. */
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

static uint64_t number_further(uint64_t number, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        number = (number ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return number;
}

static uint64_t number_filters(uint64_t number, hid_t dcpl)
{
    int n = H5Pget_nfilters(dcpl);
    for (int i = 0; i < n; i++) {
        unsigned flags = 0, values[64] = {0};
        size_t n_values = sizeof(values) / sizeof(*values);
        int id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &n_values, values, 0, NULL, NULL);
        number = number_further(number, &id, sizeof(id));
        number = number_further(number, &n_values, sizeof(n_values));
        number = number_further(number, values, sizeof(values));
    }
    return number;
}

/* Of what of a dataset decides where its elements are, and how they are stored: whoever has it open keeps to that.
 * Chunks can become more. */
static uint64_t form_of(const struct open_dataset *dataset)
{
    hsize_t dims[SFS_MAX_RANK] = {0};
    hid_t dcpl = H5Dget_create_plist(dataset->id);
    H5D_layout_t layout = dcpl < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(dcpl);
    if (layout == H5D_CHUNKED)
        (void)H5Pget_chunk(dcpl, SFS_MAX_RANK, dims);
    else if (layout == H5D_CONTIGUOUS && !dataset->is_external)
        (void)H5Sget_simple_extent_dims(dataset->space, dims, NULL);
    uint64_t number = number_further(0xcbf29ce484222325, &layout, sizeof(layout));
    number = number_further(number, dims, sizeof(dims));
    if (dcpl >= 0) {
        number = number_filters(number, dcpl);
        H5Pclose(dcpl);
    }
    H5Eclear2(H5E_DEFAULT);
    return number;
}

static int open_ids(struct hdf5 *hdf5, struct open_dataset *dataset)
{
    if (dataset->path)
        dataset->id = open_virtual(hdf5, dataset);
    if (dataset->id < 0)
        dataset->id = H5Oopen_by_addr(hdf5->file, dataset->address);
    if (dataset->id >= 0) {
        dataset->type = H5Dget_type(dataset->id);
        dataset->space = H5Dget_space(dataset->id);
    }
    if (dataset->type < 0 || dataset->space < 0)
        return library_failed(-EIO);
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
            error = open_ids(hdf5, dataset);
        if (error == -EIO && store_is_following(hdf5->store)) {
            close_ids(dataset);
            error = 0;
        }
    }
    return error;
}

/* Opens a dataset and, unless info is NULL, describes it. The caller holds the library lock. */
static int open_dataset(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage, struct open_dataset **out)
{
    struct open_dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return -ENOMEM;
    dataset->address = address;
    dataset->id = dataset->type = dataset->space = H5I_INVALID_HID;
    int error = open_ids(hdf5, dataset);
    dataset->size = error ? 0 : H5Tget_size(dataset->type);
    dataset->form = !error && store_is_following(hdf5->store) ? form_of(dataset) : 0;
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
    int error = open_dataset(hdf5, address, info, storage, &dataset);
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
    return open_ids(hdf5, dataset);
}

int local_cache_sources(struct hdf5 *hdf5, uint64_t address, const char *path, size_t bytes)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? cache_sources(hdf5, dataset, path, bytes) : -EBADF;
    return library_leave_with(error);
}

/* Users of the open dataset rely on the size of its elements, and on where they are: these must not change. */
static bool is_as_before(const struct open_dataset *dataset, int rank)
{
    return dataset->id >= 0 && dataset->rank == rank &&
           H5Tget_size(dataset->type) == dataset->size && form_of(dataset) == dataset->form;
}

int local_dataset_renew(struct hdf5 *hdf5, uint64_t address, int rank, uint64_t *dims,
                        uint64_t *data)
{
    hsize_t found[SFS_MAX_RANK];
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = !dataset ? -EBADF : is_as_before(dataset, rank) ? 0 : -ESTALE;
    if (!error && H5Sget_simple_extent_dims(dataset->space, found, NULL) < 0)
        error = library_failed(-EIO);
    for (int i = 0; i < rank && !error; i++)
        dims[i] = found[i];
    if (!error)
        *data = data_address(dataset->id);
    return library_leave_with(error);
}

static herr_t note_if_unallocated(unsigned n, const H5E_error2_t *error, void *unallocated)
{
    (void)n;
    *(bool *)unallocated = !strcmp(error->func_name, "H5D__get_chunk_storage_size");
    return 1; /* the innermost reason is enough */
}

/* The stored size of a chunk, 0 if there is none. libhdf5 says that by a size of 0 or, where other
 * chunks exist, by an error of this very function; failures of the look-up lie deeper. */
static int stored_size(hid_t dataset, const hsize_t *offset, hsize_t *size)
{
    *size = 0;
    if (H5Dget_chunk_storage_size(dataset, offset, size) >= 0)
        return 0;
    bool unallocated = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_if_unallocated, &unallocated);
    if (!unallocated)
        return library_failed(-EIO);
    H5Eclear2(H5E_DEFAULT);
    *size = 0;
    return 0;
}

static int locate(const struct open_dataset *dataset, const uint64_t *start,
                  struct hdf5_chunk *chunk)
{
    hsize_t offset[SFS_MAX_RANK], size;
    for (int i = 0; i < dataset->rank; i++)
        offset[i] = start[i];
    int error = stored_size(dataset->id, offset, &size);
    if (error)
        return error;
    *chunk = (struct hdf5_chunk){.address = UINT64_MAX};
    if (size == 0)
        return 0;

    struct driver_noted noted;
    char nothing; /* is not written to: the driver notes the read and leaves it out */
    driver_note_reads(&noted);
    herr_t status = H5Dread_chunk(dataset->id, H5P_DEFAULT, offset, &chunk->filter_mask, &nothing);
    driver_do_reads();
    if (status < 0)
        return library_failed(-EIO);
    if (noted.reads != 1 || noted.size != size)
        return library_failed_because(-EIO, "libhdf5 does not tell where the chunk is");
    chunk->address = noted.address;
    chunk->size = size;
    return 0;
}

int local_locate(struct hdf5 *hdf5, uint64_t address, const uint64_t *start,
                 struct hdf5_chunk *chunk)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? locate(dataset, start, chunk) : -EBADF;
    return library_leave_with(error);
}

static int read_box(const struct open_dataset *dataset, const uint64_t *start,
                    const uint64_t *count, const uint64_t *memory_dims, void *buffer)
{
    int error = dataset_check_readable(dataset);
    if (error)
        return error;
    if (dataset->rank == 0)
        return H5Dread(dataset->id, dataset->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) < 0
                   ? library_failed(-EIO)
                   : 0;

    hsize_t file_start[SFS_MAX_RANK], origin[SFS_MAX_RANK] = {0};
    hsize_t file_count[SFS_MAX_RANK], dims[SFS_MAX_RANK];
    for (int i = 0; i < dataset->rank; i++) {
        file_start[i] = start[i];
        file_count[i] = count[i];
        dims[i] = memory_dims[i];
    }
    hid_t memory = H5Screate_simple(dataset->rank, dims, NULL);
    if (memory < 0 ||
        H5Sselect_hyperslab(memory, H5S_SELECT_SET, origin, NULL, file_count, NULL) < 0 ||
        H5Sselect_hyperslab(dataset->space, H5S_SELECT_SET, file_start, NULL, file_count, NULL) <
            0 ||
        H5Dread(dataset->id, dataset->type, memory, dataset->space, H5P_DEFAULT, buffer) < 0)
        error = library_failed(-EIO);
    if (memory >= 0)
        H5Sclose(memory);
    return error;
}

int local_read(struct hdf5 *hdf5, uint64_t address, const uint64_t *start, const uint64_t *count,
               const uint64_t *memory_dims, void *buffer)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? read_box(dataset, start, count, memory_dims, buffer) : -EBADF;
    error = library_has_read(error);
    return library_leave_with(error);
}

int dataset_write_box(const struct open_dataset *dataset, const uint64_t *start,
                      const uint64_t *count, const void *buffer)
{
    hsize_t file_start[SFS_MAX_RANK], file_count[SFS_MAX_RANK];
    uint64_t n;
    if (dataset->rank == 0)
        return H5Dwrite(dataset->id, dataset->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) < 0
                   ? library_failed(-EIO)
                   : 0;
    if (!box_product(count, dataset->rank, 1, &n))
        return -EINVAL;
    if (n == 0)
        return 0;
    for (int i = 0; i < dataset->rank; i++) {
        file_start[i] = start[i];
        file_count[i] = count[i];
    }
    hid_t memory = H5Screate_simple(dataset->rank, file_count, NULL);
    int error = 0;
    if (memory < 0 ||
        H5Sselect_hyperslab(dataset->space, H5S_SELECT_SET, file_start, NULL, file_count, NULL) < 0)
        error = library_failed(-EIO);
    else if (H5Sselect_valid(dataset->space) <= 0)
        error = library_failed_because(-EINVAL, "the box lies outside the dataset");
    else if (H5Dwrite(dataset->id, dataset->type, memory, dataset->space, H5P_DEFAULT, buffer) < 0)
        error = library_failed(-EIO);
    if (memory >= 0)
        H5Sclose(memory);
    return error;
}

/* What a virtual dataset shows is in other files. */
int dataset_check_storage(const struct open_dataset *dataset)
{
    hid_t dcpl = H5Dget_create_plist(dataset->id);
    if (dcpl < 0)
        return library_failed(-EIO);
    int error = 0;
    if (H5Pget_layout(dcpl) == H5D_VIRTUAL || H5Pget_external_count(dcpl) > 0)
        error = library_failed_because(-EOPNOTSUPP, "such a dataset can only be read");
    H5Pclose(dcpl);
    return error;
}

/* Elements with pointers are not bytes. */
static int check_writable(const struct open_dataset *dataset)
{
    bool has_pointers;
    int error = type_has_pointers(dataset->type, &has_pointers);
    if (error)
        return error;
    return has_pointers ? library_failed_because(-EOPNOTSUPP, "such a dataset can only be read")
                        : dataset_check_storage(dataset);
}

int local_write(struct hdf5 *hdf5, uint64_t address, const uint64_t *start, const uint64_t *count,
                const void *buffer)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? 0 : open_dataset(hdf5, address, NULL, NULL, &dataset);
    if (!error)
        error = check_writable(dataset);
    if (!error)
        error = dataset_write_box(dataset, start, count, buffer);
    library_leave();
    return error;
}

uint32_t dataset_register_filters(hid_t dataset, int *first)
{
    hid_t dcpl = H5Dget_create_plist(dataset);
    int n = dcpl < 0 ? 0 : H5Pget_nfilters(dcpl);
    uint32_t missing = 0;
    for (int i = 0; i < n; i++) {
        unsigned flags, values[32];
        struct sfs_filter filter = {.n_values = 32, .values = values};
        filter.id =
            H5Pget_filter2(dcpl, (unsigned)i, &flags, &filter.n_values, values, 0, NULL, NULL);
        if (filter.n_values > 32)
            filter.n_values = 32;
        if (filter_is_available(filter.id) && !filter_own_lacks(&filter))
            continue;
        *first = missing ? *first : filter.id;
        missing |= (uint32_t)1 << i;
    }
    if (dcpl >= 0)
        H5Pclose(dcpl);
    return missing;
}

static int set_extent(struct open_dataset *dataset, const uint64_t *dims)
{
    hsize_t size[SFS_MAX_RANK];
    (void)dataset_register_filters(dataset->id,
                                   &(int){0}); /* it fills what is cut off of chunks, decoded */
    for (int i = 0; i < dataset->rank; i++)
        size[i] = dims[i];
    if (H5Dset_extent(dataset->id, size) < 0)
        return library_failed(-EIO);
    hid_t space = H5Dget_space(dataset->id);
    if (space < 0)
        return library_failed(-EIO);
    H5Sclose(dataset->space);
    dataset->space = space;
    return 0;
}

int local_set_extent(struct hdf5 *hdf5, uint64_t address, const uint64_t *dims)
{
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? set_extent(dataset, dims) : -EBADF;
    library_leave();
    return error;
}

/* The stored size of the chunk there. */
static int find_size(struct hdf5 *hdf5, uint64_t address, const uint64_t *start, hsize_t *size)
{
    hsize_t offset[SFS_MAX_RANK];
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? 0 : -EBADF;
    for (int i = 0; !error && i < dataset->rank; i++)
        offset[i] = start[i];
    if (!error)
        error = stored_size(dataset->id, offset, size);
    library_leave();
    return error;
}

int dataset_put_chunk(struct hdf5 *hdf5, uint64_t address, const struct hdf5_stored *chunk,
                      struct driver_placed *placed)
{
    hsize_t offset[SFS_MAX_RANK];
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? 0 : -EBADF;
    for (int i = 0; !error && i < dataset->rank; i++)
        offset[i] = chunk->start[i];
    driver_place(placed);
    if (!error &&
        H5Dwrite_chunk(dataset->id, H5P_DEFAULT, chunk->mask, offset, chunk->n, chunk->bytes) < 0)
        error = library_failed(-EIO);
    driver_place(NULL);
    library_leave();
    return error;
}

/* A chunk that keeps its size is written where it is: there nothing can be lost. */
static int write_chunk(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_stored *chunk)
{
    struct driver_placed placed = {0};
    hsize_t size;
    int error = find_size(hdf5, dataset, chunk->start, &size);
    if (!error && size != chunk->n) {
        error = store_allocate(hdf5->store, chunk->n, &placed.address);
        placed.n = error ? 0 : chunk->n;
    }
    if (!error && placed.n > 0)
        error = store_write(hdf5->store, placed.address, chunk->bytes, chunk->n);
    if (!error)
        error = dataset_put_chunk(hdf5, dataset, chunk, &placed);
    if (placed.n > 0 && !placed.is_taken) {
        int freed = store_free(hdf5->store, placed.address, chunk->n);
        error = error ? error : freed;
    }
    return error;
}

int local_write_chunks(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_stored *chunks,
                       unsigned n)
{
    int error = 0;
    for (unsigned i = 0; i < n && !error; i++)
        error = write_chunk(hdf5, dataset, &chunks[i]);
    return error;
}

int local_place(struct hdf5 *hdf5, uint64_t dataset_address, uint64_t *address, uint64_t n,
                const void *element)
{
    struct driver_placed placed = {.address = *address, .n = n};
    uint64_t origin[SFS_MAX_RANK] = {0}, one[SFS_MAX_RANK];
    for (int i = 0; i < SFS_MAX_RANK; i++)
        one[i] = 1;
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, dataset_address);
    int error = dataset ? check_writable(dataset) : -EBADF;
    driver_place(&placed);
    if (!error)
        error = dataset_write_box(dataset, origin, one, element);
    driver_place(NULL);
    if (!error)
        *address = data_address(dataset->id);
    library_leave();
    return error;
}
