/* The shared chunk cache: one for all datasets of a file (and of the files that its external links
 * name), under one memory limit. It knows datasets only through their layout callbacks. Calls are
 * named as in the HDF Group's RFC "Shared Chunk Cache Internal API", without the H5SC prefix.
 *
 * Every function may be called from any thread. No lock of the cache is held during input, output,
 * decoding, encoding or copying, but that of a chunk which is being written in pieces, while bytes
 * are copied. Readers that meet in one cold chunk read and decode it once. What is written is
 * encoded and stored by threads of the cache when there is much of it, or when the cache is
 * flushed. */
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
 * chunks and for what is needed to decode and encode them. It is exceeded only by one chunk that is
 * larger than it, while nothing else is in use, and by what encoding takes more than a quarter of
 * it. */
int cache_create(size_t limit, unsigned n_workers, struct cache **cache);

/* Of chunks whose reading or changing would take more bytes of memory than this, all that it takes
 * at once, nothing is allocated: the call is -EIO, and the log says so. Before any is used;
 * without, there is no such limit. */
void cache_limit_chunks(struct cache *cache, size_t most);
size_t cache_chunk_limit(const struct cache *cache);

/* Which chunk goes when memory is short. Before any is used. */
void cache_set_policy(struct cache *cache, enum sfs_policy policy);

/* The limit, and another one from now on: what is clean and not in use is evicted at once as far as
 * that takes, all else when somebody wants room. Never waits. */
size_t cache_limit(const struct cache *cache);
void cache_set_limit(struct cache *cache, size_t limit);

/* Whether so many bytes can be changed without waiting for the disk; if not, what is in the way is
 * written, and what is returned is why it cannot be. Others may take the room. */
int cache_make_room(struct cache *cache, size_t bytes);

/* The threads of the cache, for whatever can be done chunk by chunk. */
struct workers *cache_workers(struct cache *cache);

/* All datasets must have been closed. */
void cache_destroy(struct cache *cache);

/* A dataset's place in the cache; the layout must outlive it. Closing forgets its chunks, also what
 * was changed and not flushed. */
int cache_open_dataset(struct cache *cache, struct layout *layout, struct cache_dataset **dataset);
void cache_close_dataset(struct cache_dataset *dataset);

/* Reads the elements of a box, which must lie inside the dataset, row-major and without gaps into
 * buffer. Elements that are not stored read as the fill value. Errors are those of the layout
 * callbacks and of store_read; -ENOMEM; -EINTR (interrupt.h). */
int cache_read(struct cache_dataset *dataset, const struct box *box, void *buffer);

/* The same into an array of these dims, to these coordinates of it. */
int cache_read_placed(struct cache_dataset *dataset, const struct box *box, void *elements,
                      const uint64_t *dims, const uint64_t *start);

struct cache_read {
    struct cache_dataset *dataset;
    const struct box *box;
    void *elements;
    const uint64_t *dims, *start; /* of the array; where the box goes in it */
    bool passing; /* leaves no trace: what comes into the cache for this goes with it, and what is
                   * there counts as not used */
};

/* The same for boxes of several datasets of one cache. Chunks that are not there are looked up,
 * read and decoded together, some at a time, in the order of the boxes; those that lie beside each
 * other are read by one call of the system. After an error some of them may have been read. */
int cache_read_many(struct cache *cache, const struct cache_read *reads, size_t n);

/* Whether a chunk is in the cache, or on its way there. Scaled coordinates. */
bool cache_holds(struct cache_dataset *dataset, const uint64_t *scaled);

/* Brings a chunk into the cache for who may want it later: unless it is there, and unless as many
 * threads decode as the cache has workers, which is false. Errors are left to who wants it. */
bool cache_fetch(struct cache_dataset *dataset, const uint64_t *scaled);

struct chunk;

/* If the box lies without a gap in one chunk that the cache holds, or comes to hold by this, or
 * that is stored as it is, *bytes points to its elements and *chunk is pinned until cache_return.
 * They may be a mapped file: store_view says what must not be done with them. They stay as they are
 * while others write. Returns 1, 0 if the box does not lie so or the chunk is being written in
 * pieces, or a negative errno. */
int cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
               struct chunk **chunk);
void cache_return(struct chunk *chunk);

