/* Elements of variable length of sparse datasets: their sequences, out of the forms that the chunk
 * cache has of their chunks. For the files of src/dataset; thread-safe. */
#ifndef SPARSEFS_DATASET_SEQUENCES_H
#define SPARSEFS_DATASET_SEQUENCES_H

#include "dataset/private.h"

struct cache_form;

/* Whether elements of a dataset are such sequences: of elements without pointers, or strings. They
 * are read and written then. */
bool sequences_are_read(const struct sfs_dataset *dataset);

/* As sfs_read_parts. What is not defined is an empty sequence. Errors are logged; -EINTR. */
int sequences_read(struct sfs_dataset *dataset, enum sfs_parts parts, uint64_t first, uint64_t n,
                   size_t most, char **bytes, size_t *bytes_n);

struct selection;

/* As sfs_read_sequences, of what a selection names once. */
int sequences_read_selected(struct sfs_dataset *dataset, const struct selection *selection,
                            struct sfs_sequence **sequences);

/* Whether all elements of a decoded chunk (PART_DEFINED, PART_PACKED, PART_HEAP) lead to sequences;
 * of other datatypes nothing is looked at. -EIO: one does not, which is logged; -ENOMEM. */
int sequences_check(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form);

#endif
