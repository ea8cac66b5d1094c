/* The checksum of all HDF5 metadata: Bob Jenkins' lookup3 in its byte-string form ("hashlittle",
 * public domain) with initial value 0. */
#ifndef SPARSEFS_FORMAT_CHECKSUM_H
#define SPARSEFS_FORMAT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes, which may lie anywhere and are not read past their end. */
uint32_t checksum(const void *bytes, size_t n);

#endif
