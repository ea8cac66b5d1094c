/* Shared by the files of src/cache only: the cache's tables, lists and memory.
 *
 *                    lookup says
 *   LOADING ──┬─ no such chunk ────────────────► ABSENT    reads as the fill value
 *             ├─ large and stored as it is ────► LOCATED   parts are read from and written to
 *             │                                            the store
 *             ├─ read, decoded ────────────────► LOADED    copied from memory, or lent
 *             └─ failed ───────────────────────► FAILED    leaves the cache when the last waiting
 *                                                          thread has seen the error
 *
 * A write replaces a chunk by a new, dirty one; the old one is gone from the table, but stays with
 * those who have pinned it. The form of the new one is either packed, and immutable while others see
 * it, except that parts are added (load.c); or open, and further writes change it in place until it
 * is condensed: before it is encoded, or because memory is short. A condensed chunk is not opened
 * again.
 *
 *   (write) ─► open, dirty ── condensed ─► packed or dense, dirty ── encoded, inserted ─► clean
 *
 * Others may write while a chunk is being encoded: the chunk that replaces it inherits `encoding`,
 * so that there is never more than one encoder for the same coordinates, and gets the record that
 * the encoder leaves.
 *
 * Lock order: the lock of workers; cache->lock; the lock of the pool. A stripe (the lock of the
 * open chunks that share it) is taken without cache->lock and held while bytes are copied, or a
 * form is condensed; nothing is waited for under it.
 *
 * Invariants, under cache->lock:
 *  - a chunk is in its dataset's table and in one of the queues (eviction_policy.c), or it is gone and known
 *    only to those who have pinned it; a dirty one is LOADED, open or packed (of a dense dataset:
 *    or dense), and in the dirty list instead of a queue;
 *  - an open chunk that is not gone is dirty;
 *  - a chunk is not evicted while it is pinned, changing (as every LOADING one is) or being encoded;
 *  - only the thread that has set `changing` adds parts to a chunk, replaces it, condenses it, or
 *    writes to it in the store; an encoder does not begin with a changing chunk, but continues when
 *    a chunk begins to change;
 *  - used = the bytes of all chunks, with their entries, and of all reservations; memory is counted
 *    before it is allocated and until it is freed;
 *  - busy = the part of `used` in forms of pinned chunks and in reservations. Holders of busy
 *    memory never wait for memory; others may wait as long as busy > 0;
 *  - one chunk that is being loaded may take all of the limit, or more: others have a share of it all the
 *    same (`large`), or all that is small would wait as long as that is decoded;
 *  - as long as a chunk is dirty and none is being encoded, encode_room bytes are kept free for the
 *    first encoder. It does not wait for memory, so threads that find a dirty chunk may wait for
 *    it. Further encoders begin only if there is room, for which they evict; room_of_encoders is
 *    left to them by threads that want memory for anything else. */
#ifndef SPARSEFS_CACHE_PRIVATE_H
#define SPARSEFS_CACHE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "common/hash.h"
#include "common/memory_pool.h"
#include "common/thread_pool.h"
#include "layout/layout.h"

#define STRIPES 32

enum chunk_state { CHUNK_LOADING, CHUNK_ABSENT, CHUNK_LOCATED, CHUNK_LOADED, CHUNK_FAILED };

/* Besides parts of a form, for chunk_acquire. */
#define PART_SOME                                                                                  \
    16 /* values, or the selection if the values are read in parts (read_unfiltered_values.c) */
#define PASSING 32 /* scan: the chunk is not to stay in the cache */

/* Queues of chunks that are not dirty, next victim first (eviction_policy.c). */
enum queue { QUEUE_NEW, QUEUE_MAIN, QUEUES };

/* The bytes that a chunk was decoded from, if others may write them (revalidate.c). */
#define STORED_PARTS 2
struct stored_part {
    uint64_t offset; /* from the chunk's address */
    size_t n;        /* 0: nothing */
    uint64_t sum;
};

