/* Our threads block all signals, which are for the threads of the program. And thread-specific
 * data, also of threads that others have started. */
#ifndef SPARSEFS_COMMON_THREAD_H
#define SPARSEFS_COMMON_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* pthread_create, and like that returns 0 or a positive errno. The thread has all signals blocked
 * but those that say that it has a fault itself. */
int thread_start(pthread_t *thread, void *(*run)(void *data), void *data);

/* A lock that prefers writers: readers that come without a pause would keep them out. It is not taken
 * for reading again by who has it. Returns 0 or a negative errno. */
int thread_init_lock(pthread_rwlock_t *lock);

/* The calling thread, when it is woken, does not preempt the thread that wakes it (SCHED_BATCH); its
 * share of the processors stays. If that is not possible, or the process has another scheduling
 * policy than the default one, nothing is changed. */
void thread_yield_to_waker(void);

/* Processors that are online, at least 1. */
unsigned thread_processors(void);

/* Something that every thread has one of: static, with the first two members set, others zero. */
struct own {
    size_t size;              /* bytes */
    void (*end)(void *of_it); /* for what it holds, when the thread ends; it is freed then */
    atomic_bool has_key;
    pthread_key_t key;
};

/* This thread's; zeros at first. NULL: no memory. Ends the process if that has no more keys (pthread_key_create),
 * which it would be out of at the first use. */
void *own_get(struct own *own);

#endif
