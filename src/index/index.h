/* Chunk indexes: where each chunk of a dataset is. One interface over four kinds, of which the
 * layout message says which it is:
 *
 *   single            one chunk, which the layout message itself describes
 *   fixed array       no axis is unlimited: an array over the grid of the max dims
 *   extensible array  one axis is unlimited: an array that grows
 *   version 2 B-tree  several are: records ordered by scaled coordinates
 *
 * (HDF5 file format specification, sections III.A.2 and VII; the structures of sparse datasets
 * differ from those of dense ones only in their records and version numbers, and both are read.)
 *
 * An index knows the store and src/format, and neither dataset nor cache. It does not change once
 * it is open, but for a few blocks that it keeps under a lock of its own: all functions but
 * index_close may be called from any thread at once. What another hand writes to the index behind
 * its back is not seen: close it and open it again.
 *
 * Errors of all functions: -EIO (the store failed and has logged it) and -EILSEQ, of which why
 * says what is wrong and where; -ENOMEM. Results are untouched on error. Whatever the
 * file holds, memory and time stay in proportion to its size. */
#ifndef SPARSEFS_INDEX_INDEX_H
#define SPARSEFS_INDEX_INDEX_H

#include "format/layout_message.h"

struct index;
struct store;

/* Opens the index that layout names, of a dataset with these max dims, whose records have this
 * form; see layout_message_records. The store and the superblock must outlive it. Reads at most
 * three times, whatever the number of chunks. */
int index_open(struct store *store, const struct superblock *superblock,
               const struct layout_message *layout, const struct chunk_record_format *format,
               const uint64_t *max_dims, struct index **index, struct why *why);
void index_close(struct index *index); /* NULL is fine */

/* Finds the chunk with these scaled coordinates. One that is not stored, or lies outside of the max
 * dims, does not exist, which is no error. Reads of the store: single chunk none; fixed array at
 * most one, extensible array two, B-tree one for each level below the root. */
int index_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                 struct why *why);

/* Called with a chunk that exists; what is not 0 ends the iteration and is returned by it. */
typedef int (*index_each_function)(void *context, const uint64_t *scaled,
                                   const struct chunk_record *record);

/* All chunks that exist, in the order of the index: arrays by element, which is row-major with the
 * unlimited axis first; B-trees by coordinates. Those that the dataset has lost by shrinking are
 * among them if they are stored. */
int index_iterate(struct index *index, index_each_function each, void *context, struct why *why);

#endif
