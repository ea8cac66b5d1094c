/* The socket between libhdf5's process and ours: messages, one after the other. */
#ifndef SPARSEFS_HDF5_WORKER_CHANNEL_H
#define SPARSEFS_HDF5_WORKER_CHANNEL_H

#include <stdint.h>

#include "hdf5/worker/wire.h"

/* From us: a call, and answers to what the worker asks for meanwhile. From the worker: its reply,
 * which ends the call, and before that anything of the rest. */
enum message_kind {
    MESSAGE_CALL,   /* enum worker_call, and what belongs to it */
    MESSAGE_ANSWER, /* error, and what was asked for */
    MESSAGE_SIZE,   /* of the store, before a call: no answer */
    MESSAGE_REPLY,  /* error; its reason; results, if there was none */
    MESSAGE_READ,   /* file, address, bytes (CHANNEL_MOST_READ at most), whether they are read
                     * ahead: asks for them */
    MESSAGE_FIND,   /* name, whether the source names it: asks for another file: its description
                     * (describe_store) */
    MESSAGE_END_OF, /* file: asks where it ends now */
    MESSAGE_LET_GO, /* file: no answer */
    /* Of a file that is written; the first three have no answer: */
    MESSAGE_WRITE,        /* address, bytes */
    MESSAGE_WRITE_NAMED,  /* address, offset, n: those of the call's bytes, which it was not sent */
    MESSAGE_FREE,         /* address, n */
    MESSAGE_ALLOCATE,     /* n: asks for an address, and the size of the store then */
    MESSAGE_END_IN_USE,   /* asks for store_end */
    MESSAGE_PATH_OF_COPY, /* address in the source: asks for the path in the copy */
    MESSAGE_LOG,          /* level, line: no answer */
    MESSAGE_INTERRUPTED,  /* asks whether the call is to end early: the error says it */
    MESSAGE_KINDS
};

#define CHANNEL_MOST_READ ((uint64_t)1 << 20)

/* What can be asked of a worker. client_end.c has a name for each, and one of the tables of
 * serve_private.h what the worker does. */
enum worker_call {
    WORKER_OPEN,
    WORKER_RENEW,
    WORKER_LIST,
    WORKER_LOOKUP,
    WORKER_FIND,
    WORKER_OBJECT_TYPE,
    WORKER_ATTRIBUTES,
    WORKER_DATASET_OPEN,
    WORKER_DATASET_CLOSE,
    WORKER_DATASET_RENEW,
    WORKER_CACHE_SOURCES,
    WORKER_MAPPINGS,
    WORKER_LOCATE,
    WORKER_READ,
    WORKER_TEXT,
    WORKER_PARTS,
    WORKER_PATHS,
    WORKER_DATATYPE_TEXT,
    WORKER_TYPE_OF_MESSAGE,
    WORKER_TYPE_DESCRIBE,
    WORKER_TYPE_SIZE,
    WORKER_TYPE_EQUAL,
    WORKER_ELEMENT_JSON,
    WORKER_ELEMENTS_TEXT,
    WORKER_ELEMENT_PARSE,
    WORKER_SEVERAL, /* WORKER_OBJECT_TYPE or WORKER_ATTRIBUTES, of several objects: the results
                     * of each with their number, as far as it goes; 0: none */
    WORKER_SHOW,    /* WORKER_DATASET_OPEN, and whether its WORKER_TEXT follows, if that is small */
    WORKER_FIRST_CHANGE, /* these change the file, and have one integer for a result: */
    WORKER_WRITE = WORKER_FIRST_CHANGE,
    WORKER_WRITE_SEQUENCES,
    WORKER_SET_EXTENT,
    WORKER_WRITE_CHUNKS,
    WORKER_PLACE,
    WORKER_CREATE_GROUP,
    WORKER_REMOVE_GROUP,
    WORKER_REOPEN,
    WORKER_CREATE_LINK,
    WORKER_UNLINK,
    /* These have a source, which is what the call says of it, and client_set_source: */
    WORKER_CREATE_DATASET,
    WORKER_COPY_ATTRIBUTES,
    WORKER_COPY_OBJECT,
    WORKER_COPY_GROUP,
    WORKER_COPY_REFERENCES,
    WORKER_CALLS
};

/* All of these wait until a time of clock_now(), UINT64_MAX: for ever, in a worker, which has SIGPIPE
 * blocked. 0; -EPIPE: nobody is there any more; -ETIMEDOUT; -EPROTO: what came is no message; -ENOMEM,
 * also for what has more than WIRE_MOST_BYTES. */
int channel_send(int socket, enum message_kind kind, const struct wire *wire, uint64_t until);

/* Puts a message behind others, and sends them all: the receiver is woken once. */
void channel_put(struct wire *batch, enum message_kind kind, const struct wire *wire);
int channel_send_batch(int socket, const struct wire *batch, uint64_t until);

int channel_receive(int socket, enum message_kind *kind, struct wire *wire, uint64_t until);

/* For who is to end earlier, however fast or slowly bytes move: several times in a second, and when the time has come,
 * ask(context) is called, whose error ends it: what is left of the message cannot be sent or received any more.
 * NULL: it is not. ask may give it more time. A message of more bytes than `most` is none. */
struct channel_wait {
    const uint64_t *until;
    int (*ask)(void *context);
    void *context;
    /* Before there is memory for a message that is received; its error ends it, too. NULL: it is not called. */
    int (*make_room)(void *context, enum message_kind kind, size_t n);
};
int channel_send_asking(int socket, enum message_kind kind, const struct wire *wire,
                        const struct channel_wait *wait);
int channel_receive_asking(int socket, enum message_kind *kind, struct wire *wire, uint64_t most,
                           const struct channel_wait *wait);

/* n bytes that are no message: `until` is for all of them, however slowly they come. */
int channel_send_bytes(int socket, const void *bytes, size_t n, uint64_t until);
int channel_receive_bytes(int socket, void *to, size_t n, uint64_t until);

#endif
