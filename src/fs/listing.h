/* The links of groups that are being listed: read once for all who have the same group open, by
 * whatever path, unless they have changed in between. Thread-safe. */
#ifndef SPARSEFS_FS_LISTING_H
#define SPARSEFS_FS_LISTING_H

#include "fs/node.h"
#include "sparsefs/sparsefs.h"

struct listings;

/* Its links stay as they were. */
struct listing {
    struct sfs_links links;
    unsigned removals; /* as the caller counted them when they were read, or earlier */
};

/* NULL: no memory. */
struct listings *listings_create(void);
void listings_destroy(struct listings *listings);

/* The links of a group as they are, given back by listing_put. Between this, and between changing
 * links and listings_changed, the caller sees to it that links do not change. */
int listing_get(struct listings *listings, const struct node *group, unsigned removals,
                const struct listing **listing);
void listing_put(struct listings *listings, const struct listing *listing);

/* Whether a group's links may be others by now. */
bool listing_is_old(struct listings *listings, const struct listing *listing);

/* The links of a group are others now. */
void listings_changed(struct listings *listings, const struct node *group);

#endif
