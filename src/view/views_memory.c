#include "view/views_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "common/growing_array.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/machine_memory.h"
#include "view/view.h"

#define MOST_BYTES ((uint64_t)1 << 30)
#define SHARE      4 /* of the machine's memory, if that is less */

struct sum {
    size_t most, taken;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t given_back = PTHREAD_COND_INITIALIZER;
static struct sum kept, made, decoding; /* most: 0: not known yet */

static size_t default_most(void)
{
    uint64_t memory = machine_memory();
    return (size_t)(memory > 0 && memory / SHARE < MOST_BYTES ? memory / SHARE : MOST_BYTES);
}

/* The lock is held, here and in what follows. */
static void set_defaults(void)
{
    kept.most = kept.most ? kept.most : default_most();
    made.most = made.most ? made.most : default_most();
    decoding.most = decoding.most ? decoding.most : default_most();
}

static bool fits(const struct sum *sum, size_t most, size_t n)
{
    return sum->taken <= most && n <= most - sum->taken;
}

static bool take_if_it_fits(struct sum *sum, size_t most, size_t n)
{
    bool does = fits(sum, most, n);
    if (does)
        sum->taken += n;
    return does;
}

void views_memory_limit(size_t kept_most, size_t made_most)
{
    pthread_mutex_lock(&lock);
    kept.most = kept_most;
    made.most = made_most;
    decoding.most = made_most;
    pthread_mutex_unlock(&lock);
}

bool kept_memory_try(size_t n)
{
    pthread_mutex_lock(&lock);
    set_defaults();
    bool is_taken = take_if_it_fits(&kept, kept.most, n);
    pthread_mutex_unlock(&lock);
    return is_taken;
}

int kept_memory_refused(const struct views *views)
{
    pthread_mutex_lock(&lock);
    size_t most = kept.most;
    pthread_mutex_unlock(&lock);
    log_error("%s: %s: no memory for its tables and texts: those of all datasets take no more than "
              "%zu MiB",
              sfs_path(views->file), views->path, most >> 20);
    return -ENOMEM;
}

int kept_memory_take(const struct views *views, size_t n)
{
    return kept_memory_try(n) ? 0 : kept_memory_refused(views);
}

void kept_memory_give_back(size_t n)
{
    pthread_mutex_lock(&lock);
    kept.taken -= n;
    pthread_mutex_unlock(&lock);
}

int kept_memory_grow(const struct views *views, void **array, size_t n, size_t *room, size_t size)
{
    size_t more = *room;
    void *grown = room_for_one(*array, n, &more, size);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    int error = more > *room ? kept_memory_take(views, (more - *room) * size) : 0;
    if (!error)
        *room = more;
    return error;
}

bool kept_memory_may_stay(void)
{
    pthread_mutex_lock(&lock);
    set_defaults();
    bool may = fits(&kept, kept.most / 2, 0);
    pthread_mutex_unlock(&lock);
    return may;
}

static int take_when_it_fits(struct sum *sum, size_t n)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    set_defaults();
    while (!error && sum->taken > 0 && !fits(sum, sum->most, n))
        error = interrupt_wait(&given_back, &lock);
    if (!error)
        sum->taken += n;
    pthread_mutex_unlock(&lock);
    return error;
}

static void give_back(struct sum *sum, size_t n)
{
    pthread_mutex_lock(&lock);
    sum->taken -= n;
    pthread_cond_broadcast(&given_back);
    pthread_mutex_unlock(&lock);
}

int made_memory_take(size_t n)
{
    return take_when_it_fits(&made, n);
}

void made_memory_give_back(size_t n)
{
    give_back(&made, n);
}

int decoding_memory_take(size_t n)
{
    return take_when_it_fits(&decoding, n);
}

void decoding_memory_give_back(size_t n)
{
    give_back(&decoding, n);
}

bool made_memory_extend(size_t n)
{
    pthread_mutex_lock(&lock);
    bool is_taken = take_if_it_fits(&made, made.most, n);
    pthread_mutex_unlock(&lock);
    return is_taken;
}

bool made_memory_keep(size_t n)
{
    pthread_mutex_lock(&lock);
    set_defaults();
    bool may = take_if_it_fits(&kept, kept.most / 2, n);
    if (may) {
        made.taken -= n;
        pthread_cond_broadcast(&given_back);
    }
    pthread_mutex_unlock(&lock);
    return may;
}
