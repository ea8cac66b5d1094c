/* The node table: one entry for every path below the mount point that is in use and is a group, a
 * dataset, a committed datatype or a link, and for as many more as were used last. Their number is
 * the node part of an inode number. A node is in use as long as the kernel knows an inode of it,
 * it is held, or one below it is in the table; only then is a pointer to it good. A number
 * is given again, late, after its node was dropped. The node of a group that was removed stays, for
 * those who use it, but can no longer be found. A hard link to a group above itself becomes a
 * symbolic link, so that no walk through the mount is endless. Thread-safe. */
#ifndef SPARSEFS_FS_NODE_H
#define SPARSEFS_FS_NODE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/folder_open_files.h"
#include "sparsefs/sparsefs.h"
#include "view/view.h"

/* So many nodes that are not in use are kept, at half a kilobyte each, those of a folder at twice that, and so many
 * bytes of their names, targets and paths. */
#define NODES_UNHELD       16384
#define NODES_UNHELD_BYTES ((size_t)16 << 20)

/* Nodes that have more bytes of name and target, or path of an HDF5 file of a folder, than the first have no more of
 * them together than the second, in use or not: a small file can have any number of links with the same long target,
 * and any number of names in as many directories in each other. */
#define NODE_SHORT_TEXT  256
#define NODES_LONG_TEXTS ((size_t)512 << 20)

/* Files that external links lead to, where as many descriptors may be open as they and others need. */
#define NODES_MOST_LINKED 2048

struct nodes;

enum node_type {
    NODE_GROUP,
    NODE_DATASET,
    NODE_DATATYPE,
    NODE_SYMLINK,
    NODE_UNREADABLE, /* an object that cannot be opened: shown, and reading it is EIO */
    NODE_FOLDER,     /* a directory of the folder that is mounted, */
    NODE_PASSED,     /* and a file in it that is not HDF5 */
};

/* Bytes of what describes all datasets whose views are open in a mount (dataset_described_bytes). */
#define NODES_DESCRIBED ((size_t)512 << 20)

/* Frames of which it is noted that the kernel was told what others hold, of all datasets: of each from the first to the
 * last of them, and one more. All are looked at when anything is written. */
#define NODES_TOLD ((uint64_t)1 << 22)

/* Groups are shown so many levels below the root of their file: each is compared with those above
 * it, and longer paths than half of this Linux does not take anyway. */
#define NODE_MOST_LEVELS ((unsigned)SFS_MOST_LEVELS)

/* The constant part of a node: the only one that other files may read. */
struct node {
    uint32_t number;
    uint32_t generation; /* differs when the number is reused, and in the next mount */
    enum node_type type;
    const struct node *parent;    /* NULL: the root */
    unsigned level;               /* below the root of the file */
    struct mounted_file *mounted; /* what it is in */
    uint64_t address;             /* not of a symlink */
    /* The same for all hard links to an object, as long as one of their nodes is in the table or it
     * is kept, and never that of another; not of a symlink. */
    uint64_t object;
    /* The HDF5 link's; "" for the root. is_cut: it is longer than a file name can be, and this is how
     * it is shown. */
    const char *name;
    bool is_cut;
    char *target;        /* of a symlink; NULL: it has too many bytes to be read, */
    size_t target_bytes; /* which is how many */
    int unfollowed; /* of an external link that is shown as a symlink: why, a negative errno; or 0 */
    /* What the link leads to could not be read. That may pass: neither we nor the kernel may keep
     * it for an answer. */
    bool is_doubtful;
};

/* The file that a node is in: of a folder's only while it is used (folder_open_files.h). */
static inline struct sfs_file *node_file(const struct node *node)
{
    return node->mounted->file;
}

/* Whether it is the root group of its file. */
static inline bool node_is_top(const struct node *node)
{
    return !node->parent || (node->parent->type == NODE_FOLDER && node->type == NODE_GROUP);
}

/* Of the object that a node is: where node_file is. */
static inline uint64_t node_address(const struct node *node)
{
    return node_is_top(node) ? node->mounted->root : node->address;
}

/* Whether it is the folder's: a directory, a file or a link in it. */
static inline bool node_is_of_folder(const struct node *node)
{
    return node->type == NODE_FOLDER || (node->parent && node->parent->type == NODE_FOLDER);
}

/* external_links: follow them wherever they lead; else in the file's folder and below. frame_rank
 * as views_open has it. file must outlive the table. */
int nodes_create(struct sfs_file *file, bool external_links, int frame_rank, struct nodes **nodes);
void nodes_destroy(struct nodes *nodes);

/* The same of a folder, which its root is; the files outlive the table. */
int nodes_create_of_folder(struct mounted_files *files, const struct stat *st, int frame_rank,
                           struct nodes **nodes);

/* A name in a directory of the folder, and what it leads to. */
struct folder_entry {
    const char *name;
    enum folder_kind kind;
    const struct stat *st;
    const char *target; /* of a symbolic link */
};

/* Its node: as it was, if it is still that; the caller holds it. */
int node_folder_child(struct nodes *nodes, const struct node *directory,
                      const struct folder_entry *found, const struct node **child);

/* There is no such name any more. */
void node_folder_forget(struct nodes *nodes, const struct node *directory, const char *name);

/* The path from the folder on of something in it; the caller frees it. NULL: no memory. */
char *node_folder_path(const struct node *node);

