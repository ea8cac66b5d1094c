/* Asking, and what is done when the process ends or is ended meanwhile: by a signal, for want of memory, or
 * because it has not answered in time (hdf5_timeout). It is started again and asked again, unless
 * the object has ended it too often (client_given_up.c). */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

#define MOST_TRIES 3  /* of one call, whatever ends the worker */
#define MOST_KILLS 20 /* of a worker, by others than the call that it is asked for */

/* ---- Ending one, and what is said of how one has ended ---- */

static void close_others(struct client *client)
{
    for (size_t i = 1; i < CLIENT_MOST_OTHERS; i++) {
        store_close(client->others[i]);
        client->others[i] = NULL;
    }
}

int client_end_worker(struct client *client)
{
    int status = 0;
    if (client->socket < 0)
        return 0;
    close(client->socket);
    client->socket = -1;
    client->is_owed = false;
    close_others(client);
    (void)zygote_end(&zygote_of_libhdf5, client->pid, &status);
    return status;
}

void client_say_end(int error, int status, uint64_t timeout, char *text, size_t n)
{
    if (error == -ETIMEDOUT)
        snprintf(text, n, "it did not answer for %.1f s", (double)timeout / 1e9);
    else if (error == -EPROTO)
        snprintf(text, n, "its answer cannot be");
    else if (error != -EPIPE)
        snprintf(text, n, "%s", strerror(-error));
    else if (WIFSIGNALED(status))
        snprintf(text, n, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, n, "exit code %d", WEXITSTATUS(status));
}

static const char *const names[WORKER_CALLS] = {
    [WORKER_OPEN] = "opening the file",
    [WORKER_RENEW] = "opening the file again",
    [WORKER_LIST] = "the links",
    [WORKER_LOOKUP] = "a link",
    [WORKER_FIND] = "a path",
    [WORKER_OBJECT_TYPE] = "the kind",
    [WORKER_ATTRIBUTES] = "the attributes",
    [WORKER_DATASET_OPEN] = "the description",
    [WORKER_DATASET_CLOSE] = "closing",
    [WORKER_DATASET_RENEW] = "the dims",
    [WORKER_CACHE_SOURCES] = "the caches",
    [WORKER_MAPPINGS] = "the mappings",
    [WORKER_LOCATE] = "a chunk",
    [WORKER_READ] = "elements",
    [WORKER_TEXT] = "the text",
    [WORKER_PARTS] = "parts of elements",
    [WORKER_PATHS] = "the paths of references",
    [WORKER_DATATYPE_TEXT] = "the words",
    [WORKER_TYPE_OF_MESSAGE] = "a datatype",
    [WORKER_TYPE_DESCRIBE] = "the description of a datatype",
    [WORKER_TYPE_SIZE] = "the size of a datatype",
    [WORKER_TYPE_EQUAL] = "a comparison of datatypes",
    [WORKER_ELEMENT_JSON] = "the text of an element",
    [WORKER_ELEMENTS_TEXT] = "the text of elements",
    [WORKER_ELEMENT_PARSE] = "an element",
    [WORKER_SEVERAL] = "something",
    [WORKER_SHOW] = "the description and the text",
    [WORKER_WRITE] = "writing elements",
    [WORKER_WRITE_SEQUENCES] = "writing elements of variable length",
    [WORKER_SET_EXTENT] = "changing the dims",
    [WORKER_WRITE_CHUNKS] = "writing chunks",
    [WORKER_PLACE] = "giving it its place",
    [WORKER_CREATE_GROUP] = "making a group",
    [WORKER_REMOVE_GROUP] = "removing a group",
    [WORKER_REOPEN] = "opening the file again",
    [WORKER_CREATE_LINK] = "making a link",
    [WORKER_UNLINK] = "removing a link",
    [WORKER_CREATE_DATASET] = "making a dataset",
    [WORKER_COPY_ATTRIBUTES] = "copying attributes",
    [WORKER_COPY_OBJECT] = "copying an object",
    [WORKER_COPY_GROUP] = "copying a group",
    [WORKER_COPY_REFERENCES] = "copying references",
};

bool client_bury(struct client *client, enum worker_call call, uint64_t object, int error)
{
    char how[128], line[512], place[96] = "";
    int status = client_end_worker(client);
    bool is_killed = error == -EPIPE && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    client_say_end(error, status, client->timeout, how, sizeof(how));
    if (client->store && call != WORKER_OPEN && call != WORKER_RENEW)
        snprintf(place, sizeof(place), " of the object at address %" PRIu64 "%s", object,
                 call == WORKER_SEVERAL ? " or one listed behind it" : "");
    snprintf(client->last_end, sizeof(client->last_end), "asked for %s%s: %s", names[call], place,
             how);
    snprintf(line, sizeof(line), "the process of libhdf5 ended, %s", client->last_end);
    library_reason(line);
    why_say(client_why(client), "%s: %s", client->store ? store_path(client->store) : "datatypes",
            line);
    client->is_killed = is_killed;
    return !is_killed && error != -ENOMEM;
}

/* ---- Asking, and asking again ---- */

static void lose(struct client *client)
{
    if (!atomic_exchange(&client->is_lost, true))
        log_error("%s: the process of libhdf5 cannot be started again: nothing can be changed any "
                  "more, what was committed stands",
                  store_path(client->store));
}

/* One try; -EPIPE: the worker has ended. */
static int try_once(struct client *client, enum worker_call call, uint64_t object,
                    const struct wire *request, struct cursor *results, bool *is_started)
{
    bool is_lost = false;
    int error = client_begin(client);
    *is_started = !error || error == -ENOMEM;
    if (error)
        return error;
    error = client_exchange(client, call, request, results, &is_lost);
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
    if (call >= WORKER_FIRST_CHANGE && client_is_lost(client))
        return -EROFS;
    if (!client_is_struck(client, object) && client_knows(client, call, request, results))
        return 0;
    for (int i = 0, kills = 0; i < MOST_TRIES && kills < MOST_KILLS && error == -EPIPE;) {
        client->is_killed = false;
        error = request->failed ? -ENOMEM
                : client_refuses(client, object)
                    ? -EIO
                    : try_once(client, call, object, request, results, &is_started);
        kills += client->is_killed;
        i += !client->is_killed;
    }
    if (!is_started && client->transaction && !client->read_failed && !client->is_killed)
        lose(client);
    if (!error)
        client_note_answer(client, call, request, results);
    return error == -EPIPE ? -EIO : error;
}

bool client_is_lost(const struct client *client)
{
    return atomic_load(&client->is_lost);
}
