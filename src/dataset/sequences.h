/* Elements of variable length of sparse datasets: their sequences, out of the sections of their
 * chunks. Of all datasets of files over one cache the chunk that was read last is kept, besides
 * what the cache has, in no more memory than one chunk may take (sfs_options.chunk_memory), and one
 * call at a time reads. For the files of src/dataset; thread-safe. */
#ifndef SPARSEFS_DATASET_SEQUENCES_H
#define SPARSEFS_DATASET_SEQUENCES_H

#include "dataset/private.h"

struct cache_form;

/* Whether elements of a dataset are such sequences: of elements without pointers, or strings. */
bool sequences_are_read(const struct sfs_dataset *dataset);

int sequences_create(struct sequences **sequences);  /* -ENOMEM */
void sequences_destroy(struct sequences *sequences); /* NULL is fine */

/* Before a dataset is closed. */
void sequences_forget(struct sequences *sequences, const struct sfs_dataset *dataset);

/* As sfs_read_parts. What is not defined is an empty sequence. Errors are logged; -EINTR. */
int sequences_read(struct sfs_dataset *dataset, enum sfs_parts parts, uint64_t first, uint64_t n,
                   size_t most, char **bytes, size_t *bytes_n);

/* Whether all elements of a decoded chunk (PART_DEFINED, PART_PACKED, PART_HEAP) lead to sequences;
 * of other datatypes nothing is looked at. -EIO: one does not, which is logged; -ENOMEM. */
int sequences_check(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form);

#endif
