/* Elements of a dataset: where its chunks are, and reading and writing through libhdf5. */
#include <errno.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

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
    int error = dataset ? 0 : dataset_open(hdf5, address, NULL, NULL, &dataset);
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
        *address = dataset_data_address(dataset->id);
    else if (placed.is_taken)
        *address = UINT64_MAX;
    library_leave();
    return error;
}
