/* The shared chunk cache: one for all datasets of a file (and of the files that its external links
 * name), under one memory limit. It knows a dataset only as its struct layout: chunks are found,
 * decoded, encoded and inserted by its callbacks, and stored bytes are read from its store. Calls
 * are named as in the HDF Group's RFC "Shared Chunk Cache Internal API", without the H5SC prefix.
 *
 * Every function may be called from any thread. No lock of the cache is held during input, output,
 * decoding, encoding or copying, except the lock of an open chunk (one that is changed in place)
 * while bytes are copied. Waiting for others who load a chunk, and for memory, ends with -EINTR
 * (common/interrupt.h). Threads that miss the same chunk read and decode it once. Dirty chunks
 * are encoded and stored by threads of the cache when there are many, or when the cache is flushed.
 */
#ifndef SPARSEFS_CACHE_CACHE_H
#define SPARSEFS_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/box.h"
#include "sparsefs/sparsefs.h"

struct cache;
struct cache_dataset;
struct layout;
struct store;
struct workers;

/* n_workers: at most so many threads read and decode beside the caller, and at most as many encode;
 * each is started when there is work for it. The limit in bytes counts all memory allocated for
 * chunks and for what is needed to decode and encode them. It is exceeded only by one chunk that takes
 * more than three quarters of it while it is loaded, beside which others have a quarter, and by what
 * encoding takes more than a quarter of it. */
int cache_create(size_t limit, unsigned n_workers, struct cache **cache);

/* A limit per chunk: if reading or changing one chunk would take more bytes of memory at once than
 * this, nothing is allocated, the call fails with -EIO and the reason is logged. Set before the
 * cache is used; there is no limit by default. */
void cache_limit_chunks(struct cache *cache, size_t most);
size_t cache_chunk_limit(const struct cache *cache);

/* The eviction policy. Set before the cache is used. */
void cache_set_policy(struct cache *cache, enum sfs_policy policy);

/* The memory limit, and changing it. Clean chunks without pins are evicted at once as far as
 * needed, everything else when memory is wanted. Never waits. */
size_t cache_limit(const struct cache *cache);
void cache_set_limit(struct cache *cache, size_t limit);

/* Whether so many bytes can be changed without waiting for the disk. If not, dirty chunks are
 * written back, and the error is why they cannot be. The room is not reserved: other threads may
 * take it. */
int cache_make_room(struct cache *cache, size_t bytes);

/* The cache's worker threads, for other work that can be split by chunks. */
struct workers *cache_workers(struct cache *cache);

/* All datasets must have been closed. */
void cache_destroy(struct cache *cache);

/* A dataset's place in the cache; the layout must outlive it. Closing forgets its chunks, also what
 * was changed and not flushed. */
int cache_open_dataset(struct cache *cache, struct layout *layout, struct cache_dataset **dataset);
void cache_close_dataset(struct cache_dataset *dataset);

/* Reads the elements of a box, which must lie inside the dataset, row-major and without gaps into
 * buffer. Elements that are not stored read as the fill value. Errors are those of the layout
 * callbacks and of store_read; -ENOMEM; -EINTR (interrupt.h): who reads does not want it any more,
 * which is no error for others that wait for the same chunk. */
int cache_read(struct cache_dataset *dataset, const struct box *box, void *buffer);

/* The same into an array of these dims, to these coordinates of it. */
int cache_read_placed(struct cache_dataset *dataset, const struct box *box, void *elements,
                      const uint64_t *dims, const uint64_t *start);

struct cache_read {
    struct cache_dataset *dataset;
    const struct box *box;
    void *elements;
    const uint64_t *dims, *start; /* of the array; where the box goes in it */
    bool passing; /* scan: chunks loaded for this read leave the cache with it, and a hit is not
                   * recorded as a use */
};

/* The same for boxes of several datasets of one cache. Chunks that are not there are looked up,
 * read and decoded together, some at a time, in the order of the boxes; those that lie beside each
 * other are read by one call of the system. After an error some of them may have been read. */
int cache_read_many(struct cache *cache, const struct cache_read *reads, size_t n);

