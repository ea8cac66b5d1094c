/* Applying a chunk's filters in order, between two buffers. */
#include <errno.h>
#include <string.h>

#include "filter/filter.h"

#define CHECKSUM_BYTES 4

/* What the checksums add, wherever they stand. */
static size_t checksum_bytes(const struct sfs_filter *filters, size_t n_filters)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n_filters; i++)
        bytes += filters[i].id == FILTER_FLETCHER32 ? CHECKSUM_BYTES : 0;
    return bytes;
}

size_t filter_encode_bound(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    size_t checksums = checksum_bytes(filters, n_filters), bound;
    if (__builtin_add_overflow(size, checksums, &bound))
        return SIZE_MAX;
    for (size_t i = 0; i < n_filters; i++)
        if (filters[i].id == FILTER_DEFLATE)
            bound = deflate_bound(bound);
    return __builtin_add_overflow(bound, checksums, &bound) ? SIZE_MAX : bound;
}

/* How often the bytes move from one buffer into another: shuffle and deflate each move them, and a
 * checksum that comes first needs room behind them. */
static unsigned count_moves(const struct sfs_filter *filters, size_t n_filters)
{
    unsigned moves = 0;
    for (size_t i = 0; i < n_filters; i++)
        moves += filters[i].id != FILTER_FLETCHER32 || moves == 0;
    return moves;
}

size_t filter_encode_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    if (count_moves(filters, n_filters) < 2)
        return 0;
    size_t checksums = checksum_bytes(filters, n_filters);
    return __builtin_add_overflow(size, checksums, &size) ? SIZE_MAX : size;
}

static void store_le32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

/* Bytes on their way through a pipeline. The last move ends in `out`. */
struct passage {
    const unsigned char *in, *at;
    size_t size;
    unsigned moves_left;
    unsigned char *scratch, *out;
    size_t out_capacity;
};

static unsigned char *next_buffer(const struct passage *passage)
{
    return passage->moves_left % 2 == 1 ? passage->out : passage->scratch;
}

static void moved_to(struct passage *passage, const unsigned char *to)
{
    passage->at = to;
    passage->moves_left--;
}

static void append_checksum(struct passage *passage)
{
    if (passage->at == passage->in) {
        unsigned char *to = next_buffer(passage);
        if (passage->size > 0)
            memcpy(to, passage->at, passage->size);
        moved_to(passage, to);
    }
    unsigned char *end = (unsigned char *)passage->at + passage->size;
    store_le32(end, fletcher32(passage->at, passage->size));
    passage->size += CHECKSUM_BYTES;
}

static void shuffle(struct passage *passage, size_t element_size)
{
    unsigned char *to = next_buffer(passage);
    shuffle_encode(passage->at, to, passage->size, element_size);
    moved_to(passage, to);
}

/* It is the last to move the bytes: `out` has the room that it needs. */
static int deflate(struct passage *passage, const struct sfs_filter *filter)
{
    unsigned char *to = next_buffer(passage);
    if (filter->n_values != 1)
        return -EINVAL;
    int error = deflate_encode(filter->values[0], passage->at, passage->size, to,
                               passage->out_capacity, &passage->size);
    if (!error)
        moved_to(passage, to);
    return error;
}

int filter_encode(const struct sfs_filter *filters, size_t n_filters, const void *in, size_t size,
                  void *scratch, void *out, size_t out_capacity, size_t *out_size, uint32_t *mask)
{
    if (out_capacity < filter_encode_bound(filters, n_filters, size))
        return -EINVAL;
    struct passage passage = {
        .in = in,
        .at = in,
        .size = size,
        .moves_left = count_moves(filters, n_filters),
        .scratch = scratch,
        .out = out,
        .out_capacity = out_capacity,
    };
    uint32_t failed = 0;
    for (size_t i = 0; i < n_filters; i++) {
        int error = 0;
        if (filters[i].id == FILTER_FLETCHER32)
            append_checksum(&passage);
        else if (filters[i].id == FILTER_SHUFFLE)
            shuffle(&passage, filters[i].values[0]);
        else
            error = deflate(&passage, &filters[i]);
        if (error && !filters[i].optional)
            return error;
        failed |= error ? (uint32_t)1 << i : 0;
    }
    if (passage.at != out && passage.size > 0)
        memcpy(out, passage.at, passage.size);
    *out_size = passage.size;
    *mask = failed;
    return 0;
}
