/* A thread that waits for a time or for its end, whichever is first. */
#include "fs/daemon/regular.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/thread.h"

struct regular {
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
    struct regular *regular = data;
    pthread_mutex_lock(&regular->lock);
    while (!regular->is_ending) {
        const struct timespec next = clock_in(regular->seconds * (uint64_t)1000000000);
        while (!regular->is_ending &&
               pthread_cond_timedwait(&regular->ending, &regular->lock, &next) == 0)
            ;
        bool is_ending = regular->is_ending;
        pthread_mutex_unlock(&regular->lock);
        if (!is_ending)
            regular->action(regular->context);
        pthread_mutex_lock(&regular->lock);
    }
    pthread_mutex_unlock(&regular->lock);
    return NULL;
}

static void free_regular(struct regular *regular)
{
    pthread_cond_destroy(&regular->ending);
    pthread_mutex_destroy(&regular->lock);
    free(regular);
}

int regular_create(unsigned seconds, void (*action)(void *context), void *context,
                   struct regular **out)
{
    struct regular *regular = calloc(1, sizeof(*regular));
    if (!regular)
        return -ENOMEM;
    regular->seconds = seconds;
    regular->action = action;
    regular->context = context;
    pthread_mutex_init(&regular->lock, NULL);
    clock_init_condition(&regular->ending);
    int error = thread_start(&regular->thread, run, regular);
    if (error)
        free_regular(regular);
    else
        *out = regular;
    return -error;
}

void regular_destroy(struct regular *regular)
{
    if (!regular)
        return;
    pthread_mutex_lock(&regular->lock);
    regular->is_ending = true;
    pthread_cond_signal(&regular->ending);
    pthread_mutex_unlock(&regular->lock);
    pthread_join(regular->thread, NULL);
    free_regular(regular);
}
