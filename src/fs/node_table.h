/* What the files of the node table share. */
#ifndef SPARSEFS_FS_NODE_TABLE_H
#define SPARSEFS_FS_NODE_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "fs/node.h"

struct node_key {
    uint32_t parent;
    char name[]; /* as the node has it; its NUL is not hashed */
};

struct object_key {
    const struct mounted_file *file;
    uint64_t address;
};

/* The target of hard links: a change through one of its nodes is a change of the others. */
struct object {
    UT_hash_handle hh;
    struct object_key key;
    uint64_t number;
    bool is_kept;                /* other tables have its number */
    struct entry_of_node *nodes; /* at least one, unless it is kept */
};

struct entry_of_node {
    struct node node; /* must be first */
    UT_hash_handle hh, hh_number;
    struct node_key *key;
    uint64_t holds;                                  /* the kernel's look-ups count as one */
    uint64_t lookups;                                /* of the kernel that it has not forgotten */
    uint64_t children;                               /* in the table */
    struct entry_of_node *prev_unused, *next_unused; /* in the list of those that are not used */
    atomic_bool is_kept;                             /* its object is */
    struct object *object;                           /* NULL: of a symlink, or removed */
    struct entry_of_node *prev_same, *next_same;     /* in the list of the object's nodes */
    bool is_removed;                                 /* its link is gone */
    atomic_uint_least64_t states; /* followed: the sfs_states in which its object had that type */
    struct views *views;
    bool opening;                      /* a thread is opening views, without the lock */
    unsigned users;                    /* of views */
    size_t kept_bytes;                 /* of views while they are idle */
    size_t text_bytes;                 /* of name, target, and the path of a file of a folder */
    size_t described_bytes;            /* of what describes the dataset, while views are open */
    struct entry_of_node *prev, *next; /* in the list of idle views, longest idle first */
    bool is_plane;                     /* a dataset that can be a pixel mask */
    bool is_told; /* the kernel, of what others hold, and has not forgotten it */
    struct entry_of_node *prev_told, *next_told; /* in the list of those */
    struct node_told told;
    atomic_bool is_told_open;
};

/* What was told of virtual datasets, which show elements of any, and of others, which show planes as their mask. */
enum { NODE_TOLD_OF_ANY, NODE_TOLD_OF_PLANES, NODE_TOLD_LISTS };

struct nodes {
    struct mounted_files *folder_files; /* NULL: no folder is mounted */
    bool external_links;
    int frame_rank;
    pthread_mutex_t files_lock; /* guards files, while they are opened, and n_linked */
    struct mounted_file *files; /* first: the one of the command line */
    size_t n_linked;            /* the others */
    pthread_mutex_t lock;       /* guards what follows; never held while libhdf5 works */
    pthread_cond_t opened;      /* an entry is no longer `opening` */
    struct entry_of_node *by_number;
    uint32_t next_number;
    uint32_t generation;          /* of a node with that number */
    struct entry_of_node *by_key; /* but those whose link was removed */
    struct entry_of_node *unused; /* without holds and children, unused longest first */
    unsigned n_unheld;            /* without holds, with children or not, */
    size_t unheld_bytes;          /* and of their texts */
    size_t long_texts;            /* bytes of all texts above NODE_SHORT_TEXT */
    size_t most_long_texts;       /* NODES_LONG_TEXTS */
    struct object *by_object;
    uint64_t n_objects; /* that there ever were */
    struct entry_of_node *idle;
    unsigned n_idle;
    size_t idle_bytes;
    struct entry_of_node *told[NODE_TOLD_LISTS];
    atomic_uint n_told;           /* in these lists, and told_open; may be read without the lock */
    uint64_t told_frames;         /* from the first to the last of each, and one for each */
    uint64_t most_told_frames;    /* NODES_TOLD */
    uint64_t told_open;           /* how often node_tell_open was called */
    bool is_told_open;            /* since the kernel was made to forget that */
    size_t idle_described;        /* bytes of what describes those that are idle */
    size_t described;             /* the same of all views */
    size_t most_described;        /* NODES_DESCRIBED */
    struct node_attributes *last; /* the attributes that were asked for last */
};

