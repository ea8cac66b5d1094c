/* How often each chunk has ended a process; those that were told last are known. */
#include "hdf5/worker/chunks_given_up.h"

#include <pthread.h>

#include "common/hash.h"

#define MOST_STRIKES 2 /* times that a chunk may end one; or once, by taking too long */
#define STRIKES_KEPT 64

/* A chunk that has ended a process. */
struct strike {
    uint64_t number;
    unsigned n;
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct strike strikes[STRIKES_KEPT];
    size_t n, next;
} ended = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With a secret: nobody who knows a chunk of another file can make one of the same number. */
uint64_t plugin_chunk_number(const struct filter_pipeline *pipeline, const void *bytes, size_t n)
{
    uint64_t number = hash_keyed(bytes, n);
    for (size_t i = 0; i < pipeline->n; i++) {
        const struct sfs_filter *filter = &pipeline->filters[i];
        const uint64_t parts[] = {
            number, (uint64_t)filter->id,
            hash_keyed(filter->values, filter->n_values * sizeof(*filter->values))};
        number = hash_keyed(parts, sizeof(parts));
    }
    return number ? number : 1;
}

/* The lock is held. */
static struct strike *find_strike(uint64_t number)
{
    for (size_t i = 0; i < ended.n; i++)
        if (ended.strikes[i].number == number)
            return &ended.strikes[i];
    return NULL;
}

void plugin_chunk_ended_one(uint64_t number, bool took_too_long)
{
    pthread_mutex_lock(&ended.lock);
    struct strike *strike = find_strike(number);
    if (!strike && ended.n < STRIKES_KEPT)
        strike = &ended.strikes[ended.n++];
    else if (!strike)
        strike = &ended.strikes[ended.next++ % STRIKES_KEPT];
    unsigned before = strike->number == number ? strike->n : 0;
    *strike = (struct strike){number, before + (took_too_long ? MOST_STRIKES : 1)};
    pthread_mutex_unlock(&ended.lock);
}

bool plugin_chunks_ended_any(void)
{
    pthread_mutex_lock(&ended.lock);
    bool any = ended.n > 0;
    pthread_mutex_unlock(&ended.lock);
    return any;
}

bool plugin_chunk_is_given_up(uint64_t number)
{
    pthread_mutex_lock(&ended.lock);
    const struct strike *strike = find_strike(number);
    bool is_out = strike && strike->n >= MOST_STRIKES;
    pthread_mutex_unlock(&ended.lock);
    return is_out;
}
