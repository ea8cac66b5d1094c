/* The table of the views that are open for writing, for the sources named staged_*.c. */
#ifndef SPARSEFS_FS_STAGED_PRIVATE_H
#define SPARSEFS_FS_STAGED_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/hash.h"
#include "fs/staged_content.h"
#include "fs/staged_writes.h"

struct staged_key {
    uint64_t object; /* of the dataset */
    uint64_t frame;
    uint64_t view; /* an enum view_kind */
};

struct staged {
    UT_hash_handle hh;
    struct staged_key key;
    const struct node *node;
    struct views *views;
    struct staged_writer *list;
    unsigned writers;       /* in it */
    unsigned users;         /* besides, that truncate it by name */
    pthread_mutex_t order;  /* held while something of it is applied, or read to begin with; taken
                            * before the lock of the table */
    bool is_in_work;        /* a selection that is just being applied */
    atomic_bool waits;      /* something is to be applied; read without the lock */
    bool is_new;            /* the frame is to come to be, */
    bool is_refused;        /* but not by closing: something was refused */
    bool is_staged;         /* a new content; of a dense view: truncated to nothing */
    unsigned closing;       /* descriptors: nothing was written, and it is not answered yet */
    bool is_looked_at;      /* meanwhile, at another view */
    bool is_closed;         /* the same, and answered: it may be closed for good */
    uint64_t patient_until; /* clock_now: who waits for that, or 0: nobody has since */
    uint64_t close;         /* since which it is, or was until others gave up; or 0 */
    unsigned ending;       /* writers that are closed for good, before what they leave is applied */
    uint64_t head_written; /* of a dense view, truncated or new: header bytes, from the first on */
    atomic_bool is_collected; /* of one: another program's file, as a new content; changes under
                               * both locks */
    bool applies;             /* the content is being applied, without the lock */
    int failure;              /* of one that is no such file, as far as it was written; or 0 */
    /* VIEW_DEFINED, once is_staged, or is_collected, the new content: */
    bool is_written;  /* not just truncated to nothing */
    uint64_t version; /* change counter, always odd */
    struct content content;
    uint64_t most_bytes; /* of a selection; known to who has entered */
};

struct staged_writer {
    struct staged *staged;
    struct staged_writer *prev, *next; /* of the same view */
    bool has_part;                     /* of the content, something was written by this one */
    atomic_int lost; /* and others have brought about that it was forgotten: the error that is to be
                      * told; or 0; read without the lock */
};

/* A sync that waits for what was closed. */
struct staged_sync {
    struct staged_sync *prev, *next;
    const struct commits *commits; /* NULL: of all files */
    uint64_t close;                /* the last one before it */
    int error;                     /* what it waited for is lost */
};

struct staging {
    struct nodes *nodes;
    struct staging_limit *limit; /* NULL: nothing is collected */
    bool sparsify;
    pthread_mutex_t lock; /* guards what follows; nothing is read or applied under it */
    struct staged *table;
    pthread_cond_t changed; /* `waits` or `closing` of an entry */
    uint64_t version;       /* the last version given */
    uint64_t closes;        /* that were answered, of those that `closing` counts */
    struct staged_sync *syncs;
    atomic_uint waiting; /* in the table; may be read without the lock */
};

/* Waits, with the lock, for a change or a moment. -EINTR. */
int staging_wait(struct staging *staging);

/* Whether a sync is to contain what was closed first by that close. The lock must be held. */
bool staging_is_synced_by(const struct staged *staged, uint64_t close,
                          const struct staged_sync *sync);

#endif
