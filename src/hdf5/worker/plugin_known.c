/* Those that were told last. */
#include "hdf5/worker/plugin_known.h"

#include <pthread.h>

#include "common/clock.h"

#define MISSING_NANOS 10000000000 /* then a plugin that was missing is looked for again */

struct known {
    int id;
    bool is_available;
    uint64_t until; /* clock_now(), if it is not */
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct known known[PLUGINS_MOST_IDS];
    size_t n, next;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static struct known *find_known(int id)
{
    for (size_t i = 0; i < told.n; i++)
        if (told.known[i].id == id)
            return &told.known[i];
    return NULL;
}

void plugin_note(int id, bool is_available)
{
    pthread_mutex_lock(&told.lock);
    struct known *known = find_known(id);
    if (!known && told.n < PLUGINS_MOST_IDS)
        known = &told.known[told.n++];
    else if (!known)
        known = &told.known[told.next++ % PLUGINS_MOST_IDS];
    *known = (struct known){id, is_available, clock_now() + MISSING_NANOS};
    pthread_mutex_unlock(&told.lock);
}

bool plugin_is_known(int id, bool *is_available)
{
    pthread_mutex_lock(&told.lock);
    const struct known *known = find_known(id);
    *is_available = known && known->is_available;
    bool is_known = known && (known->is_available || clock_now() < known->until);
    pthread_mutex_unlock(&told.lock);
    return is_known;
}

size_t plugins_known(int ids[PLUGINS_MOST_IDS])
{
    size_t n = 0;
    pthread_mutex_lock(&told.lock);
    for (size_t i = 0; i < told.n; i++)
        if (told.known[i].is_available)
            ids[n++] = told.known[i].id;
    pthread_mutex_unlock(&told.lock);
    return n;
}
