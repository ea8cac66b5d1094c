/* csr/ as it is written: its three arrays, row by row, before frames are changed (csr_write.c). The geometry of the
 * views is looked at. Not thread-safe. */
#ifndef SPARSEFS_VIEW_CSR_FIT_H
#define SPARSEFS_VIEW_CSR_FIT_H

#include "view/points.h"

enum csr_part { CSR_INDPTR, CSR_INDICES, CSR_DATA, CSR_PARTS };

struct csr_rows {
    struct views *views;
    struct view_csr *csr;
    uint64_t extent;              /* of the views, when they were checked, */
    uint64_t changes;             /* and the sfs_dataset_changes that those parts are of which were not written */
    unsigned written;             /* parts, bits */
    const char *bytes[CSR_PARTS]; /* of each, */
    size_t size[CSR_PARTS];
    char *own[CSR_PARTS]; /* and those that are as they were */
    uint64_t n_rows, n;   /* rows, and elements of all */
    struct point *point;  /* room for the longest row */
};

/* Sets the arrays, of which those that were not written are what the dataset has, and checks that all fit each other
 * and the dataset. rows->csr->why says what differs: -EINVAL; -EAGAIN: where others may still be written. -EBUSY:
 * others write to the dataset again and again; -EFBIG: what is there is more than csr->most_kept; -ENOMEM; errors of
 * reading; -EINTR. Then, and after errors, csr_rows_free. */
int csr_rows_fit(struct csr_rows *rows);
void csr_rows_free(struct csr_rows *rows);

/* Whether nothing on which that depends has changed since. */
bool csr_rows_still_fit(const struct csr_rows *rows);

/* Bytes of an item of an array. */
size_t csr_rows_item(const struct csr_rows *rows, enum csr_part part);

/* Sets rows->point to the elements of a row as they stand there, *n of them; and whether positions ascend. -EINTR. */
int csr_rows_take(const struct csr_rows *rows, uint64_t row, uint64_t *n, bool *ascends);

#endif
