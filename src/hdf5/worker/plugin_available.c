/* A process is asked; what those have told last is known for a while. */
#include "hdf5/worker/plugin_available.h"

#include <errno.h>
#include <pthread.h>

#include "common/clock.h"
#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/plugin_private.h"

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

/* Whether that is known: of one that was missing for a while only, as it may be installed then. */
static bool is_known(int id, bool *is_available)
{
    pthread_mutex_lock(&told.lock);
    const struct known *known = find_known(id);
    *is_available = known && known->is_available;
    bool is_told = known && (known->is_available || clock_now() < known->until);
    pthread_mutex_unlock(&told.lock);
    return is_told;
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

/* Two threads that ask at once may both start one. */
bool plugins_available(int id)
{
    struct plugin_process *process;
    bool is_available = false;
    if (id <= 0 || is_known(id, &is_available))
        return id > 0 && is_available;
    int error = -EPIPE;
    for (int i = 0; i < PLUGIN_MOST_TRIES && error == -EPIPE; i++)
        error = plugin_take(&id, 1, 0, false, &process);
    if (error == -EIO || error == -EPIPE)
        log_error("plugins of libhdf5: filter %d: %s", id, hdf5_error());
    if (error) {
        plugin_note(id, false);
        return false;
    }
    is_available = plugin_has(process, id);
    if (process->n_ids > 0)
        plugin_give_back(process);
    else
        plugin_end(process);
    return is_available;
}
