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

/* The CSR arrays of a dense dataset. */
#define CSR_INDPTR_ITEM sizeof(int64_t)
size_t csr_index_item(const struct views *views);
int csr_toml(const struct views *views, struct view_head *head);
void csr_indptr(const struct views *views, uint64_t first, size_t n, int64_t *out);
void csr_indices(const struct views *views, uint64_t first, size_t n, void *out);

/* dataset.json */
int json_of_dataset(const struct views *views, struct view_head *head);

/* A stream whose text becomes the head when head_end closes it; NULL, -ENOMEM: no memory. */
FILE *head_begin(struct view_head *head);
int head_end(FILE *out, struct view_head *head);

#endif
