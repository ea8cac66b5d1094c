/* Which inodes the kernel may know, and which look-ups are under way that will tell it of more.
 * Knows nothing of what it is told. Thread-safe. */
#ifndef SPARSEFS_FS_KERNEL_KNOWN_H
#define SPARSEFS_FS_KERNEL_KNOWN_H

#include <stdbool.h>

#include "fs/inode.h"

struct known;

/* -ENOMEM. */
int known_create(struct known **known);
void known_destroy(struct known *known);

void known_add(struct known *known, struct inode inode);

/* By one thread, from its beginning to its end. */
void known_begin_lookup(struct known *known);
void known_end_lookup(struct known *known);

/* Waits for the look-ups that run now, but not for those that begin meanwhile. */
void known_wait_for_lookups(struct known *known);

/* Whether the kernel may know an inode; and whether it may know any view of the frames of a block, of
 * KNOWN_BLOCK frames of a node: the one in which the frame of `inode` is. */
#define KNOWN_BLOCK 1024
bool known_has(struct known *known, struct inode inode);
bool known_has_block(struct known *known, struct inode inode);

#endif
