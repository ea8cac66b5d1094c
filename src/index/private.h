/* What the kinds of index share. Only this folder includes it. */
#ifndef SPARSEFS_INDEX_PRIVATE_H
#define SPARSEFS_INDEX_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "format/structure.h"
#include "index/index.h"

struct index_ops {
    /* Makes the kind's own part, index->kind; on error what it has made is closed all the same. */
    int (*open)(struct index *index, const struct layout_message *layout, struct why *why);
    void (*close)(struct index *index);
    int (*lookup)(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                  struct why *why);
    int (*iterate)(struct index *index, index_each_function each, void *context, struct why *why);
};

extern const struct index_ops index_single;
extern const struct index_ops index_fixed_array;
extern const struct index_ops index_extensible_array;
extern const struct index_ops index_btree2;

/* ---- Blocks: pieces of an index in memory, verified when they are read ---- */

/* A kind of block: what it is called, and its signature; NULL for pages, which have none. */
struct block_kind {
    const char *name;
    const char *signature;
};

struct block {
    atomic_uint users;
    const struct block_kind *kind;
    uint64_t address;
    uint64_t summed; /* bytes that were verified */
    size_t n;
    unsigned char bytes[];
};

#define KEPT_BLOCKS 8 /* more than a lookup needs, so that neighbours find theirs in memory */

struct block_cache {
    pthread_mutex_t lock; /* guards the slots, not the blocks, which do not change */
    struct {
        struct block *block; /* the cache is one of its users; NULL: free */
        uint64_t last_use;
    } slot[KEPT_BLOCKS];
    uint64_t clock;
};

int block_cache_init(struct block_cache *cache);
void block_cache_destroy(struct block_cache *cache);

/* Reads n bytes at address, of which summed end in a checksum (the rest is not covered), and checks
 * signature and checksum. The caller ends its use with block_put. */
int block_read(struct store *store, const struct block_kind *kind, uint64_t address, uint64_t n,
               uint64_t summed, struct block **block, struct why *why);

/* The same out of the cache, if it is there. */
int block_get(struct block_cache *cache, struct store *store, const struct block_kind *kind,
              uint64_t address, uint64_t n, uint64_t summed, struct block **block, struct why *why);
void block_put(struct block *block); /* NULL is fine */

/* ---- Indexes ---- */

struct index {
    const struct index_ops *ops;
    struct store *store;
    const struct superblock *superblock;
    struct chunk_record_format format;
    int rank;
    uint64_t max_chunks[SFS_MAX_RANK]; /* chunks per axis; SFS_UNLIMITED */
    uint64_t address;                  /* of its header; NO_ADDRESS: nothing was ever stored */
    void *kind;
    struct block_cache cache;
};

/* The beginning that all structures of an index have: signature, version 0 or 1, client id or
 * record type. Returns a cursor behind it. */
#define INDEX_BEGIN_BYTES (SIGNATURE_BYTES + 2)
int index_begin(const char *name, uint64_t address, const unsigned char *bytes, size_t n,
                unsigned type, struct cursor *cursor, struct why *why);

/* The same, and the address of the index's header behind it, as in all blocks of arrays. */
int index_begin_block(const struct index *index, const char *name, const struct block *block,
                      struct cursor *cursor, struct why *why);

/* Reads an element of an array at offset of a block. */
int index_element(const struct index *index, const struct block *block, size_t offset,
                  struct chunk_record *record, struct why *why);

/* What an iteration reads cannot be more than the store holds, unless blocks lie over each other:
 * takes bytes off the budget, which begins as the size of the store. */
int index_spend(const char *name, uint64_t address, uint64_t bytes, uint64_t *budget,
                struct why *why);

#endif
