/* Writing fields into bytes that will go to a file: the counterpart of the cursor. The caller has
 * room for all of them; running out of it is our own bug. All integers are unsigned and
 * little-endian. */
#ifndef SPARSEFS_FORMAT_OUTPUT_H
#define SPARSEFS_FORMAT_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

struct output {
    unsigned char *at;
    size_t left; /* bytes */
};

struct output output_over(void *bytes, size_t n);

/* The low width bytes of value, 0 to 8; UINT64_MAX becomes all bits set. */
void output_uint(struct output *output, uint64_t value, unsigned width);

void output_bytes(struct output *output, const void *bytes, size_t n);
void output_zeros(struct output *output, size_t n);

#endif
