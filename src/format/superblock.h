/* The superblock: what stands at the beginning of an HDF5 file (HDF5 file format specification,
 * section II.A). Bytes in, values out; knows nothing of where they come from. */
#ifndef SPARSEFS_FORMAT_SUPERBLOCK_H
#define SPARSEFS_FORMAT_SUPERBLOCK_H

#include <stddef.h>

#define SUPERBLOCK_BYTES 12 /* of it that superblock_is_marked looks at */

/* Whether these first bytes of a superblock carry the mark of a program that has the file open for
 * writing, or had when it died. Only version 3 has such a mark. */
int superblock_is_marked(const unsigned char bytes[SUPERBLOCK_BYTES]);

#endif
