#include "common/interrupt.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/clock.h"
#include "sparsefs/sparsefs.h"

#define LOOK_NANOS 50000000 /* between two checks of a waiting thread */
#define MOST_LOOKS 40       /* of one that waits in any case: whoever is asked knows by then */
#define FEW_LOOKS  20       /* of one that does not */
#define LATE_NANOS 5000000000u

static _Thread_local struct {
    bool (*is_interrupted)(void *context);
    void *context;
    bool is_late;
    uint64_t since; /* is_late: when it was interrupted first, or 0 */
    bool was_late;
    bool is_ignored;
    uint64_t limit; /* clock_now when it is interrupted in any case, or 0 */
    bool was_limited;
} interrupt;

void sfs_set_interrupt(bool (*is_interrupted)(void *context), void *context)
{
    interrupt.is_interrupted = is_interrupted;
    interrupt.context = context;
}

static bool is_late_enough(void)
{
    uint64_t now = clock_now();
    if (interrupt.since == 0)
        interrupt.since = now;
    return now - interrupt.since > LATE_NANOS;
}

int interrupt_check(void)
{
    bool is_asked = interrupt.is_interrupted && interrupt.is_interrupted(interrupt.context);
    if (interrupt.is_ignored)
        return 0;
    bool is_over = interrupt.limit && clock_now() > interrupt.limit;
    if (!is_over && (!is_asked || (interrupt.is_late && !is_late_enough())))
        return 0;
    interrupt.was_late = interrupt.is_late;
    interrupt.was_limited |= is_over;
    return -EINTR;
}

bool interrupt_is_possible(void)
{
    return interrupt.is_interrupted != NULL || interrupt.limit;
}

void interrupt_limit_begin(uint64_t nanos)
{
    interrupt.limit = clock_now() + nanos;
    interrupt.was_limited = false;
}

bool interrupt_limit_end(void)
{
    interrupt.limit = 0;
    return interrupt.was_limited;
}

bool interrupt_late_begin(void)
{
    bool begins = !interrupt.is_late;
    if (begins)
        interrupt.since = 0;
    interrupt.is_late = true;
    return begins;
}

void interrupt_late_end(const bool *begun)
{
    if (*begun)
        interrupt.is_late = false;
}

bool interrupt_was_late(void)
{
    return interrupt.was_late;
}

bool interrupt_ignore_begin(void)
{
    bool before = interrupt.is_ignored;
    interrupt.is_ignored = true;
    return before;
}

void interrupt_ignore_end(const bool *before)
{
    interrupt.is_ignored = *before;
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

void interrupt_ask_lock(pthread_mutex_t *mutex)
{
    while (interrupt_lock(mutex) == -EINTR)
        ;
}

int interrupt_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    struct timespec time = next_look();
    (void)pthread_cond_timedwait(condition, mutex, &time);
    return interrupt_check();
}

int interrupt_wait_monotonic(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    const struct timespec time = clock_in(LOOK_NANOS);
    (void)pthread_cond_timedwait(condition, mutex, &time);
    return interrupt_check();
}

static int lock_until_interrupted(pthread_rwlock_t *lock,
                                  int (*timed)(pthread_rwlock_t *lock, const struct timespec *time))
{
    for (;;) {
        struct timespec time = next_look();
        int error = timed(lock, &time);
        if (error != ETIMEDOUT)
            return -error;
        error = interrupt_check();
        if (error)
            return error;
    }
}

int interrupt_rdlock(pthread_rwlock_t *lock)
{
    int error = pthread_rwlock_tryrdlock(lock);
    return error == EBUSY ? lock_until_interrupted(lock, pthread_rwlock_timedrdlock) : -error;
}

int interrupt_wrlock(pthread_rwlock_t *lock)
{
    int error = pthread_rwlock_trywrlock(lock);
    return error == EBUSY ? lock_until_interrupted(lock, pthread_rwlock_timedwrlock) : -error;
}

static void ask_lock(pthread_rwlock_t *lock,
                     int (*timed)(pthread_rwlock_t *lock, const struct timespec *time),
                     int (*plain)(pthread_rwlock_t *lock))
{
    for (int i = 0; i < MOST_LOOKS && interrupt.is_interrupted; i++) {
        struct timespec time = next_look();
        if (timed(lock, &time) == 0)
            return;
        (void)interrupt_check();
    }
    plain(lock);
}

void interrupt_ask_rdlock(pthread_rwlock_t *lock)
{
    if (pthread_rwlock_tryrdlock(lock) != 0)
        ask_lock(lock, pthread_rwlock_timedrdlock, pthread_rwlock_rdlock);
}

bool interrupt_try_rdlock(pthread_rwlock_t *lock)
{
    for (int i = 0; i < FEW_LOOKS; i++) {
        struct timespec time = next_look();
        if (pthread_rwlock_timedrdlock(lock, &time) == 0)
            return true;
        (void)interrupt_check();
    }
    return false;
}

void interrupt_ask_wrlock(pthread_rwlock_t *lock)
{
    if (pthread_rwlock_trywrlock(lock) != 0)
        ask_lock(lock, pthread_rwlock_timedwrlock, pthread_rwlock_wrlock);
}
