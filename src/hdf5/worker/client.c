/* Starting a worker, asking it, answering what it asks, and what becomes of it when it dies. */
#include "hdf5/worker/client.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/transaction.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

#define MOST_STRIKES 2   /* times that an object may end a worker */
#define MOST_TRIES   3   /* of one call, whatever ends the worker */
#define MOST_KILLS   20  /* of a worker, by others than the call that it is asked for */
#define MOST_OTHERS  256 /* files that a worker may have open besides its own */
#define MOST_KEPT    ((size_t)16 << 20) /* bytes for messages, between calls */
#define MOST_LINES   50                 /* of the log, in one call */
#define TRY_PART     4                  /* of the time of a call: for more than is needed */
#define SOURCE         MOST_OTHERS        /* number of the file that is copied from */
#define MOVED_TIMES    64                 /* of its bytes, which are read and written */
#define QUESTION_BYTES 256                /* that a question counts for */
#define BYTE_NANOS     250                /* for each of those: 4 MB/s */

/* How often asking for an object has ended a worker. */
struct strike {
    uint64_t object;
    unsigned n;
    UT_hash_handle hh;
};

struct client {
    pthread_mutex_t lock; /* guards what follows */
    struct store *store;
    uint64_t timeout; /* nanoseconds */
    int socket;       /* -1: no worker runs */
    pid_t pid;
    unsigned starts;
    uint64_t root;
    struct store *others[MOST_OTHERS]; /* [0] is not used: that is the store itself */
    struct store *source;              /* of client_set_source */
    struct copied_paths paths;         /* of what was copied from it */
    uint64_t moved_most;               /* bytes that still give a call more time */
    struct strike *strikes;
    struct wire in, out;
    /* Of a call whose reply was not waited for: */
    bool is_owed;
    enum worker_call owed_call;
    uint64_t owed_object;
    /* Of the call that is under way: */
    uint64_t until;
    unsigned lines;
    bool is_killed; /* by somebody else, when it ended last */
    bool has_moved; /* it was told that a followed file has */
    /* Of a file that is written: */
    struct transaction *transaction; /* else NULL */
    uint64_t told_size;              /* of the store */
    atomic_bool is_lost;
    enum worker_call call; /* that is under way */
    bool read_failed;      /* something in this call: what libhdf5 knows may be half of it */
    int spoiled;           /* the first error of a change in this call */
    const char *payload;
    size_t payload_n;
};

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
    [WORKER_SET_EXTENT] = "changing the dims",
    [WORKER_WRITE_CHUNK] = "writing a chunk",
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
    for (size_t i = 1; i < MOST_OTHERS; i++) {
        store_close(client->others[i]);
        client->others[i] = NULL;
    }
}

/* Ends the worker, and tells how it has ended. */
static int end_worker(struct client *client)
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
    end_worker(client);
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

/* ---- What a worker asks for ---- */

static struct wire *answer_with(struct client *client, int error)
{
    client->out.n = 0;
    client->out.failed = false;
    wire_uint(&client->out, (uint64_t)-error);
    return &client->out;
}

static int send_answer(struct client *client)
{
    return channel_send(client->socket, MESSAGE_ANSWER, &client->out, client->until);
}

static struct store *file_of(const struct client *client, uint64_t number)
{
    return number == 0            ? client->store
           : number < MOST_OTHERS ? client->others[number]
           : number == SOURCE     ? client->source
                                  : NULL;
}

