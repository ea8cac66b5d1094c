/* Inodes that the kernel did not have yet when it was told to forget what it knows of them. It makes one only as the
 * program goes on that has looked it up, from an answer that may be older than the change. So of an inode that was
 * answered a short while ago, and was not there, the attributes are to be forgotten again, a few times: until it is
 * there, or for some seconds. Thread-safe. */
#ifndef SPARSEFS_FS_KERNEL_MISSED_H
#define SPARSEFS_FS_KERNEL_MISSED_H

#include <stdbool.h>
#include <stdint.h>

struct missed;

/* An inode, and how often it was missed before. */
struct missed_inode {
    uint64_t inode;
    unsigned times;
};

/* NULL: no memory. */
struct missed *missed_create(void);
void missed_destroy(struct missed *missed);

/* The kernel is about to be told of an inode. */
void missed_told(struct missed *missed, uint64_t inode);

/* It had none as it was to forget it; times: 0, or those that missed_take said and one more. If it was told of it a
 * short while ago, it is kept to be taken later. Of very many at once the rest is not kept. */
void missed_add(struct missed *missed, const struct missed_inode *inode);

/* Nanoseconds by clock_now at which there is one to take; 0: never. And takes one; false: there is none now. */
uint64_t missed_next(struct missed *missed);
bool missed_take(struct missed *missed, struct missed_inode *inode);

#endif
