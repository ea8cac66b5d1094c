/* Layouts: how the chunks of one dataset are stored. The chunk cache knows a dataset only through
 * struct layout and its callbacks, which are named as in the HDF Group's RFC "Shared Chunk Cache
 * Internal API" (2025) without the H5SC prefix. Three kinds so far, all dense:
 *
 *   chunked     chunks that libhdf5 locates and our threads read and decode
 *   contiguous  the whole dataset is one chunk, stored as it is
 *   library     pieces of what only libhdf5 can read: other filters, virtual, external, compact
 *
 * The cache form of a dense chunk is its elements in row-major order, in the file's datatype, whole
 * even where the chunk reaches over the edge of the dataset. Callbacks return 0 or a negative
 * errno and log the reason of -EIO; they are called from any thread, without locks held. */
#ifndef SPARSEFS_LAYOUT_LAYOUT_H
#define SPARSEFS_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

struct hdf5;
struct hdf5_storage;
struct store;
struct layout;

/* What lookup found. */
struct chunk_location {
    bool exists;
    uint64_t address;     /* of the stored bytes */
    uint64_t size;        /* stored bytes to read for decode; 0: decode needs none */
    uint32_t filter_mask; /* for decode */
};

struct layout_ops {
    /* Finds the chunk with these scaled coordinates. */
    int (*lookup)(struct layout *layout, const uint64_t *scaled, struct chunk_location *location);

    /* Makes the cache form, chunk_bytes long, out of the stored bytes; scratch has scratch_bytes.
     * Absent: the stored bytes are the cache form, and parts of it may be read alone. */
    int (*decode)(struct layout *layout, const uint64_t *scaled,
                  const struct chunk_location *location, const void *stored, void *scratch,
                  void *chunk);
};

struct layout {
    const struct layout_ops *ops;
    struct store *store;
    struct hdf5 *hdf5;
    const struct sfs_dataset_info *info;
    uint64_t dataset; /* address of its header */
    const char *path; /* for messages */

    /* What the RFC's layout_query gives: */
    int rank; /* 1 for a scalar dataspace */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t chunk_dims[SFS_MAX_RANK];
    size_t element_size;
    size_t chunk_bytes;
    size_t scratch_bytes;
    uint64_t data_address; /* contiguous */
    bool unfiltered_edges; /* chunked: chunks that reach over the edge are stored as they are */
};

/* Chooses the layout of a dataset whose elements have no pointers. store, hdf5, info and path must
 * outlive it. -EFBIG: a chunk does not fit in memory. */
int layout_init(struct layout *layout, struct store *store, struct hdf5 *hdf5, uint64_t dataset,
                const char *path, const struct sfs_dataset_info *info,
                const struct hdf5_storage *storage);

extern const struct layout_ops layout_chunked;
extern const struct layout_ops layout_chunked_plain; /* without filters */
extern const struct layout_ops layout_contiguous;
extern const struct layout_ops layout_library;

/* Logs that a chunk cannot be read. scaled coordinates; returns -EIO. */
int layout_failed(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                  const char *why);

#endif
