/* Elements with parts of variable length of datasets that are not structured. For the files of
 * src/dataset, which hold the dims; thread-safe. */
#ifndef SPARSEFS_DATASET_VARIABLE_BY_LIBHDF5_H
#define SPARSEFS_DATASET_VARIABLE_BY_LIBHDF5_H

#include "dataset/private.h"

/* As sfs_read_elements. -EOPNOTSUPP also: they have references; -EIO,
 * which is logged; -EFBIG: an element has more than 128 MiB; -EINTR; -ENOMEM. */
int ordinary_read(struct sfs_dataset *dataset, const struct box *box, void **elements);

/* As sfs_write. After an error some may have been written. -EOPNOTSUPP also: libhdf5 would lose
 * some of it (hdf5_spoils), which is logged. */
int ordinary_write(struct sfs_dataset *dataset, const struct box *box, const void *elements);

/* n elements of a structured dataset, in the form of sfs_read_elements, as stored (format/variable_slots.h); the
 * caller frees *stored. -EFBIG: in more than 128 MiB; -EIO, which is logged; -EOPNOTSUPP;
 * -ENOMEM. */
int elements_as_stored(struct sfs_dataset *dataset, const void *elements, uint64_t n, char **stored,
                       size_t *stored_n);

/* Whether libhdf5 reads and writes the elements, which have parts of variable length. */
bool ordinary_is(const struct sfs_dataset *dataset);

#endif
