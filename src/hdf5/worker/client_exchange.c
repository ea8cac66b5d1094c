/* One call: the question, what the worker asks for meanwhile, and its reply. */
#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/large_messages.h"
#include "store/store.h"

#define MOST_LINES                                                                                 \
    50 /* of the log in one call, by what a worker says and asks for; as many by what it changes */

/* Nanoseconds from when nobody waits for a call any more until its process is ended: others that use the file pay for
 * another one, and mostly it ends by itself, or asks and is told to. A change is dropped as a whole then, and may be
 * the last one that is to be kept: what it waits for the disk is not counted. */
#define GRACE_NANOS        1000000000u
#define CHANGE_GRACE_NANOS 5000000000u

/* For a worker that has no processor a call may take so many times as long. What it has waited for one is looked at
 * when a call has taken long, and when its time is soon over. */
#define BUSY_TIMES 8
#define LONG_NANOS 50000000u
#define SOON_NANOS 100000000u
#define NOT_LOOKED UINT64_MAX

/* What a call may fail with: others mean something to those who call us. That it was to end it knows
 * from us only: a program would begin the call again, and again. */
static int known_error(const struct client *client, uint64_t number)
{
    static const int known[] = {ENOENT, EIO,    EINVAL,    ENOMEM,  EOPNOTSUPP, EBADF,
                                EBUSY,  ESTALE, EFBIG,     EINTR,   EACCES,     EPERM,
                                ELOOP,  ENFILE, EILSEQ,    ENOTDIR, EOVERFLOW,  EDEADLK,
                                EXDEV,  EEXIST, ENOTEMPTY, ENOSPC,  EROFS};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (number == (uint64_t)known[i])
            return known[i] == EINTR && !client->was_told_to_end ? -EIO : -known[i];
    return client->has_moved && number == (uint64_t)-STORE_MOVED ? STORE_MOVED : -EIO;
}

int client_take_reply(const struct wire *in, uint64_t *number, struct cursor *results)
{
    char *reason;
    *results = cursor_over(in->bytes, in->n);
    *number = take_uint(results, UINT64_MAX);
    int error = take_string(results, true, &reason);
    if (error)
        return error == -EIO ? -EPROTO : error;
    log_make_line(reason);
    if (*number > 0)
        library_reason(reason);
    free(reason);
    return 0;
}

static int take_reply(struct client *client, struct cursor *results)
{
    uint64_t number;
    int error = client_take_reply(&client->in, &number, results);
    return error || number == 0 ? error : known_error(client, number);
}

/* Others allocate space in the store meanwhile. */
static int tell_size(struct client *client)
{
    uint64_t size = client->transaction ? store_size(client->store) : 0;
    if (size == client->told_size)
        return 0;
    struct wire *wire = &client->out;
    wire->n = 0;
    wire->failed = false;
    wire_uint(wire, size);
    client->told_size = size;
    return client_send(client, MESSAGE_SIZE, wire);
}

static uint64_t time_left(const struct client *client)
{
    uint64_t most = CLIENT_MOST_TIMES * client->timeout;
    uint64_t left = client->spent < most ? most - client->spent : 0;
    uint64_t time = client_is_impatient(client) ? patience_time(&client->patience, client->timeout)
                                                : client->timeout;
    return client->asks_as_one && left < time ? left : time;
}

void client_begin_time(struct client *client, uint64_t nanos)
{
    client->given = nanos;
    client->until = clock_now() + nanos;
    client->busy = 0;
    client->busy_before = NOT_LOOKED;
    client->unwanted_since = 0;
}

int client_send_call(struct client *client, enum worker_call call, const struct wire *request)
{
    client_free_large(client); /* what was answered before is taken */
    client->call = call;
    client_begin_time(client, time_left(client));
    client->lines_left = client->change_lines_left = MOST_LINES;
    client->has_said = false;
    client->has_looked_elsewhere = false;
    client->has_moved = client->read_failed = client->was_told_to_end = false;
    client->spoiled = 0;
    int error = tell_size(client);
    return error ? error : client_send(client, MESSAGE_CALL, request);
}

/* That others have the processors is not its fault. */
static void give_what_others_took(struct client *client)
{
    uint64_t now = clock_now();
    bool is_new = now + client->given < client->until + LONG_NANOS;
    if (is_new || (client->busy_before != NOT_LOOKED && now + SOON_NANOS < client->until))
        return;
    uint64_t busy = clock_waited_for_processor(client->pid);
    if (client->busy_before == NOT_LOOKED)
        client->busy_before = busy;
    busy = busy > client->busy_before ? busy - client->busy_before : 0;
    if (busy > BUSY_TIMES * client->given)
        busy = BUSY_TIMES * client->given;
    if (busy > client->busy) {
        client->until += busy - client->busy;
        client->busy = busy;
    }
}

