/* Sparse datasets as they are stored: the header and the index of one, opened and checked. */
#ifndef SPARSEFS_LAYOUT_SPARSE_H
#define SPARSEFS_LAYOUT_SPARSE_H

#include "format/dataset_header.h"
#include "index/index.h"

struct sparse {
    const struct superblock *superblock;
    struct dataset_header header;
    struct chunk_record_format format;
    struct index *index;
};

/* Opens the dataset whose header is at address; store and superblock must outlive it. -EINVAL: it is
 * not a sparse dataset. Of -EIO, -EILSEQ and -EOPNOTSUPP why says what and where; -ENOMEM. */
int sparse_open(struct store *store, const struct superblock *superblock, uint64_t address,
                struct sparse **sparse, struct why *why);
void sparse_close(struct sparse *sparse);

#endif
