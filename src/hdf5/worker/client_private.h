/* Shared by the files client*.c and objects_given_up.c only. All of it is called with the client locked. */
#ifndef SPARSEFS_HDF5_WORKER_CLIENT_PRIVATE_H
#define SPARSEFS_HDF5_WORKER_CLIENT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "common/why.h"
#include "hdf5/local.h"
#include "hdf5/worker/client.h"
#include "hdf5/worker/patience.h"
#include "hdf5/worker/transaction.h"

#define CLIENT_MOST_OTHERS 256 /* files that a worker may have open besides its own */
#define CLIENT_SOURCE      CLIENT_MOST_OTHERS /* number of the file that is copied from */

#define CLIENT_END_TEXT 320 /* bytes */

/* Workers of files that are only read, while nobody asks more at a time. */
#define CLIENT_MOST_RUNNING 128

/* The time of a call that all tries have together, and all calls of one question. */
#define CLIENT_MOST_TIMES 2

/* Bytes for messages each way, while nobody has it locked. */
#define CLIENT_MOST_KEPT ((size_t)2 << 20)

/* How often asking for an object has ended a worker. */
struct strike {
    uint64_t object;
    unsigned n;
    char last[CLIENT_END_TEXT]; /* asked for what, and how it ended */
    UT_hash_handle hh;
};

/* A file that a worker has open besides its own. */
struct other {
    struct store *store; /* NULL: none */
    unsigned uses;       /* how often it has it open */
    bool is_of_source;   /* the file that is copied from names it */
};

struct client {
    pthread_mutex_t lock; /* guards what follows */
    struct store *store;
    uint64_t timeout; /* nanoseconds */
    struct patience patience;
    bool said_impatient;
    int socket; /* -1: no worker runs */
    pid_t pid;
    uint64_t empty_bytes; /* its address space when it had opened the file */
    unsigned starts;
    uint64_t root;
    struct other others[CLIENT_MOST_OTHERS]; /* [0] is not used: that is the store itself */
    size_t n_others;                         /* that are there */
    struct store *source;                    /* of client_set_source */
    struct copied_paths paths;               /* of what was copied from it */
    uint64_t moved_most;                     /* bytes that still give a call more time */
    struct strike *strikes;
    unsigned struck_in; /* of a followed file: the state that they are of (store_states_found) */
    struct wire in, out;
    size_t large; /* bytes that were taken for what is in `in` (large_messages.h) */
    /* Of a call whose reply was not waited for: */
    bool is_owed;
    enum worker_call owed_call;
    uint64_t owed_object;
    /* Of the call that is under way: */
    uint64_t until, given;   /* given: nanoseconds, without what was added to it */
    uint64_t busy_before;    /* what it had waited for a processor before, */
    uint64_t busy;           /* and since, as it was added to `until` */
    uint64_t unwanted_since; /* clock_now when that was found first; 0: it was not; of a change
                              * with what was waited for the disk since */
    unsigned lines_left, change_lines_left; /* of the log */
    bool has_said;                          /* something for the log */
    bool has_looked_elsewhere;              /* for another file */
    bool asks_anew;                         /* cached answers are not used */
    unsigned answered_by;                   /* client_answered_by */
    bool asks_as_one;
    /* Nanoseconds of workers since client_ask, or client_ask_as_one, without those of the disk: */
    uint64_t spent;
    bool is_killed;                 /* by another process, when it ended last: */
    char last_end[CLIENT_END_TEXT]; /* asked for what, and how */
    bool has_moved;                 /* it was told that a followed file has, */
    bool was_told_to_end;           /* and that nobody waits for it any more */
    /* Of a file that is written: */
    struct transaction *transaction; /* else NULL */
    uint64_t told_size;              /* of the store */
    atomic_bool is_lost;
    enum worker_call call; /* that is under way */
    bool read_failed;      /* something in this call: what libhdf5 knows may be half of it */
    int spoiled;           /* the first error of a change in this call */
    const char *payload;
    size_t payload_n;
    /* Of client_idle.c, under its lock: */
    bool is_running; /* it is in the list */
    struct client *prev_running, *next_running;
};

static inline bool client_is_opening(const struct client *client)
{
    return client->call == WORKER_OPEN;
}

static inline bool client_is_changing(const struct client *client)
{
    return client->call >= WORKER_FIRST_CHANGE;
}

/* Whether the call that is under way has less time after others had too little: not where more than an object is lost
 * without an answer, nor where that would be the fault of other files. */
static inline bool client_is_impatient(const struct client *client)
{
    return client->store && !client_is_changing(client) && !client_is_opening(client) &&
           client->call != WORKER_RENEW;
}

