/* What lies in the directory of a dataset: a fixed table of names. */
#ifndef SPARSEFS_FS_DATASET_ENTRIES_H
#define SPARSEFS_FS_DATASET_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/inode.h"

/* One fixed name in the directory of a dataset or in one below it. */
struct entry_name {
    const char *name;
    unsigned entry;       /* as struct inode has it */
    enum view_kind needs; /* is there if the dataset has this view */
};

/* The fixed names in a directory (ENTRY_NODE of a dataset, ENTRY_CSR_DIR, ENTRY_ZARR_DIR, where
 * names of frames follow), ended by a NULL name; NULL for other directories. */
const struct entry_name *entry_names(unsigned directory);

/* Whether a fixed name leads to any of these kinds; dataset.json is always there. */
bool entry_is_of(const struct entry_name *name, unsigned views);

#endif
