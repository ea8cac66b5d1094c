/* The links of groups that are being listed, and the place of each of them in every listing of its
 * group. Thread-safe.
 *
 * A reader of a directory continues from a place, and has no other state, as directories are not
 * opened (readdir.c). For every link that exists all the time to be found exactly once, places are
 * constant while links come and go: first, by name, the links that were there before the first
 * change, at the places that they had; behind them new links, in the order in which they were
 * made. To reproduce that only the new links, and the removed ones of the former, are remembered.
 *
 * The links of a group are read once for all readers that list it at the same time, by whatever
 * path, unless they change meanwhile. Listings that are not read to the end are dropped when
 * others need the memory: there is a common limit. Those in use, which a directory that is open has
 * as long as it is, have one of their own: their number is the users', their size the file's. */
#ifndef SPARSEFS_FS_GROUP_LISTINGS_H
#define SPARSEFS_FS_GROUP_LISTINGS_H

#include "fs/node.h"
#include "sparsefs/sparsefs.h"

/* Limits for listings that nobody uses, and whose readers have not come to the end; the last one is
 * always kept. */
#define LISTINGS_MOST       256
#define LISTINGS_MOST_BYTES ((size_t)64 << 20)

#define LISTINGS_MOST_USED_BYTES ((size_t)1 << 30) /* of those in use, or less on a small machine */

struct listings;

/* It stays as it was. */
struct listing {
    struct sfs_links links; /* in the order of their places */
    uint64_t *places;       /* of each; NULL: 0, 1, 2, ... */
    unsigned removals;      /* as the caller counted them when they were read, or earlier */
};

/* Of this machine. */
size_t listings_most_used_bytes(void);

/* NULL: no memory. */
struct listings *listings_create(size_t most_used_bytes);
void listings_destroy(struct listings *listings);

/* The links of a group, given back by listing_put. begins: as they are; else those that others were
 * given before will do. During this call, and while a change is made, the caller sees to it that links
 * do not change. Errors of sfs_list; -ENOMEM, also if too many bytes are in use, which is logged. */
int listing_get(struct listings *listings, const struct node *group, unsigned removals, bool begins,
                const struct listing **listing);

/* ends: a reader has come to the end of it. */
void listing_put(struct listings *listings, const struct listing *listing, bool ends);

/* Bytes that are in use elsewhere for the same: names of a directory that is no group. -ENOMEM. */
int listings_count(struct listings *listings, size_t bytes);
void listings_uncount(struct listings *listings, size_t bytes);

/* Whether the links of the group may have changed since. */
bool listing_is_old(struct listings *listings, const struct listing *listing);

/* Drops all listings and places of a file's groups. None is in use, nor read by anybody who has it not open. */
void listings_forget_file(struct listings *listings, const struct mounted_file *file);

/* The first link at a place or behind it, links.n if there is none; and the place of one. */
size_t listing_find(const struct listing *listing, uint64_t place);
uint64_t listing_place(const struct listing *listing, size_t link);

/* A link of a group is about to be made or removed; -ENOMEM: it must not be. */
int listings_begin_change(struct listings *listings, const struct node *group, const char *name);

enum link_change {
    LINK_UNCHANGED,
    LINK_MADE,
    LINK_REMOVED,
};
void listings_end_change(struct listings *listings, const struct node *group, const char *name,
                         enum link_change change);

/* A group is gone, or at least empty. */
void listings_forget(struct listings *listings, const struct node *group);

#endif