/* libhdf5 knows no way to stop. A copy may have no end; a comparison has no error, and ends as it would. */
static int ask_whether_to_wait(void *context)
{
    struct client *client = context;
    give_what_others_took(client);
    int error = client->call == WORKER_TYPE_EQUAL ? 0 : interrupt_check();
    if (!error || client->source)
        return error;
    uint64_t now = clock_now();
    uint64_t grace = client_is_changing(client) ? CHANGE_GRACE_NANOS : GRACE_NANOS;
    if (client->unwanted_since == 0)
        client->unwanted_since = now;
    return now > client->unwanted_since + grace ? error : 0;
}

int client_send(struct client *client, enum message_kind kind, const struct wire *wire)
{
    const struct channel_wait wait = {&client->until, ask_whether_to_wait, client, NULL};
    return channel_send_asking(client->socket, kind, wire, &wait);
}

void client_free_large(struct client *client)
{
    if (client->in.room > CLIENT_MOST_KEPT)
        wire_free(&client->in);
    large_give_back(client->large);
    client->large = 0;
}

/* Who has a reply waits for nothing before it is taken, so there will be room for the next one, and waiting for that is
 * not its fault. What others do with another message may wait for us: that ends in the time of the call. */
static int make_room(void *context, enum message_kind kind, size_t n)
{
    struct client *client = context;
    bool is_reply = kind == MESSAGE_REPLY;
    client_free_large(client);
    if (n <= CLIENT_MOST_KEPT)
        return 0;
    uint64_t begun = clock_now();
    int error = large_take(LARGE_TIMES * n, is_reply ? UINT64_MAX : client->until,
                           ask_whether_to_wait, client);
    client->large = error ? 0 : LARGE_TIMES * n;
    client->until += is_reply ? clock_now() - begun : 0;
    return error;
}

int client_receive_reply(struct client *client, struct cursor *results, bool *is_lost)
{
    const struct channel_wait wait = {&client->until, ask_whether_to_wait, client, make_room};
    enum message_kind kind = MESSAGE_LOG;
    int error = 0;
    *is_lost = true;
    while (!error) {
        error = channel_receive_asking(client->socket, &kind, &client->in, WIRE_MOST_BYTES, &wait);
        if (!error && kind == MESSAGE_REPLY)
            break;
        if (!error)
            error = ask_whether_to_wait(client);
        if (!error && clock_now() >= client->until) /* it may go on without a pause */
            error = -ETIMEDOUT;
        if (!error)
            error = client_answer(client, kind);
    }
    if (error)
        return error;
    error = take_reply(client, results);
    if (!error && client_is_changing(client) && results->left != sizeof(uint64_t))
        error = -EPROTO;
    if (!error && client->transaction && client_is_changing(client) && !client->spoiled)
        error = client_note_change(client, transaction_check(client->transaction));
    *is_lost = error == -EPROTO;
    return error;
}

/* What a call has changed is the store's, if it has succeeded, or nobody's: then libhdf5 knows more
 * than there is, and its process is of no use any more. */
static int conclude(struct client *client, int error, bool is_lost)
{
    bool is_empty = transaction_is_empty(client->transaction);
    bool is_wrong = client->spoiled || client->read_failed;
    if (client_is_changing(client) && !is_lost && !error && !is_wrong) {
        transaction_take(client->transaction);
        return 0;
    }
    transaction_drop(client->transaction);
    if (is_lost)
        return error;
    if (is_wrong || (client_is_changing(client) && !is_empty))
        client_end_worker(client);
    if (error || !is_wrong || !(client_is_changing(client) || client_is_opening(client)))
        return error;
    library_reason("what it needs of the file could not be read or changed");
    return client->spoiled ? client->spoiled : -EIO;
}

/* What the disk, and others by having the processors, took has been added to `until`. */
static void note_time(struct client *client)
{
    uint64_t now = clock_now(), begun = client->until - client->given;
    client->spent += now > begun ? now - begun : 0;
}

int client_exchange(struct client *client, enum worker_call call, const struct wire *request,
                    struct cursor *results, bool *is_lost)
{
    int error = 0;
    *is_lost = false;
    if (client->transaction && call >= WORKER_FIRST_CHANGE)
        error = transaction_put_taken(client->transaction);
    if (error) {
        library_reason("what was changed before could not be stored yet");
        return error;
    }
    *is_lost = true;
    client_note_asked(client);
    error = client_send_call(client, call, request);
    if (!error)
        error = client_receive_reply(client, results, is_lost);
    client->answered_by = client->starts;
    note_time(client);
    if (client->transaction)
        error = conclude(client, error, *is_lost);
    if (*is_lost && error == -EINTR) { /* not the object's fault */
        client_end_worker(client);
        *is_lost = false;
    }
    return error;
}
