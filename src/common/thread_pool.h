/* Threads that work for others. They start when there is something for them to do first, so that a
 * process may fork before. Thread-safe. */
#ifndef SPARSEFS_COMMON_THREAD_POOL_H
#define SPARSEFS_COMMON_THREAD_POOL_H

#include <stddef.h>

struct workers;

/* At most n threads; with 0 everything is done by the calling threads. -ENOMEM. */
int workers_create(unsigned n, struct workers **workers);

unsigned workers_number(const struct workers *workers); /* at most */

/* Waits for calls that run. No other thread may be in one of these functions; pastimes that are still wanted are
 * not called any more. */
void workers_destroy(struct workers *workers);

/* workers may be NULL. Calls each(context, i) for every i below n, in order of i, in the calling
 * thread and beside it in workers that have nothing else to do. Returns when all have returned;
 * after the first error none is called any more, and that is what is returned. Calls in workers are
 * interrupted (interrupt.h) as soon as the calling thread is, and has no call of its own left. */
int workers_each(struct workers *workers, size_t n, int (*each)(void *context, size_t i),
                 void *context);

/* What workers do that have nothing else to do: calls of run(context). */
struct pastime {
    void (*run)(void *context);
    void *context;
    unsigned wanted, running; /* calls; workers' own, as are: */
    struct pastime *prev, *next;
};

/* From now on at least n > 0 calls are wanted, each made when a worker is idle (with 0 workers none is). The pastime
 * is the caller's, and must be there until workers_cancel. */
void workers_offer(struct workers *workers, struct pastime *pastime, unsigned n);

/* No call is wanted any more, and none runs when this returns. */
void workers_cancel(struct workers *workers, struct pastime *pastime);

#endif
