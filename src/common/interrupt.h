/* Whether the thread that has made a call wants it to end early (sfs_set_interrupt). */
#ifndef SPARSEFS_COMMON_INTERRUPT_H
#define SPARSEFS_COMMON_INTERRUPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* To be asked now and then in the midst of long work: -EINTR, or 0. */
int interrupt_check(void);

/* Takes a mutex that others may hold for long. -EINTR: it is not taken. */
int interrupt_lock(pthread_mutex_t *mutex);

/* The same of locks that several may hold for reading. */
int interrupt_rdlock(pthread_rwlock_t *lock);
int interrupt_wrlock(pthread_rwlock_t *lock);

/* Waits for a condition that pthread_cond_init has made as it does without attributes, or some milliseconds: the caller
 * checks again then. -EINTR. */
int interrupt_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);

/* The same of a condition that clock_init_condition has made. */
int interrupt_wait_monotonic(pthread_cond_t *condition, pthread_mutex_t *mutex);

/* Take locks that others may hold for long, whatever the caller wants; but it is asked, so that it learns that this
 * takes long. */
void interrupt_ask_lock(pthread_mutex_t *mutex);
void interrupt_ask_rdlock(pthread_rwlock_t *lock);
void interrupt_ask_wrlock(pthread_rwlock_t *lock);

/* The same for about a second. false: it is not taken. */
bool interrupt_try_rdlock(pthread_rwlock_t *lock);

/* Whether this thread may be interrupted at all. */
bool interrupt_is_possible(void);

/* To the end of the block this thread is interrupted only when that has been asked for for some seconds: a change
 * that has begun is to end as a whole. In the block of another one this does nothing. */
#define INTERRUPTED_LATE()                                                                         \
    __attribute__((cleanup(interrupt_late_end), unused)) bool interrupted_late =                   \
        interrupt_late_begin()
bool interrupt_late_begin(void);
void interrupt_late_end(const bool *begun);

/* After -EINTR: whether it came in such a block, so that something may have changed. */
bool interrupt_was_late(void);

/* From now on this thread is interrupted, too, when so many nanoseconds have passed, late or not, whether anybody asks
 * for it or not. Not within another limit. */
void interrupt_limit_begin(uint64_t nanos);

/* Whether it was. */
bool interrupt_limit_end(void);

/* To the end of the block this thread is not interrupted, but asked, so that it learns that this takes long: what was
 * changed in part is undone, what was changed is looked at, or others wait for the same. */
#define UNINTERRUPTED()                                                                            \
    __attribute__((cleanup(interrupt_ignore_end), unused)) bool ignored_before =                   \
        interrupt_ignore_begin()
bool interrupt_ignore_begin(void);
void interrupt_ignore_end(const bool *before);

#endif