/* The same for a chunk that nobody is going to want again: it goes, unless others use it or it has
 * changed, and its memory is the next that is used. */
void cache_return_last(struct chunk *chunk);

struct cache_form;

/* The cache form of one chunk of a sparse dataset, with at least these parts (form.h), pinned until
 * cache_return; NULL if nothing of the chunk is defined. Of one that is being written in pieces it
 * is a copy, in the packed form. Scaled coordinates. */
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
 * Positions are those in the chunk; scaled coordinates. whole: they are all of the chunk that lies
 * in the dataset, so that what is stored need not be read. The dataset's layout is sparse. The
 * change is in the cache only until it is flushed or evicted. On error nothing has changed; where
 * there is no room because changed chunks cannot be written, that is the error. */
int cache_write(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                const void *values, bool whole);

/* The same with positions that the caller does not need any more: they may be taken over instead of
 * being copied, and are empty then, also after an error. */
int cache_write_over(struct cache_dataset *dataset, const uint64_t *scaled, struct runs *positions,
                     const void *values, bool whole);
int cache_erase(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                bool whole);

/* Memory for elements on their way, counted like that of chunks, and its return; NULL is nothing.
 * -ENOMEM. */
int cache_scratch(struct cache *cache, size_t bytes, void **memory);
void cache_scratch_return(struct cache *cache, void *memory, size_t bytes);

struct encoded;

/* Stores a chunk from its stored form, in place of what there was (the RFC's direct_chunk_write).
 */
int cache_insert(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct encoded *encoded);

/* Writes all changed chunks of a dataset to its store. What was written while this runs may be
 * among them or not. On error the chunks that are not written stay changed. */
int cache_flush(struct cache *cache, struct cache_dataset *dataset);

/* The same of one chunk. Scaled coordinates. */
int cache_flush_chunk(struct cache_dataset *dataset, const uint64_t *scaled);

/* The same, for a commit, of all datasets that are in one store, but what is unfinished. What
 * cannot be stored for a reason of its own (its index or its filters, want of memory) is left
 * changed, and the error is in *left, or 0; what is returned concerns all that is in the store. */
int cache_flush_most(struct cache *cache, const struct store *store, int *left);

/* The error for which something of a dataset was left so, when it was tried last; 0: nothing was.
 */
int cache_left(struct cache_dataset *dataset);

/* The elements of a box are unfinished until the second call: a commit leaves them out. The box may
 * lie outside of the dims. They are stored all the same if memory is short, and by cache_flush of
 * their dataset; what is stored of a chunk that is not sparse is stored whole. -ENOMEM. */
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

/* In a commit, after cache_flush: this end; UINT64_MAX: something behind it has been stored. */
uint64_t cache_commit_end(struct cache_dataset *dataset);

/* From the first to the last of these calls nothing of the dataset is stored, but by cache_flush.
 */
void cache_hold(struct cache_dataset *dataset);
void cache_let_go(struct cache_dataset *dataset);

/* If a chunk is changed and not stored: true, and in *n how many of its elements are defined. */
bool cache_defined_count(struct cache_dataset *dataset, const uint64_t *scaled, uint64_t *n);

/* The chunks that are changed and not stored: n times rank scaled coordinates, which the caller
 * frees. -ENOMEM. */
int cache_changed(struct cache_dataset *dataset, uint64_t **scaled, size_t *n);

/* After the dataset's dims have shrunk: forgets the chunks that lie outside of them, also what was
 * changed in them and not flushed (the RFC's set_extent_notify). */
void cache_forget_outside(struct cache_dataset *dataset);

/* Takes the chunks of a dataset out of the cache that nobody uses and that are not changed. */
void cache_evict(struct cache_dataset *dataset);

/* Forgets all chunks of a dataset that is not sparse, whose storage another hand has changed, also
 * what was changed in them and not flushed. */
void cache_forget(struct cache_dataset *dataset);

/* The stored chunks of a dataset may have been changed by another process: cached chunks are
 * revalidated before they are used again. Nothing of the dataset is being read meanwhile. */
void cache_outdate(struct cache_dataset *dataset);

/* Fills the cache_* and chunks_decoded members. */
void cache_statistics(struct cache *cache, struct sfs_statistics *statistics);

#endif
