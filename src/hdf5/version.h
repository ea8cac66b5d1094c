/* What some versions of libhdf5 have and others do not, asked for nowhere else: the rest of
 * src/hdf5 calls the interface of 1.10, which all later ones have. */
#ifndef SPARSEFS_HDF5_VERSION_H
#define SPARSEFS_HDF5_VERSION_H

#include <hdf5.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h> /* file drivers */
#endif

/* From 1.14.4 on numbers of which less than half are bits, as 12 bits in 4 bytes, are refused
 * unless the file is opened so. */
static inline herr_t version_take_all_types(hid_t fapl)
{
#if H5_VERSION_GE(1, 14, 4)
    return H5Pset_relax_file_integrity_checks(fapl, H5F_RFIC_UNUSUAL_NUM_UNUSED_NUMERIC_BITS);
#else
    (void)fapl;
    return 0;
#endif
}

#endif
