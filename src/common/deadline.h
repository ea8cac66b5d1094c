/* The time by which this thread must have done something that others wait for. */
#ifndef SPARSEFS_COMMON_DEADLINE_H
#define SPARSEFS_COMMON_DEADLINE_H

#include <stdint.h>

/* From now on until deadline_end: a time of clock_now(). They do not nest. */
void deadline_begin(uint64_t until);
void deadline_end(void);

/* To be asked before each step that may take long: -ETIMEDOUT, the time has come; 0, also where
 * there is no such time. */
int deadline_check(void);

#endif