struct chunk {
    UT_hash_handle hh;                     /* in its dataset's table, by scaled */
    struct chunk *prev, *next;             /* in its queue */
    struct chunk *dirty_prev, *dirty_next; /* list of dirty chunks, longest dirty first */
    struct cache_dataset *dataset;
    enum chunk_state state;  /* constant once it is not LOADING */
    int error;               /* CHUNK_FAILED */
    bool was_open;           /* constant: its form must be read under its stripe, unless... */
    bool open;               /* ...this has become false */
    bool gone;               /* removed from the table */
    enum queue queue;        /* that it belongs to... */
    bool is_queued;          /* ...and is in */
    unsigned uses;           /* eviction_policy.c */
    bool passing;            /* evicted with its last pin */
    bool in_parts;           /* constant once it is not LOADING: its values are read in parts... */
    uint64_t values_address; /* ...from here, unless all are in the form */
    bool changing;
    bool dirty;
    bool is_asked;             /* its selection was asked for without values */
    struct encoding *encoding; /* of this chunk, or of one that was in its place */
    int write_error;           /* of the last attempt to write it to the store */
    int own_error;             /* 0, or the error local to this chunk for which it could not be
                                * written... */
    uint64_t failed;           /* ...when so many flushes had begun */
    uint64_t dirty_since;      /* change number of the first change since it was clean */
    unsigned pins;
    size_t condensed_bytes;     /* open: an estimate of its size after condensing */
    size_t rewritten;           /* bytes of packed forms that writes to it have copied */
    size_t entry_bytes;         /* of this struct with its coordinates */
    size_t form_bytes;          /* counted for form */
    size_t used_bytes;          /* of these, without the rounding of blocks */
    size_t run_bytes;           /* the part of them that is not from the pool */
    size_t bare_bytes;          /* its size if its values were evicted, else 0 */
    struct chunk_record record; /* of what is stored */
    struct stored_part stored[STORED_PARTS]; /* written by the thread that has set `changing` */
    uint64_t epoch;                          /* the dataset's when it was last validated */
    struct cache_form form;                  /* CHUNK_LOADED */
    uint64_t scaled[];
};

/* A chunk that is being encoded and stored; on the encoder's stack. */
struct encoding {
    struct encoding *prev, *next;
    struct chunk *chunk;
    uint64_t since;   /* dirty_since of the changes that are being encoded */
    uint64_t flushes; /* number of flushes when it began */
    bool is_part;     /* unfinished elements were left out: the chunk stays dirty */
};

/* On the stack of a thread that flushes. */
struct flush {
    struct flush *prev, *next;
    const struct cache_dataset *dataset; /* NULL: all that are in the store */
    const struct store *store;
    uint64_t last;   /* later changes are not waited for */
    uint64_t number; /* serial number of the flush */
    bool commits;    /* leaves out what is unfinished */
    int error;       /* that it ends with */
    int left;        /* error for which chunks were left out */
};

struct cache_dataset {
    struct cache *cache;
    struct layout *layout;
    uint64_t number;      /* unique */
    struct chunk *chunks; /* hash table; under cache->lock */
    uint64_t epoch;       /* chunks of older epochs are revalidated before use; under cache->lock */
    unsigned held;        /* nothing of it is encoded, except by flushes; under cache->lock */
    size_t n_dirty;       /* of its chunks; the same */
    /* Under cache->lock (unfinished.c): */
    struct unfinished *unfinished;
    uint64_t commit_end; /* of the first dim, for the commit under way; UINT64_MAX: none */
    uint64_t stored_end; /* of what was stored since the dataset was opened */
};

