/* Looking at followed files again and again, and what the kernel is told of that: every inode has
 * changed when its file has. The kernel keeps names for an interval, and asks for attributes each
 * time, so that no two of them are of different states; by a new time of change it knows that its
 * pages are old. */
#ifndef SPARSEFS_FS_DAEMON_FOLLOW_TIMER_H
#define SPARSEFS_FS_DAEMON_FOLLOW_TIMER_H

#include <time.h>

#include "fs/node.h"

struct follow;

/* A thread that takes the last state of all files of the mount; seconds: the longest delay between
 * a commit and its being visible. */
int follow_create(struct nodes *nodes, double seconds, struct follow **follow);
void follow_destroy(struct follow *follow); /* NULL is fine */

/* How long the kernel may keep names, in seconds. */
double follow_timeout(const struct follow *follow);

/* Raises *time to when a change of the file was seen last, which is later for each state, and later than *time was
 * then. Any thread; NULL: nothing is followed. */
void follow_raise(struct follow *follow, struct sfs_file *file, struct timespec *time);

/* A file is about to be closed. */
void follow_forget(struct follow *follow, const struct sfs_file *file);

#endif
