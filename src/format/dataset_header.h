/* All that the header of a sparse dataset says, decoded and checked against each other; and
 * changing it. */
#ifndef SPARSEFS_FORMAT_DATASET_HEADER_H
#define SPARSEFS_FORMAT_DATASET_HEADER_H

#include "format/dataset_messages.h"
#include "format/layout_message.h"
#include "format/section_filters.h"

struct dataset_header {
    struct object_header *header;       /* owned */
    struct dataspace_message dataspace; /* of rank 1 at least */
    struct message datatype;         /* where datatype.data is; of a committed one, in committed */
    struct object_header *committed; /* owned; NULL: the datatype stands in the header itself */
    struct fill_message fill;        /* its value lies in the header; its size is 0 or that of an
                                      * element */
    struct layout_message layout;    /* its rank is that of the dataspace, its element size that of
                                      * the datatype */
    bool filtered;                   /* some section has filters */
    struct section_filters filters;  /* owned */
    bool selection_version_1; /* it has the attribute that wants selections of version 1 in chunks
                               * that are written */
};

/* Reads the header at address. Errors: -EINVAL: it is not the header of a sparse dataset (why is
 * not set); -EIO (the store failed and has logged it), -EILSEQ, -EOPNOTSUPP, of which why says what
 * and where; -ENOMEM; and as structure_read. The caller frees what dataset points to with dataset_header_free. */
int dataset_header_read(struct store *store, const struct superblock *superblock, uint64_t address,
                        struct dataset_header *dataset, struct why *why);
void dataset_header_free(struct dataset_header *dataset);

/* ---- Writing: what is in the store, by one thread ---- */

/* Turns the header of an ordinary chunked dataset without chunks, as libhdf5 makes it, into that of
 * a sparse one: its layout message becomes this one, its filters these (NULL: none). All else stays
 * as it is. libhdf5 must not hold the old header. -EINVAL: it is no such dataset, or the layout is
 * not for its rank; -EACCES: it is not lent (store.h); else the errors of dataset_header_read, of
 * encoding the messages, and of the store. */
int dataset_header_convert(struct store *store, const struct superblock *superblock,
                           uint64_t address, const struct layout_message *layout,
                           const struct section_filters *filters, struct why *why);

/* Rewrites the layout message of a sparse dataset where it is. Errors as above. */
int dataset_header_set_layout(struct store *store, const struct superblock *superblock,
                              uint64_t address, const struct layout_message *layout,
                              struct why *why);

/* Rewrites the time of allocation that its fill value message has. -EINVAL: it has none. */
int dataset_header_set_allocation(struct store *store, const struct superblock *superblock,
                                  uint64_t address, enum sfs_allocation allocation,
                                  struct why *why);

/* Rewrites the current dims. -EINVAL: another rank, or more than the max dims. */
int dataset_header_set_dims(struct store *store, const struct superblock *superblock,
                            uint64_t address, int rank, const uint64_t *dims, struct why *why);

#endif
