/* Lists of elements of a frame, each with its value, in any order. For the files of src/view. */
#ifndef SPARSEFS_VIEW_POINTS_H
#define SPARSEFS_VIEW_POINTS_H

#include "common/interrupt.h"
#include "view/private.h"

/* An element: its row-major position in the frame, and which of a list of values is its. */
struct point {
    uint64_t position, value;
};

/* Elements of a frame, positions ascending. */
struct points {
    struct sfs_defined defined;
    char *values; /* packed, in the dataset's byte order */
};

/* In loops over them, with the number of the turn: whether they are still wanted. -EINTR. */
static inline int points_ask(uint64_t i)
{
    return i % 65536 == 65535 ? interrupt_check() : 0;
}

/* Sorts n of them by position. -EINVAL: one is there twice; -EINTR: they are in any order. */
int points_sort(struct point *point, uint64_t n);

/* Makes *points, which the caller frees, of n sorted ones, out of values of `item` bytes each.
 * -ENOMEM; -EINTR. */
int points_make(const struct point *point, uint64_t n, const char *values, size_t item,
                struct points *points);
void points_free(struct points *points);

/* Bytes that they take. */
size_t points_bytes(const struct points *points, size_t item);

/* What a frame holds, while the geometry is looked at; freed by the caller. -EFBIG: it takes more than most bytes;
 * errors as of sfs_read_values. */
int points_read(struct views *views, uint64_t frame, size_t most, struct points *points);
bool points_are_same(const struct views *views, const struct points *a, const struct points *b);

#endif
