/* Turning bits: the eight bits of byte k of each element <-> eight rows of one bit of each.
 * Included by this folder only. */
#ifndef SPARSEFS_FILTER_TRANSPOSE_H
#define SPARSEFS_FILTER_TRANSPOSE_H

#include <stddef.h>

/* Row r begins at rows[r * step] and has `columns` bytes; bit b of byte c of row r is bit r of
 * plane[8 * c + b], of 8 * columns bytes. They do not overlap. What the processor does fastest is
 * found out when they are called first. Thread-safe. */
void transpose_to_plane(const unsigned char *rows, size_t step, size_t columns,
                        unsigned char *plane);
void transpose_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows,
                       size_t step);

/* The same, each in one way: the tests compare them. NULL behind the last that this processor has;
 * the first is plain C. */
struct transpose {
    const char *name;
    void (*to_plane)(const unsigned char *rows, size_t step, size_t columns, unsigned char *plane);
    void (*to_rows)(const unsigned char *plane, size_t columns, unsigned char *rows, size_t step);
};
const struct transpose *transpose_way(size_t i);

#endif
