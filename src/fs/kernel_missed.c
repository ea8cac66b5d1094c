/* When an inode was told, by hash; those that were missed once, twice, and so on, each in the order of time. */
#include "fs/kernel_missed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"

#define TOLD         (1u << 16) /* times, by hash */
#define MOST         8192       /* inodes that were missed as often */
#define SHORT_MILLIS 10000      /* from before it is read what it is told of */

/* How long after it was missed it is looked for again. */
static const uint64_t again_nanos[] = {2000000, 20000000, 200000000, 2000000000};
#define TIMES (sizeof(again_nanos) / sizeof(*again_nanos))

struct missed_queue {
    uint64_t inode[MOST], when[MOST];
    size_t first, n;
};

struct missed {
    _Atomic uint32_t told[TOLD]; /* milliseconds by clock_now, the lower bits; 0: never */
    pthread_mutex_t lock;        /* guards what follows */
    struct missed_queue queues[TIMES];
};

struct missed *missed_create(void)
{
    struct missed *missed = calloc(1, sizeof(*missed));
    if (missed)
        pthread_mutex_init(&missed->lock, NULL);
    return missed;
}

void missed_destroy(struct missed *missed)
{
    if (!missed)
        return;
    pthread_mutex_destroy(&missed->lock);
    free(missed);
}

static uint32_t now_millis(void)
{
    return (uint32_t)(clock_now() / 1000000) | 1;
}

static _Atomic uint32_t *told_at(struct missed *missed, uint64_t inode)
{
    return &missed->told[(inode * 0x9E3779B97F4A7C15u >> 32) % TOLD];
}

void missed_told(struct missed *missed, uint64_t inode)
{
    atomic_store_explicit(told_at(missed, inode), now_millis(), memory_order_relaxed);
}

static bool was_told_lately(struct missed *missed, uint64_t inode)
{
    uint32_t told = atomic_load(told_at(missed, inode));
    return told && now_millis() - told <= SHORT_MILLIS;
}

void missed_add(struct missed *missed, const struct missed_inode *inode)
{
    if (inode->times >= TIMES || (inode->times == 0 && !was_told_lately(missed, inode->inode)))
        return;
    struct missed_queue *queue = &missed->queues[inode->times];
    pthread_mutex_lock(&missed->lock);
    if (queue->n < MOST) {
        size_t last = (queue->first + queue->n++) % MOST;
        queue->inode[last] = inode->inode;
        queue->when[last] = clock_now() + again_nanos[inode->times];
    }
    pthread_mutex_unlock(&missed->lock);
}

/* The queue in which the next one is; NULL: none. The lock must be held. */
static struct missed_queue *next_queue(struct missed *missed)
{
    struct missed_queue *next = NULL;
    for (size_t i = 0; i < TIMES; i++) {
        struct missed_queue *queue = &missed->queues[i];
        if (queue->n > 0 && (!next || queue->when[queue->first] < next->when[next->first]))
            next = queue;
    }
    return next;
}

uint64_t missed_next(struct missed *missed)
{
    pthread_mutex_lock(&missed->lock);
    const struct missed_queue *queue = next_queue(missed);
    uint64_t when = queue ? queue->when[queue->first] : 0;
    pthread_mutex_unlock(&missed->lock);
    return when;
}

bool missed_take(struct missed *missed, struct missed_inode *inode)
{
    pthread_mutex_lock(&missed->lock);
    struct missed_queue *queue = next_queue(missed);
    bool has_come = queue && queue->when[queue->first] <= clock_now();
    if (has_come) {
        *inode = (struct missed_inode){queue->inode[queue->first],
                                       (unsigned)(queue - missed->queues) + 1};
        queue->first = (queue->first + 1) % MOST;
        queue->n--;
    }
    pthread_mutex_unlock(&missed->lock);
    return has_come;
}
