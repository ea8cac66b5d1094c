/* What was selected of frames that are stored in full: NAME_selected beside a dataset NAME, a dense
 * dataset of bytes with its dims, in which an element of such a frame is 1 if it would have been
 * defined anyway, and all others 0. Every HDF5 program reads it. */
#ifndef SPARSEFS_CLI_SELECTED_DATASET_H
#define SPARSEFS_CLI_SELECTED_DATASET_H

#include "cli/cli.h"

/* Makes it for the dataset that was, or is to be, made of `create` at a path. FAILED. */
int selected_create(struct sfs_file *file, const char *path,
                    const struct sfs_dataset_create *create, struct sfs_dataset **dataset);

/* What a thread works with. */
struct selected {
    unsigned char *ones; /* of each element of a block */
    size_t room;
    bool is_empty;
};

void selected_free(struct selected *selected);

/* Takes what was found in a block. -ENOMEM. */
int selected_take(struct selected *selected, const struct sfs_defined *found,
                  const struct sfs_slab *slab);

/* Writes those frames of the block, every full_every-th, of which something was taken. Errors of
 * sfs_write. */
int selected_write(const struct selected *selected, struct sfs_dataset *dataset,
                   const struct sfs_slab *slab, uint64_t full_every);

#endif
