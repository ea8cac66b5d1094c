#include "common/interrupt.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "sparsefs/sparsefs.h"

#define LOOK_NANOS 50000000 /* between two checks of a waiting thread */

static _Thread_local struct {
    bool (*is_interrupted)(void *context);
    void *context;
} interrupt;

void sfs_set_interrupt(bool (*is_interrupted)(void *context), void *context)
{
    interrupt.is_interrupted = is_interrupted;
    interrupt.context = context;
}

int interrupt_check(void)
{
    return interrupt.is_interrupted && interrupt.is_interrupted(interrupt.context) ? -EINTR : 0;
}

static struct timespec next_look(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += LOOK_NANOS;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

int interrupt_lock(pthread_mutex_t *mutex)
{
    for (;;) {
        struct timespec time = next_look();
        int error = pthread_mutex_timedlock(mutex, &time);
        if (error != ETIMEDOUT)
            return -error;
        error = interrupt_check();
        if (error)
            return error;
    }
}

int interrupt_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    struct timespec time = next_look();
    (void)pthread_cond_timedwait(condition, mutex, &time);
    return interrupt_check();
}
