/* The objects of listed groups, in their order, with answers about some of them that a worker has
 * sent ahead. A query about one object is often followed by the same query about the next ones: so
 * a worker is asked for several at once, for more the longer that continues. Does not interpret
 * the answers, and has no lock. */
#ifndef SPARSEFS_HDF5_WORKER_ANSWERS_AHEAD_H
#define SPARSEFS_HDF5_WORKER_ANSWERS_AHEAD_H

#include "sparsefs/sparsefs.h"

#define LISTED_MOST       64                  /* objects of a row */
#define LISTED_MOST_BYTES ((size_t)256 << 10) /* that are said of a row, but for the last one */

/* What can be asked for of several objects at once. */
enum listed_what { LISTED_TYPE, LISTED_ATTRIBUTES, LISTED_WHATS };

struct listing;

/* {0} is an empty one. */
struct listed {
    struct listing *newest; /* then those before */
    size_t n;               /* objects of all */
    unsigned failed;        /* rows */
};

/* Objects to be asked for at once: the first one, and those behind it. */
struct listed_row {
    struct listing *listing; /* NULL: it is alone */
    size_t at;
    unsigned n;
    const uint64_t *addresses; /* n of them; good until something is noted or cleared */
};

/* A group was listed. Without memory it is not kept. */
void listed_note(struct listed *listed, uint64_t group, const struct sfs_links *links);

/* Discards answers sent ahead: the file has changed, and its listings with it; or only the worker
 * is a new one. */
void listed_clear(struct listed *listed);
void listed_clear_said(struct listed *listed);

/* What was said of an object, good until a row is asked for or kept, or anything is noted or cleared;
 * or NULL. */
const unsigned char *listed_said(struct listed *listed, enum listed_what what, uint64_t address,
                                 size_t *n);

/* Discards the answers sent ahead about one object. */
void listed_forget(struct listed *listed, enum listed_what what, uint64_t address);

/* The row that is to be asked for with an object of which nothing was said. *address must outlive
 * it. */
struct listed_row listed_row(struct listed *listed, enum listed_what what, const uint64_t *address);

/* Keeps a row's answers, one after the other: each is its number of bytes, in 8, then those; 0:
 * there is none. The bytes are taken over. -EIO: they are not that, or answers of more objects. */
int listed_keep(const struct listed_row *row, enum listed_what what, unsigned char *said, size_t n);

/* The worker did not survive a row: its objects are asked for one by one. NULL: nor anything else
 * that was not needed. After some of them nothing like that is to be asked for. */
void listed_failed(struct listed *listed, const struct listed_row *row);
bool listed_may_fail(const struct listed *listed);

#endif
