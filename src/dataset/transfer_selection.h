/* Transfers of selections that are checked first and done later. The dataset's dims must not change
 * meanwhile, and what is described by the arguments must stay. */
#ifndef SPARSEFS_DATASET_TRANSFER_SELECTION_H
#define SPARSEFS_DATASET_TRANSFER_SELECTION_H

#include <stdbool.h>

struct sfs_dataset;
struct sfs_encoded;
struct runs;
struct selection;
struct transfer;

/* Decodes a selection of a dataset's elements, which the caller frees; NULL: all. -EINVAL, which is
 * logged: it is none. */
int transfer_take_space(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                        struct selection *selection);

/* Errors of sfs_dataset_read, but what the elements themselves decide. What io, which has no slab,
 * points to outlives it. */
int transfer_open(const struct sfs_io *io, struct transfer **transfer);
void transfer_close(struct transfer *transfer); /* NULL is fine */

/* Whether it can be read, or written: the selection, the conversion, and the room in the index. */
int transfer_check_read(const struct transfer *transfer);
int transfer_check_write(const struct transfer *transfer);

/* Whether writing elements of this datatype (NULL: the dataset's) may keep members as they are found there. */
bool transfer_keeps_members(const struct sfs_dataset *dataset, const struct sfs_encoded *type);

int transfer_read(struct transfer *transfer);
int transfer_write(struct transfer *transfer);

/* Writes packed elements to positions in the dataset; takes over the runs. Errors of transfer_write. */
int transfer_write_runs(struct sfs_dataset *dataset, struct runs *runs, const void *packed);

#endif
