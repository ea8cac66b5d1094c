/* The mappings of a virtual dataset, for the files that read through them. */
#ifndef SPARSEFS_DATASET_VIRTUAL_MAPPING_H
#define SPARSEFS_DATASET_VIRTUAL_MAPPING_H

#include <limits.h>

#include "dataset/private.h"
#include "dataset/virtual_sources.h"
#include "hdf5/hdf5.h"

/* A source under the names that it has after blocks were numbered. */
struct known {
    char *key; /* file, newline, dataset */
    struct source *source;
    size_t bytes;              /* of memory */
    bool is_block;             /* only its names were numbered: it goes when there are too many */
    unsigned users;            /* of a block */
    struct known *prev, *next; /* blocks without users, longest unused first */
    UT_hash_handle hh;
};

/* One mapping, simplified. It stays as it is; those of a series give way to others. */
struct mapping {
    struct hdf5_slab shown, source;
    struct source *of; /* NULL: numbered */
    /* numbered: names with %b, and the axis whose blocks are numbered */
    char *file, *dataset;
    int numbered_axis;
    bool is_unlimited;           /* what is not there (yet) is the fill value */
    bool is_regular;             /* else libhdf5 reads the dataset, and these are boxes around it */
    size_t order;                /* in the file: what comes later lies above */
    uint64_t low, high, highest; /* along the axis that they are sorted by; the last: below here */
};

/* What is known of a virtual dataset. But for the last members it stays as it is. */
struct virtual
{
    struct sfs_dataset *dataset;
    struct sfs_file *file;
    struct sources *sources;
    size_t n;
    struct mapping *mapping; /* by where they begin along the axis */
    int axis;
    bool fill_missing;
    bool is_series;          /* libhdf5 knows nothing of it */
    atomic_bool is_librarys; /* libhdf5 must read it, as may be found out later */
    atomic_bool is_shallow;  /* its sources are known not to lead in a circle */
    atomic_bool said_too_deep, said_not_alike, said_too_long;
    pthread_mutex_t lock;
    struct known *known;  /* under lock */
    struct known *idle;   /* the same: blocks without users */
    size_t n_blocks;      /* how many there are, */
    size_t block_bytes;   /* bytes of these, */
    size_t kept_bytes;    /* and of the others */
    struct virtual *next; /* while its file is closed */
};

/* Mappings that have something in common with a box. */
struct touched {
    const struct mapping *few[16];
    const struct mapping **mapping; /* few, or allocated */
    size_t n, capacity;
};

/* The mappings that a box touches, in the order of the file. touched_free also after an error.
 * -ENOMEM, -EINTR. */
int touched_find(const struct virtual *virtual, const struct box *box, struct touched *touched);
void touched_free(struct touched *touched);

/* Whether a mapping shows something of a box, of one that is not regular: whether it may; whether
 * all of it, and so nothing below it matters: not to be asked of such a one. */
bool mapping_touches(const struct mapping *mapping, const struct box *box);
bool mapping_covers(const struct mapping *mapping, const struct box *box);

/* The first and the end of what is selected along an axis below dim. */
void mapping_bounds(const struct hdf5_axis *axis, uint64_t dim, uint64_t *low, uint64_t *high);

/* Which of its numbered blocks a box has a part of, which the mapping touches: [begin, end). Of one
 * that is not numbered [0, 1). */
uint64_t mapping_blocks_begin(const struct mapping *mapping, const struct box *box);
uint64_t mapping_blocks_end(const struct mapping *mapping, const struct box *box);

/* The source of a numbered block, which stays until it is let go; of those that nobody uses so many are kept that there
 * are no more, nor more bytes of them, and of all virtual datasets together. -EIO: its names are too long, which is
 * logged; -ENOMEM. */
#define MAPPING_MOST_BLOCKS     4096
#define MAPPING_MOST_BYTES      ((size_t)8 << 20)
#define MAPPING_MOST_IDLE_BYTES ((size_t)32 << 20)
#define MAPPING_MOST_FILE       (PATH_MAX - 1)
int mapping_numbered(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                     struct known **known);

/* May close it, or others: not with the lock of a file held, nor by a prefetch, for which who holds such a lock may
 * wait. NULL is nothing. */
void mapping_let_go(struct virtual *virtual, struct known *known);

/* The same for prefetches: -ENOENT if the block is not known, and so is not open. None is closed before another one is
 * let go. */
int mapping_numbered_if_known(struct virtual *virtual, const struct mapping *mapping,
                              uint64_t block, struct known **known);
void mapping_put(struct virtual *virtual, struct known *known);

/* Lets libhdf5 keep chunks of the sources, where it reads the dataset. */
int virtual_cache_sources(struct virtual *virtual);

#endif
