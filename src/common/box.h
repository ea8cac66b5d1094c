/* Boxes: n-dimensional rectangles of elements, and copying between row-major arrays that contain
 * them. Knows nothing of files or datasets. All counts and positions are in elements; rank is 1 to
 * SFS_MAX_RANK. Callers have checked that products of dims times element size fit in 63 bits. */
#ifndef SPARSEFS_COMMON_BOX_H
#define SPARSEFS_COMMON_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

struct box {
    int rank;
    uint64_t start[SFS_MAX_RANK];
    uint64_t count[SFS_MAX_RANK];
};

/* The product of n factors, times unit, in *product; false if it exceeds INT64_MAX. */
bool box_product(const uint64_t *factors, int n, uint64_t unit, uint64_t *product);

uint64_t box_elements(const struct box *box);

/* Makes *common the intersection of two boxes of one rank; false if it is empty. */
bool box_intersect(const struct box *a, const struct box *b, struct box *common);

/* The longest box that begins at row-major position first of slab and covers at most n > 0 positions
 * of it without a gap; returns the number of positions covered (at least 1). Called again behind
 * what it covered, it cuts any interval of positions into at most 2 * rank - 1 boxes. */
uint64_t box_of_interval(const struct box *slab, uint64_t first, uint64_t n, struct box *piece);

/* The smallest box of whole slices of slab around n positions from first on: along one axis as many
 * as needed, behind it all of every axis, before it one. *skipped is the number of positions of the
 * box before first. Always exists for n > 0. */
void box_around_interval(const struct box *slab, uint64_t first, uint64_t n, struct box *around,
                         uint64_t *skipped);

/* The elements of a box: count per axis, of element_size bytes each. */
struct box_shape {
    int rank;
    const uint64_t *count;
    size_t element_size;
};

/* Where a box is in an array: the array's dims, and its start; NULL: the origin. */
struct box_place {
    const uint64_t *dims, *start;
};

/* Copies a box from one array to another. The arrays must not overlap. */
void box_copy(const struct box_shape *shape, void *dst, struct box_place to, const void *src,
              struct box_place from);

/* Calls row for every run of bytes that lies without a gap both in array a and in array b, with its
 * byte offsets in them, until one returns an error. */
int box_each_row(const struct box_shape *shape, struct box_place a, struct box_place b,
                 int (*row)(void *context, size_t a_offset, size_t b_offset, size_t bytes),
                 void *context);

/* Sets all elements of a box to the element at fill. */
void box_fill(const struct box_shape *shape, void *dst, struct box_place to, const void *fill);

/* Sets n adjacent elements at dst to the element at fill. */
void fill_elements(void *dst, uint64_t n, size_t element_size, const void *fill);

/* If count elements at start of an array of dims lie behind each other without a gap, the row-major
 * position of the first in *position and true. */
bool box_is_contiguous(int rank, const uint64_t *count, const uint64_t *dims, const uint64_t *start,
                       uint64_t *position);

/* Where the element at row-major position of a box of count elements per axis is in an array of
 * dims that has the box at start: its row-major position there. NULL for start is the origin. */
uint64_t box_translate(int rank, const uint64_t *count, uint64_t position, const uint64_t *dims,
                       const uint64_t *start);

#endif
