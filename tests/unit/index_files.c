#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index_files.h"

void make_dense(const char *path, const struct grid *grid, const hsize_t *positions, size_t n)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t space = H5Screate_simple(grid->rank, grid->dims, grid->max_dims);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, grid->rank, grid->chunk_dims);
    if (grid->filtered)
        H5Pset_deflate(dcpl, 1);
    hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);

    size_t bytes = 4;
    for (int i = 0; i < grid->rank; i++)
        bytes *= grid->chunk_dims[i];
    unsigned char *chunk = allocate(bytes);
    for (size_t i = 0; i < n; i++) {
        hsize_t start[MAX_AXES];
        for (int axis = 0; axis < grid->rank; axis++)
            start[axis] = positions[i * (size_t)grid->rank + (size_t)axis] * grid->chunk_dims[axis];
        random_fill(chunk, bytes);
        /* Nobody undoes the filters of these chunks. */
        uint32_t mask = grid->filtered ? (uint32_t)random_below(2) : 0;
        size_t size = grid->filtered ? (size_t)random_between(1, bytes) : bytes;
        assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, start, size, chunk) >= 0);
    }
    free(chunk);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
    H5Pclose(fapl);
}

uint64_t header_of(const char *path, const char *name)
{
    H5L_info_t info;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_true(H5Lget_info(file, name, &info, H5P_DEFAULT) >= 0);
    H5Fclose(file);
    return info.u.address;
}

/* Version 4, class 2. */
static int decode_dense(const struct superblock *superblock, const struct message *message,
                        struct layout_message *l)
{
    struct cursor c = cursor_over(message->data, message->size);
    cursor_skip(&c, 3);
    l->rank = (int)cursor_uint(&c, 1) - 1;
    unsigned width = (unsigned)cursor_uint(&c, 1);
    if (l->rank < 1 || l->rank > MAX_AXES || width > 8)
        return -EILSEQ;
    for (int i = 0; i < l->rank; i++)
        l->chunk_dims[i] = cursor_uint(&c, width);
    l->element_size = cursor_uint(&c, width);
    unsigned kind = (unsigned)cursor_uint(&c, 1);
    if (kind < 3 || kind > 5)
        return -EILSEQ;
    l->index = (enum chunk_index_kind)kind;
    cursor_skip(&c, kind == 3 ? 1 : kind == 4 ? 5 : 6);
    l->address = superblock_address(superblock, &c);
    for (int i = 0; i < l->rank; i++)
        if (l->chunk_dims[i] < 1 || l->chunk_dims[i] > UINT32_MAX)
            return -EILSEQ;
    return c.failed ? -EILSEQ : 0;
}

static int dense_records(const struct layout_message *l, bool filtered,
                         struct chunk_record_format *format)
{
    uint64_t bytes = l->element_size;
    for (int i = 0; i < l->rank; i++)
        if (__builtin_mul_overflow(bytes, l->chunk_dims[i], &bytes))
            return -EILSEQ;
    *format = (struct chunk_record_format){
        .form = filtered ? CHUNK_DENSE_FILTERED : CHUNK_DENSE,
        .rank = l->rank,
        .size_bytes = filtered ? chunk_record_size_bytes(0, 8, bytes) : 0,
        .chunk_bytes = bytes,
    };
    return 0;
}

static int decode_dense_dataset(struct opened *o, uint64_t address, struct why *why)
{
    struct object_header *header;
    int error = object_header_read(o->store, &o->superblock, address, &header, why);
    if (error)
        return error;
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    const struct message *dataspace = object_header_find(header, MESSAGE_DATASPACE);
    bool filtered = object_header_find(header, MESSAGE_FILTERS) != NULL;
    error = !layout || !dataspace ? -EILSEQ : decode_dense(&o->superblock, layout, &o->layout);
    if (!error)
        error = dense_records(&o->layout, filtered, &o->format);
    if (!error)
        error = dataspace_decode(&o->superblock, dataspace, &o->dataspace, why);
    if (!error && o->dataspace.rank != o->layout.rank)
        error = -EILSEQ;
    object_header_free(header);
    return error;
}

static int decode_dataset(struct opened *o, uint64_t address, struct why *why)
{
    struct dataset_header dataset;
    int error = dataset_header_read(o->store, &o->superblock, address, &dataset, why);
    if (error == -EINVAL)
        return decode_dense_dataset(o, address, why);
    if (error)
        return error;
    o->layout = dataset.layout;
    o->dataspace = dataset.dataspace;
    error = layout_message_records(&dataset.layout, dataset.filtered, &o->format, why);
    dataset_header_free(&dataset);
    return error;
}

int open_index(const char *path, uint64_t header, struct opened *opened, struct why *why)
{
    *opened = (struct opened){0};
    int error = store_open(path, &opened->store);
    if (!error)
        error = superblock_read(opened->store, &opened->superblock, why);
    if (!error)
        error = decode_dataset(opened, header, why);
    if (!error)
        error = index_open(opened->store, &opened->superblock, &opened->layout, &opened->format,
                           opened->dataspace.max_dims, &opened->index, why);
    if (error)
        close_index(opened);
    return error;
}

void close_index(struct opened *opened)
{
    index_close(opened->index);
    store_close(opened->store);
    *opened = (struct opened){0};
}
