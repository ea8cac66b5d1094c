/* Writing of fields. */
#include "format/output.h"

#include <assert.h>
#include <string.h>

struct output output_over(void *bytes, size_t n)
{
    return (struct output){.at = bytes, .left = n};
}

static unsigned char *take(struct output *output, size_t n)
{
    assert(n <= output->left);
    unsigned char *bytes = output->at;
    output->at += n;
    output->left -= n;
    return bytes;
}

void output_uint(struct output *output, uint64_t value, unsigned width)
{
    unsigned char *bytes = take(output, width);
    for (unsigned i = 0; i < width; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

void output_bytes(struct output *output, const void *bytes, size_t n)
{
    unsigned char *room = take(output, n);
    if (n > 0)
        memcpy(room, bytes, n);
}

void output_zeros(struct output *output, size_t n)
{
    memset(take(output, n), 0, n);
}
