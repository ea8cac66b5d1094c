/* For the tests of chunk indexes: ordinary chunked datasets that libhdf5 makes, whose indexes have
 * the same structures as those of sparse datasets, and opening the index of either. */
#ifndef TESTS_UNIT_INDEX_FILES_H
#define TESTS_UNIT_INDEX_FILES_H

#include <hdf5.h>

#include "format/dataset_header.h"
#include "index/index.h"
#include "store/store.h"

#define MAX_AXES 4

struct grid {
    const char *name;
    bool filtered;
    int rank;
    hsize_t dims[MAX_AXES], max_dims[MAX_AXES], chunk_dims[MAX_AXES];
};

/* Makes a file with a dataset "x" of 32-bit integers, in the newest format that libhdf5 has, and
 * stores chunks at these scaled coordinates: positions[i * rank ...]. */
void make_dense(const char *path, const struct grid *grid, const hsize_t *positions, size_t n);

/* Address of the header of an object. */
uint64_t header_of(const char *path, const char *name);

struct opened {
    struct store *store;
    struct superblock superblock;
    struct layout_message layout;
    struct chunk_record_format format;
    struct dataspace_message dataspace;
    struct index *index;
};

/* Opens the index of a dense or sparse dataset; everything is closed again on error. */
int open_index(const char *path, uint64_t header, struct opened *opened, struct why *why);
void close_index(struct opened *opened);

#endif
