/* Starting a worker, asking it, and what becomes of it when it dies. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/answers.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

#define MOST_STRIKES 2  /* times that an object may end a worker */
#define MOST_TRIES   3  /* of one call, whatever ends the worker */
#define MOST_KILLS   20 /* of a worker, by others than the call that it is asked for */
#define TRY_PART     4  /* of the time of a call: for more than is needed */
#define MOVED_TIMES  64 /* of its bytes, which are read and written */

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

int client_create(struct store *store, uint64_t timeout, struct client **out)
{
    struct client *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;
    pthread_mutex_init(&client->lock, NULL);
    client->store = store;
    client->timeout = timeout;
    client->socket = -1;
    int error =
        store && store_is_writable(store) ? transaction_create(store, &client->transaction) : 0;
    if (error)
        client_destroy(client);
    else
        *out = client;
    return error;
}

void client_lock(struct client *client)
{
    pthread_mutex_lock(&client->lock);
}

int client_lock_interruptible(struct client *client)
{
    return interrupt_lock(&client->lock);
}

bool client_try_lock(struct client *client)
{
    return pthread_mutex_trylock(&client->lock) == 0;
}

void client_unlock(struct client *client)
{
    pthread_mutex_unlock(&client->lock);
}

void client_request(struct wire *wire, enum worker_call call)
{
    *wire = (struct wire){0};
    wire_uint(wire, call);
}

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

