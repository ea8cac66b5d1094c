/* Shared by the files that look for unused space (unused_space.c). */
#ifndef SPARSEFS_DATASET_UNUSED_SPACE_H
#define SPARSEFS_DATASET_UNUSED_SPACE_H

#include "dataset/private.h"
#include "format/plain_headers.h"
#include "format/plain_type.h"
#include "layout/sparse.h"

struct used {
    uint64_t address, n;
};

/* An object, or a global heap collection, that was found. */
struct found {
    uint64_t address;
    bool is_collection;
    UT_hash_handle hh;
};

struct looking {
    struct store *store;
    struct superblock superblock;
    struct found *found; /* in the order in which they were */
    struct used *used;
    size_t n, room;
    uint64_t bytes; /* that are used */
    /* Values that nobody looks at may lead into any collection: then all that there are in the file
     * are in use, and what has been one and was not written over. */
    bool all_collections;
    struct why why;
};

/* ---- unused_space.c ---- All return 0, -ENOMEM, or an error of which looking->why says more. ---- */

/* Bytes that a structure takes; also as a function of struct plain_blocks. */
int looking_add_used(void *looking, const char *name, uint64_t address, uint64_t n);

/* The same without a bound, and without saying that other structures do not have them. */
int looking_keep(struct looking *looking, uint64_t address, uint64_t n);

/* What is still to be looked at. is_new may be NULL. */
int looking_add_found(struct looking *looking, uint64_t address, bool is_collection, bool *is_new);

/* ---- unused_space_collections.c ---- */

/* Whether values of it lead into global heaps. */
bool looking_has_heap(const struct plain_type *type);

/* A global heap collection that something leads to. */
int looking_add_collection(struct looking *looking, uint64_t address);

/* All bytes of the file that could be one, by what it begins with: at most so many ranges more are in
 * use, which may overlap what is known to be. */
int looking_add_all_collections(struct looking *looking);

/* ---- unused_space_attributes.c ---- */

int looking_at_attribute(struct looking *looking, const struct message *message);
int looking_at_attribute_info(struct looking *looking, const struct message *message);

/* ---- unused_space_dense.c ---- */

int looking_at_dense(struct looking *looking, const struct object_header *header);
int looking_at_index(struct looking *looking, struct index *index);

#endif
