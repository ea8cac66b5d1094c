/* HDF5 selections as bytes: what H5Sencode gives, and what stands in section 0 of a sparse chunk
 * (HDF Group, RFC "File Format Changes for Enabling Sparse Storage"). Knows nothing of datasets. An
 * extent has rank 0 (a scalar) to SFS_MAX_RANK and at most INT64_MAX elements. No state: safe from
 * any thread. Decoding what is long can be ended (common/cpu_limit.h). */
#ifndef SPARSEFS_SELECTION_SELECTION_H
#define SPARSEFS_SELECTION_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "selection/runs.h"

struct selection {
    struct runs runs;
    /* The values of a selection stand in its own order: row-major for all kinds but points, whose
     * list can have any order and name an element again, in which case the later value counts. */
    uint64_t values; /* how many: runs.elements, or more if points repeat */
    uint64_t *order; /* NULL if row-major; else the value of selected element i is value order[i] */
};

void selection_free(struct selection *selection);

/* Decodes a dataspace, of all its n bytes: extent message version 1 or 2 with any max dims; NONE, ALL, points
 * version 1 and 2, hyperslabs version 1, 2 and 3. Rank and dims must be those given. Blocks may
 * overlap, but not so often that they are far more work than the runs that max_bytes allows.
 *
 * The runs take at most max_bytes; a block can be short and its runs many. What is allocated
 * besides is at most 20 n bytes and, for points out of order, 40 for each run that may be (there are no more
 * points than that; where so many runs are half of all elements there are, and take 8 for each element), or
 * four times the runs and 4 MiB, for blocks out of order. -ENOMEM, also if the runs would take more;
 * -EILSEQ, with *why naming the field that is wrong (a string constant); errors of
 * cpu_limit_check. On error *selection is empty; otherwise the caller ends with selection_free. */
int selection_decode(const struct sfs_encoded *space, int rank, const uint64_t *dims,
                     size_t max_bytes, struct selection *selection, const char **why);

/* Of a list of points that selection_decode takes those at positions in runs, in the order of the
 * list, also again, as a dataspace like the encoded one. *kept is NULL if it is another selection,
 * or none of its points is left. -ENOMEM. The caller frees *kept. */
int selection_keep_points(const struct sfs_encoded *space, int rank, const uint64_t *dims,
                          const struct runs *runs, void **kept, size_t *n_kept);

/* Rank and dims of a dataspace. -EILSEQ as above. */
int selection_extent(const struct sfs_encoded *space, int *rank, uint64_t dims[SFS_MAX_RANK],
                     const char **why);

/* What a region reference selects, which is encoded as a selection without an extent is. */
struct selection_region {
    int rank;                     /* of what is selected; 0: all or nothing, of any rank */
    bool is_empty;                /* nothing */
    uint64_t first[SFS_MAX_RANK]; /* its bounds, both in it */
    uint64_t last[SFS_MAX_RANK];
};

/* Whether n bytes encode one, whatever its extent is, and its bounds: of the lists and numbers that
 * are there, not of a dataset. -EILSEQ as above. */
int selection_region_bounds(const void *encoded, size_t n, struct selection_region *region,
                            const char **why);

/* The same as a dataspace of these dims, in which it is decoded; and back. -EILSEQ: it is none in this
 * extent; -ENOMEM as of selection_decode. The caller frees *space, *region. */
int selection_region_decode(const void *encoded, size_t n, int rank, const uint64_t *dims,
                            size_t max_bytes, void **space, size_t *space_n, const char **why);
int selection_region_encode(const struct sfs_encoded *space, size_t max_bytes, void **region,
                            size_t *n, const char **why);

enum selection_form {
    SELECTION_SMALLEST,     /* what libhdf5 1.12 and later decode */
    SELECTION_LIBHDF5_1_10, /* the smallest that libhdf5 1.10 decodes: hyperslabs version 1 or 2 */
    SELECTION_VERSION_1, /* what the prototype and H5Sencode of libhdf5 1.8 write, byte for byte */
    SELECTION_LIBHDF5_1_10_POINTS, /* as SELECTION_LIBHDF5_1_10, or points where they are fewer
                                      bytes */
};

/* Encodes runs, which lie in the extent: NONE, ALL or hyperslabs (or points, if the form says so;
 * in row-major order), in an extent message of version 1. max_dims are those of the extent,
 * SFS_UNLIMITED where there is no limit; NULL for the same as dims. (The prototype writes the max
 * dims of the dataset's own dataspace into hyperslabs made from it.) -EOVERFLOW if no version of
 * this form holds numbers this large (32 bits for lists before SELECTION_SMALLEST), -ENOMEM. The
 * caller frees *encoded. */
int selection_encode(int rank, const uint64_t *dims, const uint64_t *max_dims,
                     const struct runs *runs, enum selection_form form, void **encoded, size_t *n);

/* The same with max_dims as dims. wanted->take (NULL: any number is right) is asked of its size, with what making it
 * takes besides, before there is memory for it; false: -ENOMEM. The last time that it was asked is what counts. It can
 * be ended then (common/interrupt.h): -EINTR. */
struct selection_wanted {
    enum selection_form form;
    bool (*take)(size_t bytes);
};
int selection_encode_if(int rank, const uint64_t *dims, const struct runs *runs,
                        const struct selection_wanted *wanted, void **encoded, size_t *n);

/* The same for a dataspace in which all is selected; all forms are alike, and dims may even have a
 * product beyond INT64_MAX. -ENOMEM. */
int selection_encode_all(int rank, const uint64_t *dims, void **encoded, size_t *n);

/* SELECTION_LIBHDF5_1_10_POINTS of an extent of two dims, put together from bands of rows, each of
 * which may come from another thread: room for a list of so many points. -EOVERFLOW: it cannot be
 * one, or `take` has refused its size (NULL: any is right); -ENOMEM. The caller frees *encoded. */
int selection_points_begin(const uint64_t dims[2], uint64_t elements, bool (*take)(size_t bytes),
                           void **encoded, size_t *n);

/* Puts the points of one band; positions in runs count from the beginning of first_row, index is
 * the number of points before it. false: the list of points may not be the smallest form, because
 * the band takes less as hyperslabs, or may do so beside others; nothing is put then. */
bool selection_points_put(void *encoded, const uint64_t dims[2], uint64_t first_row, uint64_t rows,
                          const struct runs *runs, uint64_t index);

#endif
