/* The header of a plain dense dataset (plain_headers.h): compact, contiguous or chunked (HDF5 file format
 * specification, sections IV.A.2.b, d, f, i, l). */
#ifndef SPARSEFS_FORMAT_PLAIN_DATASET_H
#define SPARSEFS_FORMAT_PLAIN_DATASET_H

#include "format/dataset_messages.h"
#include "format/plain_headers.h"
#include "format/plain_type.h"

/* Where chunks are. */
enum plain_chunks {
    CHUNKS_IN_OLD_TREE, /* a B-tree of version 1 (btree1_of_chunks.h) */
    CHUNKS_SINGLE,      /* there is one */
    CHUNKS_IN_A_ROW,    /* all that the max dims can have, without an index */
    CHUNKS_INDEXED,     /* in an index of the newer kinds */
};

struct plain_dataset {
    struct dataspace_message dataspace;
    struct message datatype;  /* its bytes, and no more */
    struct plain_type type;   /* owned */
    struct fill_message fill; /* its size is 0 or that of an element */
    enum sfs_layout layout;   /* compact, contiguous or chunked */
    uint64_t address; /* contiguous: of the elements; chunked: of the index or the first chunk;
                       * NO_ADDRESS: they have no place yet */
    uint64_t bytes;   /* of all elements */
    uint64_t chunk_dims[SFS_MAX_RANK];
    enum plain_chunks chunks;
    unsigned index;             /* CHUNKS_INDEXED: of enum chunk_index_kind */
    uint64_t single_bytes;      /* CHUNKS_SINGLE: as they are stored */
    bool in_array;              /* chunked: the index is a fixed or an extensible array */
    bool unfiltered_edges;      /* chunked */
    size_t n_filters;           /* chunked */
    struct sfs_filter *filters; /* owned; is_missing is not set */
};

/* Of a plain header that has a dataspace and a datatype, which must outlive *dataset. Errors as of
 * plain_headers.h. The caller frees what dataset has with plain_dataset_free. */
int plain_dataset_decode(const struct superblock *superblock, const struct object_header *header,
                         struct plain_dataset *dataset, struct why *why);
void plain_dataset_free(struct plain_dataset *dataset);

#endif
