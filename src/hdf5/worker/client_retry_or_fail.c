/* Asking, and what is done when the process ends or is ended meanwhile: by a signal, for want of memory, or
 * because it has not answered in time (hdf5_timeout). It is started again and asked again, unless
 * the object has ended it too often (objects_given_up.c). */
#include <errno.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "store/store.h"

#define MOST_TRIES 3  /* of one call, whatever ends the worker */
#define MOST_KILLS 20 /* of a worker, by others than the call that it is asked for */

static void lose(struct client *client)
{
    if (!atomic_exchange(&client->is_lost, true))
        log_error("%s: the process of libhdf5 cannot be started again: nothing can be changed any "
                  "more, what was committed stands",
                  store_path(client->store));
}

/* What others learn of how a call has ended. */
static void note_patience(struct client *client, int error, bool is_lost)
{
    if (!client_is_impatient(client))
        return;
    if (!is_lost && error != -EINTR)
        patience_answer(&client->patience);
    if (!is_lost || error != -ETIMEDOUT || !patience_fail(&client->patience) ||
        client->said_impatient)
        return;
    client->said_impatient = true;
    log_warning("%s: libhdf5 has not answered in time %d times: it has less time now, until it has "
                "answered %d times in a row",
                store_path(client->store), PATIENCE_FAILURES, PATIENCE_ANSWERS);
}

/* One try; -EPIPE: the worker has ended. */
static int try_once(struct client *client, enum worker_call call, uint64_t object,
                    const struct wire *request, struct cursor *results, bool *is_started)
{
    bool is_lost = false;
    int error = client_begin(client);
    *is_started = !error || error == -ECHILD || error == -ENOMEM || error == -EINTR;
    if (error)
        return error == -ECHILD ? -EIO : error;
    error = client_exchange(client, call, request, results, &is_lost);
    note_patience(client, error, is_lost);
    if (!is_lost)
        return error;
    if (client_bury(client, call, object, error))
        client_strike(client, object);
    return error == -ETIMEDOUT || error == -ENOMEM ? -EIO : -EPIPE; /* it has cost enough */
}

int client_ask(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results)
{
    int error = -EPIPE;
    bool is_started = true;
    client->read_failed = false;
    client->spent = client->asks_as_one ? client->spent : 0;
    if (call >= WORKER_FIRST_CHANGE && client_is_lost(client))
        return -EROFS;
    if (!client_is_struck(client, object) && client_knows(client, call, request, results))
        return 0;
    if (call == WORKER_DATASET_OPEN && client_is_full(client))
        client_end_worker(client); /* another one opens again what is used of the others */
    for (int i = 0, kills = 0; i < MOST_TRIES && kills < MOST_KILLS && error == -EPIPE;) {
        client->is_killed = false;
        error = request->failed ? -ENOMEM
                : client_refuses(client, object)
                    ? -EIO
                    : try_once(client, call, object, request, results, &is_started);
        kills += client->is_killed;
        if (client->spent > CLIENT_MOST_TIMES * client->timeout) /* even if others killed it */
            break;
        i += !client->is_killed;
    }
    bool is_gone = !is_started && client->starts > 0;
    if (is_gone && client->transaction && !client->read_failed && !client->is_killed)
        lose(client);
    if (!error)
        client_note_answer(client, call, request, results);
    return error == -EPIPE ? -EIO : error;
}

void client_ask_as_one(struct client *client, bool as_one)
{
    client->asks_as_one = as_one;
    client->spent = 0;
}

bool client_is_lost(const struct client *client)
{
    return atomic_load(&client->is_lost);
}
