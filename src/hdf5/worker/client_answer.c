/* What a worker asks for in a call, what it changes, and what else it says. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "store/store.h"

#define QUESTION_BYTES 256 /* that a question counts for, */
#define BYTE_NANOS     250 /* and for each of them: 4 MB/s */

static struct wire *answer_with(struct client *client, int error)
{
    client->out.n = 0;
    client->out.failed = false;
    wire_uint(&client->out, (uint64_t)-error);
    return &client->out;
}

static int send_answer(struct client *client)
{
    return client_send(client, MESSAGE_ANSWER, &client->out);
}

static struct store *file_of(const struct client *client, uint64_t number)
{
    return number == 0                   ? client->store
           : number < CLIENT_MOST_OTHERS ? client->others[number].store
           : number == CLIENT_SOURCE     ? client->source
                                         : NULL;
}

/* Copying takes as long as there is something to copy. */
static void give_time(struct client *client, uint64_t bytes)
{
    uint64_t n = bytes < client->moved_most ? bytes : client->moved_most;
    client->moved_most -= n;
    client->until += n * BYTE_NANOS;
}

/* A disk takes as long as it takes. Not so what we do ourselves, with its pauses, of which a worker may want any
 * amount. */
static void give_waited(struct client *client, uint64_t before)
{
    uint64_t now = clock_waited(), waited = now > before ? now - before : 0; /* two clocks */
    client->until += waited;
    if (client->unwanted_since && client_is_changing(client)) /* it may be wanted for good */
        client->unwanted_since += waited;
}

/* As it has changed the file in this call. */
static int read_store(struct client *client, struct store *store, uint64_t address, void *room,
                      size_t n)
{
    bool is_changed = client->transaction && store == client->store;
    int error = is_changed ? transaction_read(client->transaction, address, room, n)
                           : store_read(store, address, room, n);
    return error;
}

/* The store looks whether the range is in it. */
static int answer_read(struct client *client, struct cursor *cursor)
{
    struct store *store = file_of(client, take_uint(cursor, UINT64_MAX));
    uint64_t address = take_uint(cursor, UINT64_MAX), n = take_uint(cursor, CHANNEL_MOST_READ);
    bool is_ahead = take_bool(cursor);
    if (take_end(cursor, true) < 0 || !store)
        return -EPROTO;
    uint64_t before = clock_waited();
    void *room = wire_room(answer_with(client, 0), (size_t)n);
    int error = room ? read_store(client, store, address, room, (size_t)n) : -ENOMEM;
    if (error)
        answer_with(client, error);
    client->has_moved |= error == STORE_MOVED;
    client->read_failed |= error && !is_ahead && store != client->source;
    give_waited(client, before);
    give_time(client, n);
    return send_answer(client);
}

static int answer_end_of(struct client *client, struct cursor *cursor)
{
    const struct store *store = file_of(client, take_uint(cursor, UINT64_MAX));
    if (take_end(cursor, true) < 0 || !store)
        return -EPROTO;
    wire_uint(answer_with(client, 0), store_end_wanted(store));
    return send_answer(client);
}

void client_describe_store(struct wire *wire, uint64_t number, const struct store *store)
{
    struct stat st = {0};
    (void)store_stat(store, &st);
    wire_uints(wire,
               (uint64_t[]){number, store_end_wanted(store), (uint64_t)st.st_dev,
                            (uint64_t)st.st_ino, store_is_following(store), store_is_live(store),
                            store_is_writable(store)},
               7);
}

static int answer_find(struct client *client, struct cursor *cursor)
{
    char *name;
    size_t number;
    bool is_refused = false;
    int error = take_string(cursor, true, &name);
    if (error)
        return error == -EIO ? -EPROTO : error;
    bool is_of_source = take_bool(cursor);
    if (take_end(cursor, true) < 0 || (is_of_source && !client->source)) {
        free(name);
        return -EPROTO;
    }
    client->has_looked_elsewhere = true;
    uint64_t before = clock_waited();
    error = client_find_other(client, name, is_of_source, &number, &is_refused);
    free(name);
    give_waited(client, before);
    struct wire *wire = answer_with(client, error);
    wire_uint(wire, is_refused);
    if (!error)
        client_describe_store(wire, number, client->others[number].store);
    return send_answer(client);
}

static int answer_path_of_copy(struct client *client, struct cursor *cursor)
{
    uint64_t address = take_uint(cursor, UINT64_MAX);
    if (take_end(cursor, true) < 0 || !client->source)
        return -EPROTO;
    const char *path = moved_path(client->paths.moved, client->paths.n, address);
    give_time(client, QUESTION_BYTES);
    wire_string(answer_with(client, path ? 0 : -ENOENT), path);
    return send_answer(client);
}

/* ---- What it changes ---- */

int client_note_change(struct client *client, int error)
{
    if (error == -EACCES)
        return -EPROTO;
    if (!client->spoiled)
        client->spoiled = error;
    return 0;
}

