/* Chunk indexes: where each chunk of a dataset is, read and written. One interface over four kinds,
 * of which the layout message says which it is:
 *
 *   single            one chunk, which the layout message itself describes
 *   fixed array       no axis is unlimited: an array over the grid of the max dims
 *   extensible array  one axis is unlimited: an array that grows
 *   version 2 B-tree  several are: records ordered by scaled coordinates
 *
 * (HDF5 file format specification, sections III.A.2 and VII; the structures of sparse datasets
 * differ from those of dense ones only in their records and version numbers, and both are read.)
 *
 * An index knows the store and src/format, and neither dataset nor cache. All functions but
 * index_close may be called from any thread at once: a lock of its own lets in either one that
 * changes it or any number that do not, none of which sees half a change. Changes that
 * others make to the stored index are not seen: close it and open it again.
 *
 * Changes are seen at once, but are in memory until index_flush, or until there are several MiB of
 * them: only after a flush does the store hold an index that can be committed.
 *
 * Errors of all functions: -EIO (the store failed and has logged it) and -EILSEQ, of which why
 * says what is wrong and where; -ENOMEM; other errors of store_read (STORE_MOVED, -ESTALE); -EINTR
 * (interrupt.h), where an index is opened or read that has large blocks. Results
 * are untouched on error, and so is the index.
 * Whatever the file holds, memory and time stay in proportion to its size. */
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
void index_close(struct index *index); /* forgets what was not flushed; NULL is fine */

/* Bytes of the blocks that it keeps in memory. */
size_t index_kept_bytes(struct index *index);

/* Finds the chunk with these scaled coordinates. One that is not stored, or lies outside of the max
 * dims, does not exist, which is no error. Reads of the store: single chunk none; fixed array at
 * most one, extensible array two, B-tree one for each level below the root. */
int index_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                 struct why *why);

/* Called with a chunk that exists; a result other than 0 ends the iteration and is returned. May
 * look up chunks, but not change the index. */
typedef int (*index_each_function)(void *context, const uint64_t *scaled,
                                   const struct chunk_record *record);

/* All chunks that exist, in the order of the index: arrays by element, which is row-major with the
 * unlimited axis first; B-trees by coordinates. Those that the dataset has lost by shrinking are
 * among them if they are stored. */
int index_iterate(struct index *index, index_each_function each, void *context, struct why *why);

/* Chunks from `first` to `last`, both included, on every axis; if `behind` is not NULL, only those
 * after it in the order of the index, to resume an iteration. Scaled coordinates. */
struct index_range {
    const uint64_t *first, *last, *behind;
    /* Of extensible arrays: bytes of blocks that all calls for one walk may read: at first the size of
     * the store */
    uint64_t *budget;
};

/* The same of the chunks in a range. Arrays: what is read is the part of them from the first to the
 * last element of the range; B-trees: its records from `first` to `last` in their order. */
int index_iterate_in(struct index *index, const struct index_range *range, index_each_function each,
                     void *context, struct why *why);

/* Called with n bytes at address that a structure of the index takes, whether all of them are in
 * use or not; name says which. What is not 0 ends the iteration and is returned by it. It must not
 * call functions of the index, whose lock is held. */
typedef int (*index_block_function)(void *context, const char *name, uint64_t address, uint64_t n);

/* All structures of the index, verified as far as they are read for this; and the counts of them
 * that it keeps. A single chunk has none. */
int index_each_block(struct index *index, index_block_function each, void *context,
                     struct why *why);

/* ---- Writing: the store is writable ---- */

/* The number of a chunk in an array over a grid of so many chunks per axis: row-major, with the
 * unlimited axis, if there is one, before the others. False: it exceeds 64 bits. */
bool index_number(int rank, const uint64_t *max_chunks, const uint64_t *scaled, uint64_t *number);

#define INDEX_MOST_ELEMENTS ((uint64_t)1 << 32) /* of an array, in all datasets */

/* Whether the index can hold the chunk with these scaled coordinates: what it cannot is refused by
 * index_insert with -EFBIG. It can hold all that precede one in every axis, too. */
bool index_can_hold(struct index *index, const uint64_t *scaled);

/* Sets where the chunk with these scaled coordinates is, whether it was there before or not; the
 * structures that it needs are made. Arrays: in constant time, whatever the number of chunks;
 * B-tree: in logarithmic time. Errors besides those above, of which why says more: -EINVAL: the
 * coordinates lie outside of the max dims, or the record contradicts itself or the store's size;
 * -EFBIG: an array has no such element, or a field of the file is too narrow; -EOPNOTSUPP: nodes of a
 * B-tree are smaller, or fuller, than this can write; what store_allocate and, when changes are written,
 * store_write return. */
int index_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                 struct why *why);

/* The chunk with these scaled coordinates exists no more; it is no error if it did not. Errors are
 * those of index_insert. */
int index_remove(struct index *index, const uint64_t *scaled, struct why *why);

/* Makes the structures that an index without chunks has, if it has any and they are not there yet.
 * Errors are those of index_insert. */
int index_make(struct index *index, struct why *why);

/* Writes all changes to the store, blocks before the blocks that point to them. After an error they
 * are still in memory, and can be written again; the store must not be committed until then. */
int index_flush(struct index *index, struct why *why);

/* Puts into the layout message what it has to say of the index: its address, or the record of the
 * single chunk, and the numbers that stand in its header, too; and whether its address, or the
 * chunk, would change the message. */
void index_layout(struct index *index, struct layout_message *layout);
bool index_layout_changed(struct index *index, const struct layout_message *layout);

#endif
