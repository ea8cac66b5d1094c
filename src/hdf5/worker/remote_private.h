/* Shared by the files remote*.c only: what is known of a worker's file, and asking. */
#ifndef SPARSEFS_HDF5_WORKER_REMOTE_PRIVATE_H
#define SPARSEFS_HDF5_WORKER_REMOTE_PRIVATE_H

#include <stdatomic.h>

#include "common/hash.h"
#include "format/datatype_message.h"
#include "hdf5/own_reader.h"
#include "hdf5/worker/answers_ahead.h"
#include "hdf5/worker/client.h"
#include "hdf5/worker/remote.h"

#define MOST_BATCH 64 /* chunks that are located at once */
#define MOST_TEXTS 16 /* that came with descriptions and were not asked for yet */

/* Where some chunks are that follow each other in row-major order. */
struct batch {
    uint64_t first; /* number of a chunk */
    unsigned n;     /* 0: none */
    struct hdf5_chunk chunk[MOST_BATCH];
};

struct remote_dataset {
    uint64_t address;
    int rank;
    uint64_t dims[SFS_MAX_RANK];
    size_t element_size;
    char *path; /* of hdf5_cache_sources, or NULL; and its bytes */
    size_t source_bytes;
    char *text; /* that came with its description, or NULL */
    size_t text_n, text_limit;
    unsigned opened_by; /* client_answered_by: of who has opened it last */
    /* Chunked ones: */
    uint64_t chunk_dims[SFS_MAX_RANK], grid[SFS_MAX_RANK]; /* elements, chunks */
    bool has_numbers;                                      /* its chunks can be counted */
    unsigned next_batch;
    struct batch *batches; /* made when they are first needed */
    UT_hash_handle hh;
};

/* A dataset that was closed during another call. */
struct closed {
    struct closed *next;
    uint64_t address;
};

struct remote {
    struct store *store;
    struct client *client;
    /* Under the client's lock: */
    struct remote_dataset *datasets;
    struct listed listed;
    struct direct *direct;           /* NULL: libhdf5 is asked for everything */
    _Atomic(struct closed *) closed; /* what is to be closed; any thread */
    uint64_t number;                 /* no other has it */
    atomic_ullong renewals;          /* of its file: others that read it have to open it again */
    unsigned starts;                 /* of workers, when listed was used last */
    size_t text_limit; /* of datasets that are opened now: their text comes, too; 0: it does not */
    uint64_t text_of[MOST_TEXTS]; /* addresses of those that may have one, in a ring */
    unsigned next_text;
};

/* The client's lock, after which all is closed that was to be. Interruptible: -EINTR (client.h), for
 * calls whose callers can do without an answer; those that change the file, or are told that it has
 * changed, wait on. */
void remote_lock(struct remote *remote);
int remote_lock_interruptible(struct remote *remote);
void remote_unlock(struct remote *remote);

/* Takes out of results what it wants of them. -EIO: they cannot be. */
typedef int (*take_function)(struct cursor *results, void *out);

/* For remote_take_text: bytes, with a NUL behind them, and their number. The caller frees them. */
struct remote_text {
    char *bytes;
    size_t n;
};
int remote_take_text(struct cursor *results, void *text);
int remote_take_number(struct cursor *results, void *number); /* uint64_t */

/* Whether answers about more than is asked for will still be right when they are. */
bool remote_may_ask_ahead(const struct remote *remote, enum listed_what what);

/* What answers about an object without a worker, or NULL: if the file is being written, or the
 * object has ended a worker. With the client's lock held. */
struct direct *remote_direct(const struct remote *remote, uint64_t object);

/* Starts a request about an object. */
void remote_request(struct wire *request, enum worker_call call, uint64_t object);

/* Asks, and hands what comes to `take` (NULL: nothing of it is wanted). Errors of client_ask and of
 * take. remote_ask takes the client's lock, -EINTR if that is not wanted any more before it comes to
 * a call that only reads, and frees the request; the other is called with it. */
int remote_ask(struct remote *remote, enum worker_call call, uint64_t object, struct wire *request,
               take_function take, void *out);
int remote_ask_locked(struct remote *remote, enum worker_call call, uint64_t object,
                      struct wire *request, take_function take, void *out);

/* What decides how many bytes of our memory an element has: a worker is not asked. -EINVAL; hdf5_error
 * has the reason. */
int remote_measure(const void *type, size_t n, struct datatype_element *element);

/* ---- All of these with the client's lock held ---- */

void remote_dataset_free(struct remote_dataset *dataset); /* in no table */
void remote_close_now(struct remote *remote, uint64_t address);

/* One that is open here, or NULL. */
struct remote_dataset *remote_dataset_find(struct remote *remote, uint64_t address);

/* As remote_ask_locked, about an open dataset: a worker that does not know it is told of it. All that has the time
 * of two calls. */
int remote_ask_dataset(struct remote *remote, struct remote_dataset *dataset, enum worker_call call,
                       struct wire *request, take_function take, void *out);

/* The dims have changed: with them, what is known of chunks. */
void remote_set_dims(struct remote_dataset *dataset, const uint64_t *dims);

/* Discards its cached text. */
void remote_forget_text(struct remote_dataset *dataset);

/* Discards cached chunk addresses. */
void remote_forget_chunks(struct remote_dataset *dataset);

/* ---- */

/* A number that stands for some bytes (FNV-1a). */
uint64_t remote_number(const void *bytes, size_t n);

#endif
