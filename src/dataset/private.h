/* Shared by the files of src/dataset only. */
#ifndef SPARSEFS_DATASET_PRIVATE_H
#define SPARSEFS_DATASET_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/box.h"
#include "common/hash.h"
#include "format/superblock.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "sparsefs/sparsefs.h"

struct ahead;
struct cache;
struct cache_dataset;
struct series;
struct sources;
struct store_found;
struct virtual;

/* Calls on a dataset, which keep its dims as they are, and those that change something (use.c). */
struct use {
    pthread_rwlock_t lock;         /* for reading during calls; for writing while dims change */
    atomic_uint_least64_t changes; /* the low 16 bits: calls that are changing something now */
    atomic_uint_least64_t extents; /* changes of the dims */
    /* For reading while elements are changed; for writing from reading to writing one that is
     * changed in part. Taken after `lock`. */
    pthread_rwlock_t parts;
};

struct sfs_dataset {
    struct sfs_file *file;
    uint64_t address;
    char *path;
    struct sfs_dataset_info info;
    struct hdf5_storage storage; /* of a dense one */
    struct layout layout;        /* unless its type has pointers and it is dense */
    struct cache_dataset *cache; /* the same */
    struct sparse *sparse;       /* NULL: dense */
    struct virtual *virtual;     /* it is read from its sources (virtual.h); else NULL */
    struct series *series;       /* of a followed file: what it consists of; else NULL */
    struct use use;
    atomic_bool said_missing; /* the log says that a filter is missing */
    struct {
        unsigned running; /* fetchings of its chunks */
        unsigned wrong;   /* what was fetched and was not read then */
    } ahead;              /* of ahead.c */
    /* Of who commits, one at a time; ends are of the first dim: */
    uint64_t committed_end;
    uint64_t flush_end;  /* as it is being committed */
    bool header_differs; /* from the dims: the commit leaves some out */
    struct sfs_dataset *next_differing;
    atomic_uint_least64_t finished_end; /* where the last ends that was unfinished, and is not */
    atomic_int left;                    /* the error for which the last commit left something out */
    struct {
        bool waits;
        struct sfs_dataset *prev, *next;
    } guarded;                       /* of guard.c */
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
    bool keeps_promises;   /* who waits wants all that is finished, whatever it leaves open */
    uint64_t begun, ended; /* commits */
    int error;             /* of the one that ended last */
    int left;              /* the error for which it left something out, or 0 */
};

/* What libhdf5's process must not change (guard.c). */
struct guard {
    bool is_on;
    pthread_mutex_t lock;          /* guards what follows; taken after all others of the file */
    struct sfs_dataset *unclaimed; /* open ones of which nothing was claimed yet */
};

struct sfs_file {
    struct store *store;
    struct guard guard;
    struct {                   /* writing.c */
        pthread_mutex_t lock;  /* held while the store's lock is changed */
        atomic_uint users;     /* calls that may change the file, and who said that they will */
        atomic_bool is_writer; /* the store has begun to write */
        bool can_end;          /* it was opened with options->share */
    } writing;
    bool follows;
    struct use use;               /* of a followed file: calls on it and its datasets; ALONE: who
                                   * takes another state */
    atomic_uint_least64_t states; /* that were taken */
    atomic_bool holds_state;      /* sfs_hold_state */
    atomic_bool library_outdated; /* libhdf5 knows another state, */
    atomic_bool library_wanted;   /* and something wants it to know this one */
    atomic_bool library_failed;   /* it could not open the file again, which was said */
    struct superblock superblock;
    struct hdf5 *hdf5;
    struct cache *cache;
    struct ahead *ahead;
    bool owns_cache;          /* and what is ahead in it */
    struct sources *sources;  /* of its virtual datasets; NULL: none was opened yet; under `lock` */
    bool owns_sources;        /* else they are those of the file that it is a source of */
    pthread_mutex_t renewing; /* held while series are looked at again; taken first */
    bool fill_missing;        /* sfs_options */
    bool has_worker;          /* libhdf5 works on it in another process */
    struct flushing flushing;
    /* For reading while a chunk is put into store and index, or libhdf5 changes the file; for
     * writing while the store is committed. Who wants to write goes first, so whoever has it for
     * reading must not take it once more. Taken after `lock`. */
    pthread_rwlock_t commit_lock;
    struct sfs_dataset *differing; /* of who commits: those whose header_differs */
    pthread_mutex_t lock;          /* guards what follows; held while a dataset is being opened */
    bool is_committing;            /* a commit has begun for all open datasets */
    struct sfs_dataset *datasets;  /* all open ones, by address */
    struct sfs_dataset *unused;
    unsigned n_unused;
};

