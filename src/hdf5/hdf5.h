/* What libhdf5 does for us, behind plain structs and buffers: no hid_t crosses this line and no
 * callback comes back, so that libhdf5 can move into a sandboxed process of its own.
 *
 * Objects are named by the file address of their header, opened datasets by that address too.
 * libhdf5 serves one call at a time: every function takes one lock for the whole process. Errors
 * are negative errnos; for -EIO and -EINVAL, hdf5_error() gives libhdf5's own words. */
#ifndef SPARSEFS_HDF5_HDF5_H
#define SPARSEFS_HDF5_HDF5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

struct hdf5;
struct store;

/* Why the last call of this thread failed: one line. */
const char *hdf5_error(void);

const char *hdf5_version(void);

/* Opens the HDF5 file in the store, which must outlive it. -EINVAL: not an HDF5 file, or a damaged
 * one; -EBUSY: its superblock says that it is open for writing. */
int hdf5_open(struct store *store, struct hdf5 **hdf5);
void hdf5_close(struct hdf5 *hdf5);
uint64_t hdf5_root(const struct hdf5 *hdf5);

int hdf5_list(struct hdf5 *hdf5, uint64_t group, struct sfs_links *links);
int hdf5_lookup(struct hdf5 *hdf5, uint64_t group, const char *name, struct sfs_link *link);
int hdf5_find(struct hdf5 *hdf5, uint64_t group, const char *path, uint64_t *address);
int hdf5_object_type(struct hdf5 *hdf5, uint64_t address, enum sfs_object_type *type);
int hdf5_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *attributes);

/* Where the raw data of a dataset is, besides what sfs_dataset_info says. */
struct hdf5_storage {
    uint64_t address;      /* SFS_CONTIGUOUS: of its bytes; UINT64_MAX: not allocated */
    uint64_t bytes;        /* SFS_CONTIGUOUS: allocated */
    bool unfiltered_edges; /* SFS_CHUNKED: chunks that reach over the edge are stored as they are */
};

/* Opens a dataset and describes it; hdf5_info_free frees what info points to. The dataset stays
 * open for the calls below until hdf5_dataset_close. */
int hdf5_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                      struct hdf5_storage *storage);
void hdf5_dataset_close(struct hdf5 *hdf5, uint64_t address);
void hdf5_info_free(struct sfs_dataset_info *info);

/* Describes type and fill value of a dataset that libhdf5 cannot open: the n bytes of its datatype
 * message, and an element in this datatype (NULL: all zero bytes). hdf5_info_free frees it. -EIO:
 * libhdf5 does not understand the message. */
int hdf5_describe_elements(const void *datatype_message, size_t n, const void *fill,
                           struct sfs_dataset_info *info);

/* Where the chunk that begins at element coordinates `start` is stored. */
struct hdf5_chunk {
    uint64_t address; /* UINT64_MAX: no such chunk */
    uint64_t size;    /* bytes as stored */
    uint32_t filter_mask;
};
int hdf5_locate(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                struct hdf5_chunk *chunk);

/* Reads a box of elements, in the file's datatype, through libhdf5, to the origin of a row-major
 * array of dims `memory_dims`. rank, start, count are ignored for a scalar dataspace. */
int hdf5_read(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
              const uint64_t *memory_dims, void *buffer);

/* As sfs_text. */
int hdf5_text(struct hdf5 *hdf5, uint64_t dataset, size_t limit, char **text, size_t *n);

/* Whether libhdf5 finds a filter: its own, registered, or a plugin on HDF5_PLUGIN_PATH. */
bool hdf5_filter_available(int id);

/* Undoes filters that libhdf5 finds, last to first, but not those whose bit is set in mask, on one
 * string of bytes. Their parameters are used as they are. The result must be exactly out_size
 * bytes. -EILSEQ: the bytes or the parameters are damaged, or the sizes do not fit; -EOPNOTSUPP: a
 * filter is not available; -ENOMEM; hdf5_error() says more. What makes libhdf5's own filters read
 * or write out of bounds is refused first; of plugins nothing is known. */
int hdf5_filter_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask,
                       const void *in, size_t in_size, void *out, size_t out_size);

/* Applies filters first to last. One that is optional and is not available or fails sets its bit in
 * *mask and leaves the bytes as they are. The caller frees *out, which is NULL if there are no
 * bytes: those are not filtered. -EINVAL: a filter does not take the bytes or its parameters;
 * -EOPNOTSUPP and -ENOMEM as above. */
int hdf5_filter_encode(const struct sfs_filter *filters, size_t n_filters, const void *in,
                       size_t size, void **out, size_t *out_size, uint32_t *mask);

/* The text of a committed datatype, e.g. "16-bit little-endian unsigned integer". */
int hdf5_datatype_text(struct hdf5 *hdf5, uint64_t address, char **text);

#endif
