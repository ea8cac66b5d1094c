/* The datatype message, walked through without being understood: whether all that it is made of
 * lies in its bytes, and the bits of numbers in theirs (HDF5 file format specification, section
 * IV.A.2.d, versions 1 to 3). libhdf5 decodes it without knowing where it ends, and converts
 * elements without asking whether their bits are in them. */
#ifndef SPARSEFS_FORMAT_DATATYPE_MESSAGE_H
#define SPARSEFS_FORMAT_DATATYPE_MESSAGE_H

#include <stddef.h>

struct why;

/* -EILSEQ: it does not; why says what is wrong. Bytes behind it are no error. Any thread. */
int datatype_check(const void *message, size_t n, struct why *why);

#endif
