/* The version 2 B-tree: what reading and writing it share. */
#ifndef SPARSEFS_INDEX_BTREE2_H
#define SPARSEFS_INDEX_BTREE2_H

#include "index/private.h"

#define BTREE2_HEADER     "version 2 B-tree header"
#define BTREE2_FIRST_TYPE 10 /* of records of chunk indexes */
#define NODE_BEGIN        INDEX_BEGIN_BYTES
#define NODE_OVERHEAD     (NODE_BEGIN + CHECKSUM_BYTES)
#define MOST_DEPTH        32

extern const struct block_kind btree2_header_kind;

/* What nodes of one depth can hold; leaves have depth 0. */
struct level {
    uint64_t max_records;   /* in a node */
    uint64_t max_total;     /* in and under a node */
    unsigned pointer_bytes; /* of a pointer to a child */
    unsigned total_bytes; /* in a pointer to a node of this depth: width of the total; leaves: 0 */
};

struct node_pointer {
    uint64_t address; /* NO_ADDRESS: an empty tree */
    uint64_t n;       /* records in the node */
    uint64_t total;   /* records in and under it */
    unsigned depth;   /* of the node; leaves have 0 */
};

struct btree2 {
    uint64_t node_bytes;
    size_t record;          /* bytes of one */
    unsigned split_percent; /* of the most records of a node: when to split it, */
    unsigned merge_percent; /* and when to merge it with others */
    unsigned count_bytes;   /* width of the number of records of a node in pointers */
    struct level level[MOST_DEPTH + 1];
    struct node_pointer root;
    struct block *root_block; /* NULL: an empty tree */
    unsigned char *scratch;   /* for moving records between nodes; NULL before the first time */
};

size_t btree2_header_bytes(const struct superblock *superblock);

const struct block_kind *btree2_node_kind(unsigned depth);

/* Sets the levels up to a depth. */
int btree2_derive(const struct index *index, struct btree2 *tree, unsigned depth, struct why *why);

/* Bytes of a node that are used, the checksum at their end included. */
uint64_t btree2_summed(const struct btree2 *tree, const struct node_pointer *pointer);

/* The first record of the node that is not before scaled; n if there is none. */
uint64_t btree2_search(const struct index *index, const struct block *node, uint64_t n,
                       const uint64_t *scaled, bool *equal);

/* The pointer to child i of a node, which `pointer` points to. */
int btree2_read_pointer(const struct index *index, const struct block *node,
                        const struct node_pointer *pointer, uint64_t i, struct node_pointer *child,
                        struct why *why);

/* The node that pointer points to, checked; the caller ends its use with block_put. */
int btree2_get_node(struct index *index, const struct node_pointer *pointer, struct block **node,
                    struct why *why);

/* ---- Writing ---- */

int btree2_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                  struct why *why);
int btree2_make_header(struct index *index, struct why *why);
int btree2_remove(struct index *index, const uint64_t *scaled, struct why *why);
void btree2_encode_header(const struct index *index, struct output *output);

#endif
