/* Shared by the files serve*.c only. */
#ifndef SPARSEFS_HDF5_WORKER_SERVE_PRIVATE_H
#define SPARSEFS_HDF5_WORKER_SERVE_PRIVATE_H

#include "hdf5/private.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/wire.h"

struct served_file {
    uint64_t number, size;
    bool is_live; /* it changes meanwhile: nothing of it is kept */
};

/* What this process does, in its only thread. */
extern struct served {
    int socket;
    struct hdf5 *hdf5; /* the file that is served */
    struct store *store;
    struct served_file *file; /* that the store reads */
    struct wire wire;         /* of what is asked for in a call */
    /* What stands for the bytes of a call that were not sent: only its addresses count. */
    const char *payload;
    size_t payload_n;
} served;

/* ---- serve.c ---- */

/* Ends the process after an error of the socket. */
void serve_need(int error);

/* Starts a question in served.wire. It is sent without an answer, with others; or at once, behind
 * these, for an answer's error and, in *cursor, the rest of it. */
struct wire *serve_question(void);
void serve_tell(enum message_kind kind);
int serve_ask(enum message_kind kind, struct cursor *cursor);

/* ---- serve_file.c ---- */

/* A store that reads over the socket; its description is what follows in the message. file: NULL,
 * or gets what the store reads, and closes. */
int serve_open_store(struct cursor *cursor, const char *name, struct store **store,
                     struct served_file **file);

/* The file that is served has another state, which is described likewise. */
void serve_renew_store(struct cursor *cursor);

/* Others have allocated space since the last call. */
void serve_take_size(struct cursor *cursor);

void serve_forget_pages(const struct served_file *file);

/* What libhdf5 finds in virtual datasets, as driver_set_finder wants it. */
int serve_find_other(const struct store *from, const char *name, struct store **store,
                     bool *is_refused);

/* Where an object of the source is in the copy; NULL: nowhere. Good until the next one. */
const char *serve_path_of_copy(uint64_t address);

/* ---- Calls ---- */

/* Each takes the arguments of a call, does it, and puts its results. */
typedef int (*call_function)(struct cursor *in, struct wire *out);

/* serve_read.c, serve_change.c, serve_type.c: by their numbers; NULL: it is in another one. Those
 * of datatypes, and WORKER_OPEN, need no file. */
extern const call_function serve_reading[WORKER_CALLS], serve_changing[WORKER_CALLS],
    serve_types[WORKER_CALLS];

/* serve_read.c: an open dataset of that rank, after its arguments were taken. -EBADF, -EINVAL. */
uint64_t serve_take_object(struct cursor *in);
int serve_find_open(uint64_t address, int rank, const struct cursor *in,
                    const struct open_dataset **dataset);
int serve_put_string(struct wire *out, int error, char *string);

/* serve_copy.c: whether what names another file is the source of a copy. */
bool serve_is_source(const struct store *store);

/* serve_change.c: the result of a call that changes the file; returns the error. */
int serve_put_number(struct wire *out, int error, uint64_t number);

/* serve_type.c */
struct sfs_encoded serve_take_encoded(struct cursor *in);

/* New datasets, and what is copied from another file (serve_copy.c). */
int serve_create_dataset(struct cursor *in, struct wire *out);
int serve_copy_attributes(struct cursor *in, struct wire *out);
int serve_copy_object(struct cursor *in, struct wire *out);
int serve_copy_group(struct cursor *in, struct wire *out);
int serve_copy_references(struct cursor *in, struct wire *out);

#endif