/* ---- client_start.c ---- */

/* Starts the worker, unless one runs, which opens the file. -EPIPE: it has ended again, which is logged; -ECHILD: none
 * can be started now; -EIO: nor later; -ENOMEM; errors of opening. */
int client_begin(struct client *client);

/* Where errors of its file are said (why_say). */
struct why *client_why(const struct client *client);

/* ---- client_end.c: when a worker ends ---- */

/* Ends the worker, if one runs. */
void client_end_worker(struct client *client);

/* Whether one runs that has taken so much of its memory that there may be none for another dataset. */
bool client_is_full(const struct client *client);

/* Logs how the worker ended that was asked for something of an object. Returns whether that is to blame:
 * not if another process has killed it. */
bool client_bury(struct client *client, enum worker_call call, uint64_t object, int error);

/* ---- objects_given_up.c ---- */

#define CLIENT_MOST_STRIKES 2     /* times that an object may end a worker */
#define CLIENT_MOST_STRUCK  16384 /* objects of which it is known, some 400 bytes each */

/* Notes that an object has ended a worker; without memory it is not counted. Of too many, that which was first to end
 * one may end others again. */
void client_strike(struct client *client, uint64_t object);

void client_forget_strikes(struct client *client);

/* Whether it has done so too often to be asked about; then hdf5_error() says how it ended last. */
bool client_refuses(const struct client *client, uint64_t object);

/* ---- client_reuse_answers.c: answers that are kept (answers_kept.h) ---- */

/* Whether a question was answered before: then *results is the answer, in client->in. */
bool client_knows(struct client *client, enum worker_call call, const struct wire *request,
                  struct cursor *results);

/* Keeps the answer of a call that has succeeded: unless it has said something in the log, or other files may
 * have had to do with it. */
void client_note_answer(const struct client *client, enum worker_call call,
                        const struct wire *request, const struct cursor *results);
void client_forget_answers(const struct client *client);

/* The root of the file, in client->root, as it was said when the file was opened before, as now for writing or only for
 * reading; false: it was not. */
bool client_knows_root(struct client *client);
void client_note_root(const struct client *client);

/* ---- client_exchange.c: one call of a worker that runs ---- */

/* From now on it has so many nanoseconds, and those that it is not given a processor. */
void client_begin_time(struct client *client, uint64_t nanos);

/* *is_lost: nothing can be expected of it any more, for which the error is the reason. -EINTR: nobody waits for the
 * answer any more (interrupt.h): the worker is ended, for which no object is blamed. */
int client_exchange(struct client *client, enum worker_call call, const struct wire *request,
                    struct cursor *results, bool *is_lost);

/* The halves of it, of a call whose reply is not waited for. The worker is to be ended after -EINTR of either. */
int client_send_call(struct client *client, enum worker_call call, const struct wire *request);
int client_receive_reply(struct client *client, struct cursor *results, bool *is_lost);

/* Forgets a message that was received, if it is large. */
void client_free_large(struct client *client);

/* A message of the call that is under way. Errors of channel_send, and -EINTR as above: one that does not listen is
 * waited for no longer than one that does not answer. */
int client_send(struct client *client, enum message_kind kind, const struct wire *wire);

/* ---- client_idle.c: workers of files that are only read; of others these do nothing ---- */

/* One was started, or is asked; it was ended. */
void client_note_asked(struct client *client);
void client_note_ended(struct client *client);

/* Before one is started: ends that which was not asked for longest, if there are CLIENT_MOST_RUNNING, and not all of
 * them are busy. */
void client_end_idle(void);

/* ---- client_others.c ---- */

/* Opens what a file names, or finds it open. -ENFILE: the worker, or all of them together, have too many; that is
 * logged. Errors of driver_find_other. */
int client_find_other(struct client *client, const char *name, bool is_of_source, size_t *number,
                      bool *is_refused);

/* Each time that it was found. One that is not there is none. */
void client_let_go(struct client *client, size_t number);

/* When no worker has them any more. */
void client_close_others(struct client *client);

/* ---- client_answer.c: what a worker asks for, and says, in a call ---- */

/* Does what the message in client->in wants. -EPROTO: it cannot be; -ENOMEM; errors of client_send.
 * After any of them the worker is not to be asked any more. */
int client_answer(struct client *client, enum message_kind kind);

/* Takes the error of a change down, for the call to fail with it. -EPROTO: the worker touched what
 * it may not, which it does not unless somebody has taken it over. */
int client_note_change(struct client *client, int error);

void client_describe_store(struct wire *wire, uint64_t number, const struct store *store);

#endif
