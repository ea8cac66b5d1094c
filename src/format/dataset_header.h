/* All that the header of a sparse dataset says, decoded and checked against each other. */
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
};

/* Reads the header at address. Errors: -EINVAL: it is not the header of a sparse dataset (why is
 * not set); -EIO (the store failed and has logged it), -EILSEQ, -EOPNOTSUPP, of which why says what
 * and where; -ENOMEM. The caller frees what dataset points to with dataset_header_free. */
int dataset_header_read(struct store *store, const struct superblock *superblock, uint64_t address,
                        struct dataset_header *dataset, struct why *why);
void dataset_header_free(struct dataset_header *dataset);

#endif
