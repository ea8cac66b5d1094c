/* Vectored reads and writes: adjacent pieces of the file by one system call. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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
    /* What lies just behind the vector may be wanted. */
    bool is_wanted = last && last->iov_base != vector->unwanted;
    if (is_wanted && (char *)last->iov_base + last->iov_len == to)
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

/* ---- Writing ---- */

#define MOST_AT_ONCE ((size_t)1 << 20) /* bytes, of more than one piece */

/* How many pieces lie one behind the other from the first on, and their bytes. */
static size_t count_adjacent(const struct store_piece *pieces, size_t n, size_t *bytes)
{
    size_t i = 1;
    *bytes = pieces[0].n;
    while (i < n && pieces[i].address == pieces[i - 1].address + pieces[i - 1].n &&
           *bytes <= MOST_AT_ONCE && pieces[i].n <= MOST_AT_ONCE - *bytes)
        *bytes += pieces[i++].n;
    return i;
}

static int write_adjacent(struct store *store, const struct store_piece *pieces, size_t n,
                          size_t bytes)
{
    if (n == 1)
        return store_write(store, pieces[0].address, pieces[0].bytes, pieces[0].n);
    char *all = malloc(bytes), *to = all;
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        memcpy(to, pieces[i].bytes, pieces[i].n);
        to += pieces[i].n;
    }
    int error = store_write(store, pieces[0].address, all, bytes);
    free(all);
    return error;
}

int store_put(struct store *store, struct store_piece *pieces, size_t n)
{
    size_t allocated = 0, bytes;
    int error = 0;
    while (allocated < n && !error) {
        error = store_allocate(store, pieces[allocated].n, &pieces[allocated].address);
        allocated += !error;
    }
    for (size_t i = 0, here; i < n && !error; i += here) {
        here = count_adjacent(&pieces[i], n - i, &bytes);
        error = write_adjacent(store, &pieces[i], here, bytes);
    }
    for (size_t i = 0; i < allocated && error; i++)
        (void)store_free(store, pieces[i].address, pieces[i].n);
    return error;
}
