/* Calls that change the file: each has an integer for a result. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/serve_private.h"

#define MOST_CHUNK_BYTES UINT32_MAX /* that libhdf5 takes */

int serve_put_number(struct wire *out, int error, uint64_t number)
{
    if (!error)
        wire_uint(out, number);
    return error;
}

static int do_write(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], address = serve_take_object(in), bytes;
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    take_uints(in, count, rank);
    struct sfs_encoded elements = {.n = take_count(in, 1)};
    elements.bytes = cursor_bytes(in, elements.n);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    if (!error && (!box_product(count, rank, dataset->size, &bytes) || bytes > elements.n))
        error = -EINVAL;
    if (error)
        return error;
    return serve_put_number(out, local_write(served.hdf5, address, start, count, elements.bytes),
                            0);
}

static int do_write_sequences(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], address = serve_take_object(in), n;
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    take_uints(in, count, rank);
    struct sfs_encoded lengths = {.n = take_count(in, 1)};
    lengths.bytes = cursor_bytes(in, lengths.n);
    struct hdf5_sequences sequences = {.n = take_count(in, 1)};
    sequences.bytes = cursor_bytes(in, sequences.n);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    if (!error && (!box_product(count, rank, sizeof(uint64_t), &n) || n != lengths.n))
        error = -EINVAL;
    uint64_t *aligned = error ? NULL : malloc(lengths.n ? lengths.n : 1);
    if (!error && !aligned)
        error = -ENOMEM;
    if (!error) {
        sequences.lengths = memcpy(aligned, lengths.bytes, lengths.n);
        error = local_write_sequences(served.hdf5, address, start, count, &sequences);
    }
    free(aligned);
    return serve_put_number(out, error, 0);
}

static int do_set_extent(struct cursor *in, struct wire *out)
{
    uint64_t dims[SFS_MAX_RANK], address = serve_take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, dims, rank);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    if (error)
        return error;
    return serve_put_number(out, local_set_extent(served.hdf5, address, dims), 0);
}

/* Chunks whose bytes stand one behind the other, and their sum. */
static size_t take_stored(struct cursor *in, int rank, unsigned n, struct hdf5_stored *chunks,
                          uint64_t *places)
{
    size_t all = 0;
    for (unsigned i = 0; i < n; i++) {
        take_uints(in, chunks[i].start, rank);
        chunks[i].mask = (uint32_t)take_uint(in, UINT32_MAX);
        chunks[i].n = (size_t)take_uint(in, MOST_CHUNK_BYTES);
        places[i] = take_uint(in, UINT64_MAX);
        all += chunks[i].n;
    }
    return all;
}

/* Which of them are where they were placed, one bit for each. */
static int put_stored(uint64_t address, struct hdf5_stored *chunks, const uint64_t *places,
                      unsigned n, const char *bytes, uint64_t *taken)
{
    int error = 0;
    *taken = 0;
    for (unsigned i = 0; i < n && !error; i++) {
        struct driver_placed placed = {.address = places[i],
                                       .n = places[i] == UINT64_MAX ? 0 : chunks[i].n};
        chunks[i].bytes = bytes;
        error = dataset_put_chunk(served.hdf5, address, &chunks[i], &placed);
        *taken |= (uint64_t)placed.is_taken << i;
        bytes += chunks[i].n;
    }
    return error;
}

/* libhdf5 passes on what it is given: so it is given memory that is not used otherwise. */
static int do_write_chunks(struct cursor *in, struct wire *out)
{
    struct hdf5_stored chunks[HDF5_MOST_STORED];
    uint64_t places[HDF5_MOST_STORED], taken, address = serve_take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    unsigned n = (unsigned)take_uint(in, HDF5_MOST_STORED);
    size_t all = take_stored(in, rank, n, chunks, places);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    if (error)
        return error;
    char *bytes = calloc(all ? all : 1, 1);
    if (!bytes)
        return -ENOMEM;
    served.payload = bytes;
    served.payload_n = all;
    driver_expect(bytes, all);
    error = put_stored(address, chunks, places, n, bytes, &taken);
    driver_expect(NULL, 0);
    served.payload = NULL;
    free(bytes);
    return serve_put_number(out, error, taken);
}

static int do_place(struct cursor *in, struct wire *out)
{
    uint64_t address = serve_take_object(in), at = take_uint(in, UINT64_MAX);
    uint64_t n = take_uint(in, UINT64_MAX);
    struct sfs_encoded element = {.n = take_count(in, 1)};
    element.bytes = cursor_bytes(in, element.n);
    library_enter();
    const struct open_dataset *dataset = dataset_find(served.hdf5, address);
    library_leave();
    if (!dataset)
        return -EBADF;
    if (in->failed || element.n < dataset->size)
        return -EINVAL;
    int error = local_place(served.hdf5, address, &at, n, element.bytes);
    return serve_put_number(out, error, at);
}

static int change_at(struct cursor *in, struct wire *out,
                     int (*change)(struct hdf5 *hdf5, const char *path))
{
    char *path;
    int error = take_string(in, true, &path);
    if (!error)
        error = change(served.hdf5, path);
    free(path);
    return serve_put_number(out, error, 0);
}

static int do_create_group(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_create_group);
}

static int do_remove_group(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_remove_group);
}

static int do_unlink(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_unlink);
}

static int do_reopen(struct cursor *in, struct wire *out)
{
    (void)in;
    return serve_put_number(out, local_reopen(served.hdf5), 0);
}

static int do_create_link(struct cursor *in, struct wire *out)
{
    char *path;
    struct sfs_link link;
    int error = take_string(in, true, &path);
    if (error)
        return error;
    error = take_link(in, &link);
    if (!error) {
        error = link.target ? local_create_link(served.hdf5, path, &link) : -EINVAL;
        sfs_link_free(&link);
    }
    free(path);
    return serve_put_number(out, error, 0);
}

const call_function serve_changing[WORKER_CALLS] = {
    [WORKER_WRITE] = do_write,
    [WORKER_WRITE_SEQUENCES] = do_write_sequences,
    [WORKER_SET_EXTENT] = do_set_extent,
    [WORKER_WRITE_CHUNKS] = do_write_chunks,
    [WORKER_PLACE] = do_place,
    [WORKER_CREATE_GROUP] = do_create_group,
    [WORKER_REMOVE_GROUP] = do_remove_group,
    [WORKER_REOPEN] = do_reopen,
    [WORKER_CREATE_LINK] = do_create_link,
    [WORKER_UNLINK] = do_unlink,
    [WORKER_CREATE_DATASET] = serve_create_dataset,
    [WORKER_COPY_ATTRIBUTES] = serve_copy_attributes,
    [WORKER_COPY_OBJECT] = serve_copy_object,
    [WORKER_COPY_GROUP] = serve_copy_group,
    [WORKER_COPY_REFERENCES] = serve_copy_references,
};
