/* A list of batches, of which workers and the submitting thread take one index at a time; and a
 * list of pastimes, which are run when there is no batch. */
#include "common/thread_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/thread.h"
#include "sparsefs/sparsefs.h"

/* On the stack of the thread that waits for it. */
struct batch {
    struct batch *prev, *next;
    int (*each)(void *context, size_t i);
    void *context;
    size_t n, taken;
    unsigned running; /* workers that are in it */
    int error;
    atomic_bool is_interrupted; /* the submitting thread is */
};

struct workers {
    pthread_mutex_t lock; /* guards what follows, and all batches */
    pthread_cond_t given; /* a batch, or the end */
    pthread_cond_t done;  /* a worker has left a batch or a pastime */
    struct batch *batches;
    struct pastime *pastimes; /* those of which calls are wanted */
    bool ends;
    unsigned most, n, idle;
    pthread_t thread[];
};

int workers_create(unsigned n, struct workers **out)
{
    struct workers *workers = calloc(1, sizeof(*workers) + n * sizeof(*workers->thread));
    if (!workers)
        return -ENOMEM;
    workers->most = n;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->given, NULL);
    pthread_cond_init(&workers->done, NULL);
    *out = workers;
    return 0;
}

unsigned workers_number(const struct workers *workers)
{
    return workers->most;
}

void workers_destroy(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->ends = true;
    pthread_cond_broadcast(&workers->given);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->n; i++)
        pthread_join(workers->thread[i], NULL);
    pthread_cond_destroy(&workers->done);
    pthread_cond_destroy(&workers->given);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

/* With the lock held, but dropped meanwhile: works on a batch until nothing of it is left to take.
 */
static void work(struct workers *workers, struct batch *batch)
{
    while (batch->taken < batch->n && !batch->error) {
        size_t i = batch->taken++;
        pthread_mutex_unlock(&workers->lock);
        int error = batch->each(batch->context, i);
        pthread_mutex_lock(&workers->lock);
        if (error && !batch->error)
            batch->error = error;
    }
}

static struct batch *find_batch(struct workers *workers)
{
    struct batch *batch;
    DL_FOREACH (workers->batches, batch)
        if (batch->taken < batch->n && !batch->error)
            return batch;
    return NULL;
}

/* With the lock held, but dropped meanwhile: one call, of the one that has waited longest. */
static void pass_time(struct workers *workers)
{
    struct pastime *pastime = workers->pastimes;
    DL_DELETE(workers->pastimes, pastime);
    if (--pastime->wanted > 0)
        DL_APPEND(workers->pastimes, pastime);
    pastime->running++;
    pthread_mutex_unlock(&workers->lock);
    pastime->run(pastime->context);
    pthread_mutex_lock(&workers->lock);
    pastime->running--;
}

static bool is_interrupted(void *batch)
{
    return atomic_load(&((struct batch *)batch)->is_interrupted);
}

/* work, in a worker: what it calls is interrupted when the submitting thread is. */
static void help(struct workers *workers, struct batch *batch)
{
    batch->running++;
    sfs_set_interrupt(is_interrupted, batch);
    work(workers, batch);
    sfs_set_interrupt(NULL, NULL);
    batch->running--;
}

static void *run(void *data)
{
    struct workers *workers = data;
    struct batch *batch;
    thread_yield_to_waker();
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (!(batch = find_batch(workers)) && !workers->pastimes && !workers->ends) {
            workers->idle++;
            pthread_cond_wait(&workers->given, &workers->lock);
            workers->idle--;
        }
        if (batch) {
            help(workers, batch);
        } else if (!workers->ends) {
            pass_time(workers);
        } else {
            break;
        }
        pthread_cond_broadcast(&workers->done);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

/* With the lock held: one more thread, if there may be one. Without it the work is done all the
 * same. */
static void start_worker(struct workers *workers)
{
    if (workers->n < workers->most && thread_start(&workers->thread[workers->n], run, workers) == 0)
        workers->n++;
}

int workers_each(struct workers *workers, size_t n, int (*each)(void *context, size_t i),
                 void *context)
{
    struct batch batch = {.each = each, .context = context, .n = n};
    if (!workers || n < 2) {
        for (size_t i = 0; i < n && !batch.error; i++)
            batch.error = each(context, i);
        return batch.error;
    }
    pthread_mutex_lock(&workers->lock);
    DL_APPEND(workers->batches, &batch);
    if (workers->idle == 0)
        start_worker(workers);
    pthread_cond_broadcast(&workers->given);
    work(workers, &batch);
    DL_DELETE(workers->batches, &batch);
    while (batch.running > 0)
        if (interrupt_wait(&workers->done, &workers->lock) < 0)
            atomic_store(&batch.is_interrupted, true);
    pthread_mutex_unlock(&workers->lock);
    return batch.error;
}

void workers_offer(struct workers *workers, struct pastime *pastime, unsigned n)
{
    pthread_mutex_lock(&workers->lock);
    if (pastime->wanted == 0)
        DL_APPEND(workers->pastimes, pastime);
    if (pastime->wanted < n)
        pastime->wanted = n;
    if (workers->idle == 0)
        start_worker(workers);
    pthread_cond_broadcast(&workers->given);
    pthread_mutex_unlock(&workers->lock);
}

void workers_cancel(struct workers *workers, struct pastime *pastime)
{
    pthread_mutex_lock(&workers->lock);
    if (pastime->wanted > 0)
        DL_DELETE(workers->pastimes, pastime);
    pastime->wanted = 0;
    while (pastime->running > 0)
        pthread_cond_wait(&workers->done, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}
