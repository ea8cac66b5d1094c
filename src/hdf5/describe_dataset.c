/* What a dataset is: its dims, filters, fill value, layout and times. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/box.h"
#include "common/size.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

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

/* ---- What stays the same ---- */

/* FNV-1a */
static void number_bytes(uint64_t *number, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *number = (*number ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
}

static void number_uint(uint64_t *number, uint64_t value)
{
    number_bytes(number, &value, sizeof(value));
}

/* The axes of which the dims cannot change: without chunks none, but in other files the first one. */
static int first_fixed(const struct sfs_dataset_info *info)
{
    return info->layout == SFS_CONTIGUOUS                   ? 0
           : info->layout == SFS_EXTERNAL && info->rank > 0 ? 1
                                                            : info->rank;
}

static void number_space(uint64_t *number, const struct sfs_dataset_info *info)
{
    number_uint(number, info->space);
    number_uint(number, (uint64_t)info->rank);
    for (int i = 0; i < info->rank; i++)
        number_uint(number, info->max_dims[i]);
    for (int i = first_fixed(info); i < info->rank; i++)
        number_uint(number, info->dims[i]);
}

static void number_filters(uint64_t *number, const struct sfs_dataset_info *info)
{
    number_uint(number, info->n_filters);
    for (size_t i = 0; i < info->n_filters; i++) {
        const struct sfs_filter *filter = &info->filters[i];
        number_uint(number, (uint64_t)filter->id);
        number_uint(number, filter->n_values);
        number_bytes(number, filter->values, filter->n_values * sizeof(*filter->values));
    }
}

static void number_storage(uint64_t *number, const struct sfs_dataset_info *info,
                           const struct hdf5_storage *storage)
{
    number_uint(number, info->layout);
    for (int i = 0; info->layout == SFS_CHUNKED && i < info->rank; i++)
        number_uint(number, info->chunk_dims[i]);
    number_uint(number, storage->in_array);
    number_uint(number, storage->unfiltered_edges);
    for (size_t i = 0; i < storage->n_segments; i++) {
        const struct hdf5_segment *segment = &storage->segments[i];
        number_bytes(number, segment->name, strlen(segment->name) + 1);
        number_uint(number, segment->offset);
        number_uint(number, segment->size);
    }
}

uint64_t hdf5_form(const struct sfs_dataset_info *info, const struct hdf5_storage *storage)
{
    uint64_t number = 0xcbf29ce484222325;
    number_space(&number, info);
    number_uint(&number, info->encoded_type.n);
    number_bytes(&number, info->encoded_type.bytes, info->encoded_type.n);
    number_uint(&number, info->fill_is_zero);
    if (info->fill && !info->fill_is_zero)
        number_bytes(&number, info->fill, info->type.size);
    number_filters(&number, info);
    number_storage(&number, info, storage);
    return number;
}

/* ---- */

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

/* libhdf5 1.10 adds the size of the user block to the address that means no place. */
uint64_t dataset_data_address(hid_t dataset)
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
        storage->address = dataset_data_address(dataset);
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

int describe_dataset(struct open_dataset *dataset, struct sfs_dataset_info *info,
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
