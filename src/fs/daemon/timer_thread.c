/* A thread that waits for a time or for its end, whichever is first. */
#include "fs/daemon/timer_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/thread.h"

struct periodic {
    unsigned seconds;
    void (*action)(void *context);
    void *context;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ending;
    bool is_ending;
};

static void *run(void *data)
{
    struct periodic *periodic = data;
    pthread_mutex_lock(&periodic->lock);
    while (!periodic->is_ending) {
        const struct timespec next = clock_in(periodic->seconds * (uint64_t)1000000000);
        while (!periodic->is_ending &&
               pthread_cond_timedwait(&periodic->ending, &periodic->lock, &next) == 0)
            ;
        bool is_ending = periodic->is_ending;
        pthread_mutex_unlock(&periodic->lock);
        if (!is_ending)
            periodic->action(periodic->context);
        pthread_mutex_lock(&periodic->lock);
    }
    pthread_mutex_unlock(&periodic->lock);
    return NULL;
}

static void free_periodic(struct periodic *periodic)
{
    pthread_cond_destroy(&periodic->ending);
    pthread_mutex_destroy(&periodic->lock);
    free(periodic);
}

int periodic_create(unsigned seconds, void (*action)(void *context), void *context,
                    struct periodic **out)
{
    struct periodic *periodic = calloc(1, sizeof(*periodic));
    if (!periodic)
        return -ENOMEM;
    periodic->seconds = seconds;
    periodic->action = action;
    periodic->context = context;
    pthread_mutex_init(&periodic->lock, NULL);
    clock_init_condition(&periodic->ending);
    int error = thread_start(&periodic->thread, run, periodic);
    if (error)
        free_periodic(periodic);
    else
        *out = periodic;
    return -error;
}

void periodic_destroy(struct periodic *periodic)
{
    if (!periodic)
        return;
    pthread_mutex_lock(&periodic->lock);
    periodic->is_ending = true;
    pthread_cond_signal(&periodic->ending);
    pthread_mutex_unlock(&periodic->lock);
    pthread_join(periodic->thread, NULL);
    free_periodic(periodic);
}
