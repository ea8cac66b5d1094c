/* HDF5 selections as bytes. Knows nothing of datasets. */
#ifndef SPARSEFS_SELECTION_SELECTION_H
#define SPARSEFS_SELECTION_SELECTION_H

#include <stddef.h>
#include <stdint.h>

/* The bytes that H5Sencode of HDF5 1.8 and 1.10 gives for a dataspace of these dims in which all is
 * selected (HDF5 file format specification, dataspace message version 1 and selection "all").
 * rank 0 is a scalar dataspace. -ENOMEM. The caller frees *encoded. */
int selection_encode_all(int rank, const uint64_t *dims, void **encoded, size_t *n);

#endif
