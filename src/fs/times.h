/* When the frames of datasets were written in this mount: what stat(2) is to say of their views.
 * The memory that this takes is bounded: of frames that were written long ago, among very many,
 * only a time is kept that is not earlier than theirs and stands for all frames of their dataset.
 * Objects are known by their numbers (struct node). Thread-safe. */
#ifndef SPARSEFS_FS_TIMES_H
#define SPARSEFS_FS_TIMES_H

#include <stdint.h>
#include <time.h>

struct times;

int times_create(struct times **times);
void times_destroy(struct times *times);

/* The frames first to last are written now. */
void times_note(struct times *times, uint64_t object, uint64_t first, uint64_t last);

/* Raises *time to that of the last writing of a frame, or of any frame. */
#define TIMES_ANY_FRAME UINT64_MAX
void times_raise(struct times *times, uint64_t object, uint64_t frame, struct timespec *time);

#endif
