/* Threads of ours take no signals: those are for the threads of the program that we work in. */
#ifndef SPARSEFS_COMMON_THREAD_H
#define SPARSEFS_COMMON_THREAD_H

#include <pthread.h>

/* pthread_create, and like that returns 0 or a positive errno. The thread has all signals blocked
 * but those that say that it has a fault itself. */
int thread_start(pthread_t *thread, void *(*run)(void *data), void *data);

#endif
