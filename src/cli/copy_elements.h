/* Copying the elements of one dataset to another, block by block and by several threads, with
 * memory in proportion to a block. */
#ifndef SPARSEFS_CLI_COPY_ELEMENTS_H
#define SPARSEFS_CLI_COPY_ELEMENTS_H

#include "cli/above_and_mask.h"
#include "cli/find_defined.h"
#include "cli/roi_and_points.h"

struct copy {
    struct sfs_dataset *from, *to; /* of the same dims and datatype */
    struct undefined undefined;    /* of a sparse source besides what is undefined there */
    const struct pick *pick;
    const char *what;                /* of the progress bar; NULL: there is none */
    const struct criteria *criteria; /* NULL: there are none */
    bool is_within;                  /* one file has both */
    struct sfs_dataset *selected;    /* gets what was selected of full frames, or NULL */
};

/* On error, -EINTR after a signal, the destination has some of the elements. */
int copy_elements(const struct copy *copy);

/* Closes what was copied to (NULL: nothing). 0 if that had no error, and all that was put into it could be encoded and
 * is in the next commit; else that error, and it must not be committed. */
int copy_close(struct sfs_dataset *to, int error);

/* The same of at most so many blocks, spread evenly, without a progress bar; and of those only
 * every step-th, from number `first` on. */
int copy_some(const struct copy *copy, uint64_t most, uint64_t first, uint64_t step);

#endif
