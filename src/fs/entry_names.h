/* What lies in the directory of a dataset: a fixed table of names. */
#ifndef SPARSEFS_FS_ENTRY_NAMES_H
#define SPARSEFS_FS_ENTRY_NAMES_H

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

/* Kinds of views that a mount shows: bits, 1 << enum view_kind. */
#define ENTRY_ALL_VIEWS ((1u << VIEW_KINDS) - 1)

/* Views that are shown only if they are asked for (views=): a program that copies a tree reads all
 * that are shown. */
#define ENTRY_ASKED_VIEWS                                                                          \
    (1u << VIEW_STACK_TIFF | 1u << VIEW_PNG | 1u << VIEW_CBF | 1u << VIEW_CSV | 1u << VIEW_CHUNK | \
     1u << VIEW_ZARRAY | 1u << VIEW_ZATTRS)
#define ENTRY_DEFAULT_VIEWS (ENTRY_ALL_VIEWS & ~ENTRY_ASKED_VIEWS)

/* The kinds that a word stands for ("raw", "stack", ..., "default", "all"); 0: it is none. */
unsigned entry_views(const char *word, size_t n);

/* Whether a fixed name leads to any of these kinds; dataset.json is always there. */
bool entry_is_of(const struct entry_name *name, unsigned views);

#endif