/* node_make.c: makes a node without a number or an object, in no table; and frees one. Its views
 * are closed: never under the lock. */
int node_new(const struct node *parent, const char *name, struct mounted_file *file,
             struct entry_of_node **out);
void node_free(struct entry_of_node *entry);

/* node_make.c: makes it a symlink, and takes the target over; NULL: -ENOMEM. */
int node_make_symlink(struct entry_of_node *entry, char *target);

/* node_make.c: by which the node of a link is found below its parent, to be freed; NULL: no memory. And
 * its bytes. */
struct node_key *node_new_key(const struct node *parent, const char *name);
size_t node_key_bytes(const struct node_key *key);

/* node_make.c: finds out what the link of a new node leads to. Without the lock. -ENOMEM, -EBUSY,
 * -ESTALE; what else cannot be read is NODE_UNREADABLE, or a symlink, and doubtful. */
int node_make(struct nodes *nodes, struct entry_of_node *entry, const struct sfs_link *link);

/* node_make.c: whether that is the type of the object that a node is. */
bool node_is_of_type(const struct node *node, enum sfs_object_type type);

/* open_linked_files.c: the file that an external link in `from` names, opened unless it is: errors of
 * sfs_open_beneath; -ENFILE: there are too many, which is logged. Takes files_lock. */
int nodes_open_linked(struct nodes *nodes, struct sfs_file *from, const char *name,
                      struct mounted_file **out);

/* node_table.c: by number, removed or not, and by key; NULL: there is none. The lock must be held,
 * here and in what follows. */
struct entry_of_node *node_find_number(struct nodes *nodes, uint32_t number);
struct entry_of_node *node_find(struct nodes *nodes, const struct node_key *key);

/* node_table.c: gives a node its number and place; it is the caller's to hold. -ENFILE, -ENOMEM. */
int node_add(struct nodes *nodes, struct entry_of_node *entry);

/* node_table.c: as node_hold. And as node_put: what is dropped then is added to *gone, which the
 * caller frees by nodes_free_gone, without the lock. */
void node_hold_locked(struct nodes *nodes, struct entry_of_node *entry);
void node_put_locked(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone);
void nodes_free_gone(struct entry_of_node *gone);

/* node_views.c: nothing that was told of it counts any more. */
void node_remove_told(struct nodes *nodes, struct entry_of_node *entry);

/* node_table.c: the link is gone: the node is found by its number only. */
void node_unlink(struct nodes *nodes, struct entry_of_node *entry);

/* node.c: a child can be found no longer, and is added to *removed; of what was removed, all that
 * nobody else holds is gone. */
void node_remove_child(struct nodes *nodes, struct entry_of_node *child,
                       struct entry_of_node **removed);
void node_put_removed(struct nodes *nodes, struct entry_of_node *removed,
                      struct entry_of_node **gone);

/* node.c: adds one that nobody else knows yet, unless there is one of its key that does
 * not give way to it: then that one is held, and *entry becomes it. The one that is left over,
 * after errors the new one, is freed. Without the lock. */
int node_add_or_free(struct nodes *nodes, struct entry_of_node **entry,
                     bool (*gives_way)(const struct node *there, const struct node *made));

/* node_folder.c: the path from the folder on of the file that is named in another one of it, as
 * libhdf5 looks for it; the caller frees it. -ENOENT: there is none in the folder; -ENOMEM. */
int node_folder_resolve(const struct mounted_file *from, const char *name, char **path);

/* node_views.c: whether views of a node are open of a dataset that is gone. And: they are no longer idle. */
bool node_views_are_gone(const struct entry_of_node *entry);
void node_remove_idle(struct nodes *nodes, struct entry_of_node *entry);

#endif
