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

/* What a file is compared with, so that the geometry need not be looked at meanwhile; the caller frees it.
 * -EOPNOTSUPP: there is no such view; -ENOMEM. */
struct npz_form {
    uint64_t rows, columns, elements;
    size_t item;           /* bytes of an element */
    struct view_head head; /* of VIEW_NPY */
};
int npz_form_take(struct views *views, struct npz_form *form);
void npz_form_free(struct npz_form *form);

/* Bytes that npz_decode takes at most, the points included, by what the archive claims. */
size_t npz_memory(const struct npz_form *form, const char *bytes, size_t n, size_t most_bytes);

/* Out of n bytes of such a file, of any form that names elements one by one (csr, csc, coo), in any
 * order, stored or deflated. The caller frees *points. -EINVAL: they are no such file of a frame,
 * or name an element twice, and *why says what is wrong; -EFBIG: a part of it has more than
 * most_bytes; -ENOMEM; -EINTR. */
int npz_decode(const struct npz_form *form, const char *bytes, size_t n, size_t most_bytes,
               struct points *points, struct why *why);

#endif
