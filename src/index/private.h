/* What the kinds of index share. Only this folder includes it. */
#ifndef SPARSEFS_INDEX_PRIVATE_H
#define SPARSEFS_INDEX_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "common/interrupt.h"
#include "format/output.h"
#include "format/structure.h"
#include "index/index.h"

#define STEPS_TO_LOOK 4096 /* of an iteration, between two looks at whether it is to end */

#define MOST_HEADER_BYTES 72 /* of an index's header: that of an extensible array */

struct index_ops {
    /* Makes the kind's own part, index->kind; on error what it has made is closed all the same. */
    int (*open)(struct index *index, const struct layout_message *layout, struct why *why);
    void (*close)(struct index *index);
    /* With the lock held for reading. */
    int (*lookup)(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                  struct why *why);
    int (*iterate)(struct index *index, const struct index_range *range, index_each_function each,
                   void *context, struct why *why); /* range NULL: all; may visit chunks outside of
                                                     * it */
    /* The same; NULL: it has no structures of its own. */
    int (*each_block)(struct index *index, index_block_function each, void *context,
                      struct why *why);
    /* The same, of chunks within the max dims; NULL: any. */
    bool (*can_hold)(const struct index *index, const uint64_t *scaled);
    /* With the lock held for writing, of chunks within the max dims. If they fail the chunks are
     * those of before, though there may be more blocks. */
    int (*insert)(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                  struct why *why);
    int (*remove)(struct index *index, const uint64_t *scaled, struct why *why);
    /* Makes the header, with that lock held; NULL: it has none. */
    int (*make_header)(struct index *index, struct why *why);
    /* Makes its bytes but for its checksum; NULL: it has none. */
    void (*encode_header)(const struct index *index, struct output *output);
    /* What its header says of its numbers, which counts if there is one; NULL: it has none. */
    void (*tell)(const struct index *index, struct layout_message *layout);
    /* Bytes of the block that it keeps, with the lock held for reading; NULL: it keeps none. */
    size_t (*kept)(const struct index *index);
};

extern const struct index_ops index_single;
extern const struct index_ops index_fixed_array;
extern const struct index_ops index_extensible_array;
extern const struct index_ops index_btree2;

/* ---- Blocks: pieces of an index in memory, verified when they are read ---- */

/* A kind of block: what it is called, its signature, NULL for pages, which have none, and the
 * version that the prototype writes in those of sparse datasets. */
struct block_kind {
    const char *name;
    const char *signature;
    unsigned version;
};

/* Which block: n bytes at an address, of which summed end in a checksum; the rest is not covered. */
struct block_place {
    const struct block_kind *kind;
    uint64_t address, n, summed;
};

struct block {
    atomic_uint users;
    const struct block_kind *kind;
    uint64_t address;
    uint64_t summed;              /* bytes with the checksum at their end */
    atomic_uint_fast64_t checked; /* B-tree: its content was checked, for so many records in and
                                   * under it */
    bool changed;    /* it is one of the changed blocks; its checksum is not right yet */
    unsigned height; /* changed: blocks of less height are written before it */
    UT_hash_handle hh;
    size_t n;
    unsigned char bytes[];
};

#define KEPT_BLOCKS 8 /* more than a lookup needs, so that neighbours find theirs in memory */

struct block_cache {
    pthread_mutex_t reading; /* while a large block is read; taken before `lock` */
    pthread_mutex_t lock;    /* guards the slots, not the blocks */
    struct {
        struct block *block; /* the cache is one of its users; NULL: free */
        uint64_t last_use;
    } slot[KEPT_BLOCKS];
    uint64_t clock;
};

int block_cache_init(struct block_cache *cache);
void block_cache_destroy(struct block_cache *cache);

size_t block_cache_bytes(struct block_cache *cache); /* of all blocks in it */

/* Puts the block in as the one used last, unless it is large, and there are many of these. */
void block_cache_keep(struct block_cache *cache, struct block *block);

/* Drops the block at this address. */
void block_cache_drop(struct block_cache *cache, uint64_t address);

/* A block whose bytes are all zero, of which the caller is the one user. -ENOMEM also: large blocks take too
 * much, which is logged; here and in what follows. */
int block_make(const struct block_place *place, struct block **block);

/* Reads a block, and checks signature and checksum. The caller ends its use with block_put. -EILSEQ also: it is
 * larger than one may be; -EINTR (interrupt.h), of a large one. */
int block_read(struct store *store, const struct block_place *place, struct block **block,
               struct why *why);

/* The same out of the changed blocks or the cache, if it is there. Blocks do not change as long as
 * the index's lock is held for reading. */
int block_get(struct index *index, const struct block_place *place, struct block **block,
              struct why *why);
struct block *block_use(struct block *block); /* one user more */
void block_put(struct block *block);          /* NULL is fine */

/* ---- Changes: what the store does not hold yet; all with the lock held for writing ---- */