/* What files can have in common. */
struct common_cache {
    struct cache *cache;
    struct ahead *ahead;
};

/* The sizes are those of options, which may be NULL. -ENOMEM, errors of starting threads. */
int common_cache_create(const struct sfs_options *options, struct common_cache *common);
void common_cache_destroy(const struct common_cache *common);

/* Makes what stands over a store, which is taken over; on error it is closed. common: the cache
 * that it is to be over, and which outlives it; NULL: over one of its own. */
int file_over(struct store *store, const struct common_cache *common,
              const struct sfs_options *options, bool create, struct sfs_file **file);

/* The same of a file that was found; for writing it is shared (sfs_options.share). */
int file_over_found(const struct store_found *found, const struct common_cache *common,
                    const struct sfs_options *options, struct sfs_file **file);

/* Keeps libhdf5's process, if there is one, from changing what is in front of the superblock and
 * what sparse datasets have in the store: of those that are added, as long as they are not removed,
 * and of all that were there when it changed something before. Before other threads; -ENOMEM. */
int guard_init(struct sfs_file *file);
void guard_add(struct sfs_dataset *dataset);
void guard_remove(struct sfs_dataset *dataset);

/* Makes the table of its sources, if it has none; `lock` is held. -ENOMEM. */
int file_make_sources(struct sfs_file *file);

/* Opens a file for reading that was found as named by a virtual dataset of `from`, over the same
 * cache; it has the same sources, and is followed if `from` is. */
int file_open_source(struct sfs_file *from, const struct store_found *found,
                     struct sources *sources, struct sfs_file **file);

/* As sfs_lookup and sfs_find, but series are not found. */
int file_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link);
int file_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address);

/* Until the end of the block the file may be changed, and has the lock that this wants; or
 * writing.error says why not: -EROFS, and errors of store_begin_writing. It comes before USING and
 * the like, which commits may have to wait for. */
#define WRITING(file)                                                                              \
    __attribute__((cleanup(writing_end))) struct writer writing = writing_begin(file)
struct writer {
    struct sfs_file *file; /* NULL: it did not begin */
    int error;
};
struct writer writing_begin(struct sfs_file *file);
void writing_end(struct writer *writing);

/* Whether there can be anything to commit: then the lock stays until sfs_end_writing. */
bool writing_hold(struct sfs_file *file);

/* Commits, as sfs_flush. *left: as of cache_flush_most. */
int file_flush(struct sfs_file *file, bool keeps_promises, int *left);

int use_init(struct use *use); /* -ENOMEM */
void use_destroy(struct use *use);

/* A call that this thread is in the middle of. */
struct call {
    struct use *use;
    bool has_parts; /* it has taken use->parts */
    struct call *outer;
};

/* Until the end of the block the dims stay as they are; calls may be nested. CHANGING: also, the
 * block changes elements. PATCHING: and some of them in part, while nobody else changes any. */
#define USING(dataset)                                                                             \
    FOLLOWED((dataset)->file);                                                                     \
    __attribute__((cleanup(use_end))) struct call call;                                            \
    use_begin(&(dataset)->use, &call)
/* The same for a whole file: if it is followed it stays in one state. */
#define FOLLOWED(file)                                                                             \
    __attribute__((cleanup(use_end))) struct call file_call;                                       \
    use_begin((file)->follows ? &(file)->use : NULL, &file_call)
#define CHANGING(dataset)                                                                          \
    USING(dataset);                                                                                \
    __attribute__((cleanup(change_end), unused)) struct use *changing =                            \
        change_begin(&(dataset)->use)
#define PATCHING(dataset)                                                                          \
    USING(dataset);                                                                                \
    __attribute__((cleanup(change_end), unused)) struct use *changing = patch_begin(&(dataset)->use)
