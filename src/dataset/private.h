/* Shared by the files of src/dataset only. */
#ifndef SPARSEFS_DATASET_PRIVATE_H
#define SPARSEFS_DATASET_PRIVATE_H

#include <pthread.h>

#include "common/box.h"
#include "common/hash.h"
#include "format/superblock.h"
#include "layout/layout.h"
#include "sparsefs/sparsefs.h"

struct cache;
struct cache_dataset;

struct sfs_dataset {
    struct sfs_file *file;
    uint64_t address;
    char *path;
    struct sfs_dataset_info info;
    struct layout layout;            /* unless its type has pointers and it is dense */
    struct cache_dataset *cache;     /* the same */
    struct sparse *sparse;           /* NULL: dense */
    unsigned users;                  /* under file->lock; 0: kept open in case it is wanted again */
    struct sfs_dataset *prev, *next; /* the unused ones, longest unused first */
    UT_hash_handle hh;
};

/* One commit serves all who asked for it before it began: who comes while one is under way waits
 * for the next, which the first of them does. */
struct flushing {
    pthread_mutex_t lock; /* guards what follows; no other lock is taken under it */
    pthread_cond_t ended_one;
    bool running;
    uint64_t begun, ended; /* commits */
    int error;             /* of the one that ended last */
};

struct sfs_file {
    struct store *store;
    struct superblock superblock;
    struct hdf5 *hdf5;
    struct cache *cache;
    bool owns_cache;
    struct flushing flushing;
    /* For reading while a chunk is put into store and index, or libhdf5 changes the file; for
     * writing while the store is committed. Who wants to write goes first, so whoever has it for
     * reading must not take it once more. Taken after `lock`. */
    pthread_rwlock_t commit_lock;
    pthread_mutex_t lock;         /* guards what follows; held while a dataset is being opened */
    struct sfs_dataset *datasets; /* all open ones, by address */
    struct sfs_dataset *unused;
    unsigned n_unused;
};

/* Closes all datasets, none of which may be in use. */
void dataset_close_all(struct sfs_file *file);

/* A slab that lies in the dataset as a box. -EINVAL. */
int dataset_box(const struct sfs_dataset *dataset, const struct sfs_slab *slab, struct box *box);

/* What is defined in a slab, as positions in it; of a dense dataset everything. The caller frees
 * the runs, also after an error. */
int dataset_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, struct runs *runs);

/* The positions of a chunk that lie outside of dims; whole: all of them. The caller frees the runs,
 * also after an error. -ENOMEM. */
int dataset_outside(const struct layout *layout, const uint64_t *scaled, const uint64_t *dims,
                    struct runs *outside, bool *whole);

/* Writes a box of a dense dataset, through libhdf5; elements packed, in the file's datatype. */
int dataset_write_dense(struct sfs_dataset *dataset, const struct box *box, const void *elements);

/* Reads n elements from row-major position first of a box on. */
int dataset_read_elements(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                          uint64_t n, char *buffer);

/* Where the header of an object is in the store: libhdf5 counts from the end of a user block.
 * UINT64_MAX: nowhere. */
uint64_t dataset_store_address(const struct sfs_file *file, uint64_t address);

/* Logs what libhdf5 says of an object; returns error. */
int object_failed(const struct sfs_file *file, const char *what, uint64_t address, int error);

#endif
