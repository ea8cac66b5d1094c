/* References in elements of sparse datasets (format/reference.h). For the files of src/dataset;
 * thread-safe. */
#ifndef SPARSEFS_DATASET_REFERENCES_H
#define SPARSEFS_DATASET_REFERENCES_H

#include "common/why.h"
#include "dataset/private.h"

/* Whether elements of a dataset have such. */
bool references_are_in(const struct sfs_dataset *dataset);

/* Whether the references in n bytes that are stored for a slot can be what they are to be; where they
 * lead to is not looked at. -EILSEQ: why says what is wrong. */
int references_check(const struct slots *base, const void *stored, size_t n, struct why *why);

/* The same of elements that are given. -EINVAL, which is logged. */
int references_check_given(const struct sfs_dataset *dataset, const void *elements, uint64_t n);

/* A line for each of n references (SFS_MOST_PARTS at most) of a dataset: where it leads to, as
 * sfs_read_parts says it. Errors are logged; -EFBIG: more than `most` bytes. */
int references_lines(struct sfs_dataset *dataset, const struct sfs_sequence *references, size_t n,
                     size_t most, char **lines, size_t *lines_n);

/* Puts text in place of each reference in n elements in memory, and in what they lead to: where it leads to,
 * as references_lines, but without escapes; no bytes: nowhere. The elements lead to *text then, which the
 * caller frees after them. Errors as of references_lines, of all of the text. */
int references_to_text(struct sfs_dataset *dataset, void *elements, uint64_t n, size_t most,
                       char **text);

/* As sfs_references_copy, of the elements of two datasets of such. */
int references_copy(struct sfs_dataset *to, struct sfs_dataset *from, const struct sfs_moved *moved,
                    size_t n);

#endif
