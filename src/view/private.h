/* Shared by the files of src/view only: who makes which head. */
#ifndef SPARSEFS_VIEW_PRIVATE_H
#define SPARSEFS_VIEW_PRIVATE_H

#include <stdio.h>

#include "view/view.h"

/* How a datatype is spelled: as a Python literal, for NumPy headers, or as JSON. */
enum numpy_style { NUMPY_PYTHON, NUMPY_JSON };

/* Writes the NumPy type of a datatype without pointers, e.g. '<u2' or [('x', '<f4'), ...]. The dims
 * of an array type are left to the caller. */
void numpy_type(FILE *out, const struct sfs_type *type, enum numpy_style style);

/* Writes the dims of an array type, of arrays of arrays too, separated by commas; n counts the dims
 * written before and, returned, all. */
int numpy_array_dims(FILE *out, const struct sfs_type *type, int n);

/* Headers; *head stays empty (0 is returned) where there can be none. */
int numpy_header(const struct sfs_type *type, int rank, const uint64_t *dims,
                 struct view_head *head);
int tiff_header(const struct sfs_type *type, int rank, const uint64_t *dims,
                struct view_head *head);

/* Whether elements are plain numbers: what scipy and image readers can take. */
bool is_number(const struct sfs_type *type);

/* The slab that is one frame, or the whole dataset (views.c). */
struct sfs_slab view_frame_slab(const struct views *views, uint64_t frame);
struct sfs_slab view_whole_slab(const struct views *views);

/* Of a dense view: the bytes of its head (views.c). */
size_t view_head_bytes(const struct views *views, enum view_kind kind);

/* Whether a view is of dense bytes with holes where nothing is defined, and of the whole dataset.
 */
bool view_has_holes(const struct views *views, enum view_kind kind);
bool view_is_stack(enum view_kind kind);

/* Items of the CSR arrays, n from the first-th on. Errors as of sfs_read; -EIO, logged: the index
 * counts other elements than the chunks have. */
#define CSR_INDPTR_ITEM sizeof(int64_t)
size_t csr_index_item(const struct views *views);
int csr_toml(const struct views *views, struct view_head *head);
int csr_indptr(struct views *views, uint64_t first, uint64_t n, char *out);
int csr_indices(struct views *views, uint64_t first, uint64_t n, char *out);
int csr_data(struct views *views, uint64_t first, uint64_t n, char *out); /* of a sparse dataset */

/* ---- count.c: how many elements of a sparse dataset are defined ---- */

/* A frame in which something is defined. */
struct frame_count {
    uint64_t frame;
    uint64_t before; /* defined elements in the frames before it */
};

/* All of them, ascending; made once and then not changed. */
struct counts {
    size_t n;
    struct frame_count *frame; /* n, and one more whose before is the number of all */
};

/* Which of these frames is the first at or behind `frame`; n if none is. */
size_t counts_find(const struct counts *counts, uint64_t frame);

/* Counts by one walk of the index on first use; where chunks span frames, also by the selections of
 * all chunks. -EFBIG: too many frames. */
int counts_get(struct views *views, const struct counts **counts);

/* Whether count_of_frame takes a few look-ups in the index or less. */
bool count_is_cheap(struct views *views);

int count_of_frame(struct views *views, uint64_t frame, uint64_t *elements);
int count_of_all(struct views *views, uint64_t *elements);

/* Logs that a frame has other elements than its index says; -EIO. */
int count_is_wrong(const struct views *views, uint64_t frame);

void counts_free(struct counts *counts);
size_t counts_bytes(const struct counts *counts);

/* ---- defined.c: what is defined in single frames of a sparse dataset ---- */

enum defined_form { DEFINED_INTERVALS, DEFINED_ENCODED };

/* One form of it for one frame, unchanged while it is held. */
struct defined_frame {
    uint64_t frame;
    enum defined_form form;
    struct sfs_defined defined; /* DEFINED_INTERVALS */
    struct view_head encoded;   /* DEFINED_ENCODED */
    /* under the lock of the table: */
    struct defined_frame *prev, *next;
    unsigned users;
    bool is_made;   /* until then the other members are not to be looked at */
    bool is_listed; /* what failed is not: the next one tries again */
    int error;
};

void defined_init(struct views *views);
void defined_destroy(struct views *views);

/* Reads selections only, once for all who ask at the same time. Given back by defined_put, which
 * accepts NULL. Errors as of sfs_get_defined. */
int defined_get(struct views *views, uint64_t frame, enum defined_form form,
                struct defined_frame **defined);
void defined_put(struct views *views, struct defined_frame *defined);

/* dataset.json */
int json_of_dataset(struct views *views, struct view_head *head);

/* A stream whose text becomes the head when head_end closes it; NULL, -ENOMEM: no memory. */
FILE *head_begin(struct view_head *head);
int head_end(FILE *out, struct view_head *head);

#endif
