/* A limit of what a call may return, of whoever has one: of things whose size is known only when they are all but made,
 * and can be very much larger than the file that they are made of. */
#ifndef SPARSEFS_COMMON_RESULT_LIMIT_H
#define SPARSEFS_COMMON_RESULT_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/* What this thread makes until the end may have so many bytes as `take` says; it is called before there is memory for
 * them, with all bytes of one result: what it was called with before is not wanted any more, nor anything, if it is 0.
 * They do not nest. */
void result_limit_begin(bool (*take)(void *context, size_t n), void *context);
void result_limit_end(void);

/* Before a result of n bytes is made. False: there may be none, which is -ENOMEM. True without a limit. */
bool result_limit_take(size_t n);

#endif
