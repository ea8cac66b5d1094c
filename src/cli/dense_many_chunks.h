/* Dense, chunked datasets that commands make. */
#ifndef SPARSEFS_CLI_DENSE_MANY_CHUNKS_H
#define SPARSEFS_CLI_DENSE_MANY_CHUNKS_H

#include "cli/cli.h"

/* Gives the first two axes no limit where libhdf5 would reserve too much for the index of all
 * chunks that there may be. FAILED: there is no such index. */
int dense_limit(const char *file, const char *path, struct sfs_dataset_create *create);

#endif
