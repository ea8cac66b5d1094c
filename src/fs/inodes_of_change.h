/* What a change of a dataset or a group concerns: frames, views, and the inodes that show them. */
#ifndef SPARSEFS_FS_INODES_OF_CHANGE_H
#define SPARSEFS_FS_INODES_OF_CHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/inode.h"
#include "fs/node.h"

struct known;
struct temporaries;

/* The kinds of views that show what frames hold. */
#define CHANGED_VIEWS ((1u << VIEW_KINDS) - 1)

/* What has changed. Of a group: the names in it, and no frames. */
struct change {
    const struct node *node; /* a dataset or a group; hard links to it are meant, too */
    uint64_t first, last;    /* frames whose views show something else now; first > last: none */
    unsigned views;       /* bits: 1 << enum view_kind of those views, also of the whole dataset */
    bool names;           /* the directories of the frames have more names */
    bool only_attributes; /* times: bytes, names and sizes are as they were */
};

/* All views of the frames first to last of a dataset, and of all of it. */
struct change change_of_frames(const struct node *node, uint64_t first, uint64_t last);

/* The same of a dataset that had so many frames before: if it has more, of the new ones before `first`, too,
 * and of the names. */
struct change change_since(const struct node *node, struct views *views, uint64_t frames,
                           uint64_t first, uint64_t last);

/* Whether a change concerns a view, of this node or of another hard link to its dataset. */
bool change_concerns(const struct change *change, const struct node *node, struct inode inode);

/* Where inodes are looked for. temporaries: of which some have become frames; or NULL. */
struct change_inodes {
    struct nodes *nodes;
    struct temporaries *temporaries;
    struct known *known;
    atomic_bool are_unmounted; /* the kernel knows none any more: visiting them ends */
};

/* Visits the inodes that the kernel may know and that a change concerns, except one (0: none),
 * until `visit` returns true, or they are unmounted. Returns whether it ended so. Thread-safe. */
typedef bool (*change_visit_function)(void *context, struct inode inode);
bool change_visit(const struct change *change, const struct change_inodes *inodes, uint64_t except,
                  change_visit_function visit, void *context);

/* If elements have changed, the same of all other datasets that may show them, of which the kernel was told something
 * since they were visited last without ending that. None of these views can be written. */
bool change_visit_others(const struct change *change, const struct change_inodes *inodes,
                         change_visit_function visit, void *context);

#endif
