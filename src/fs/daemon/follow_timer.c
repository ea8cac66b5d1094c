/* The thread that follows, and when it or a request has seen each file change. */
#include "fs/daemon/follow_timer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "sparsefs/sparsefs.h"

/* The part of the interval between two looks: the rest is for taking the state. */
#define LOOK_SHARE 0.9

struct followed {
    struct followed *next;
    const struct sfs_file *file;
    uint64_t states; /* sfs_states when it was asked last */
    struct timespec changed;
};

struct follow {
    struct nodes *nodes;
    double seconds;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ending;
    atomic_bool is_ending; /* also read without it */
    struct followed *files;
    int error; /* of the last look: the log says it once */
};

static void look(struct follow *follow)
{
    int error = nodes_refresh(follow->nodes);
    if (error == -EINTR) /* the mount ends */
        return;
    if (error && error != follow->error)
        log_warning("the file can no longer be followed: %s; it is tried again and again",
                    strerror(-error));
    else if (!error && follow->error)
        log_warning("the file is followed again");
    follow->error = error;
}

/* What it looks at may be much. */
static bool is_ending(void *context)
{
    struct follow *follow = context;
    return atomic_load(&follow->is_ending);
}

static void *look_regularly(void *data)
{
    struct follow *follow = data;
    sfs_set_interrupt(is_ending, follow);
    pthread_mutex_lock(&follow->lock);
    while (!follow->is_ending) {
        const struct timespec next = clock_in((uint64_t)(follow->seconds * LOOK_SHARE * 1e9));
        while (!follow->is_ending &&
               pthread_cond_timedwait(&follow->ending, &follow->lock, &next) == 0)
            ;
        bool ends = follow->is_ending;
        pthread_mutex_unlock(&follow->lock);
        if (!ends)
            look(follow);
        pthread_mutex_lock(&follow->lock);
    }
    pthread_mutex_unlock(&follow->lock);
    return NULL;
}

int follow_create(struct nodes *nodes, double seconds, struct follow **out)
{
    struct follow *follow = calloc(1, sizeof(*follow));
    if (!follow)
        return -ENOMEM;
    clock_init_condition(&follow->ending);
    pthread_mutex_init(&follow->lock, NULL);
    follow->nodes = nodes;
    follow->seconds = seconds;
    int error = thread_start(&follow->thread, look_regularly, follow);
    if (error) {
        pthread_cond_destroy(&follow->ending);
        pthread_mutex_destroy(&follow->lock);
        free(follow);
        return -error;
    }
    *out = follow;
    return 0;
}

void follow_destroy(struct follow *follow)
{
    if (!follow)
        return;
    pthread_mutex_lock(&follow->lock);
    follow->is_ending = true;
    pthread_cond_signal(&follow->ending);
    pthread_mutex_unlock(&follow->lock);
    pthread_join(follow->thread, NULL);
    pthread_cond_destroy(&follow->ending);
    pthread_mutex_destroy(&follow->lock);
    struct followed *file, *next;
    LL_FOREACH_SAFE(follow->files, file, next)
    {
        free(file);
    }
    free(follow);
}

double follow_timeout(const struct follow *follow)
{
    return follow->seconds;
}

/* The lock must be held. NULL: no memory. */
static struct followed *find_file(struct follow *follow, const struct sfs_file *file)
{
    struct followed *found;
    LL_SEARCH_SCALAR(follow->files, found, file, file);
    if (found)
        return found;
    found = calloc(1, sizeof(*found));
    if (found) {
        found->file = file;
        LL_PREPEND(follow->files, found);
    }
    return found;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* Sets *time to a nanosecond after another, if it is not later. */
static void put_after(struct timespec *time, const struct timespec *other)
{
    if (is_later(time, other))
        return;
    *time = *other;
    if (++time->tv_nsec == 1000000000) {
        time->tv_sec++;
        time->tv_nsec = 0;
    }
}

/* Each state has a time of its own: the file may be from a host whose clock is ahead, and ours may be put back. */
static void note_change(struct followed *file, const struct timespec *time)
{
    struct timespec before = file->changed;
    clock_gettime(CLOCK_REALTIME, &file->changed);
    put_after(&file->changed, &before);
    put_after(&file->changed, time);
}

void follow_raise(struct follow *follow, struct sfs_file *file, struct timespec *time)
{
    if (!follow || !file)
        return;
    pthread_mutex_lock(&follow->lock);
    struct followed *found = find_file(follow, file);
    uint64_t states = sfs_states(file);
    if (found && states != found->states) {
        found->states = states;
        note_change(found, time);
    }
    if (found && is_later(&found->changed, time))
        *time = found->changed;
    pthread_mutex_unlock(&follow->lock);
}

void follow_forget(struct follow *follow, const struct sfs_file *file)
{
    struct followed *found;
    if (!follow)
        return;
    pthread_mutex_lock(&follow->lock);
    LL_SEARCH_SCALAR(follow->files, found, file, file);
    if (found)
        LL_DELETE(follow->files, found);
    pthread_mutex_unlock(&follow->lock);
    free(found);
}
