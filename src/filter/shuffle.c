/* The shuffle filter: byte k of every element stored together. A tail shorter than an element is
 * stored as it is. */
#include <string.h>

#include "filter/filter.h"

/* The element size as a constant lets the compiler turn the loop into interleaving instructions. */
#define INTERLEAVE(N)                                                                              \
    static void interleave_##N(const unsigned char *restrict in, unsigned char *restrict out,      \
                               size_t n)                                                           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            for (size_t k = 0; k < (N); k++)                                                       \
                out[i * (N) + k] = in[k * n + i];                                                  \
    }
INTERLEAVE(2)
INTERLEAVE(4)
INTERLEAVE(8)

static void interleave_any(const unsigned char *restrict in, unsigned char *restrict out, size_t n,
                           size_t element_size)
{
    for (size_t k = 0; k < element_size; k++)
        for (size_t i = 0; i < n; i++)
            out[i * element_size + k] = in[k * n + i];
}

#define SEPARATE(N)                                                                                \
    static void separate_##N(const unsigned char *restrict in, unsigned char *restrict out,        \
                             size_t n)                                                             \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            for (size_t k = 0; k < (N); k++)                                                       \
                out[k * n + i] = in[i * (N) + k];                                                  \
    }
SEPARATE(2)
SEPARATE(4)
SEPARATE(8)

static void separate_any(const unsigned char *restrict in, unsigned char *restrict out, size_t n,
                         size_t element_size)
{
    for (size_t k = 0; k < element_size; k++)
        for (size_t i = 0; i < n; i++)
            out[k * n + i] = in[i * element_size + k];
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
    if (element_size == 2)
        interleave_2(in, out, n);
    else if (element_size == 4)
        interleave_4(in, out, n);
    else if (element_size == 8)
        interleave_8(in, out, n);
    else
        interleave_any(in, out, n, element_size);
    copy_tail(in, out, size, n * element_size);
}

void shuffle_encode(const void *in, void *out, size_t size, size_t element_size)
{
    size_t n = element_size > 1 ? size / element_size : 0;
    if (element_size == 2)
        separate_2(in, out, n);
    else if (element_size == 4)
        separate_4(in, out, n);
    else if (element_size == 8)
        separate_8(in, out, n);
    else
        separate_any(in, out, n, element_size);
    copy_tail(in, out, size, n * element_size);
}
