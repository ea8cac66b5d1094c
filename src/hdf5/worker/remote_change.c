/* Asking a worker for changes of the file: each is the store's when the call has succeeded. */
#include "hdf5/worker/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/private.h"
#include "hdf5/worker/remote_private.h"
#include "store/store.h"

bool remote_is_lost(const struct remote *remote)
{
    return client_is_lost(remote->client);
}

int remote_flush(struct remote *remote)
{
    remote_lock(remote);
    int error = client_put_taken(remote->client);
    remote_unlock(remote);
    return error;
}

static int ask_group(struct remote *remote, enum worker_call call, const char *path)
{
    struct wire request;
    client_request(&request, call);
    wire_string(&request, path);
    return remote_ask(remote, call, remote_number(path, strlen(path)), &request, NULL, NULL);
}

int remote_create_group(struct remote *remote, const char *path)
{
    return ask_group(remote, WORKER_CREATE_GROUP, path);
}

int remote_remove_group(struct remote *remote, const char *path)
{
    return ask_group(remote, WORKER_REMOVE_GROUP, path);
}

int remote_set_extent(struct remote *remote, uint64_t address, const uint64_t *dims)
{
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error = dataset ? 0 : -EBADF;
    if (!error) {
        struct wire request;
        remote_request(&request, WORKER_SET_EXTENT, address);
        wire_uint(&request, (uint64_t)dataset->rank);
        wire_uints(&request, dims, dataset->rank);
        error = remote_ask_dataset(remote, dataset, WORKER_SET_EXTENT, &request, NULL, NULL);
        wire_free(&request);
    }
    if (!error)
        remote_set_dims(dataset, dims);
    remote_unlock(remote);
    return error;
}

static int write_box(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                     const uint64_t *count, const char *buffer, size_t bytes)
{
    struct wire request;
    remote_request(&request, WORKER_WRITE, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, start, dataset->rank);
    wire_uints(&request, count, dataset->rank);
    wire_bytes(&request, buffer, bytes);
    int error = remote_ask_dataset(remote, dataset, WORKER_WRITE, &request, NULL, NULL);
    wire_free(&request);
    remote_forget_chunks(dataset);
    return error;
}

/* What is too large for one message is written in parts. */
static int write_boxes(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                       const uint64_t *count, const char *buffer)
{
    uint64_t from[SFS_MAX_RANK], part[SFS_MAX_RANK], bytes;
    size_t n = (size_t)dataset->rank * sizeof(*from);
    int axis = 0;
    if (!box_product(count, dataset->rank, dataset->element_size, &bytes))
        return -EFBIG;
    if (bytes <= WIRE_MOST_BYTES / 2)
        return write_box(remote, dataset, start, count, buffer, (size_t)bytes);
    while (axis < dataset->rank && count[axis] < 2)
        axis++;
    if (axis == dataset->rank)
        return -EFBIG;
    memcpy(from, start, n);
    memcpy(part, count, n);
    part[axis] = count[axis] / 2;
    (void)box_product(part, dataset->rank, dataset->element_size, &bytes); /* less than above */
    int error = write_boxes(remote, dataset, from, part, buffer);
    from[axis] += part[axis];
    part[axis] = count[axis] - part[axis];
    return error ? error : write_boxes(remote, dataset, from, part, buffer + bytes);
}

int remote_write(struct remote *remote, uint64_t address, const uint64_t *start,
                 const uint64_t *count, const void *buffer)
{
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error = dataset ? write_boxes(remote, dataset, start, count, buffer) : -EBADF;
    remote_unlock(remote);
    return error;
}

#define MOST_HEAD ((uint64_t)4096) /* bytes of a request, besides what is written */

static int write_sequences(struct remote *remote, struct remote_dataset *dataset,
                           const uint64_t *start, const uint64_t *count,
                           const struct hdf5_sequences *sequences)
{
    uint64_t lengths_n;
    struct wire request;
    if (!box_product(count, dataset->rank, sizeof(*sequences->lengths), &lengths_n) ||
        lengths_n > WIRE_MOST_BYTES / 4 || sequences->n > WIRE_MOST_BYTES - lengths_n - MOST_HEAD) {
        library_reason("it is too large for one call of libhdf5's process");
        return -EFBIG;
    }
    remote_request(&request, WORKER_WRITE_SEQUENCES, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, start, dataset->rank);
    wire_uints(&request, count, dataset->rank);
    wire_bytes(&request, sequences->lengths, (size_t)lengths_n);
    wire_bytes(&request, sequences->bytes, sequences->n);
    int error = remote_ask_dataset(remote, dataset, WORKER_WRITE_SEQUENCES, &request, NULL, NULL);
    wire_free(&request);
    remote_forget_chunks(dataset);
    return error;
}

int remote_write_sequences(struct remote *remote, uint64_t address, const uint64_t *start,
                           const uint64_t *count, const struct hdf5_sequences *sequences)
{
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error = dataset ? write_sequences(remote, dataset, start, count, sequences) : -EBADF;
    remote_unlock(remote);
    return error;
}

static int take_number(struct cursor *results, void *out)
{
    *(uint64_t *)out = take_uint(results, UINT64_MAX);
    return take_end(results, true);
}

