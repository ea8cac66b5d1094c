/* For the files of temporary_table.h only. */
#ifndef SPARSEFS_FS_TEMPORARY_PRIVATE_H
#define SPARSEFS_FS_TEMPORARY_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "fs/staging_limit.h"
#include "fs/temporary_table.h"

struct name {
    UT_hash_handle hh;
    struct temporary *file;
    struct name *next_lost;   /* of those that are lost together, which log_lost is told */
    bool ends_handle;         /* when it is freed: the file has no other */
    const struct node *place; /* held */
    uint64_t object;          /* of the dataset: where the hash key begins */
    uint64_t directory;
    char name[]; /* without a NUL in the hash key */
};

struct temporary {
    /* Under the lock of the table: */
    UT_hash_handle hh_number;
    struct temporary *prev, *next; /* in the list, while it has a name */
    struct name *name;             /* NULL: it has none */
    size_t taken;                  /* of the limit: all but the content */
    unsigned users;                /* its name is one */
    /* Never changed: */
    uint64_t number;
    const struct node *home; /* by which it was made; held */
    uid_t user;           /* by whom; while it has a name it counts for him (folder_open_files.h) */
    pthread_mutex_t lock; /* guards what follows */
    bool becomes;         /* a frame, which may take long: bytes and n stay as they are */
    pthread_cond_t no_longer; /* `becomes` */
    char *bytes;
    size_t n, room;
    struct timespec atime, mtime;
    bool has_atime, has_mtime; /* set explicitly */
    bool is_told;              /* lack of room was logged */
    bool has_become;
    struct inode became;                         /* whose node is held */
    struct temporary *prev_became, *next_became; /* under the lock of the table */
    uint64_t object;                             /* what it has become is of */
};

struct temporaries {
    struct nodes *nodes;
    const char *label;
    struct staging_limit *limit;
    atomic_uint n;        /* with a name; may be read without the lock */
    atomic_uint n_became; /* and are still used; the same */
    pthread_mutex_t lock; /* guards what follows */
    struct name *names;
    struct temporary *by_number, *list;
    struct temporary *became;
    uint64_t numbers; /* of files so far */
};

/* Its lock must be held, and is dropped meanwhile: waits while the content becomes a frame, before it is changed.
 * -EINTR. */
int temporary_wait(struct temporary *temporary);

/* Says which file has no room: -EFBIG: not even alone; else with the others. */
void temporary_tell_of_limit(const struct temporaries *temporaries, const char *name, int error);

#endif