/* Whether a chunk is in the cache, or is being loaded. Scaled coordinates. */
bool cache_holds(struct cache_dataset *dataset, const uint64_t *scaled);

/* Prefetches a chunk, unless it is cached. false: not done, because as many threads are decoding as
 * the cache has workers. Errors are dropped: a later read meets them again. */
bool cache_fetch(struct cache_dataset *dataset, const uint64_t *scaled);

struct chunk;

/* If the box is contiguous in one chunk that is cached, is loaded by this call, or is stored as it
 * is, *bytes points to its elements and *chunk is pinned until cache_return. The bytes may be a
 * mapped file: store_view says what must not be done with them. They do not change while others
 * write. Returns 1; 0 if the box is not contiguous in one chunk or the chunk has no such bytes (it
 * is open, packed or absent): *chunk is then NULL or, if the chunk was acquired, pinned for
 * cache_read_held; or a negative
 * errno. */
int cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
               struct chunk **chunk);
void cache_return(struct chunk *chunk);

/* Reads the elements of a box in a pinned chunk, as cache_read does, without acquiring the chunk
 * again. Does not wait for memory. -EAGAIN: the chunk was replaced, or more of it has to be loaded:
 * return it and call cache_read. */
int cache_read_held(struct chunk *chunk, const struct box *box, void *buffer);

/* The same for a chunk that will not be used again: it is evicted, unless it has other pins or is
 * dirty, and its memory is reused first. */
void cache_return_last(struct chunk *chunk);

struct cache_form;

/* The cache form of one chunk of a sparse dataset, with at least these parts (memory_form.h), pinned until
 * cache_return; NULL if nothing of the chunk is defined. Of an open chunk it is a copy in the
 * packed form. Scaled coordinates. */
int cache_pin(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
              const struct cache_form **form, struct chunk **chunk);

struct runs;

/* Copies the elements at these positions of a chunk of a sparse dataset, packed. passing: as above.
 */
int cache_gather(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct runs *positions, void *elements, bool passing);

/* Writes the elements of a box, which must lie inside the dataset, row-major and without gaps. Of a
 * sparse dataset they are defined then. The change is in the cache only until it is flushed or
 * evicted, but for parts of chunks that are stored as they are and too large to be read whole:
 * those are written in place. After an error part of the box may be written; where there is no room
 * because changed chunks cannot be stored, that is the error. -EFBIG: the index cannot hold all of
 * its chunks, and nothing has changed; so also in what follows. The layout has `insert`. */
int cache_write_box(struct cache_dataset *dataset, const struct box *box, const void *elements);

/* Writes the elements of a box where they are stored, and forgets what was cached of them: by the
 * layout's `write`, whose errors it has. */
int cache_write_past(struct cache_dataset *dataset, const struct box *box, const void *elements);

/* Makes the elements of a box undefined. The dataset's layout is sparse. */
int cache_erase_box(struct cache_dataset *dataset, const struct box *box);

/* Makes the elements at these positions of a chunk defined, with these packed values; or undefined.
 * Positions are those in the chunk; scaled coordinates. whole: the positions are all elements of
 * the chunk inside the dims, so the stored chunk need not be read. The dataset's layout is sparse.
 * The change is in the cache only until it is flushed or evicted. After an error nothing has
 * changed; an error of writing back is returned if there is no room because dirty chunks cannot be
 * written. */
int cache_write(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                const void *values, bool whole);

/* The same; the positions may be moved out of *positions instead of being copied, and *positions is
 * empty afterwards, also after an error. */
int cache_write_over(struct cache_dataset *dataset, const uint64_t *scaled, struct runs *positions,
                     const void *values, bool whole);
int cache_erase(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                bool whole);

/* Loads what a change of a chunk in part needs of it, as long as there is room for it; of the chunks of a box all but
 * those that lie in it whole. Nothing changes. Errors of reading; -EINTR. */
int cache_prepare(struct cache_dataset *dataset, const uint64_t *scaled);
int cache_prepare_box(struct cache_dataset *dataset, const struct box *box);

/* Temporary memory for elements, counted like that of chunks, and its return; NULL is fine.
 * -ENOMEM. */
int cache_scratch(struct cache *cache, size_t bytes, void **memory);
void cache_scratch_return(struct cache *cache, void *memory, size_t bytes);