struct cache {
    atomic_size_t limit;  /* changed under the lock */
    size_t most_of_chunk; /* bytes that one chunk may take while it is loaded or changed */
    struct pool pool;
    struct workers *workers;
    struct pastime preparing;          /* zeroes memory ahead of need */
    pthread_rwlock_t stripes[STRIPES]; /* each guards the forms of some chunks that were open */
    pthread_mutex_t lock;              /* guards what follows, and all chunks and tables */
    pthread_cond_t changed; /* a chunk has left LOADING, is no longer changing or being encoded */
    pthread_cond_t freed;   /* used or busy has shrunk, or a chunk can be encoded */
    pthread_cond_t wanted;  /* encoders: there may be something to do */
    enum sfs_policy policy;
    struct chunk *queues[QUEUES];
    size_t queue_bytes[QUEUES]; /* with the dirty chunks that belong to each */
    struct ghost *ghosts;       /* history: chunks that were evicted from the new queue */
    size_t n_ghosts;
    uint64_t ghost_clock[QUEUES]; /* bytes evicted from each so far */
    size_t new_share;             /* target share of the new queue, bytes */
    struct chunk *dirty;
    uint64_t changes; /* change counter: changes that have made a chunk dirty */
    int write_error;  /* of the last chunk that could not be written, until one can be */
    size_t used, busy;
    size_t dirty_bytes;             /* of dirty chunks, with their entries */
    uint64_t n_dirty, n_dirty_held; /* chunks; held: of datasets of which nothing is encoded */
    size_t encode_room;
    size_t bare_bytes;           /* of chunks whose values were evicted */
    unsigned waiting;            /* threads that wait for encoders to make room */
    unsigned loading;            /* threads that read and decode */
    const struct loading *large; /* one of them that takes more than it would leave to others */
    struct encoding *encodings;
    struct flush *flushes;
    uint64_t n_flushes;  /* that have begun */
    uint64_t n_datasets; /* that were opened */
    uint64_t n_chunks, hits, misses, evictions, decoded, encoded;
    uint64_t checks; /* invariants.c */
    bool ends;
    unsigned most_encoders, n_encoders, idle_encoders;
    pthread_t encoder[];
};

/* ---- revalidate.c ---- */

/* Notes n stored bytes that a part of the chunk is made of. */
void revalidate_note(struct chunk *chunk, uint64_t offset, size_t n, const void *bytes);

/* With the lock held, which is dropped: finds out whether a chunk of an older epoch that nobody is
 * changing is what is stored now; if not it is gone. Errors are those of looking it up and reading.
 */
int revalidate(struct cache *cache, struct chunk *chunk);

/* ---- eviction_policy.c; the lock is held, but by the first two ---- */

/* The history of evicted chunks is not counted in the limit: 0.2 % of it. -ENOMEM. */
int policy_init(struct cache *cache);
void policy_destroy(struct cache *cache);

/* The limit has changed. */
void policy_set_limit(struct cache *cache);

/* A chunk is put into the table: a new one, or into the place of another. */
void policy_add(struct cache *cache, struct chunk *chunk, const struct chunk *old);
void policy_remove(struct cache *cache, struct chunk *chunk);

/* A chunk has become dirty, and cannot be evicted, or clean. */
void policy_dirty(struct cache *cache, struct chunk *chunk);
void policy_clean(struct cache *cache, struct chunk *chunk);

/* A hit. */
void policy_touch(struct cache *cache, struct chunk *chunk);

/* The size of a chunk has grown by so many bytes, modulo 2^64. */
void policy_resized(struct cache *cache, const struct chunk *chunk, size_t bytes);

/* A chunk is about to be evicted. */
void policy_evicted(struct cache *cache, const struct chunk *chunk);

/* The next victim, clean and without pins, or NULL. */
struct chunk *policy_victim(struct cache *cache);

/* ---- read.c ---- */

struct loading;
struct piece;

/* Reads a piece of a pinned chunk. -EAGAIN: all values of the chunk are needed for that, or another
 * one has taken its place. */
int read_pinned(struct chunk *chunk, const struct piece *piece, const struct cache_read *to);

/* The same of one that is loaded for it. Errors of chunk_acquire. */
int read_piece(const struct cache_read *read, const struct piece *piece);

/* ---- invariants.c; the lock is held ---- */

/* Ends the process if an invariant does not hold; in builds that check that, now and then if there
 * are many chunks. */
void cache_check(struct cache *cache);

/* ---- unfinished.c; the lock is held ---- */

/* How much of a chunk is unfinished. */
enum unfinished_share { UNFINISHED_NOTHING, UNFINISHED_PART, UNFINISHED_ALL };
enum unfinished_share unfinished_share(const struct chunk *chunk);

/* The positions of what is defined and unfinished in a packed chunk. -ENOMEM. */
int unfinished_positions(const struct chunk *chunk, struct runs *positions);

/* The lock is not held: a chunk is about to be stored with this form. */
void unfinished_stored(struct chunk *chunk, const struct cache_form *form);

