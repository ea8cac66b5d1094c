/* Sets of byte ranges, for free space and what was newly allocated. Knows no file. Not locked: the
 * store's lock guards them. Operations on one range take O(log n) time, also that of finding room. */
#ifndef SPARSEFS_STORE_EXTENTS_H
#define SPARSEFS_STORE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct extent;

/* All zeros: the empty set. Extents are disjoint and do not touch: neighbours become one. */
struct extents {
    struct extent *root;
    size_t n;             /* extents */
    uint64_t bytes;       /* of all of them */
    struct extent *spare; /* nodes for operations that must not fail */
    size_t n_spare;
    uint64_t random;
};

/* Reserves memory for the next n calls of add and cut. -ENOMEM. */
int extents_reserve(struct extents *extents, size_t n);

/* Adds a range of which no byte is in the set. Uses up to one reserved node. */
void extents_add(struct extents *extents, uint64_t start, uint64_t length);

/* Removes a range that lies in one extent. Uses up to one reserved node, none if it begins where
 * the extent begins or ends where it ends. */
void extents_cut(struct extents *extents, uint64_t start, uint64_t length);

/* The lowest extent of at least this length; false if there is none. */
bool extents_find(const struct extents *extents, uint64_t length, uint64_t *start);

/* The first extent that ends behind address; false if there is none. */
bool extents_after(const struct extents *extents, uint64_t address, uint64_t *start,
                   uint64_t *length);

/* Moves all of `from`, of which nothing is in the set, to it. Cannot fail. */
void extents_move(struct extents *extents, struct extents *from);

/* The same of the first extent of `from`, which has one. */
void extents_move_first(struct extents *extents, struct extents *from);

/* Ends the process if they are not as said above, in builds with -Dsanity=true. */
void extents_check(const struct extents *extents);

void extents_clear(struct extents *extents);

#endif