struct encoded;

/* Stores a chunk given in its encoded form, replacing the stored one (the RFC's
 * direct_chunk_write) and what was changed in it; NULL: deletes it. After an error the chunk is as it was, with its
 * changes, or as it would be without one. */
int cache_insert(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct encoded *encoded);

/* Writes all dirty chunks of a dataset to its store. Changes made while this runs may be included
 * or not. After an error the chunks that were not written stay dirty. */
int cache_flush(struct cache *cache, struct cache_dataset *dataset);

/* The same of one chunk. Scaled coordinates. */
int cache_flush_chunk(struct cache_dataset *dataset, const uint64_t *scaled);

/* The same, for a commit, of all datasets in one store, without what is unfinished. A chunk that
 * cannot be stored for a reason of its own (its index, its filters, no memory) stays dirty, and the
 * error is in *left, else 0; the return value is an error that concerns the whole store. */
int cache_flush_most(struct cache *cache, const struct store *store, int *left);

/* Whether a chunk of any dataset in the store is dirty. */
bool cache_has_changes(struct cache *cache, const struct store *store);

/* The error for which the last attempt left a chunk of the dataset dirty in that way; 0: none. */
int cache_left(struct cache_dataset *dataset);

/* The elements of a box are unfinished from the first call to the second: a commit leaves them out.
 * The box may lie outside of the dims. They are stored nevertheless if memory is short, and by
 * cache_flush of their dataset; a chunk that is not sparse is always stored whole. -ENOMEM. */
struct unfinished;
int cache_begin_unfinished(struct cache_dataset *dataset, const struct box *box,
                           struct unfinished **unfinished);
void cache_end_unfinished(struct unfinished *unfinished);

/* Around a commit, which is a cache_flush_most and what puts the dims into the store. What is
 * unfinished when it begins is so until it ends. What lies at or behind an end of the first dim is
 * left out, too: that of what is unfinished at or behind `from`, but not less than from, or
 * promised, or more than all. If something behind it is stored already it is `all`.
 * UINT64_MAX for all: there is no such end. */
void cache_begin_commit(struct cache_dataset *dataset, uint64_t from, uint64_t promised,
                        uint64_t all);
void cache_end_commit(struct cache_dataset *dataset);

/* In a commit, after cache_flush: that end; UINT64_MAX: something behind it has been stored. */
uint64_t cache_commit_end(struct cache_dataset *dataset);

/* Between these two calls nothing of the dataset is stored except by cache_flush. They nest. */
void cache_hold(struct cache_dataset *dataset);
void cache_let_go(struct cache_dataset *dataset);

/* If a chunk is dirty: true, and in *n the number of its defined elements. */
bool cache_defined_count(struct cache_dataset *dataset, const uint64_t *scaled, uint64_t *n);

/* The dirty chunks: n times rank scaled coordinates, which the caller frees. -ENOMEM. */
int cache_changed(struct cache_dataset *dataset, uint64_t **scaled, size_t *n);

/* After the dims have shrunk: drops the chunks outside of them, dirty ones included (the RFC's
 * set_extent_notify). */
void cache_forget_outside(struct cache_dataset *dataset);

/* Before they shrink: drops the chunks outside of the new dims, dirty ones included; only_new: those of which nothing
 * is stored. What is stored of others stays. */
void cache_forget_beyond(struct cache_dataset *dataset, const uint64_t *dims, bool only_new);

/* Evicts the clean chunks of a dataset that have no pins. */
void cache_evict(struct cache_dataset *dataset);

/* Invalidates all chunks of a dense dataset whose storage was changed behind the cache (by
 * libhdf5): they are dropped, dirty ones included. */
void cache_forget(struct cache_dataset *dataset);

/* The stored chunks of a dataset may have been changed by another process: cached chunks are
 * revalidated before they are used again, by reads that begin after this. Nothing of the dataset is being
 * read meanwhile, unless it is stored in other files. */
void cache_outdate(struct cache_dataset *dataset);

/* Fills the cache_* and chunks_decoded members. */
void cache_statistics(struct cache *cache, struct sfs_statistics *statistics);

#endif
