/* The shuffle filter: byte k of every element stored together. A tail shorter than an element is
 * stored as it is. */
#include <string.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"

/* The number of bytes as a constant lets the compiler turn the loop into interleaving instructions.
 * The k-th bytes of all elements stand at k * plane. */
#define INTERLEAVE(N)                                                                              \
    static void interleave_##N(const unsigned char *restrict in, size_t plane,                     \
                               unsigned char *restrict out, size_t n)                              \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            for (size_t k = 0; k < (N); k++)                                                       \
                out[i * (N) + k] = in[k * plane + i];                                              \
    }
INTERLEAVE(2)
INTERLEAVE(4)
INTERLEAVE(8)

#define SEPARATE(N)                                                                                \
    static void separate_##N(const unsigned char *restrict in, unsigned char *restrict out,        \
                             size_t plane, size_t n)                                               \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            for (size_t k = 0; k < (N); k++)                                                       \
                out[k * plane + i] = in[i * (N) + k];                                              \
    }
SEPARATE(2)
SEPARATE(4)
SEPARATE(8)

/* Elements of other sizes are made of parts of 8, 4, 2 and 1 bytes, some hundreds at a time, by way
 * of a buffer that stays in the processor's cache. */
#define BLOCK SHUFFLE_MOST_PARTS

#define PIECE_BYTES ((size_t)1 << 20) /* between two looks whether decoding is to end */

static size_t part_of(size_t bytes)
{
    return bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
}

/* Copies n parts, each `from_step` bytes behind the one before, to places `to_step` apart. */
static void copy_parts(const unsigned char *from, size_t from_step, unsigned char *to,
                       size_t to_step, size_t part, size_t n)
{
#define COPY(N)                                                                                    \
    for (size_t i = 0; i < n; i++)                                                                 \
    memcpy(to + i * to_step, from + i * from_step, (N))
    if (part == 8)
        COPY(8);
    else if (part == 4)
        COPY(4);
    else if (part == 2)
        COPY(2);
    else
        COPY(1);
#undef COPY
}

size_t shuffle_interleave(const unsigned char *planes, size_t plane, size_t left,
                          unsigned char *out, size_t step, size_t n)
{
    unsigned char parts[8 * BLOCK];
    size_t part = part_of(left);
    unsigned char *to = part == step ? out : parts;
    if (part == 8)
        interleave_8(planes, plane, to, n);
    else if (part == 4)
        interleave_4(planes, plane, to, n);
    else if (part == 2)
        interleave_2(planes, plane, to, n);
    if (part != step || part == 1)
        copy_parts(part == 1 ? planes : parts, part, out, step, part, n);
    return part;
}

size_t shuffle_separate(const unsigned char *in, size_t step, size_t left, unsigned char *planes,
                        size_t plane, size_t n)
{
    unsigned char parts[8 * BLOCK];
    size_t part = part_of(left);
    const unsigned char *from = part == step ? in : parts;
    if (part != step || part == 1)
        copy_parts(in, step, part == 1 ? planes : parts, part, part, n);
    if (part == 8)
        separate_8(from, planes, plane, n);
    else if (part == 4)
        separate_4(from, planes, plane, n);
    else if (part == 2)
        separate_2(from, planes, plane, n);
    return part;
}

static void interleave_any(const unsigned char *in, size_t plane, unsigned char *out, size_t n,
                           size_t size)
{
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        for (size_t k = 0; k < size;)
            k += shuffle_interleave(in + k * plane + first, plane, size - k, out + first * size + k,
                                    size, count);
    }
}

static void interleave(const unsigned char *in, size_t plane, unsigned char *out, size_t n,
                       size_t size)
{
    if (size == 2)
        interleave_2(in, plane, out, n);
    else if (size == 4)
        interleave_4(in, plane, out, n);
    else if (size == 8)
        interleave_8(in, plane, out, n);
    else
        interleave_any(in, plane, out, n, size);
}

static void separate_any(const unsigned char *in, unsigned char *out, size_t n, size_t size)
{
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        for (size_t k = 0; k < size;)
            k += shuffle_separate(in + first * size + k, size, size - k, out + k * n + first, n,
                                  count);
    }
}

/* What does not fill an element. */
static void copy_tail(const void *in, void *out, size_t size, size_t done)
{
    if (done < size)
        memcpy((char *)out + done, (const char *)in + done, size - done);
}

void shuffle_decode(const void *in, void *out, size_t size, size_t element_size)
{
    size_t n = element_size > 1 ? size / element_size : 0;
    interleave(in, n, out, n, element_size);
    copy_tail(in, out, size, n * element_size);
}

void shuffle_encode(const void *in, void *out, size_t size, size_t element_size)
{
    size_t n = element_size > 1 ? size / element_size : 0;
    if (element_size == 2)
        separate_2(in, out, n, n);
    else if (element_size == 4)
        separate_4(in, out, n, n);
    else if (element_size == 8)
        separate_8(in, out, n, n);
    else
        separate_any(in, out, n, element_size);
    copy_tail(in, out, size, n * element_size);
}

static bool takes(const struct sfs_filter *filter)
{
    return filter_value(filter, 0, 0) > 0;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)in_size;
    const size_t element = filter->values[0], n = element > 1 ? size / element : 0;
    const size_t piece = PIECE_BYTES / element > BLOCK ? PIECE_BYTES / element : BLOCK;
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < piece ? n - first : piece;
        int error = cpu_limit_check(count * element);
        if (error)
            return error;
        interleave((const unsigned char *)in + first, n, (unsigned char *)out + first * element,
                   count, element);
    }
    copy_tail(in, out, size, n * element);
    return 0;
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    shuffle_encode(in, out, size, filter->values[0]);
    *out_size = size;
    return 0;
}

const struct filter_kind filter_shuffle = {
    .id = FILTER_SHUFFLE,
    .effect = KEEPS_SIZE,
    .takes = takes,
    .decode = decode,
    .encode = encode,
};