void client_destroy(struct client *client)
{
    if (!client)
        return;
    struct strike *strike, *next;
    client_end_worker(client);
    HASH_ITER (hh, client->strikes, strike, next) {
        HASH_DEL(client->strikes, strike);
        free(strike);
    }
    transaction_destroy(client->transaction);
    wire_free(&client->in);
    wire_free(&client->out);
    pthread_mutex_destroy(&client->lock);
    free(client);
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

struct why *client_why(const struct client *client)
{
    return client->store ? store_why(client->store) : NULL;
}

/* Logs how the worker ended. Returns whether the object is to blame: not if another process has
 * killed it. */
static bool bury(struct client *client, enum worker_call call, uint64_t object, int error)
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

static struct strike *strikes_of(const struct client *client, uint64_t object)
{
    struct strike *strike;
    HASH_FIND(hh, client->strikes, &object, sizeof(object), strike);
    return strike;
}

bool client_is_struck(const struct client *client, uint64_t object)
{
    return strikes_of(client, object) != NULL;
}

/* Without memory it is not counted. */
static void strike(struct client *client, uint64_t object)
{
    struct strike *strike = strikes_of(client, object);
    if (!strike && (strike = calloc(1, sizeof(*strike)))) {
        strike->object = object;
        HASH_ADD(hh, client->strikes, object, sizeof(object), strike);
        if (hash_failed()) {
            free(strike);
            return;
        }
    }
    if (!strike)
        return;
    strike->n++;
    memcpy(strike->last, client->last_end, sizeof(strike->last));
}

/* Before a worker is asked for something else: the end of what it was told. */
static void collect_owed(struct client *client)
{
    struct cursor results;
    bool is_lost;
    if (client->socket < 0 || !client->is_owed)
        return;
    client->is_owed = false;
    client->call = client->owed_call;
    client->until = clock_now() + client->timeout;
    int error = client_receive_reply(client, &results, &is_lost);
    if (is_lost && bury(client, client->owed_call, client->owed_object, error))
        strike(client, client->owed_object);
}

/* Opens the file, or does it again. -EPIPE: it has ended. */
static int open_file(struct client *client, enum worker_call call)
{
    struct wire request;
    struct cursor results;
    bool is_lost;
    client_request(&request, call);
    wire_string(&request, store_path(client->store));
    client_describe_store(&request, 0, client->store);
    client->told_size = client->transaction ? store_size(client->store) : 0;
    int error = client_exchange(client, call, &request, &results, &is_lost);
    wire_free(&request);
    if (!error) {
        client->root = take_uint(&results, UINT64_MAX);
        error = take_end(&results, true) ? -EPROTO : 0;
        is_lost = error != 0;
    }
    if (is_lost) {
        (void)bury(client, call, client->root, error);
        return error == -ETIMEDOUT ? -EIO : -EPIPE;
    }
    if (error)
        client_end_worker(client);
    return error;
}

/* -EPIPE: it has ended again, and the log says so. */
static int start(struct client *client)
{
    collect_owed(client);
    if (client->socket >= 0)
        return 0;
    int error = zygote_fork(&zygote_of_libhdf5, &client->pid, &client->socket);
    if (error) {
        client->socket = -1;
        library_reason("no process can be started for libhdf5");
        why_say(client_why(client), "cannot start a process for libhdf5: %s", strerror(-error));
        return error == -ENOMEM ? error : -EIO;
    }
    client->starts++;
    return client->store ? open_file(client, WORKER_OPEN) : 0;
}

/* ---- What was answered before ---- */

/* Calls that do nothing but say what the file is. A worker that answers the last of these knows the
 * dataset from then on: one that does not says so (-EBADF). */
static bool only_says(enum worker_call call)
{
    return call == WORKER_LIST || call == WORKER_LOOKUP || call == WORKER_FIND ||
           call == WORKER_OBJECT_TYPE || call == WORKER_ATTRIBUTES || call == WORKER_SEVERAL ||
           call == WORKER_DATATYPE_TEXT || call == WORKER_SHOW || call == WORKER_DATASET_OPEN;
}

static bool is_known(struct client *client, enum worker_call call, const struct wire *request,
                     struct cursor *results)
{
    struct answers_of of;
    if (client->asks_anew || client->is_owed || !only_says(call) ||
        !answers_identify(client->store, &of) || !answers_find(&of, request, &client->in))
        return false;
    *results = cursor_over(client->in.bytes, client->in.n);
    return true;
}

/* Of a call that has succeeded: unless it has said something in the log, or other files may have
 * had to do with it. */
static void note_answer(const struct client *client, enum worker_call call,
                        const struct wire *request, const struct cursor *results)
{
    struct answers_of of;
    bool is_alone = !client->has_looked_elsewhere && client->lines == 0;
    for (size_t i = 1; i < CLIENT_MOST_OTHERS && is_alone; i++)
        is_alone = !client->others[i];
    if (is_alone && only_says(call) && answers_identify(client->store, &of))
        answers_keep(&of, request, results->at, results->left);
}

static void forget_answers(const struct client *client)
{
    struct answers_of of;
    if (answers_identify(client->store, &of))
        answers_forget(&of);
}

void client_ask_anew(struct client *client, bool anew)
{
    client->asks_anew = anew;
}

/* The root as it was said when the file was opened before. */
static bool root_is_known(struct client *client)
{
    struct answers_of of;
    struct wire request;
    client_request(&request, WORKER_OPEN);
    bool is_known = client->socket < 0 && answers_identify(client->store, &of) &&
                    answers_find(&of, &request, &client->in);
    if (is_known) {
        struct cursor cursor = cursor_over(client->in.bytes, client->in.n);
        client->root = take_uint(&cursor, UINT64_MAX);
    }
    wire_free(&request);
    return is_known;
}

static void note_root(const struct client *client)
{
    struct answers_of of;
    struct wire request, root = {0};
    if (client->lines > 0 || !answers_identify(client->store, &of))
        return;
    client_request(&request, WORKER_OPEN);
    wire_uint(&root, client->root);
    if (!root.failed)
        answers_keep(&of, &request, root.bytes, root.n);
    wire_free(&request);
    wire_free(&root);
}

int client_start(struct client *client, uint64_t *root)
{
    int error = root_is_known(client) ? 0 : -EPIPE;
    bool is_started = error != 0;
    for (int i = 0; i < MOST_STRIKES && error == -EPIPE; i++)
        error = start(client);
    if (is_started && !error)
        note_root(client);
    *root = client->root;
    return error == -EPIPE ? -EIO : error;
}

int client_renew(struct client *client, uint64_t *root)
{
    collect_owed(client);
    int error = client->socket >= 0 ? open_file(client, WORKER_RENEW) : -EPIPE;
    if (error == -EPIPE)
        return client_start(client, root);
    *root = client->root;
    return error;
}

bool client_is_lost(const struct client *client)
{
    return atomic_load(&client->is_lost);
}

static void lose(struct client *client)
{
    if (!atomic_exchange(&client->is_lost, true))
        log_error("%s: the process of libhdf5 cannot be started again: nothing can be changed any "
                  "more, what was committed stands",
                  store_path(client->store));
}

static int refuse(const struct strike *strike)
{
    char line[512];
    snprintf(line, sizeof(line),
             "it has ended the process of libhdf5 before, %s; it is not read any more",
             strike->last);
    library_reason(line);
    return -EIO;
}

/* One try; -EPIPE: the worker has ended. */
static int try_once(struct client *client, enum worker_call call, uint64_t object,
                    const struct wire *request, struct cursor *results, bool *is_started)
{
    bool is_lost = false;
    int error = start(client);
    *is_started = !error || error == -ENOMEM;
    if (error)
        return error;
    error = client_exchange(client, call, request, results, &is_lost);
    if (!is_lost)
        return error;
    if (bury(client, call, object, error))
        strike(client, object);
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
    if (!client_is_struck(client, object) && is_known(client, call, request, results))
        return 0;
    for (int i = 0, kills = 0; i < MOST_TRIES && kills < MOST_KILLS && error == -EPIPE;) {
        const struct strike *strike = strikes_of(client, object);
        client->is_killed = false;
        error = request->failed ? -ENOMEM
                : strike && strike->n >= MOST_STRIKES
                    ? refuse(strike)
                    : try_once(client, call, object, request, results, &is_started);
        kills += client->is_killed;
        i += !client->is_killed;
    }
    if (!is_started && client->transaction && !client->read_failed && !client->is_killed)
        lose(client);
    if (!error)
        note_answer(client, call, request, results);
    return error == -EPIPE ? -EIO : error;
}

unsigned client_starts(const struct client *client)
{
    return client->starts;
}

/* What libhdf5 writes of a file that is written is looked at when it is done. */
void client_tell(struct client *client, enum worker_call call, uint64_t object,
                 const struct wire *request)
{
    struct cursor results;
    if (client->socket < 0)
        return;
    if (client->transaction)
        (void)client_ask(client, call, object, request, &results);
    if (client->transaction || request->failed)
        return;
    collect_owed(client);
    if (client->socket < 0)
        return;
    client->owed_call = call;
    client->owed_object = object;
    client->is_owed = true;
    (void)client_send_call(client, call, request); /* if it has ended that is seen then */
}

/* It has a part of the time of a call, so that one that hangs takes hardly more than its own. */
int client_try(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results)
{
    bool is_lost = false;
    uint64_t timeout = client->timeout;
    collect_owed(client);
    if (is_known(client, call, request, results))
        return 0;
    if (request->failed || client->socket < 0)
        return -EAGAIN;
    client->timeout = timeout / TRY_PART;
    int error = client_exchange(client, call, request, results, &is_lost);
    if (is_lost)
        (void)bury(client, call, object, error);
    client->timeout = timeout;
    if (!error && !is_lost)
        note_answer(client, call, request, results);
    return is_lost ? -EPIPE : error;
}

int client_distrust_try(struct client *client, enum worker_call call, uint64_t object)
{
    forget_answers(client);
    (void)bury(client, call, object, -EPROTO);
    return -EPIPE;
}

void client_set_payload(struct client *client, const void *bytes, size_t n)
{
    client->payload = bytes;
    client->payload_n = bytes ? n : 0;
}

void client_set_source(struct client *client, struct store *source, const struct sfs_moved *moved,
                       size_t n)
{
    client->source = source;
    client->paths = (struct copied_paths){.moved = moved, .n = n};
    client->moved_most = 0;
    if (source && __builtin_mul_overflow(store_size(source), MOVED_TIMES, &client->moved_most))
        client->moved_most = UINT64_MAX;
}

void client_put_source(const struct client *client, struct wire *wire)
{
    client_describe_store(wire, CLIENT_SOURCE, client->source);
}

int client_put_taken(struct client *client)
{
    return client->transaction ? transaction_put_taken(client->transaction) : 0;
}

int client_distrust(struct client *client, enum worker_call call, uint64_t object)
{
    forget_answers(client);
    if (bury(client, call, object, -EPROTO))
        strike(client, object);
    return -EIO;
}