#define MOST_CHANGED_BYTES ((size_t)4 << 20)

struct changes {
    struct block *blocks; /* hash by address; it is one of their users */
    size_t bytes;         /* that they take in memory */
    bool header;          /* the header is among what has changed */
    struct freed_extent {
        uint64_t address, n;
    } * freed; /* until the next flush, as the store still points there */
    size_t n_freed, room_freed;
};

void changes_destroy(struct changes *changes);

/* The changed block at an address, NULL if there is none; the lock may be held for reading. */
struct block *changes_find(const struct index *index, uint64_t address);

/* Counts a block that was read among the changed ones: from now on its bytes may be changed. */
int block_change(struct index *index, struct block *block, unsigned height, struct why *why);

/* Makes a block of n bytes, all zero and with the checksum at their end, as a changed one: at its
 * address; or at a new one, where space for `whole` bytes is allocated. The caller is a user, too. */
int block_make_changed(struct index *index, const struct block_place *place, unsigned height,
                       struct block **block, struct why *why);
int block_allocate(struct index *index, struct block_place place, uint64_t whole, unsigned height,
                   struct block **block, struct why *why);

/* Frees the space of a block after the next flush; changes_reserve makes sure that n calls need no
 * memory. Users keep the block. */
int changes_reserve(struct index *index, size_t n);
void block_discard(struct index *index, struct block *block);

/* Space for the header, which has so many bytes. */
int header_allocate(struct index *index, const struct block_kind *kind, uint64_t n,
                    struct why *why);

int changes_write(struct index *index, struct why *why);

/* ---- Indexes ---- */

struct index {
    const struct index_ops *ops;
    struct store *store;
    const struct superblock *superblock;
    struct chunk_record_format format;
    int rank;
    uint64_t max_chunks[SFS_MAX_RANK]; /* chunks per axis; SFS_UNLIMITED */
    pthread_rwlock_t lock;             /* guards all that follows; writers first */
    uint64_t address;                  /* of its header; NO_ADDRESS: nothing was ever stored */
    bool versions_0; /* of all structures that are written; else they are the prototype's */
    void *kind;
    struct changes changes;
    struct block_cache cache;
    bool was_sane; /* invariants.c */
    unsigned checks;
};

/* invariants.c, in builds that check invariants: before anything is changed, and with the lock held when
 * all changes are written: now
 * and then the process ends if that has damaged a sound index. */
void index_check_before(struct index *index);
void index_check_written(struct index *index);

/* The beginning that all structures of an index have: signature, version 0 or 1, client id or
 * record type. Returns a cursor behind it. index_begin_header is that of the header, whose version
 * is kept. */
#define INDEX_BEGIN_BYTES (SIGNATURE_BYTES + 2)
int index_begin(const struct block *block, unsigned type, struct cursor *cursor, struct why *why);
int index_begin_header(struct index *index, const struct block *block, unsigned type,
                       struct cursor *cursor, struct why *why);
void index_put_begin(const struct index *index, const struct block_kind *kind, unsigned type,
                     struct output *output);

/* The same, and the address of the index's header behind it, as in all blocks of arrays. */
int index_begin_block(const struct index *index, const struct block *block, struct cursor *cursor,
                      struct why *why);
struct output index_put_begin_block(const struct index *index, struct block *block);

/* Reads an element of an array at offset of a block. */
int index_element(const struct index *index, const struct block *block, size_t offset,
                  struct chunk_record *record, struct why *why);

/* Writes one, of a chunk that does not exist if record is NULL; or n of these. */
int index_put_element(const struct index *index, struct block *block, size_t offset,
                      const struct chunk_record *record, struct why *why);
void index_put_no_elements(const struct index *index, struct block *block, size_t offset,
                           uint64_t n);

/* The most that a length in this file can say, and the most elements of an array of which chunks
 * are written, which are numbered with 32 bits. */
uint64_t index_most_length(const struct index *index);
uint64_t index_most_elements(const struct index *index);

/* The number of a chunk in the array that an index is. */
static inline bool index_own_number(const struct index *index, const uint64_t *scaled,
                                    uint64_t *number)
{
    return index_number(index->rank, index->max_chunks, scaled, number);
}

/* The scaled coordinates of the chunk that has a number there (chunk_number.c). */
void index_coordinates(const struct index *index, uint64_t number, uint64_t *scaled);

/* What an iteration reads cannot be more than the store holds, unless blocks lie over each other:
 * takes bytes off the budget, which begins as the size of the store. */
int index_spend(const char *name, uint64_t address, uint64_t bytes, uint64_t *budget,
                struct why *why);

/* Before each place that an iteration looks at, whether anything is there or not, of which *steps counts those before:
 * -EINTR (interrupt.h). */
static inline int index_step(uint64_t *steps)
{
    return ++*steps % STEPS_TO_LOOK ? 0 : interrupt_check();
}

#endif
