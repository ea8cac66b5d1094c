/* npz/N.npz: what is defined in a frame of a sparse dataset, and its values, as scipy.sparse saves
 * and loads a matrix. For the files of src/view. */
#ifndef SPARSEFS_VIEW_NPZ_H
#define SPARSEFS_VIEW_NPZ_H

#include "view/foreign_files.h"
#include "view/points.h"

/* ---- npz.c: while the geometry is looked at ---- */

bool npz_exists(const struct views *views);

/* The matrix that a frame is: rows are all of its axes but the last. */
void npz_shape(const struct views *views, uint64_t *rows, uint64_t *columns);

/* Bytes of the file of a frame with so many defined elements; and all of it, which the caller
 * frees, and gives back its bytes (made_memory_give_back). Errors as of sfs_read, made_memory_take. */
uint64_t npz_bytes(const struct views *views, uint64_t elements);
int npz_make(struct views *views, uint64_t frame, struct view_head *out);

/* ---- npz_decode.c ---- */

/* Out of n bytes of such a file, of any form that names elements one by one (csr, csc, coo), in any
 * order, stored or deflated. The caller frees *points. -EINVAL: they are no such file of a frame,
 * or name an element twice, and *why says what is wrong; -EFBIG: a part of it has more than
 * most_bytes; -ENOMEM. */
int npz_decode(const struct views *views, const char *bytes, size_t n, size_t most_bytes,
               struct points *points, struct why *why);

#endif
