/* How long the processes of libhdf5 of one file may take for an answer: less and less when they have not answered in
 * time again and again, so that a file cannot have them take all of that time for each of its objects. Thread-safe: it
 * has no state of its own. */
#ifndef SPARSEFS_HDF5_WORKER_PATIENCE_H
#define SPARSEFS_HDF5_WORKER_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_FAILURES 3                    /* that have all of their time */
#define PATIENCE_ANSWERS  256                  /* in a row, after which it is as at first */
#define PATIENCE_LEAST    UINT64_C(1000000000) /* nanoseconds, or all, if these are fewer */

struct patience {
    unsigned failures; /* calls that have ended for want of time, as far as it makes a difference */
    unsigned answers;  /* in a row, since the last of them */
};

/* Nanoseconds of a call that has `all` otherwise: half as many after each further failure. */
static inline uint64_t patience_time(const struct patience *patience, uint64_t all)
{
    uint64_t least = all < PATIENCE_LEAST ? all : PATIENCE_LEAST, time = all;
    for (unsigned i = PATIENCE_FAILURES; i <= patience->failures && time > least; i++)
        time /= 2;
    return time > least ? time : least;
}

/* A call has ended for want of time. Whether others have less from now on, which they had not before. */
static inline bool patience_fail(struct patience *patience)
{
    patience->answers = 0;
    patience->failures += patience->failures < 64;
    return patience->failures == PATIENCE_FAILURES;
}

/* One has ended by itself. */
static inline void patience_answer(struct patience *patience)
{
    if (patience->failures > 0 && ++patience->answers == PATIENCE_ANSWERS)
        *patience = (struct patience){0};
}

#endif
