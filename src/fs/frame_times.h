/* When the frames of datasets were written in this mount, or what utimensat(2) has set that to: what
 * stat(2) is to say of their views. The memory that this takes is bounded: of frames that were
 * written long ago, among very many, only a time is kept that is not earlier than theirs and stands
 * for all frames of their dataset; of datasets, when 2^16 others were written since, one that stands
 * for all of those, and for few that were never written. Objects are known by their numbers (struct node). Thread-safe.
 */
#ifndef SPARSEFS_FS_FRAME_TIMES_H
#define SPARSEFS_FS_FRAME_TIMES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct times;

int times_create(struct times **times);
void times_destroy(struct times *times);

/* The frames first to last are written now. Which of the times that were set are shown still. */
enum times_kept {
    TIMES_KEEP_NONE,
    TIMES_KEEP_SET,
    TIMES_KEEP_OF_ALL /* of the views that show all of a dataset */
};
void times_note(struct times *times, uint64_t object, uint64_t first, uint64_t last,
                enum times_kept kept);

#define TIMES_ANY_FRAME UINT64_MAX /* of the views that show all of a dataset */

/* From now on this is when a frame was read and written, until it is written again. Of a frame that
 * has no times yet nothing is set when 2^18 frames have some already (those count, too, that were written
 * since among many at once), or for want of memory. */
void times_set(struct times *times, uint64_t object, uint64_t frame, const struct timespec *atime,
               const struct timespec *mtime);

/* Forgets what was set: the time of the last writing stands again. */
void times_unset(struct times *times, uint64_t object, uint64_t frame);

/* Raises st_mtim and st_atim to the last writing, or sets them to what was set. */
void times_apply(struct times *times, uint64_t object, uint64_t frame, struct stat *st);

#endif
