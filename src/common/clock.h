/* The monotonic clock, for durations and deadlines. */
#ifndef SPARSEFS_COMMON_CLOCK_H
#define SPARSEFS_COMMON_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Nanoseconds since some time in the past. */
uint64_t clock_now(void);

/* Nanoseconds in which this thread did not run, since some time in the past: the difference of two is what it has
 * waited for a disk, a lock, or a processor. */
uint64_t clock_waited(void);

/* What it has waited since one of these was of its own will, as in pauses: it is not among the next ones. */
void clock_uncount_waited(uint64_t since);

/* Nanoseconds in which the first thread of a process could have run, but had no processor; 0 where the kernel does not
 * say (/proc/PID/schedstat). */
uint64_t clock_waited_for_processor(pid_t pid);

/* The time that so many nanoseconds from now will be, and whether it has come. */
struct timespec clock_in(uint64_t nanos);
bool clock_has_come(const struct timespec *time);

/* pthread_cond_init with the monotonic clock for timed waits. */
void clock_init_condition(pthread_cond_t *condition);

#endif
