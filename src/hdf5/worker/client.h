/* A worker as the program sees it: started when it is needed, asked, ended when it does not answer
 * in time, started again when it has ended. Of requests and results it knows only which call they
 * belong to. */
#ifndef SPARSEFS_HDF5_WORKER_CLIENT_H
#define SPARSEFS_HDF5_WORKER_CLIENT_H

#include "hdf5/worker/channel.h"
#include "hdf5/worker/zygote.h"

struct client;

/* A worker that reads the store, and changes it if it is writable, which must outlive it (NULL:
 * none, for datatypes). No process is started yet. A call may take so many nanoseconds; what the
 * store takes does not count. */
int client_create(struct store *store, uint64_t timeout, struct client **client);
void client_destroy(struct client *client);

/* Calls of one client wait for each other, as long as the one before takes; each is between a lock
 * and client_unlock. client_lock_interruptible: -EINTR, nobody waits for the answer any more
 * (interrupt.h). client_try_lock does not wait: false, there is another call. */
void client_lock(struct client *client);
int client_lock_interruptible(struct client *client);
bool client_try_lock(struct client *client);
void client_unlock(struct client *client);

/* Starts it, with the lock held, if it does not run. *root: the address of the file's root group.
 * Errors of hdf5_open_in_worker. */
int client_start(struct client *client, uint64_t *root);

/* Makes a running worker forget the state of a followed file, with the lock held; starts one if
 * none runs. Errors as of client_start; after one the next call restarts it. */
int client_renew(struct client *client, uint64_t *root);

/* Asks for something about an object, with the lock held: `call` and its arguments are in request,
 * results are left in *results, which is good until the next call. object: its address or, where
 * there is no file, a number that is always that of these bytes. A worker that ends is started and
 * asked again; it has no dataset open then, which is -EBADF. Errors of the call, STORE_MOVED and
 * -ESTALE also of starting it; -EIO: the worker ended more than once, or has for this object before,
 * or did not answer in time, or none can be started now; -EROFS: client_is_lost; -ENOMEM. hdf5_error() says why. */
int client_ask(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results);

/* Whether the worker itself is to be asked what it may have said before, about a file that was
 * closed since, or is not to be started for that (answers_kept.h). */
void client_ask_anew(struct client *client, bool anew);

/* As client_ask, for a call without results that needs not be made if no worker runs. Of a file that
 * is only read this does not wait until it is done: whether it has ended the worker is seen before the
 * next call. */
void client_tell(struct client *client, enum worker_call call, uint64_t object,
                 const struct wire *request);

/* Asks once for more than is needed: about several objects, of which `object` is the first, or more
 * of one. -EPIPE: the worker has ended, for which no object is blamed; -EAGAIN: no worker runs, or
 * there is no memory. After both what is needed is to be asked for by itself. Else errors of the call. */
int client_try(struct client *client, enum worker_call call, uint64_t object,
               const struct wire *request, struct cursor *results);

/* Whether what follows is one question, until the opposite is said: its calls have the time of two together. */
void client_ask_as_one(struct client *client, bool as_one);

/* Whether asking for the object has ended a worker before. */
bool client_is_struck(const struct client *client, uint64_t object);

/* Whether something of the file could not be read in the last call: its answer may leave out what can be read later. */
bool client_has_missed(const struct client *client);

/* How many workers have been started: what was told to others is not known to this one. */
unsigned client_starts(const struct client *client);

/* The last of these when the last answer came; 0: it was kept (answers_kept.h), no worker has said it. */
unsigned client_answered_by(const struct client *client);

/* Whether it can never be started again: then calls that change the file are -EROFS. Any thread. */
bool client_is_lost(const struct client *client);

/* What the next call has of bytes that are not sent to it; NULL: no more. */
void client_set_payload(struct client *client, const void *bytes, size_t n);

/* A header that the next call may write, whoever it belongs to (transaction_let_write); NULL: no more. */
struct object_header;
void client_let_write(struct client *client, const struct object_header *header);

/* A file that the next calls copy from: it is read as others are, but neither opened nor closed
 * here, and what the worker makes of it is of no harm to what it knows of its own. A call has more
 * time the more bytes it moves, up to some times those of the source. moved: what was copied
 * before, ascending by address. NULL: no more. */
void client_set_source(struct client *client, struct store *source, const struct sfs_moved *moved,
                       size_t n);
void client_put_source(const struct client *client, struct wire *wire); /* describes it */

/* Puts what calls have changed, and the store could not take then, into the store. */
int client_put_taken(struct client *client);

/* What came from it cannot be: it is ended, as if it had ended by itself. -EIO. */
int client_distrust(struct client *client, enum worker_call call, uint64_t object);

/* The same of what client_try has brought. -EPIPE. */
int client_distrust_try(struct client *client, enum worker_call call, uint64_t object);

/* Starts a request. */
void client_request(struct wire *wire, enum worker_call call);

/* ---- Of any worker ---- */

/* *number: the errno that a MESSAGE_REPLY has, positive, or 0; *results: what follows its reason, which
 * is kept for hdf5_error(). -EPROTO: it is none; -ENOMEM. */
int client_take_reply(const struct wire *in, uint64_t *number, struct cursor *results);

/* How one has ended, in words: after this error of a message; timeout: the nanoseconds that it had. */
void client_say_end(int error, const struct worker_end *end, uint64_t timeout, char *text,
                    size_t n);

/* Whether others have killed one of which this was the error of a message. */
bool client_was_killed(int error, const struct worker_end *end);

#endif
