/* New contents of N.defined on their way. A selection means something only as a whole, so what is
 * written to such a file is collected, one content per frame for all who have it open, and given to
 * the dataset when one of them who has written syncs or closes. Until then it is what reading the
 * file shows.
 *
 * A file is truncated before it is written, and a shell that runs `command > 7.defined` even closes
 * it once in between. So a content that was truncated to nothing and not written to, which erases
 * the frame, waits for an fsync or for the last one to close. The kernel tells of that soon after
 * close(2) has returned: who looks at another view of the frame then waits for it. Thread-safe. */
#ifndef SPARSEFS_FS_STAGING_H
#define SPARSEFS_FS_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/node.h"

struct staging;
struct staged;

int staging_create(struct nodes *nodes, struct staging **staging);

/* Nothing is open for writing any more. */
void staging_destroy(struct staging *staging);

/* Somebody opens the selection of a frame for writing; given back with staging_end. */
int staging_begin(struct staging *staging, const struct node *node, uint64_t frame,
                  struct staged **staged);

/* Somebody who wrote closes: applies what is staged, of the last one also a truncation to nothing.
 * *changed: the frame has changed (also of the others below). */
int staging_end(struct staging *staging, struct staged *staged, bool *changed);

/* Applies what is staged. -EINVAL: it is no selection of this frame; nothing has changed then, and
 * it is forgotten. */
int staging_apply(struct staging *staging, struct staged *staged, bool *changed);

/* A descriptor was closed, perhaps not the last one of its file. wrote: through this file something
 * was written, which is applied as above. *changed is also set if a truncation to nothing may be
 * applied soon: what is known of other views must not outlast this, so that they are asked for
 * again. */
int staging_close(struct staging *staging, struct staged *staged, bool wrote, bool *changed);

/* -EFBIG: more than any encoded selection of this frame. */
int staging_write(struct staging *staging, struct staged *staged, const void *bytes, size_t n,
                  uint64_t offset);

/* ftruncate(2), or truncate(2): applied at once if nobody has the file open for writing. by_name:
 * by who need not have, so that it is applied at once also if nothing is staged; but to nothing is
 * what opening does, too. */
int staging_truncate(struct staging *staging, const struct node *node, uint64_t frame,
                     uint64_t size, bool by_name, bool *changed);

/* Whether something is staged for the frame, and its size in bytes. */
bool staging_size(struct staging *staging, const struct node *node, uint64_t frame, uint64_t *size);

/* Up to n bytes of it into buffer, *got in all; false if nothing is staged. */
bool staging_read(struct staging *staging, const struct node *node, uint64_t frame, uint64_t offset,
                  size_t n, void *buffer, size_t *got);

/* Somebody looks at another view of a frame of a dataset, or (STAGING_ANY_FRAME) of all of it:
 * waits for those who may have closed. */
#define STAGING_ANY_FRAME UINT64_MAX
void staging_settle(struct staging *staging, const struct node *node, uint64_t frame);

#endif
