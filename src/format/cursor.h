/* Reading fields out of bytes that came from a file: the one place where their end is minded. A
 * field that does not fit reads as 0 and marks the cursor as failed, and so does every field after
 * it; a decoder looks at the mark once, before it uses what it has read. All integers are unsigned
 * and little-endian. */
#ifndef SPARSEFS_FORMAT_CURSOR_H
#define SPARSEFS_FORMAT_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NO_ADDRESS UINT64_MAX /* undefined: all bits set, however wide it is in the file */

struct cursor {
    const unsigned char *at;
    size_t left; /* bytes */
    bool failed;
};

/* Over n bytes, which must outlive the cursor and what cursor_bytes returns. */
struct cursor cursor_over(const void *bytes, size_t n);

/* An integer of width bytes, 0 to 8 (0: nothing is read, the value is 0). */
uint64_t cursor_uint(struct cursor *cursor, unsigned width);

/* The same, but all bits set gives UINT64_MAX: an undefined address, an unlimited dim. */
uint64_t cursor_all_ones(struct cursor *cursor, unsigned width);

/* The next n bytes where they lie, or NULL. */
const unsigned char *cursor_bytes(struct cursor *cursor, uint64_t n);

void cursor_skip(struct cursor *cursor, uint64_t n);

#endif
