/* Shared by the files of src/cache only: the cache's tables, lists and memory.
 *
 *                    lookup says
 *   LOADING ──┬─ no such chunk ────────────────► ABSENT    reads as the fill value
 *             ├─ large and stored as it is ────► LOCATED   parts are read from the store
 *             ├─ read, decoded ────────────────► LOADED    copied from memory, or lent
 *             └─ failed ──► FAILED: leaves the cache when the last who waited has seen the error
 *
 * A chunk's form does not change while others see it: parts are added (load.c), and a write puts a
 * new chunk into the place of the old one, which is gone, but stays with those who read it.
 *
 * Invariants, under cache->lock:
 *  - a chunk is in its dataset's table and in the LRU list, or it is gone and only those who pinned
 *    it know it; a dirty one is LOADED, has the packed form, and is in the list of dirty chunks;
 *  - a chunk with pins is not evicted, nor one that is changing, as one that is LOADING is;
 *  - only who has set `changing` adds parts, replaces, or writes the chunk to the store;
 *  - used = sum of the bytes of all chunks, with their entries, and of reservations; it is counted
 *    before memory is allocated and until it is given back;
 *  - busy = the part of it that belongs to the forms of pinned chunks and to reservations. Who
 * holds such a part never waits for memory, so that who finds busy > 0 may. */
#ifndef SPARSEFS_CACHE_PRIVATE_H
#define SPARSEFS_CACHE_PRIVATE_H

#include <pthread.h>

#include "cache/cache.h"
#include "common/hash.h"
#include "common/pool.h"
#include "common/workers.h"
#include "layout/layout.h"

enum chunk_state { CHUNK_LOADING, CHUNK_ABSENT, CHUNK_LOCATED, CHUNK_LOADED, CHUNK_FAILED };

struct chunk {
    UT_hash_handle hh;                     /* in its dataset's table, by scaled */
    struct chunk *prev, *next;             /* LRU list, least recently used first */
    struct chunk *dirty_prev, *dirty_next; /* list of dirty chunks, longest dirty first */
    struct cache_dataset *dataset;
    enum chunk_state state; /* constant once it is not LOADING */
    int error;              /* CHUNK_FAILED */
    bool gone;              /* from the table */
    bool changing;
    bool dirty;
    int write_error;      /* of the last attempt to write it to the store */
    uint64_t dirty_since; /* the first change since it was clean, counted in the cache */
    unsigned pins;
    size_t entry_bytes;         /* of this struct with its coordinates */
    size_t form_bytes;          /* counted for form */
    struct chunk_record record; /* of what is stored */
    struct cache_form form;     /* CHUNK_LOADED */
    uint64_t scaled[];
};

struct cache_dataset {
    struct cache *cache;
    struct layout *layout;
    struct chunk *chunks; /* hash table; under cache->lock */
};

struct cache {
    size_t limit;
    struct pool pool;
    struct workers *workers;
    pthread_mutex_t lock;   /* guards what follows, and all chunks and tables */
    pthread_cond_t changed; /* a chunk has left LOADING, or is no longer changing */
    pthread_cond_t freed;   /* busy has shrunk */
    struct chunk *lru;
    struct chunk *dirty;
    uint64_t changes; /* that have made a chunk dirty */
    int write_error;  /* of the last chunk that could not be written, until all can be */
    size_t used, busy;
    uint64_t n_chunks, hits, misses, evictions, decoded;
};

/* ---- The lock is held; these do not drop it ---- */

void chunk_pin(struct chunk *chunk);

/* Frees a chunk that is gone with its last pin. */
void chunk_unpin(struct chunk *chunk);

/* Takes a chunk out of table and lists: it is gone. The caller frees it, or leaves it to its last
 * pin. */
void chunk_unlink(struct chunk *chunk);

/* Does not look at the chunk's dataset: it may have been closed since the chunk was unlinked. */
void chunk_free(struct cache *cache, struct chunk *chunk);

struct chunk *chunk_find(struct cache_dataset *dataset, const uint64_t *scaled);

/* A new chunk in state LOADING, in no table or list, its entry counted as used. NULL: no memory. */
struct chunk *chunk_new(struct cache_dataset *dataset, const uint64_t *scaled);

/* Puts a new chunk into table and LRU list, beside one of the same coordinates if there is one. */
int chunk_link(struct chunk *chunk);

/* Of a chunk that takes the place of another: what was changed in that one since it was written is
 * in it, too. */
void chunk_mark_dirty(struct chunk *chunk, struct chunk *old);
void chunk_mark_clean(struct chunk *chunk);

/* Counts n bytes more, or fewer, for a chunk's form. */
void chunk_count(struct chunk *chunk, size_t form_bytes);

/* Counts bytes without waiting, as unreserve does. */
void reserve_now(struct cache *cache, size_t bytes);
void unreserve(struct cache *cache, size_t bytes);

/* ---- The lock is held on entry and on return, but dropped meanwhile ---- */

/* If there is no room for bytes that are about to be allocated, evicts one chunk or waits until
 * those who use the memory have given some back, and returns true: look again. The caller must hold
 * no busy bytes. */
bool make_room(struct cache *cache, size_t bytes);

/* Counts bytes for a chunk's form and what making it needs, after making room. */
void reserve(struct cache *cache, size_t bytes);

/* Writes a dirty chunk that is not changing to the store. On error it stays dirty. */
int write_back(struct chunk *chunk);

/* ---- The lock is not held ---- */

/* Finds a chunk or loads it; *out is pinned and ABSENT, LOCATED, or LOADED with these parts. parts
 * 0: where it is stored is enough. */
int chunk_acquire(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
                  struct chunk **out);
void chunk_release(struct chunk *chunk);

#endif
