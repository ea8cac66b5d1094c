/* Vectored reads: adjacent pieces of the file by one system call. */
#include <errno.h>
#include <unistd.h>

#include "store/private.h"

/* Whether all bytes are those of the file. */
static bool is_plain(struct store *store, const struct store_vector *vector)
{
    return !store->image && !store->reader.read && !store->is_following &&
           vector->end <= store_size(store) && atomic_load(&store->n_pages) == 0 &&
           atomic_load(&store->n_unsynced) == 0 && !atomic_load(&store->lost_lock);
}

/* False: the pieces are to be read one by one, which finds the error. */
static bool read_at_once(struct store *store, const struct store_vector *vector)
{
    size_t n = (size_t)(vector->end - vector->address);
    ssize_t got;
    do
        got = preadv(store->fd, vector->to, (int)vector->n, (off_t)vector->address);
    while (got < 0 && errno == EINTR);
    if (got < 0 || (size_t)got != n || atomic_load(&store->lost_lock))
        return false;
    atomic_fetch_add_explicit(&store->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->bytes_read, n, memory_order_relaxed);
    return true;
}

static int read_one_by_one(struct store *store, const struct store_vector *vector)
{
    uint64_t address = vector->address;
    int error = 0;
    for (size_t i = 0; i < vector->n && !error; i++) {
        if (vector->to[i].iov_base != vector->unwanted)
            error = store_read(store, address, vector->to[i].iov_base, vector->to[i].iov_len);
        address += vector->to[i].iov_len;
    }
    return error;
}

void store_vector_begin(struct store_vector *vector, struct store *store)
{
    vector->store = store;
    vector->n = 0;
}

int store_vector_end(struct store_vector *vector)
{
    struct store *store = vector->store;
    int error = 0;
    if (vector->n > 1 && is_plain(store, vector) && read_at_once(store, vector))
        vector->n = 0;
    if (vector->n > 0)
        error = read_one_by_one(store, vector);
    vector->n = 0;
    return error;
}

static void append(struct store_vector *vector, void *to, size_t n)
{
    struct iovec *last = vector->n > 0 ? &vector->to[vector->n - 1] : NULL;
    vector->end += n;
    if (last && (char *)last->iov_base + last->iov_len == to)
        last->iov_len += n;
    else
        vector->to[vector->n++] = (struct iovec){to, n};
}

int store_vector_add(struct store_vector *vector, uint64_t address, void *to, size_t n)
{
    bool is_near = vector->n > 0 && address >= vector->end && address - vector->end <= STORE_GAP &&
                   address <= UINT64_MAX - n;
    int error = is_near && vector->n + 2 <= STORE_VECTOR ? 0 : store_vector_end(vector);
    if (error)
        return error;
    if (vector->n == 0)
        vector->address = vector->end = address;
    if (address > vector->end)
        append(vector, vector->unwanted, (size_t)(address - vector->end));
    append(vector, to, n);
    return 0;
}