/* The same with whatever elements. */
void unfinished_stored_whole(struct chunk *chunk);

/* The same: the dims may have shrunk, and nothing is stored outside of them any more. */
void unfinished_cut(struct cache_dataset *dataset);

/* ---- The lock is held; these do not drop it ---- */

void chunk_pin(struct chunk *chunk);

/* Frees a chunk that is gone when its last pin is dropped. */
void chunk_unpin(struct chunk *chunk);

/* Takes a chunk out of table and lists: it is gone. The caller frees it, or leaves it to its last
 * pin. */
void chunk_unlink(struct chunk *chunk);

/* Does not look at the chunk's dataset: it may have been closed since the chunk was unlinked. */
void chunk_free(struct cache *cache, struct chunk *chunk);

struct chunk *chunk_find(struct cache_dataset *dataset, const uint64_t *scaled);

/* A new chunk in state LOADING, in no table or list, its entry counted as used. NULL: no memory. */
struct chunk *chunk_new(struct cache_dataset *dataset, const uint64_t *scaled);

/* The bytes of a chunk without its form. */
size_t chunk_entry_bytes(const struct cache_dataset *dataset);

/* Frees a new chunk that was not linked. */
void chunk_drop(struct chunk *chunk);

/* Puts a new chunk into table and queue, beside `old` of the same coordinates if there is one. */
int chunk_link(struct chunk *chunk, const struct chunk *old);

/* Marks a chunk as dirty that replaces `old`: it has the unstored changes of that, too. */
void chunk_mark_dirty(struct chunk *chunk, struct chunk *old);
void chunk_mark_clean(struct chunk *chunk);

/* An encoding that began at `since` has failed: its changes are still dirty in this chunk. */
void chunk_still_dirty(struct chunk *chunk, uint64_t since);

/* Only a part of a dirty chunk was written: it is dirty since now. */
void chunk_dirty_again(struct chunk *chunk);

/* Recounts the bytes of a chunk's form. */
void chunk_count(struct chunk *chunk);

/* Whether it has no pins, and is neither changing nor being encoded. */
bool chunk_is_free(const struct chunk *chunk);

/* Clears `changing`. */
void chunk_end_change(struct chunk *chunk);

/* Counts bytes without waiting, as unreserve does. */
void reserve_now(struct cache *cache, size_t bytes);
void unreserve(struct cache *cache, size_t bytes);

/* Checks bytes against the limit per chunk: -EIO, which is logged, or 0. */
int chunk_check_bytes(const struct chunk *chunk, size_t bytes);

/* An upper bound for the bytes that encoding a dirty chunk takes besides its form. */
size_t encode_estimate(const struct chunk *chunk);

/* The next chunk to encode in order to make room, or NULL; in *later whether there may be one when
 * running encodings end. Unfinished chunks come last, and only where room is needed. */
struct chunk *encodable(struct cache *cache, bool needed, bool *later);

/* Allows chunks that could not be written to be tried again without a flush: the one longest dirty,
 * or all. */
void encoders_retry(struct cache *cache, bool all);

/* Wakes or starts an encoder if there is work for one. */
void encoders_wake(struct cache *cache);

/* Makes a new chunk, linked and marked as changing; its room was made before. NULL: no memory. */
struct chunk *chunk_add(struct cache_dataset *dataset, const uint64_t *scaled, bool passing);

/* Ends LOADING of a new chunk, which is pinned; with an error it is gone. */
void chunk_loaded(struct chunk *chunk, enum chunk_state state, int error);

/* ---- The lock is held on entry and on return, but dropped meanwhile ---- */

/* Evicts one clean chunk, or only its values; false: all are pinned. */
bool evict_clean(struct cache *cache);

/* If there is no room for bytes that are about to be allocated, evicts one chunk or waits until
 * those who use the memory have given some back, and returns 1: look again; -EINTR (interrupt.h). The
 * caller must hold no busy bytes. */
int make_room(struct cache *cache, size_t bytes);

/* Counts bytes for a chunk's form and what making it needs, after making room. -EINTR: there is none,
 * and they are counted all the same: nothing is to be allocated before they are given back. */
int reserve(struct cache *cache, size_t bytes);

