/* Inode numbers. A number is a triple, packed; nothing is stored for it:
 *
 *   node   which group, dataset, link or committed datatype: its number in the node table, which
 *          holds one entry for every path that is in use
 *   frame  which frame of a dataset, 0 where there is none
 *   entry  which directory or view below the node
 *
 * Of a temporary file (temporary_table.h), entry ENTRY_TEMPORARY, frame is its number in their table.
 *
 * From a number one gets all three, and so the content. What one cannot get from it is the name by
 * which it was looked up: 42.raw, 000042.raw and raw/000042.raw have one number. Numbers hold for
 * as long as they are in use, and mostly for much longer (node.h). FUSE's root, 1, is the root
 * group: node 0, frame 0, ENTRY_NODE. */
#ifndef SPARSEFS_FS_INODE_H
#define SPARSEFS_FS_INODE_H

#include <stdbool.h>
#include <stdint.h>

#include "view/view.h"

enum entry {
    ENTRY_NODE = 1,   /* the node itself */
    ENTRY_GROUP_JSON, /* of a group */
    ENTRY_FRAMES,     /* directories of a dataset */
    ENTRY_RAW_DIR,
    ENTRY_NPY_DIR,
    ENTRY_TIFF_DIR,
    ENTRY_VALUES_DIR,
    ENTRY_NPZ_DIR,
    ENTRY_PNG_DIR,
    ENTRY_CBF_DIR,
    ENTRY_ZARR_DIR,
    ENTRY_CSR_DIR,
    ENTRY_CONTROL, /* .sparsefs and its files */
    ENTRY_PID,
    ENTRY_STATISTICS,
    ENTRY_LOG,
    ENTRY_CACHE_SIZE,
    ENTRY_IMAGE,
    ENTRY_VIEW, /* + enum view_kind */
};

#define INODE_ENTRY_BITS 6
#define INODE_FRAME_BITS 34
#define INODE_NODE_BITS  24

#define INODE_MAX_FRAMES ((uint64_t)1 << INODE_FRAME_BITS)
#define INODE_MAX_NODES  ((uint64_t)1 << INODE_NODE_BITS)

#define ENTRY_TEMPORARY ((1u << INODE_ENTRY_BITS) - 1)

_Static_assert(ENTRY_VIEW + VIEW_KINDS <= ENTRY_TEMPORARY, "entries fit");
_Static_assert(INODE_ENTRY_BITS + INODE_FRAME_BITS + INODE_NODE_BITS == 64, "all bits are used");

struct inode {
    uint32_t node;
    uint64_t frame;
    unsigned entry; /* an enum entry, or ENTRY_VIEW + an enum view_kind */
};

static inline uint64_t inode_pack(struct inode inode)
{
    return (uint64_t)inode.node << (INODE_FRAME_BITS + INODE_ENTRY_BITS) |
           inode.frame << INODE_ENTRY_BITS | inode.entry;
}

static inline struct inode inode_unpack(uint64_t number)
{
    return (struct inode){
        .node = (uint32_t)(number >> (INODE_FRAME_BITS + INODE_ENTRY_BITS)),
        .frame = number >> INODE_ENTRY_BITS & (INODE_MAX_FRAMES - 1),
        .entry = number & ((1 << INODE_ENTRY_BITS) - 1),
    };
}

static inline bool inode_is_view(struct inode inode)
{
    return inode.entry >= ENTRY_VIEW && inode.entry != ENTRY_TEMPORARY;
}

static inline enum view_kind inode_view(struct inode inode)
{
    return (enum view_kind)(inode.entry - ENTRY_VIEW);
}

#endif
