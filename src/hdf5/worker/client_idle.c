/* Workers of files that are only read: where there are very many such files, as external links lead to, those that
 * were not asked for longest are ended. They are started again when they are asked. */
#include <utlist.h>

#include "hdf5/worker/client_private.h"

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and what clients have of it */
static struct client *running; /* not asked for longest first */
static size_t n_running;

/* The lock must be held. */
static void take_out(struct client *client)
{
    if (!client->is_running)
        return;
    DL_DELETE2(running, client, prev_running, next_running);
    client->is_running = false;
    n_running--;
}

void client_note_asked(struct client *client)
{
    if (!client->store || client->transaction)
        return;
    pthread_mutex_lock(&lock);
    take_out(client);
    DL_APPEND2(running, client, prev_running, next_running);
    client->is_running = true;
    n_running++;
    pthread_mutex_unlock(&lock);
}

void client_note_ended(struct client *client)
{
    pthread_mutex_lock(&lock);
    take_out(client);
    pthread_mutex_unlock(&lock);
}

/* One that nobody asks, nor copies with, which is locked then; NULL: there is none. The lock must be held. */
static struct client *lock_idle(void)
{
    struct client *client;
    DL_FOREACH2 (running, client, next_running) {
        if (!client_try_lock(client))
            continue;
        if (!client->source)
            return client;
        client_unlock(client);
    }
    return NULL;
}

void client_end_idle(void)
{
    pthread_mutex_lock(&lock);
    struct client *idle = n_running >= CLIENT_MOST_RUNNING ? lock_idle() : NULL;
    pthread_mutex_unlock(&lock);
    if (!idle)
        return;
    client_end_worker(idle);
    client_unlock(idle);
}
