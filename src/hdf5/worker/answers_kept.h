/* What libhdf5's processes have said of files that many programs may list again and again, one
 * after the other: a file that is closed, and opened again as it was, needs no process until
 * something is asked of it for the first time. An answer is of one file in one state,
 * and is checked as if it had just come. Thread-safe. */
#ifndef SPARSEFS_HDF5_WORKER_ANSWERS_KEPT_H
#define SPARSEFS_HDF5_WORKER_ANSWERS_KEPT_H

#include "hdf5/worker/wire.h"
#include "store/store.h"

/* A file in one state: no other one has these numbers. */
struct answers_of {
    uint64_t device, inode, size;
    uint64_t modified[2], changed[2]; /* seconds, nanoseconds */
};

/* How much is kept, the last used ones; 0, as in the beginning: nothing. */
void answers_keep_most(size_t bytes);

/* False: nothing is kept of the store, or not now. It must be what its file is
 * (store_is_as_in_file), which has not been changed for a while: else it might be changed again
 * within what its time tells apart. */
bool answers_identify(const struct store *store, struct answers_of *of);

/* What was answered to a request, put into *answer, which is emptied first. */
bool answers_find(const struct answers_of *of, const struct wire *request, struct wire *answer);

/* Keeps it, unless there is no memory for it. */
void answers_keep(const struct answers_of *of, const struct wire *request, const void *bytes,
                  size_t n);

/* Something of a file cannot be: nothing of it is kept any more. */
void answers_forget(const struct answers_of *of);

#endif