/* Closes the idle views of a file's datasets. */
void nodes_close_views(struct nodes *nodes, const struct mounted_file *file);

/* Takes the last state of all files, which are followed; the first error. */
int nodes_refresh(struct nodes *nodes);

/* The mount ends: waits for writers of followed files end. */
void nodes_interrupt(struct nodes *nodes);

/* How many there are. */
size_t nodes_count(struct nodes *nodes);

/* By number, of an inode that the kernel knows or of a node that is held; NULL if there is none, or
 * no longer. */
const struct node *node_get(struct nodes *nodes, uint32_t number);

/* The same, also of one that was removed. */
const struct node *node_get_any(struct nodes *nodes, uint32_t number);

/* By number, of any node in the table, in use or not: the caller holds it then. NULL: there is
 * none, or no longer. */
const struct node *node_hold_any(struct nodes *nodes, uint32_t number);

/* Of a node that is in use: it stays so. */
void node_hold(struct nodes *nodes, uint32_t number);
void node_put(struct nodes *nodes, uint32_t number);

/* The kernel gets to know inodes of a node that is in use, as often as that, before it is told; and
 * does not know them any more. */
void node_looked_up(struct nodes *nodes, uint32_t number, uint64_t times);
void node_forgotten(struct nodes *nodes, uint32_t number, uint64_t times);

/* Whether what waits in memory for a node that is held is lost: its HDF5 file, of a folder, was removed or replaced
 * (is_gone), or no request comes any more to the node, or to another hard link to its object: neither by its path, nor
 * by an inode of it, or of a group above it, that the kernel knows; but a hard link to a group above it, by which the
 * kernel knows only that, is not looked for. If so, then for as long as the file is open. */
bool node_is_lost(struct nodes *nodes, const struct node *node);

/* The object of a node keeps its number: in a folder as long as the root group of its file is in
 * the table. */
void node_keep_object(struct nodes *nodes, const struct node *node);

/* The numbers of all nodes of the same object, in memory that the caller frees; returns how many: 0
 * also if there is no memory. */
size_t node_same(struct nodes *nodes, const struct node *node, uint32_t **numbers);

/* The link `name` of a group is gone: its node, below every hard link to the group, can no longer be
 * found. -ENOMEM, and nothing has changed. */
int node_remove(struct nodes *nodes, const struct node *group, const char *name);

/* The HDF5 path of a node, for messages: names that were cut are as they are shown; the caller frees it.
 * NULL: no memory. */
char *node_path(const struct node *node);

/* The same with whole names, and of the node's link its whole name alone. Names that were cut are looked
 * for in their groups: never under a lock of the table. The caller frees it. -ENOMEM, errors of sfs_list;
 * -ENOENT: the link is gone; -ENAMETOOLONG: OBJECT_NAMES_MOST_PATH, which is logged. */
int node_whole_path(const struct node *node, char **path);
int node_whole_name(const struct node *node, char **name);

/* The child of a group that a link leads to, which the caller holds then. -ENFILE: the table is
 * full. -ENOMEM: also of its long texts, which is logged. */
int node_child(struct nodes *nodes, const struct node *group, const struct sfs_link *link,
               const struct node **child);

/* The views of a dataset's node, opened on first use, kept open for a while after the last
 * node_put_views. They hold the node until then. Errors of views_open;
 * -ENOMEM: NODES_DESCRIBED, which is logged. */
int node_get_views(struct nodes *nodes, const struct node *node, struct views **views);
void node_put_views(struct nodes *nodes, const struct node *node);

/* What the kernel may have of a dataset that shows what others hold: a virtual one elements, previews their mask. */
struct node_told {
    uint32_t number;
    unsigned views;       /* bits: 1 << enum view_kind, by which it shows that */
    uint64_t times;       /* that it was told something, ever */
    uint64_t first, last; /* frames of which, since it was made to forget all; first > last: none */
};

/* In place of a number: all views that are open, of nodes of which node_is_told_open. */
#define NODE_TOLD_OPEN UINT32_MAX

/* The kernel is going to be told bytes or attributes of a view of a node whose views are in use, which are read after
 * this; frame: one that it is of, or UINT64_MAX. Notes that of views that show others. False: it does not, as that
 * would be too many frames to look at: the kernel may keep attributes for no time, and of bytes node_tell_open is to be
 * called, too, before they are read. */
bool node_tell(struct nodes *nodes, const struct node *node, enum view_kind kind, uint64_t frame);

/* The kernel may keep bytes of views of the node, of any frame, but only until they are opened again. Notes that for
 * ever. */
void node_tell_open(struct nodes *nodes, const struct node *node);
bool node_is_told_open(const struct node *node);

/* All that may show elements of a node of which it was told something and has not forgotten it, with no more than
 * NODES_TOLD frames, in memory that the caller frees; returns how many: 0 also if there is no memory. And: it has
 * forgotten that, unless it was told more since. */
size_t node_told(struct nodes *nodes, const struct node *node, struct node_told **told);
void node_forgot(struct nodes *nodes, const struct node_told *told);

/* Attributes of the object: shared with other callers, given back by node_put_attributes. */
struct node_attributes;
int node_get_attributes(struct nodes *nodes, const struct node *node,
                        struct node_attributes **attributes);
const struct sfs_attributes *node_attributes(const struct node_attributes *attributes);
void node_put_attributes(struct node_attributes *attributes);

#endif