/* Copying takes as long as there is something to copy. */
static void give_time(struct client *client, uint64_t bytes)
{
    uint64_t n = bytes < client->moved_most ? bytes : client->moved_most;
    client->moved_most -= n;
    client->until += n * BYTE_NANOS;
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
    uint64_t begun = clock_now();
    void *room = wire_room(answer_with(client, 0), (size_t)n);
    int error = room ? read_store(client, store, address, room, (size_t)n) : -ENOMEM;
    if (error)
        answer_with(client, error);
    client->has_moved |= error == STORE_MOVED;
    client->read_failed |= error && !is_ahead && store != client->source;
    client->until += clock_now() - begun;
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

static void describe_store(struct wire *wire, uint64_t number, const struct store *store)
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
    size_t i = 1;
    bool is_refused = false;
    int error = take_string(cursor, true, &name);
    if (error)
        return error == -EIO ? -EPROTO : error;
    bool is_of_source = take_bool(cursor);
    const struct store *from = is_of_source ? client->source : client->store;
    if (take_end(cursor, true) < 0 || !from) {
        free(name);
        return -EPROTO;
    }
    while (i < MOST_OTHERS && client->others[i])
        i++;
    uint64_t begun = clock_now();
    error =
        i == MOST_OTHERS ? -ENFILE : driver_find_other(from, name, &client->others[i], &is_refused);
    free(name);
    client->until += clock_now() - begun;
    if (error && i < MOST_OTHERS)
        client->others[i] = NULL;
    struct wire *wire = answer_with(client, error);
    wire_uint(wire, is_refused);
    if (!error)
        describe_store(wire, i, client->others[i]);
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

static bool is_opening(const struct client *client)
{
    return client->call == WORKER_OPEN;
}

static bool is_changing(const struct client *client)
{
    return client->call >= WORKER_FIRST_CHANGE;
}

/* What it may not touch it does not touch unless somebody has taken it over. */
static int note_change(struct client *client, int error)
{
    if (error == -EACCES)
        return -EPROTO;
    if (!client->spoiled)
        client->spoiled = error;
    return 0;
}

/* When a file is opened libhdf5 marks it, which nobody is to see. */
static int write_bytes(struct client *client, uint64_t address, const void *bytes, size_t n)
{
    if (!is_changing(client) && !is_opening(client))
        return note_change(client, -EROFS);
    uint64_t begun = clock_now();
    int error = transaction_write(client->transaction, address, bytes, n);
    client->until += clock_now() - begun;
    give_time(client, n);
    return note_change(client, error);
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
    return note_change(
        client, is_changing(client) ? transaction_free(client->transaction, address, n) : -EROFS);
}

static int answer_allocate(struct client *client, struct cursor *cursor)
{
    uint64_t address = 0, n = take_uint(cursor, UINT64_MAX);
    if (take_end(cursor, true) < 0 || !client->transaction)
        return -EPROTO;
    int error =
        is_changing(client) ? transaction_allocate(client->transaction, n, &address) : -EROFS;
    (void)note_change(client, error);
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
    uint64_t number = take_uint(cursor, SOURCE);
    if (take_end(cursor, true) < 0 || number == 0)
        return -EPROTO;
    if (number == SOURCE)
        return 0;
    store_close(client->others[number]);
    client->others[number] = NULL;
    return 0;
}

/* One line, whatever it says. */
static void make_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == '\x7f')
            *text = '?';
}

static int pass_on(struct client *client, struct cursor *cursor)
{
    char *line;
    int level = (int)take_uint(cursor, LOG_DEBUG);
    int error = take_string(cursor, true, &line);
    if (error)
        return error == -EIO ? -EPROTO : error;
    make_line(line);
    if (client->lines++ < MOST_LINES)
        log_message(level < LOG_ERR ? LOG_ERR : level, "%.1000s", line);
    free(line);
    return 0;
}

static int answer_message(struct client *client, enum message_kind kind)
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
        answer_with(client, interrupt_check());
        return send_answer(client);
    default:
        return -EPROTO;
    }
}

/* ---- Calls ---- */

/* What a call may fail with: others mean something to those who call us. */
static int known_error(const struct client *client, uint64_t number)
{
    static const int known[] = {ENOENT, EIO,    EINVAL,    ENOMEM,  EOPNOTSUPP, EBADF,
                                EBUSY,  ESTALE, EFBIG,     EINTR,   EACCES,     EPERM,
                                ELOOP,  ENFILE, EILSEQ,    ENOTDIR, EOVERFLOW,  EDEADLK,
                                EXDEV,  EEXIST, ENOTEMPTY, ENOSPC,  EROFS};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (number == (uint64_t)known[i])
            return -known[i];
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
    make_line(reason);
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
    return channel_send(client->socket, MESSAGE_SIZE, wire, client->until);
}

static int send_call(struct client *client, enum worker_call call, const struct wire *request)
{
    if (client->in.room > MOST_KEPT)
        wire_free(&client->in);
    client->call = call;
    client->until = clock_now() + client->timeout;
    client->lines = 0;
    client->has_moved = client->read_failed = false;
    client->spoiled = 0;
    int error = tell_size(client);
    return error ? error : channel_send(client->socket, MESSAGE_CALL, request, client->until);
}

/* *is_lost: nothing can be expected of it any more, for which the error is the reason. */
static int receive_reply(struct client *client, struct cursor *results, bool *is_lost)
{
    enum message_kind kind = MESSAGE_LOG;
    int error = 0;
    *is_lost = true;
    while (!error) {
        error = channel_receive(client->socket, &kind, &client->in, client->until);
        if (!error && kind == MESSAGE_REPLY)
            break;
        if (!error)
            error = answer_message(client, kind);
    }
    if (error)
        return error;
    error = take_reply(client, results);
    if (!error && is_changing(client) && results->left != sizeof(uint64_t))
        error = -EPROTO;
    if (!error && client->transaction && is_changing(client) && !client->spoiled)
        error = note_change(client, transaction_check(client->transaction));
    *is_lost = error == -EPROTO;
    return error;
}

