/* What the files of this folder share: the numbers of the format (HDF5 file format specification,
 * "dataspace message" and "selection"), and little-endian
 * integers. */
#ifndef SPARSEFS_SELECTION_PRIVATE_H
#define SPARSEFS_SELECTION_PRIVATE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "selection/runs.h"
#include "selection/selection.h"
#include "selection/sort.h"

#define DATASPACE_MESSAGE 1 /* its number among object header messages */
#define ENCODE_VERSION    0
#define LENGTH_BYTES      8
#define PREFIX_BYTES      7
#define EXTENT_VERSION_1  1
#define EXTENT_VERSION_2  2
#define HAS_MAX_DIMS      1 /* flag: libhdf5 always sets it for simple dataspaces */
#define EXTENT_SCALAR     0 /* version 2 */
#define EXTENT_SIMPLE     1

#define SELECT_NONE       0
#define SELECT_POINTS     1
#define SELECT_HYPERSLABS 2
#define SELECT_ALL        3
#define IS_REGULAR        1     /* flag of hyperslabs */
#define SIMPLE_BYTES      16    /* of all and none */
#define ASK_EVERY         65536 /* intervals or points: whether they are still wanted */
#define POINTS_REST_BYTES                                                                          \
    8 /* what the length of a list of points of version 1 counts of its head */

/* One axis of a regular selection: count blocks, stride from start to start. */
struct regular {
    uint64_t start[SFS_MAX_RANK], stride[SFS_MAX_RANK];
    uint64_t count[SFS_MAX_RANK], block[SFS_MAX_RANK];
};

/* An extent, and what is limited by it. */
struct dataspace_extent {
    int rank;
    const uint64_t *dims;
    uint64_t stride[SFS_MAX_RANK]; /* elements between neighbours along an axis */
    uint64_t elements;
};

/* false if it has more than INT64_MAX elements. The dims must outlive it. */
bool extent_init(struct dataspace_extent *extent, int rank, const uint64_t *dims);

/* A number of 1, 2, 4 or 8 bytes. */
static inline uint64_t get_le(const unsigned char *p, int bytes)
{
    uint16_t of_2;
    uint32_t of_4;
    uint64_t of_8;
    switch (bytes) {
    case 1:
        return *p;
    case 2:
        memcpy(&of_2, p, 2);
        return le16toh(of_2);
    case 4:
        memcpy(&of_4, p, 4);
        return le32toh(of_4);
    default:
        memcpy(&of_8, p, 8);
        return le64toh(of_8);
    }
}

static inline unsigned char *put_le(unsigned char *p, uint64_t value, int bytes)
{
    uint16_t of_2 = htole16((uint16_t)value);
    uint32_t of_4 = htole32((uint32_t)value);
    uint64_t of_8 = htole64(value);
    switch (bytes) {
    case 1:
        *p = (unsigned char)value;
        break;
    case 2:
        memcpy(p, &of_2, 2);
        break;
    case 4:
        memcpy(p, &of_4, 4);
        break;
    default:
        memcpy(p, &of_8, 8);
    }
    return p + bytes;
}

/* Whether it selects something, its blocks do not overlap, and all lies in the extent. */
bool regular_is_valid(const struct dataspace_extent *extent, const struct regular *regular);

/* A regular selection that is valid, at most max_runs of runs, appended to empty runs.
 * -ENOMEM, also for more of them. */
int regular_runs(const struct dataspace_extent *extent, const struct regular *regular,
                 size_t max_runs, struct runs *runs);

/* Blocks as they are stored: for each rank starts and rank inclusive ends, of width bytes each. */
struct stored_blocks {
    const unsigned char *bytes;
    uint64_t n;
    int width;
};

/* The union of the blocks. The bytes are there; their values are checked here. -EILSEQ with why,
 * -ENOMEM. */
int block_list_runs(const struct dataspace_extent *extent, const struct stored_blocks *blocks,
                    size_t max_runs, struct runs *runs, const char **why);

#endif
