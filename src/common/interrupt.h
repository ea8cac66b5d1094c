/* Whether the thread that has made a call wants it to end early (sfs_set_interrupt). */
#ifndef SPARSEFS_COMMON_INTERRUPT_H
#define SPARSEFS_COMMON_INTERRUPT_H

#include <pthread.h>

/* To be asked now and then in the midst of long work: -EINTR, or 0. */
int interrupt_check(void);

/* Takes a mutex that others may hold for long. -EINTR: it is not taken. */
int interrupt_lock(pthread_mutex_t *mutex);

/* Waits for a condition, or some milliseconds: the caller checks again then. -EINTR. */
int interrupt_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);

#endif
