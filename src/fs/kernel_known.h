/* Which inodes the kernel may know, and which look-ups are under way that will tell it of more.
 * Knows nothing of what it is told. Thread-safe. */
#ifndef SPARSEFS_FS_KERNEL_KNOWN_H
#define SPARSEFS_FS_KERNEL_KNOWN_H

#include "fs/notify.h"
#include "fs/temporary.h"

struct known;

/* temporaries: of which some have become frames; or NULL. */
int known_create(struct nodes *nodes, struct temporaries *temporaries, struct known **known);
void known_destroy(struct known *known);

void known_add(struct known *known, struct inode inode);

/* By one thread, from its beginning to its end. */
void known_begin_lookup(struct known *known);
void known_end_lookup(struct known *known);

/* Waits for the look-ups that run now, but not for those that begin meanwhile. */
void known_wait_for_lookups(struct known *known);

/* Visits the inodes that the kernel may know and that a change concerns, except one (0: none),
 * until `visit` returns true. Returns whether it did. */
typedef bool (*known_visit_function)(void *context, struct inode inode);
bool known_visit(struct known *known, const struct change *change, uint64_t except,
                 known_visit_function visit, void *context);

/* Whether a change concerns a view, of this node or of another hard link to its dataset. */
bool change_concerns(const struct change *change, const struct node *node, struct inode inode);

#endif
