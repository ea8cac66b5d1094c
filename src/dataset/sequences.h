/* Elements with parts of variable length (format/variable_slots.h) of sparse datasets: their sequences, out
 * of the forms that the chunk cache has of their chunks. For the files of src/dataset; thread-safe.
 */
#ifndef SPARSEFS_DATASET_SEQUENCES_H
#define SPARSEFS_DATASET_SEQUENCES_H

#include "dataset/private.h"

struct cache_form;

/* Whether elements of a dataset have such parts. They are read and written then. */
bool sequences_are_read(const struct sfs_dataset *dataset);

/* Whether each is a string or a sequence, of elements without such parts, and nothing else. */
bool sequences_are_all(const struct sfs_dataset *dataset);

struct hdf5_parts;

/* As sfs_read_parts, where they are all. What is not defined is an empty sequence. Errors are
 * logged; -EINTR. */
int sequences_read(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **bytes,
                   size_t *bytes_n);

struct selection;

/* As sfs_read_variable, of what a selection names once. most: bytes, as they are stored, that its slots may lead to
 * together; beyond that it is -EFBIG, before there is memory for more. taken: NULL, or 0, and then what is to be given
 * back to selection_memory_give_back as the elements are freed, also after an error: memory for many is counted there.
 * -EFBIG: there is none for so many elements, but may be for fewer; errors of selection_memory_take. */
int sequences_read_selected(struct sfs_dataset *dataset, const struct selection *selection,
                            size_t most, size_t *taken, void **elements);

/* Whether all elements of a decoded chunk (PART_DEFINED, PART_PACKED, PART_HEAP) lead to sequences;
 * of other datatypes nothing is looked at. most: bytes that looking may take, cache_chunk_limit.
 * address: UINT64_MAX, it is not known. -EIO: one does not, or it takes more, which layout_failed has
 * said; -ENOMEM, -EINTR. */
int sequences_check(struct layout *layout, size_t most, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form);

#endif