void use_begin(struct use *use, struct call *call);
bool use_try_begin(struct use *use, struct call *call); /* false: it would wait */
void use_end(struct call *call);
bool use_is_mine(const struct use *use); /* this thread is in the middle of a call */
bool use_is_only(const struct use *use); /* and in the middle of none on anything else */
void use_changed(struct use *use);       /* something has changed, without a call */
struct use *change_begin(struct use *use);
struct use *patch_begin(struct use *use);
void change_end(struct use **use);

/* Until the end of the block no other call on the dataset runs, and the dims may change; what is
 * called in it must not be USING the dataset. */
#define ALONE(dataset)                                                                             \
    __attribute__((cleanup(alone_end), unused)) struct use *alone = alone_begin(&(dataset)->use)
struct use *alone_begin(struct use *use);
void alone_end(struct use **use);

/* In such a block: what is called between them may be USING the dataset. */
void alone_call_begin(struct use *use, struct call *call);
void alone_call_end(struct call *call);

/* The result of a call of this library that reads, and is made again as long as a followed file
 * moves under it. Calls in the middle of others leave that to these. */
#define FOLLOWING(file, call)                                                                      \
    __extension__({                                                                                \
        unsigned follow_tries = 0;                                                                 \
        int follow_error;                                                                          \
        do                                                                                         \
            follow_error = (call);                                                                 \
        while (follow_again((file), &follow_error, &follow_tries));                                \
        follow_error;                                                                              \
    })
bool follow_again(struct sfs_file *file, int *error, unsigned *tries);

/* Calls that copy from a file which may be followed to another: before the block in which they are
 * FOLLOWED, libhdf5 is brought to know the state; after it, -EAGAIN if that has moved on meanwhile:
 * the copy is to be discarded. */
int follow_begin_copy(struct sfs_file *from);
int follow_end_copy(struct sfs_file *from, int error);

/* A dataset of a followed file gets other dims; nobody else is in a call on the file. */
void follow_take_dims(struct sfs_dataset *dataset, const uint64_t *dims);

/* In a call: whether libhdf5 knows the state that the file is in; else STORE_MOVED, and it will. */
int library_current(struct sfs_file *file);

/* ---- unfinished.c: what a commit leaves out ---- */

/* Before the cache is flushed, or when a dataset is opened during a commit; the dims stay as they
 * are meanwhile. keeps_promises: nothing that is finished. */
void unfinished_begin_commit(struct sfs_dataset *dataset, bool keeps_promises);

/* Puts the dims that are to be committed into the header of a dataset; then, after the commit,
 * those that are into all such headers. commit_lock is held for writing. */
int unfinished_settle(struct sfs_dataset *dataset);
void unfinished_restore(struct sfs_file *file);

void unfinished_end_commit(struct sfs_dataset *dataset, bool is_committed);

/* In extent.c: puts dims into the header of a sparse or chunked dataset; commit_lock is held for
 * writing. */
int dataset_put_dims(struct sfs_dataset *dataset, const uint64_t *dims);

/* Closes a dataset that nobody uses; `lock` is held. What is returned the caller gives to
 * virtual_close without it. */
struct virtual *dataset_drop(struct sfs_dataset *dataset);

/* Closes what is read through virtual datasets; then all datasets. None may be in use. */
void dataset_close_virtual(struct sfs_file *file);
void dataset_close_all(struct sfs_file *file);

/* A slab that lies in the dataset as a box. -EINVAL. */
int dataset_box(const struct sfs_dataset *dataset, const struct sfs_slab *slab, struct box *box);

/* Of its datatype and its elements. */
struct hdf5_owner dataset_owner(const struct sfs_dataset *dataset);

/* The same, which has at least the bytes [offset, offset + n) in its dense view. -EINVAL,
 * -EOPNOTSUPP: they would be pointers. */
int dataset_range(const struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                  size_t n, struct box *box);

/* sfs_erase of only some elements of a slab; positions are in it, ascending. */
int dataset_erase_some(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                       const struct sfs_defined *defined);

/* What is defined in a slab, as positions in it; of a dense dataset everything. The caller frees
 * the runs, also after an error. */
