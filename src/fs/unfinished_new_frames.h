/* Fresh frames: frames that are being written for the first time, because their file was created
 * or nothing in them was defined when they were opened for writing. Commits leave them out until
 * they are closed, so that followers see a frame whole or not at all.
 *
 * The kernel reports a closed descriptor at once, but only a little later whether it was the last
 * one. A background commit waits for the last one; a requested one, whose caller may have closed
 * the file before, includes frames that were closed once since they were written. A frame is no
 * longer fresh when it is synced itself, and after MOST_COMMITS background commits. Thread-safe. */
#ifndef SPARSEFS_FS_UNFINISHED_NEW_FRAMES_H
#define SPARSEFS_FS_UNFINISHED_NEW_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/node.h"

struct fresh;
struct fresh_frame;

/* most_bytes: larger frames are never fresh. */
int fresh_create(struct nodes *nodes, size_t most_bytes, struct fresh **fresh);
void fresh_destroy(struct fresh *fresh);

/* A frame is made, or opened for writing; ended by fresh_end. *frame is NULL if it is not fresh. To
 * be called before a dataset is extended for it. fresh may be NULL: no frame is. Errors of
 * node_get_views; -ENOMEM. */
int fresh_make(struct fresh *fresh, const struct node *node, uint64_t frame,
               struct fresh_frame **out);
int fresh_open(struct fresh *fresh, const struct node *node, uint64_t frame,
               struct fresh_frame **out);

/* The rest take NULL for a frame that is not fresh. Those that return something say whether there
 * is something more to commit now. */
bool fresh_end(struct fresh *fresh, struct fresh_frame *frame);

/* It was written; then a descriptor was closed through which it was. */
void fresh_written(struct fresh *fresh, struct fresh_frame *frame);
void fresh_closed(struct fresh *fresh, struct fresh_frame *frame);

/* It is synced, or all that were closed are. */
void fresh_finish(struct fresh *fresh, struct fresh_frame *frame);
void fresh_finish_closed(struct fresh *fresh);

/* A commit by time is about to be made. */
bool fresh_age(struct fresh *fresh);

#endif
