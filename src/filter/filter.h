/* Filter pipelines: filters that we run ourselves (the table in built_in.c), and any others through
 * libhdf5. Buffers in and out; knows nothing of where the bytes come from. Thread-safe.
 *
 * filter_...   pipelines of our own filters only, in buffers of the caller
 * filters_...  any pipeline: the one call for a section of a structured chunk */
#ifndef SPARSEFS_FILTER_FILTER_H
#define SPARSEFS_FILTER_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/filter_pipeline.h"

/* Ids registered with HDF5 (H5Zpublic.h; the HDF Group's list of registered filters). */
#define FILTER_DEFLATE    1
#define FILTER_SHUFFLE    2
#define FILTER_FLETCHER32 3
#define FILTER_SZIP       4
#define FILTER_NBIT       5
#define FILTER_SCALE      6
#define FILTER_BZIP2      307
#define FILTER_LZF        32000
#define FILTER_BLOSC      32001
#define FILTER_LZ4        32004
#define FILTER_BITSHUFFLE 32008
#define FILTER_ZSTD       32015
#define FILTER_BLOSC2     32026

/* What a registered filter is called where neither file nor library names it; "": not known. */
const char *filter_name(int id);

/* Whether filter_decode can undo these filters, and filter_encode apply them: all of them are ours
 * with their parameters. All other filter_ functions are for such pipelines. */
bool filter_is_native(const struct filter_pipeline *pipeline);

/* Whether bitshuffle is to compress by a library that this build is without: if no plugin does so,
 * it is not available, although its id is. */
bool filter_is_left_out(const struct sfs_filter *filter);

/* Whether in_size bytes can be those of any `size` bytes that went through these filters: a check of
 * sizes in damaged files, before anything is allocated for them. Always true if one of the filters is
 * not ours or has no limit to what it inflates. */
bool filter_can_make(const struct filter_pipeline *pipeline, uint64_t in_size, uint64_t size);

/* Bytes of working space that filter_decode needs to make `size` bytes; SIZE_MAX: more than there can
 * be. */
size_t filter_scratch(const struct filter_pipeline *pipeline, size_t size);

/* Undoes native filters, last to first, but not those whose bit is set in the mask (HDF5 file format
 * specification, filter pipeline message and chunk B-tree). The result must be exactly `size` bytes
 * and is put in `out`; `scratch` holds filter_scratch bytes, NULL if these are 0. 0; -EILSEQ: checksum
 * or compressed stream are damaged, or the sizes do not fit; -ENOMEM; errors of cpu_limit_check (common),
 * which is asked between filters, and within most of them. After an error `out` is undefined. */
int filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                  void *scratch, void *out, size_t size);

/* The most bytes that filter_encode makes of `size` bytes, and the working space it needs for them;
 * SIZE_MAX: more than there can be. */
size_t filter_encode_bound(const struct filter_pipeline *pipeline, size_t size);
size_t filter_encode_scratch(const struct filter_pipeline *pipeline, size_t size);

/* Applies native filters first to last, as libhdf5 does: what compresses is kept even where it is
 * larger, but for filters that fail then. Sets the mask: an optional filter that fails leaves the bytes
 * as they are. `scratch` holds filter_encode_scratch bytes; `out` has room for *out_size, at least
 * filter_encode_bound, and *out_size is then the size of the result. 0; -EINVAL: a filter that is not
 * optional does not take these bytes or its parameters, or the room is too small; -ENOMEM, also of
 * optional filters. After an error mask, *out_size and `out` are undefined. */
int filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void *scratch,
                  void *out, size_t *out_size);

/* As filter_scratch, filter_decode and filter_encode, for any filters (filters_decode and
 * filters_encode stand below). A section of no bytes is never filtered. Other filters than ours run
 * under libhdf5's lock, or in processes of their own (hdf5_start_workers), allocate what they need,
 * and may fail with these errors, too, for which hdf5_error() says more: -EOPNOTSUPP: a filter is not
 * available; filters_encode: -EINVAL: it does not take these bytes or its parameters, which is -EILSEQ
 * of filters_decode; -EIO: the process has ended. The caller frees *out of filters_encode, which is
 * NULL if size is 0; after an error there is nothing to free. */
size_t filters_scratch(const struct filter_pipeline *pipeline, size_t size);

/* Nbit and scale-offset have the number of elements among their parameters. Where that is 0, and
 * the filter is the first, all that is there is meant: what filters_encode is given, and what
 * filters_decode has to make. False: the filter is none of these, or has not all the parameters with
 * which libhdf5 completes them; else *place is where among them the number stands. */
bool filter_counts_elements(const struct sfs_filter *filter, size_t *place);

/* Bytes of memory that filters_decode takes beyond the caller's buffers: foreign filters copy input and
 * output once more; 0 for our own. */
size_t filters_besides(const struct filter_pipeline *pipeline, uint64_t in_size, size_t size);
int filters_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                   void *scratch, void *out, size_t size);
int filters_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                   size_t *out_size);

/* The i-th of the libraries that filters are made with, as sfs_filter_library. */
bool filter_library(size_t i, char *text, size_t n);

/* Lets libhdf5 use our filters where it has no plugin for them, in all of the process. */
void filters_provide(void);

/* How a filter of a dataset that is to be created like another one has to be given to libhdf5,
 * which makes parameters of a header of what it gets: without those that it adds. */
struct sfs_filter filter_to_create_with(const struct sfs_filter *filter);

/* The parts. Each makes exactly `size` bytes. deflate_decode ignores bytes behind the end of the
 * stream. 0; -EILSEQ: the stream is damaged, or is of another number of bytes; -ENOMEM. */
int deflate_decode(const void *in, size_t in_size, void *out, size_t size);
void shuffle_decode(const void *in, void *out, size_t size, size_t element_size);
void shuffle_encode(const void *in, void *out, size_t size, size_t element_size);
uint32_t fletcher32(const void *data, size_t size);

/* The most bytes that deflate_encode makes of size bytes; with as much capacity it fails only with
 * -EINVAL: no level 0 to 9, and -ENOMEM; with less also with -ENOSPC. */
size_t deflate_bound(size_t size);
int deflate_encode(unsigned level, const void *in, size_t size, void *out, size_t capacity,
                   size_t *out_size);

#endif