int dataset_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, struct runs *runs);

/* The positions of a chunk that lie outside of dims; whole: all of them. The caller frees the runs,
 * also after an error. -ENOMEM. */
int dataset_outside(const struct layout *layout, const uint64_t *scaled, const uint64_t *dims,
                    struct runs *outside, bool *whole);

/* n times rank scaled coordinates, which whoever has the list frees. -ENOMEM. */
struct chunk_list {
    uint64_t *scaled;
    size_t n, capacity;
};
int chunk_list_add(struct chunk_list *list, int rank, const uint64_t *scaled);

/* The chunks of a box of a sparse dataset in which something may be defined, in row-major order:
 * all that it touches where they are few, else those that are stored, or changed and not stored
 * yet. Whoever has the list frees it, also after an error. Errors of layout_each_chunk; -ENOMEM. */
int chunk_list_fill(struct chunk_list *list, struct sfs_dataset *dataset, const struct box *box);

/* Makes a description of runs, which are taken over, also after an error. -ENOMEM. */
int dataset_describe(struct runs *runs, struct sfs_defined *defined);

/* The interval that holds the n-th defined element. */
size_t dataset_interval_of(const struct sfs_defined *defined, uint64_t n);

/* Fill values, at most *n and no more than a fair amount of memory; *n is how many. The caller
 * frees them. NULL: no memory. */
void *dataset_fill(const struct sfs_dataset *dataset, uint64_t *n);

/* Writes packed values to a box. *done: it lies so that this could be done piece by piece; if not,
 * some may have been written. */
int dataset_write_in_order(struct sfs_dataset *dataset, const struct box *box,
                           const struct sfs_defined *defined, const char *values, bool *done);

/* Writes a box of a dense dataset, through libhdf5; elements packed, in the file's datatype. */
int dataset_write_dense(struct sfs_dataset *dataset, const struct box *box, const void *elements);

/* The same of elements of variable length, struct sfs_sequence, also in parts. */
int dataset_write_dense_sequences(struct sfs_dataset *dataset, const struct box *box,
                                  const struct sfs_sequence *sequences);

/* Whether elements can be written: -EOPNOTSUPP, they have pointers; -EINVAL, too many of them. */
int dataset_check_writable(const struct sfs_dataset *dataset);

/* Whether a box can be written, as far as that is known before: errors of layout->ops->check_write,
 * which goes from its first element to its last. */
int dataset_check_box(struct sfs_dataset *dataset, const struct box *box);

/* Writes the elements of a box through the cache, or where they are, or what only libhdf5 can write
 * through that. */
int dataset_put_box(struct sfs_dataset *dataset, const struct box *box, const void *elements);

/* Reads n elements from row-major position first of a box on. */
int dataset_read_elements(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                          uint64_t n, char *buffer);

/* Where elements are to go: to an array of these dims, at these coordinates of it. Its rank is that
 * of the box that is read. */
struct place {
    char *elements;
    const uint64_t *dims, *start;
};

/* Whether its chunks are decoded, and that by filters of our own. */
bool dataset_decodes(const struct sfs_dataset *dataset);

/* Reads a box, which must lie inside the dataset. depth: of virtual datasets whose sources lead
 * here. Errors of cache_read and virtual_read. The dataset is USING. */
int dataset_read_box(struct sfs_dataset *dataset, const struct box *box, const struct place *place,
                     int depth);

/* left.c: before libhdf5 reads a dataset: whether it may. -EIO, and the log says why; -ENOMEM,
 * -EINTR.
 */
int left_check(struct sfs_dataset *dataset);

/* As cache_lend; *holder is for dataset_return. */
int dataset_lend_box(struct sfs_dataset *dataset, const struct box *box, const void **bytes,
                     void **holder, int depth);
void dataset_return(struct sfs_dataset *dataset, void *holder);

/* Where the header of an object is in the store: libhdf5 counts from the end of a user block.
 * UINT64_MAX: nowhere. */
uint64_t dataset_store_address(const struct sfs_file *file, uint64_t address);

/* Logs what libhdf5 says of an object; returns error. */
int object_failed(const struct sfs_file *file, const char *what, uint64_t address, int error);

#endif
