/* A sum, and those who wait for a part of it, in their order. */
#include "hdf5/worker/large_messages.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/machine_memory.h"

#define MOST_BYTES ((uint64_t)1 << 30) /* or a quarter of the memory, if that is less */
#define ASK_NANOS  50000000            /* between two questions whether to wait on */

struct waiting {
    struct waiting *prev, *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given_back = PTHREAD_COND_INITIALIZER;
static struct waiting *all_waiting; /* under the lock, as what follows */
static uint64_t taken;

static uint64_t most_bytes(void)
{
    uint64_t memory = machine_memory();
    return memory > 0 && memory / 4 < MOST_BYTES ? memory / 4 : MOST_BYTES;
}

/* By the clock that conditions have which nobody has initialised. The lock must be held. */
static void wait_for_a_while(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_NANOS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&given_back, &lock, &until);
}

/* The lock must be held; it is dropped while it is asked. */
static int ask_unlocked(uint64_t until, int (*ask)(void *context), void *context)
{
    pthread_mutex_unlock(&lock);
    int error = ask(context);
    if (!error && clock_now() >= until)
        error = -ETIMEDOUT;
    pthread_mutex_lock(&lock);
    return error;
}

int large_take(size_t n, uint64_t until, int (*ask)(void *context), void *context)
{
    struct waiting waiting;
    uint64_t most = most_bytes();
    int error = 0;
    pthread_mutex_lock(&lock);
    DL_APPEND(all_waiting, &waiting);
    while (!error && (all_waiting != &waiting || (taken > 0 && taken + n > most))) {
        wait_for_a_while();
        error = ask_unlocked(until, ask, context);
    }
    DL_DELETE(all_waiting, &waiting);
    if (!error)
        taken += n;
    pthread_cond_broadcast(&given_back); /* the next one may have room, too */
    pthread_mutex_unlock(&lock);
    return error;
}

void large_give_back(size_t n)
{
    if (n == 0)
        return;
    pthread_mutex_lock(&lock);
    taken -= n;
    pthread_cond_broadcast(&given_back);
    pthread_mutex_unlock(&lock);
}
