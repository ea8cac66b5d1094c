/* What structured chunks store for a reference (HDF Group, "Shared Chunk Cache", "Encoded Format of
 * Variable Length Data": references are stored as sequences are): what stands for it in an ordinary
 * file, wherever that is. Nothing, of one that leads nowhere; of an object its address; of a region
 * what its object in a global heap has: the address of the dataset, and the selection (HDF5 File
 * Format Specification, "Global Heap Object for Dataset Region References"). */
#ifndef SPARSEFS_FORMAT_REFERENCE_H
#define SPARSEFS_FORMAT_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

#define REFERENCE_ADDRESS_BYTES 8

/* Whether so many bytes may be one. */
bool reference_may_have(enum sfs_reference reference, uint64_t n);

/* The address in such bytes; of none 0, which leads nowhere. */
uint64_t reference_address(const void *stored, size_t n);

/* Puts another one there, of which n bytes are left: none if it leads nowhere. */
size_t reference_set_address(void *stored, size_t n, uint64_t address);

#endif