/* The same for a chunk that is loaded, which is one at a time that leaves others a share even if there is not
 * so much. */
int reserve_loading(struct cache *cache, const struct loading *loading);
void unreserve_loading(struct cache *cache, const struct loading *loading);

/* Turns the open form of a chunk that is not changing into the packed one. -ENOMEM: it stays open.
 */
int chunk_condense(struct chunk *chunk);

/* Writes a dirty chunk that is neither changing nor being encoded to the store; commits: without
 * its unfinished elements. After an error it stays dirty. */
int write_back(struct chunk *chunk, bool commits);

/* ---- The lock is not held ---- */

/* Looks up where a new chunk is stored; the state that it gets, and the parts to be loaded. */
int chunk_look_up(struct chunk *chunk, unsigned *parts, enum chunk_state *state);

/* The loading of parts of a chunk that this thread has marked as changing and has not pinned. */
struct loading {
    struct chunk *chunk;
    unsigned wanted, missing;
    uint64_t offset; /* of the stored bytes, from the chunk's address */
    size_t n;
    size_t bytes;           /* to be reserved */
    struct cache_form made; /* shares the parts that were there before */
    void *stored;           /* where the stored bytes go; NULL: there are none */
    int error;              /* of reading */
};

static inline uint64_t loading_address(const struct loading *loading)
{
    return loading->chunk->record.address + loading->offset;
}

/* The steps of loading: plan, which says what to reserve, also after an error; if there was none
 * get (buffers), read and decode; in any case end, which pins the chunk. */
int loading_plan(struct loading *loading, struct chunk *chunk, unsigned wanted);
int loading_get(struct loading *loading);
int loading_read(struct loading *loading);
int loading_decode(struct loading *loading);
void loading_end(struct loading *loading, int error);

/* All steps after the first, which has returned this error. */
int loading_do(struct loading *loading, int error);

/* Whether the values of a pinned chunk that is LOADED and was never open are read in parts, and
 * reading them: a piece of it to `at` of an array; positions of it, packed. -EAGAIN: all values
 * must be loaded first, or another chunk has taken its place. */
bool chunk_is_in_parts(const struct chunk *chunk);
int partial_read(struct chunk *chunk, const struct piece *piece, char *elements,
                 const uint64_t *dims, const uint64_t *at);
int partial_gather(struct chunk *chunk, const struct runs *positions, char *elements);

/* Finds a chunk or loads it; *out is pinned and ABSENT, LOCATED, or LOADED with these parts. parts
 * 0: its record is enough. */
int chunk_acquire(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
                  struct chunk **out);
void chunk_release(struct chunk *chunk);

/* Whether chunks that are stored are LOADED; else LOCATED. */
bool chunk_is_read_whole(const struct cache_dataset *dataset);

/* The lock of a chunk's form if it was open. */
pthread_rwlock_t *chunk_stripe(const struct chunk *chunk);

/* Whether a pinned chunk's form is still changed in place. */
bool chunk_is_open(const struct chunk *chunk);

/* Ends the threads that encode. */
void encoders_end(struct cache *cache);

/* ---- forget.c ---- */

/* With the lock held, which is dropped: forgets a chunk when no thread is loading or changing it. */
void forget_chunk(struct cache_dataset *dataset, const uint64_t *scaled);

/* ---- choose_form.c ---- */

/* Whether a packed form of so many bytes may become a dense one. */
bool may_be_dense(const struct cache *cache, const struct layout *layout, size_t packed_bytes);

/* Turns a decoded form, of which the missing parts were added, into the one to be cached: by what is wanted
 * of it (PART_...). Errors of form_add_values and form_add_elements. */
int choose_form(struct cache *cache, const struct layout *layout, unsigned wanted, unsigned missing,
                struct cache_form *form);

/* Whether a change opens a chunk, or makes another packed form of the old one (NULL: of none). rewritten:
 * bytes that writes to its packed forms have copied, with this one; 0: it copies none. */
bool opens_for_change(const struct layout *layout, const struct cache_form *old, size_t rewritten);

/* Whether condensing makes an open chunk much smaller. */
bool is_worth_condensing(const struct chunk *chunk);

#endif
