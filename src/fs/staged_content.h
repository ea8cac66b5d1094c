/* Bytes of a file that is written piece by piece, in memory that grows with it, and may be taken of a
 * limit (staging_limit.h). Not thread-safe. */
#ifndef SPARSEFS_FS_STAGED_CONTENT_H
#define SPARSEFS_FS_STAGED_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "view/view.h"

struct staging_limit;

struct content {
    char *bytes; /* mapped: what was never written costs no memory; NULL: there are none */
    size_t n, room;
};

/* What is new is zero. limit: it takes of this; NULL: of none, here and in what follows.
 * -EFBIG: more than any memory; -ENOSPC: more than is left of the limit; -ENOMEM. */
int content_resize(struct content *content, uint64_t n, struct staging_limit *limit);

/* There are none any more. */
void content_free(struct content *content, struct staging_limit *limit);

/* Makes it the first `size` bytes of a view, or fewer: others may have made that shorter meanwhile.
 * Errors of content_resize and view_read, after which its bytes are undefined. */
int content_take(struct content *content, struct views *views, enum view_kind view, uint64_t frame,
                 uint64_t size, struct staging_limit *limit);

/* Up to n bytes from offset on; returns how many. */
size_t content_read(const struct content *content, uint64_t offset, size_t n, void *buffer);

#endif
