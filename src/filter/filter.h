/* Filter pipelines that we run ourselves: deflate, shuffle, fletcher32. Buffers in and out; knows
 * nothing of where the bytes come from. Thread-safe. */
#ifndef SPARSEFS_FILTER_FILTER_H
#define SPARSEFS_FILTER_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

/* Ids registered with HDF5 (H5Zpublic.h). */
#define FILTER_DEFLATE    1
#define FILTER_SHUFFLE    2
#define FILTER_FLETCHER32 3

/* Whether filter_decode can undo these filters: all of them are ours, shuffle and deflate stand
 * there at most once and in this order, and shuffle says its element size. */
bool filter_is_native(const struct sfs_filter *filters, size_t n_filters);

/* Bytes of working space that filter_decode needs to make `size` bytes. */
size_t filter_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size);

/* Undoes native filters, last to first, but not those whose bit is set in mask (HDF5 file format
 * specification, filter pipeline message and chunk B-tree). The result must be exactly `size` bytes
 * and is put in `out`; `scratch` holds filter_scratch bytes. 0; -EILSEQ: checksum or compressed
 * stream are damaged, or the sizes do not fit; -ENOMEM. */
int filter_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask, const void *in,
                  size_t in_size, void *scratch, void *out, size_t size);

/* The parts. Each takes and makes exactly the sizes given. */
int deflate_decode(const void *in, size_t in_size, void *out, size_t size);
void shuffle_decode(const void *in, void *out, size_t size, size_t element_size);
uint32_t fletcher32(const void *data, size_t size);

#endif