/* libhdf5 marks a file when it opens it: the mark must not become visible. */
static int write_bytes(struct client *client, uint64_t address, const void *bytes, size_t n)
{
    if (!client_is_changing(client) && !client_is_opening(client))
        return client_note_change(client, -EROFS);
    uint64_t before = clock_waited();
    int error = transaction_write(client->transaction, address, bytes, n);
    give_waited(client, before);
    give_time(client, n);
    return client_note_change(client, error);
}

static int take_write(struct client *client, struct cursor *cursor)
{
    uint64_t address = take_uint(cursor, UINT64_MAX);
    size_t n = take_count(cursor, 1);
    const void *bytes = cursor_bytes(cursor, n);
    if (take_end(cursor, true) < 0 || !client->transaction)
        return -EPROTO;
    return write_bytes(client, address, bytes, n);
}

static int take_named_write(struct client *client, struct cursor *cursor)
{
    uint64_t address = take_uint(cursor, UINT64_MAX);
    size_t offset = (size_t)take_uint(cursor, client->payload_n);
    size_t n = (size_t)take_uint(cursor, client->payload_n - offset);
    if (take_end(cursor, true) < 0 || !client->transaction || !client->payload)
        return -EPROTO;
    return write_bytes(client, address, client->payload + offset, n);
}

static int take_free(struct client *client, struct cursor *cursor)
{
    uint64_t address = take_uint(cursor, UINT64_MAX), n = take_uint(cursor, UINT64_MAX);
    if (take_end(cursor, true) < 0 || !client->transaction)
        return -EPROTO;
    return client_note_change(client, client_is_changing(client)
                                          ? transaction_free(client->transaction, address, n)
                                          : -EROFS);
}

static int answer_allocate(struct client *client, struct cursor *cursor)
{
    uint64_t address = 0, n = take_uint(cursor, UINT64_MAX);
    if (take_end(cursor, true) < 0 || !client->transaction)
        return -EPROTO;
    int error = client_is_changing(client) ? transaction_allocate(client->transaction, n, &address)
                                           : -EROFS;
    (void)client_note_change(client, error);
    client->told_size = store_size(client->store);
    wire_uints(answer_with(client, error), (uint64_t[]){address, client->told_size}, 2);
    return send_answer(client);
}

static int answer_end_in_use(struct client *client, struct cursor *cursor)
{
    if (take_end(cursor, true) < 0 || !client->transaction)
        return -EPROTO;
    wire_uint(answer_with(client, 0), store_end(client->store));
    return send_answer(client);
}

/* ---- What else it says ---- */

static int let_go(struct client *client, struct cursor *cursor)
{
    uint64_t number = take_uint(cursor, CLIENT_SOURCE);
    if (take_end(cursor, true) < 0 || number == 0)
        return -EPROTO;
    if (number != CLIENT_SOURCE)
        client_let_go(client, number);
    return 0;
}

static int pass_on(struct client *client, struct cursor *cursor)
{
    char *line;
    int level = (int)take_uint(cursor, LOG_DEBUG);
    int error = take_string(cursor, true, &line);
    if (error)
        return error == -EIO ? -EPROTO : error;
    if (level <= LOG_ERR)
        why_say(client_why(client), "%.1000s", line);
    else
        log_message(level, "%.1000s", line);
    client->has_said = true;
    free(line);
    return 0;
}

static int answer_interrupted(struct client *client)
{
    int error = interrupt_check();
    client->was_told_to_end |= error < 0;
    answer_with(client, error);
    return send_answer(client);
}

static int answer(struct client *client, enum message_kind kind)
{
    struct cursor cursor = cursor_over(client->in.bytes, client->in.n);
    switch (kind) {
    case MESSAGE_READ:
        return answer_read(client, &cursor);
    case MESSAGE_FIND:
        return answer_find(client, &cursor);
    case MESSAGE_END_OF:
        return answer_end_of(client, &cursor);
    case MESSAGE_LET_GO:
        return let_go(client, &cursor);
    case MESSAGE_WRITE:
        return take_write(client, &cursor);
    case MESSAGE_WRITE_NAMED:
        return take_named_write(client, &cursor);
    case MESSAGE_FREE:
        return take_free(client, &cursor);
    case MESSAGE_ALLOCATE:
        return answer_allocate(client, &cursor);
    case MESSAGE_END_IN_USE:
        return answer_end_in_use(client, &cursor);
    case MESSAGE_PATH_OF_COPY:
        return answer_path_of_copy(client, &cursor);
    case MESSAGE_LOG:
        return pass_on(client, &cursor);
    case MESSAGE_INTERRUPTED:
        return answer_interrupted(client);
    default:
        return -EPROTO;
    }
}

/* A change that it may not make is said last, and is not to be lost among the rest. */
int client_answer(struct client *client, enum message_kind kind)
{
    bool is_change = kind == MESSAGE_WRITE || kind == MESSAGE_WRITE_NAMED || kind == MESSAGE_FREE ||
                     kind == MESSAGE_ALLOCATE;
    log_limit(is_change ? &client->change_lines_left : &client->lines_left);
    int error = answer(client, kind);
    log_limit(NULL);
    return error;
}
