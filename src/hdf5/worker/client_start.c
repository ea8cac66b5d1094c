/* Starting a worker, and what it is told besides questions (client_retry_or_fail.c). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/process_status.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

#define TRY_PART    4  /* of the time of a call: for more than is needed */
#define MOVED_TIMES 64 /* of its bytes, which are read and written */

int client_create(struct store *store, uint64_t timeout, struct client **out)
{
    struct client *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;
    pthread_mutex_init(&client->lock, NULL);
    client->store = store;
    client->struck_in = store ? store_states_found(store) : 0;
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

/* That it takes long is learnt all the same. */
void client_lock(struct client *client)
{
    interrupt_ask_lock(&client->lock);
}

int client_lock_interruptible(struct client *client)
{
    return interrupt_lock(&client->lock);
}

bool client_try_lock(struct client *client)
{
    return pthread_mutex_trylock(&client->lock) == 0;
}

/* Nobody looks at messages any more. */
void client_unlock(struct client *client)
{
    client_free_large(client);
    if (client->out.room > CLIENT_MOST_KEPT)
        wire_free(&client->out);
    pthread_mutex_unlock(&client->lock);
}

void client_request(struct wire *wire, enum worker_call call)
{
    *wire = (struct wire){0};
    wire_uint(wire, call);
}

void client_destroy(struct client *client)
{
    if (!client)
        return;
    client_lock(client); /* another thread may be ending its worker */
    client_end_worker(client);
    client_unlock(client);
    client_forget_strikes(client);
    transaction_destroy(client->transaction);
    wire_free(&client->in); /* a large one is forgotten already */
    wire_free(&client->out);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

struct why *client_why(const struct client *client)
{
    return client->store ? store_why(client->store) : NULL;
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
    client_begin_time(client, client->given);
    int error = client_receive_reply(client, &results, &is_lost);
    if (is_lost && error == -EINTR)
        client_end_worker(client);
    else if (is_lost && client_bury(client, client->owed_call, client->owed_object, error))
        client_strike(client, client->owed_object);
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
        (void)client_bury(client, call, client->root, error);
        return error == -ETIMEDOUT ? -EIO : error == -ENOMEM ? error : -EPIPE;
    }
    if (error)
        client_end_worker(client);
    return error;
}

int client_begin(struct client *client)
{
    char line[128];
    collect_owed(client);
    if (client->socket >= 0)
        return 0;
    client_end_idle();
    int error = zygote_fork(&zygote_of_libhdf5, &client->pid, &client->socket);
    if (error) {
        client->socket = -1;
        snprintf(line, sizeof(line), "cannot start a process for libhdf5: %s", strerror(-error));
        library_reason(line);
        why_say(client_why(client), "%s", line);
        return error == -ENOMEM ? error : error == -EPIPE ? -EIO : -ECHILD;
    }
    client->starts++;
    client_note_asked(client);
    error = client->store ? open_file(client, WORKER_OPEN) : 0;
    client->empty_bytes = process_address_space(client->pid);
    return error;
}

/* ---- What was answered before ---- */

int client_start(struct client *client, uint64_t *root)
{
    int error = client_knows_root(client) ? 0 : -EPIPE;
    bool is_started = error != 0;
    for (int i = 0; i < CLIENT_MOST_STRIKES && error == -EPIPE; i++)
        error = client_begin(client);
    if (is_started && !error)
        client_note_root(client);
    *root = client->root;
    return error != -EPIPE ? error : client->is_killed ? -ECHILD : -EIO;
}

/* What has ended a worker may be read in another state. */
static void begin_state(struct client *client)
{
    unsigned found = store_states_found(client->store);
    if (client->struck_in == found)
        return;
    client->struck_in = found;
    client_forget_strikes(client);
}

int client_renew(struct client *client, uint64_t *root)
{
    collect_owed(client);
    begin_state(client);
    int error = client->socket >= 0 ? open_file(client, WORKER_RENEW) : -EPIPE;
    if (error == -EPIPE)
        error = client_start(client, root);
    if (error == -ECHILD)
        error = -EIO;
    *root = client->root;
    return error;
}

bool client_has_missed(const struct client *client)
{
    return client->read_failed;
}

unsigned client_starts(const struct client *client)
{
    return client->starts;
}

unsigned client_answered_by(const struct client *client)
{
    return client->answered_by;
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
    if (client_send_call(client, call, request) == -EINTR) {
        client->is_owed = false;
        client_end_worker(client);
    } /* if it has ended that is seen when the reply is collected */
}

/* It has a part of the time of a call, so that one that hangs takes hardly more than its own. */
int client_try(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results)
{
    bool is_lost = false;
    uint64_t timeout = client->timeout;
    collect_owed(client);
    if (client_knows(client, call, request, results))
        return 0;
    if (request->failed || client->socket < 0 || (call == WORKER_SHOW && client_is_full(client)))
        return -EAGAIN;
    client->timeout = timeout / TRY_PART;
    int error = client_exchange(client, call, request, results, &is_lost);
    if (is_lost)
        (void)client_bury(client, call, object, error);
    client->timeout = timeout;
    if (!error && !is_lost)
        client_note_answer(client, call, request, results);
    return is_lost ? -EPIPE : error;
}

int client_distrust_try(struct client *client, enum worker_call call, uint64_t object)
{
    client_forget_answers(client);
    (void)client_bury(client, call, object, -EPROTO);
    return -EPIPE;
}

void client_set_payload(struct client *client, const void *bytes, size_t n)
{
    client->payload = bytes;
    client->payload_n = bytes ? n : 0;
}

void client_let_write(struct client *client, const struct object_header *header)
{
    if (client->transaction)
        transaction_let_write(client->transaction, header);
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
    client_forget_answers(client);
    if (client_bury(client, call, object, -EPROTO))
        client_strike(client, object);
    return -EIO;
}