/* What a call has changed is the store's, if it has succeeded, or nobody's: then libhdf5 knows more
 * than there is, and its process is of no use any more. */
static int conclude(struct client *client, int error, bool is_lost)
{
    bool is_empty = transaction_is_empty(client->transaction);
    bool is_wrong = client->spoiled || client->read_failed;
    if (is_changing(client) && !is_lost && !error && !is_wrong) {
        transaction_take(client->transaction);
        return 0;
    }
    transaction_drop(client->transaction);
    if (is_lost)
        return error;
    if (is_wrong || (is_changing(client) && !is_empty))
        end_worker(client);
    if (error || !is_wrong || !(is_changing(client) || is_opening(client)))
        return error;
    library_reason("what it needs of the file could not be read or changed");
    return client->spoiled ? client->spoiled : -EIO;
}

static int exchange(struct client *client, enum worker_call call, const struct wire *request,
                    struct cursor *results, bool *is_lost)
{
    int error = 0;
    *is_lost = false;
    if (client->transaction && call >= WORKER_FIRST_CHANGE)
        error = transaction_settle(client->transaction);
    if (error) {
        library_reason("what was changed before could not be stored yet");
        return error;
    }
    *is_lost = true;
    error = send_call(client, call, request);
    if (!error)
        error = receive_reply(client, results, is_lost);
    return client->transaction ? conclude(client, error, *is_lost) : error;
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

/* Says what has become of the worker. Whether the object is to blame: not if somebody else has
 * killed it. */
static bool bury(struct client *client, enum worker_call call, uint64_t object, int error)
{
    char how[128], line[512], place[96] = "";
    int status = end_worker(client);
    bool is_killed = error == -EPIPE && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    client_say_end(error, status, client->timeout, how, sizeof(how));
    if (client->store && call != WORKER_OPEN && call != WORKER_RENEW)
        snprintf(place, sizeof(place), " of the object at address %" PRIu64 "%s", object,
                 call == WORKER_SEVERAL ? " or one listed behind it" : "");
    snprintf(line, sizeof(line), "the process of libhdf5 ended, asked for %s%s: %s", names[call],
             place, how);
    library_reason(line);
    log_error("%s: %s", client->store ? store_path(client->store) : "datatypes", line);
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
    if (strike)
        strike->n++;
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
    int error = receive_reply(client, &results, &is_lost);
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
    describe_store(&request, 0, client->store);
    client->told_size = client->transaction ? store_size(client->store) : 0;
    int error = exchange(client, call, &request, &results, &is_lost);
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
        end_worker(client);
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
        log_error("cannot start a process for libhdf5: %s", strerror(-error));
        return error == -ENOMEM ? error : -EIO;
    }
    client->starts++;
    return client->store ? open_file(client, WORKER_OPEN) : 0;
}

int client_start(struct client *client, uint64_t *root)
{
    int error = -EPIPE;
    for (int i = 0; i < MOST_STRIKES && error == -EPIPE; i++)
        error = start(client);
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

static int refuse(void)
{
    library_reason("it has ended the process of libhdf5 before, and is not read any more");
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
    error = exchange(client, call, request, results, &is_lost);
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
    for (int i = 0, kills = 0; i < MOST_TRIES && kills < MOST_KILLS && error == -EPIPE;) {
        const struct strike *strike = strikes_of(client, object);
        client->is_killed = false;
        error = request->failed ? -ENOMEM
                : strike && strike->n >= MOST_STRIKES
                    ? refuse()
                    : try_once(client, call, object, request, results, &is_started);
        kills += client->is_killed;
        i += !client->is_killed;
    }
    if (!is_started && client->transaction && !client->read_failed && !client->is_killed)
        lose(client);
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
    (void)send_call(client, call, request); /* if it has ended that is seen then */
}

/* It has a part of the time of a call, so that one that hangs takes hardly more than its own. */
int client_try(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results)
{
    bool is_lost = false;
    uint64_t timeout = client->timeout;
    collect_owed(client);
    if (request->failed || client->socket < 0)
        return -EAGAIN;
    client->timeout = timeout / TRY_PART;
    int error = exchange(client, call, request, results, &is_lost);
    if (is_lost)
        (void)bury(client, call, object, error);
    client->timeout = timeout;
    return is_lost ? -EPIPE : error;
}

int client_distrust_try(struct client *client, enum worker_call call, uint64_t object)
{
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
    describe_store(wire, SOURCE, client->source);
}

int client_settle(struct client *client)
{
    return client->transaction ? transaction_settle(client->transaction) : 0;
}

int client_distrust(struct client *client, enum worker_call call, uint64_t object)
{
    if (bury(client, call, object, -EPROTO))
        strike(client, object);
    return -EIO;
}
