/* Asking a worker for changes of the file: each is the store's when the call has succeeded. */
#include "hdf5/worker/remote.h"

#include <errno.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/worker/remote_private.h"
#include "store/store.h"

bool remote_is_lost(const struct remote *remote)
{
    return client_is_lost(remote->client);
}

int remote_flush(struct remote *remote)
{
    client_lock(remote->client);
    int error = client_settle(remote->client);
    client_unlock(remote->client);
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
    client_lock(remote->client);
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
    client_unlock(remote->client);
    return error;
}

static int write_box(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                     const uint64_t *count, const char *buffer)
{
    uint64_t bytes;
    struct wire request;
    if (!box_product(count, dataset->rank, dataset->element_size, &bytes) ||
        bytes > WIRE_MOST_BYTES / 2)
        return -EFBIG;
    remote_request(&request, WORKER_WRITE, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, start, dataset->rank);
    wire_uints(&request, count, dataset->rank);
    wire_bytes(&request, buffer, (size_t)bytes);
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
    int axis = 0, error = write_box(remote, dataset, start, count, buffer);
    while (axis < dataset->rank && count[axis] < 2)
        axis++;
    if (error != -EFBIG || axis == dataset->rank)
        return error;
    memcpy(from, start, n);
    memcpy(part, count, n);
    part[axis] = count[axis] / 2;
    if (!box_product(part, dataset->rank, dataset->element_size, &bytes))
        return -EFBIG;
    error = write_boxes(remote, dataset, from, part, buffer);
    from[axis] += part[axis];
    part[axis] = count[axis] - part[axis];
    return error ? error : write_boxes(remote, dataset, from, part, buffer + bytes);
}

int remote_write(struct remote *remote, uint64_t address, const uint64_t *start,
                 const uint64_t *count, const void *buffer)
{
    client_lock(remote->client);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error = dataset ? write_boxes(remote, dataset, start, count, buffer) : -EBADF;
    client_unlock(remote->client);
    return error;
}

static int write_sequences(struct remote *remote, struct remote_dataset *dataset,
                           const uint64_t *start, const uint64_t *count, const uint64_t *lengths,
                           const void *bytes, size_t n)
{
    uint64_t lengths_n;
    struct wire request;
    if (!box_product(count, dataset->rank, sizeof(*lengths), &lengths_n) ||
        lengths_n > WIRE_MOST_BYTES / 4 || n > WIRE_MOST_BYTES / 4)
        return -EFBIG;
    remote_request(&request, WORKER_WRITE_SEQUENCES, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, start, dataset->rank);
    wire_uints(&request, count, dataset->rank);
    wire_bytes(&request, lengths, (size_t)lengths_n);
    wire_bytes(&request, bytes, n);
    int error = remote_ask_dataset(remote, dataset, WORKER_WRITE_SEQUENCES, &request, NULL, NULL);
    wire_free(&request);
    remote_forget_chunks(dataset);
    return error;
}

int remote_write_sequences(struct remote *remote, uint64_t address, const uint64_t *start,
                           const uint64_t *count, const uint64_t *lengths, const void *bytes,
                           size_t n)
{
    client_lock(remote->client);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error =
        dataset ? write_sequences(remote, dataset, start, count, lengths, bytes, n) : -EBADF;
    client_unlock(remote->client);
    return error;
}

static int take_number(struct cursor *results, void *out)
{
    *(uint64_t *)out = take_uint(results, UINT64_MAX);
    return take_end(results, true);
}

/* The stored bytes of a chunk. */
struct stored {
    const uint64_t *start;
    uint32_t mask;
    const void *bytes;
    size_t n;
    uint64_t place; /* where they are already; UINT64_MAX: nowhere */
    bool is_taken;  /* and stay */
};

static int put_chunk(struct remote *remote, struct remote_dataset *dataset, struct stored *stored)
{
    uint64_t is_taken = 0;
    struct wire request;
    remote_request(&request, WORKER_WRITE_CHUNK, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, stored->start, dataset->rank);
    wire_uint(&request, stored->mask);
    wire_uint(&request, stored->n);
    wire_uint(&request, stored->place);
    client_set_payload(remote->client, stored->bytes, stored->n);
    int error =
        remote_ask_dataset(remote, dataset, WORKER_WRITE_CHUNK, &request, take_number, &is_taken);
    client_set_payload(remote->client, NULL, 0);
    wire_free(&request);
    remote_forget_chunks(dataset);
    stored->is_taken = !error && is_taken && stored->place != UINT64_MAX;
    if (stored->is_taken)
        store_hand_over(remote->store, stored->place, stored->n);
    return error;
}

/* A chunk that keeps its size is written where it is, another one before libhdf5 is told of it. */
static int place_chunk(struct remote *remote, uint64_t address, struct stored *stored)
{
    struct hdf5_chunk chunk;
    int error = remote_locate(remote, address, stored->start, &chunk);
    if (error || (chunk.address != UINT64_MAX && chunk.size == stored->n))
        return error;
    error = store_allocate(remote->store, stored->n, &stored->place);
    if (error)
        stored->place = UINT64_MAX;
    return error ? error : store_write(remote->store, stored->place, stored->bytes, stored->n);
}

int remote_write_chunk(struct remote *remote, uint64_t address, const uint64_t *start,
                       uint32_t mask, const void *bytes, size_t n)
{
    struct stored stored = {start, mask, bytes, n, UINT64_MAX, false};
    int error = place_chunk(remote, address, &stored);
    if (!error) {
        client_lock(remote->client);
        struct remote_dataset *dataset = remote_dataset_find(remote, address);
        error = dataset ? put_chunk(remote, dataset, &stored) : -EBADF;
        client_unlock(remote->client);
    }
    if (stored.place != UINT64_MAX && !stored.is_taken) {
        int freed = store_free(remote->store, stored.place, n);
        error = error ? error : freed;
    }
    return error;
}

int remote_place(struct remote *remote, uint64_t dataset_address, uint64_t *address, uint64_t n,
                 const void *element)
{
    uint64_t at = UINT64_MAX;
    struct wire request;
    client_lock(remote->client);
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
    else if (!error && store_check_lent(remote->store, at, n) < 0)
        error = client_distrust(remote->client, WORKER_PLACE, dataset_address);
    client_unlock(remote->client);
    if (!error)
        *address = at;
    return error;
}
