/* How much processor time a thread may spend on one piece of work whose amount a file decides, as
 * decoding a chunk is. */
#ifndef SPARSEFS_COMMON_CPU_LIMIT_H
#define SPARSEFS_COMMON_CPU_LIMIT_H

#include <stddef.h>

/* For all threads, from their next piece of work on. 0: no limit, as it is by default. */
void cpu_limit_set(double seconds);
double cpu_limit(void);

/* What this thread does from now on, until the end, is one piece of work. They do not nest. */
void cpu_limit_begin(void);
void cpu_limit_end(void);

/* To be asked in the midst of long work, with the bytes that were done since the last time, or are
 * to be done next. Looks only when they have become a MiB. -EINTR: it is not wanted any more
 * (interrupt.h); -ETIMEDOUT: the limit is exceeded; 0, also outside of pieces of work. */
int cpu_limit_check(size_t bytes);

#endif
