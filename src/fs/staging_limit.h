/* -o staging_size=: the memory that files take until what is written of them is in an HDF5 file. Temporary files,
 * removed names and files whose content is collected (staged_writes.h, staged_csr.h) take of one limit. Any thread. */
#ifndef SPARSEFS_FS_STAGING_LIMIT_H
#define SPARSEFS_FS_STAGING_LIMIT_H

#include <stdatomic.h>
#include <stddef.h>

struct staging_limit {
    size_t most; /* bytes of all, and of each */
    atomic_size_t taken;
};

void staging_limit_init(struct staging_limit *limit, size_t most);

/* -ENOSPC. */
int staging_limit_take(struct staging_limit *limit, size_t n);
void staging_limit_give_back(struct staging_limit *limit, size_t n);

#endif
