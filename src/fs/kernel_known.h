/* Which inodes the kernel may know, and which answers are under way that will tell it of more.
 * Knows nothing of what it is told. Thread-safe. */
#ifndef SPARSEFS_FS_KERNEL_KNOWN_H
#define SPARSEFS_FS_KERNEL_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/inode.h"

struct known;

/* What is read to be told to the kernel: attributes, or names of a directory. */
struct look {
    uint64_t changes, name_changes; /* that there were before */
    bool is_old, has_old_names;     /* as it is answered: there were more since */
    unsigned epoch;                 /* of the answer */
};

/* -ENOMEM. */
int known_create(struct known **known);
void known_destroy(struct known *known);

void known_add(struct known *known, struct inode inode);

/* Before something is read, which may take long; when it is read, and nothing is left but to answer: of what is old
 * then, the answer must let the kernel keep nothing; and after the answer. */
void known_begin_look(struct known *known, struct look *look);
void known_begin_answer(struct known *known, struct look *look);
void known_end_answer(struct known *known, const struct look *look);

/* Something has changed, before this: what was read before is old. names: those in a directory, too. */
void known_changed(struct known *known, bool names);

/* Waits for the answers that are given now, but not for those that begin meanwhile. After known_changed, and this, the
 * kernel was told all that was read before and that it may keep. Of an inode that is new to it the program that has
 * asked makes an entry only as it goes on: what it is told to forget before that it keeps, until it is told again
 * (kernel_missed.h). */
void known_wait_for_answers(struct known *known);

/* Whether the kernel may know an inode; and whether it may know any view of the frames of a block, of
 * KNOWN_BLOCK frames of a node: the one in which the frame of `inode` is. */
#define KNOWN_BLOCK 1024
bool known_has(struct known *known, struct inode inode);
bool known_has_block(struct known *known, struct inode inode);

#endif
