/* Virtual datasets that are read from their sources: their mappings, and what of which source is
 * at a place. They have nothing of their own in the cache. What only libhdf5 can read stays with
 * it: elements with pointers, sources of another datatype, selections that are neither regular nor
 * lists of indices along one axis, or do not correspond axis by axis. Thread-safe. */
#ifndef SPARSEFS_DATASET_VIRTUAL_DATASET_H
#define SPARSEFS_DATASET_VIRTUAL_DATASET_H

#include "dataset/private.h"

/* Of an open virtual dataset that is described already. *virtual is NULL if it is left to libhdf5.
 * -ENOMEM, -EINTR, and -EIO with hdf5_error(). The file's lock is held. series: NULL, or what it
 * consists of instead of mappings in the file. */
int virtual_open(struct sfs_dataset *dataset, const struct series *series,
                 struct virtual **virtual);

/* Shows another series than before, with the dims that the dataset has now; no other thread is in a
 * call on it. -ENOMEM: it is as it was. */
int virtual_show(struct virtual *virtual, const struct series *series);

/* Not with the lock of a file held. NULL is nothing. */
void virtual_close(struct virtual *virtual);

/* Of memory that its mappings and the names of its sources take. */
size_t virtual_bytes(struct virtual *virtual);

/* As dataset_read_box. -EIO: a source cannot be read or is too short, or the sources lead too far;
 * the log says which, once. */
int virtual_read(struct virtual *virtual, const struct box *box, const struct place *place,
                 int depth);

/* Of elements with pointers, which libhdf5 reads, and shows the fill value for what is not there:
 * whether a box is there. Errors as of virtual_read. */
int virtual_check(struct virtual *virtual, const struct box *box);

/* As dataset_lend_box, dataset_read_held and dataset_return. What is held without being lent is
 * given back by the thread that has it, before the end of the call that began before it. */
int virtual_lend(struct virtual *virtual, const struct box *box, const void **bytes, void **holder,
                 int depth);
int virtual_read_held(void *holder, const struct box *box, void *buffer);
void virtual_return(void *holder);

/* Calls a function with each chunk that a box consists of, as far as the sources are open and
 * nothing has to be waited for, until it returns false. Returns whether it never did. Scaled
 * coordinates; of a chunk that parts of the box are in, more than once. Left out are sources of
 * which the box has elements with whole chunks between them, those that would make it more
 * than most_bytes of chunks, and of very many parts all but the first. */
typedef bool virtual_visit_fn(struct cache_dataset *cache, const uint64_t *scaled);
bool virtual_visit(struct virtual *virtual, const struct box *box, size_t most_bytes,
                   virtual_visit_fn *visit);

/* Opens the sources of a box that will be read soon, of very many the first, and none behind several that cannot be
 * opened; errors are left to the read. */
void virtual_open_sources(struct virtual *virtual, const struct box *box);

/* As sfs_virtual_sources. */
int virtual_sources(struct virtual *virtual, size_t most, struct sfs_sources *sources);

#endif