/* Chunks on their way, each with its place or UINT64_MAX. */
struct putting {
    const struct hdf5_stored *chunks;
    unsigned n;
    uint64_t places[HDF5_MOST_STORED]; /* where they are already; UINT64_MAX: nowhere */
    uint64_t taken;                    /* bits of those that stay there */
};

static bool is_placed(const struct putting *putting, unsigned i)
{
    return putting->places[i] != UINT64_MAX;
}

/* The bytes of all, one behind the other; those of a single one are not copied. */
static const char *join(const struct putting *putting, size_t *n, char **joined)
{
    *n = 0;
    *joined = NULL;
    for (unsigned i = 0; i < putting->n; i++)
        *n += putting->chunks[i].n;
    if (putting->n == 1)
        return putting->chunks[0].bytes;
    char *to = *joined = malloc(*n ? *n : 1);
    for (unsigned i = 0; i < putting->n && to; i++) {
        memcpy(to, putting->chunks[i].bytes, putting->chunks[i].n);
        to += putting->chunks[i].n;
    }
    return *joined;
}

static int put_chunks(struct remote *remote, struct remote_dataset *dataset,
                      struct putting *putting)
{
    struct wire request;
    size_t n;
    char *joined;
    const char *bytes = join(putting, &n, &joined);
    if (!bytes)
        return -ENOMEM;
    remote_request(&request, WORKER_WRITE_CHUNKS, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uint(&request, putting->n);
    for (unsigned i = 0; i < putting->n; i++) {
        wire_uints(&request, putting->chunks[i].start, dataset->rank);
        wire_uint(&request, putting->chunks[i].mask);
        wire_uint(&request, putting->chunks[i].n);
        wire_uint(&request, putting->places[i]);
    }
    client_set_payload(remote->client, bytes, n);
    int error = remote_ask_dataset(remote, dataset, WORKER_WRITE_CHUNKS, &request, take_number,
                                   &putting->taken);
    client_set_payload(remote->client, NULL, 0);
    wire_free(&request);
    free(joined);
    remote_forget_chunks(dataset);
    putting->taken = error ? 0 : putting->taken;
    for (unsigned i = 0; i < putting->n; i++)
        if (putting->taken >> i & 1 && is_placed(putting, i))
            store_hand_over(remote->store, putting->places[i], putting->chunks[i].n);
    return error;
}

/* Chunks that keep their size are written where they are, others before libhdf5 is told of them. */
static int place_chunks(struct remote *remote, uint64_t address, struct putting *putting)
{
    struct hdf5_chunk found[HDF5_MOST_STORED];
    struct store_piece pieces[HDF5_MOST_STORED];
    unsigned which[HDF5_MOST_STORED], n = 0;
    int error = remote_locate_many(remote, address, putting->chunks, putting->n, found);
    for (unsigned i = 0; i < putting->n && !error; i++) {
        const struct hdf5_stored *chunk = &putting->chunks[i];
        if (chunk->n == 0 || (found[i].address != UINT64_MAX && found[i].size == chunk->n))
            continue;
        which[n] = i;
        pieces[n++] = (struct store_piece){.bytes = chunk->bytes, .n = chunk->n};
    }
    if (!error)
        error = store_put(remote->store, pieces, n);
    for (unsigned i = 0; i < n && !error; i++)
        putting->places[which[i]] = pieces[i].address;
    return error;
}

int remote_write_chunks(struct remote *remote, uint64_t address, const struct hdf5_stored *chunks,
                        unsigned n)
{
    struct putting putting = {.chunks = chunks, .n = n};
    for (unsigned i = 0; i < n; i++)
        putting.places[i] = UINT64_MAX;
    int error = place_chunks(remote, address, &putting);
    if (!error) {
        remote_lock(remote);
        struct remote_dataset *dataset = remote_dataset_find(remote, address);
        error = dataset ? put_chunks(remote, dataset, &putting) : -EBADF;
        remote_unlock(remote);
    }
    for (unsigned i = 0; i < n; i++) {
        if (!is_placed(&putting, i) || putting.taken >> i & 1)
            continue;
        int freed = store_free(remote->store, putting.places[i], chunks[i].n);
        error = error ? error : freed;
    }
    return error;
}

int remote_place(struct remote *remote, uint64_t dataset_address, uint64_t *address, uint64_t n,
                 const void *element)
{
    uint64_t at = UINT64_MAX;
    struct wire request;
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, dataset_address);
    int error = dataset ? 0 : -EBADF;
    if (!error) {
        remote_request(&request, WORKER_PLACE, dataset_address);
        wire_uint(&request, *address);
        wire_uint(&request, n);
        wire_bytes(&request, element, dataset->element_size);
        error = remote_ask_dataset(remote, dataset, WORKER_PLACE, &request, take_number, &at);
        wire_free(&request);
    }
    if (!error && at == *address)
        store_hand_over(remote->store, at, n);
    else if (!error && store_check_lent(remote->store, at, n) < 0) {
        error = client_distrust(remote->client, WORKER_PLACE, dataset_address);
        *address = UINT64_MAX;
    }
    remote_unlock(remote);
    if (!error)
        *address = at;
    return error;
}
