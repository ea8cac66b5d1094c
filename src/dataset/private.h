/* Shared by the files of src/dataset only. */
#ifndef SPARSEFS_DATASET_PRIVATE_H
#define SPARSEFS_DATASET_PRIVATE_H

#include <errno.h>
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
struct slots;
struct store_found;
struct virtual;

/* Calls on a dataset, which keep its dims as they are, and those that change something (concurrent_calls.c). */
struct use {
    pthread_rwlock_t lock;         /* for reading during calls; for writing while dims change */
    atomic_uint_least64_t changes; /* change counter; low 16 bits: number of running changes */
    struct use *all; /* of a dataset: its file's, whose counter counts all of these; or NULL */
    atomic_uint_least64_t extents; /* counter of changes of the dims */
    /* Held for reading while elements are changed, for writing while an element is changed in part
     * (read, modified, written). Taken after `lock`. */
    pthread_rwlock_t parts;
    /* Calls that do not hold `lock`, as they must not wait behind who waits to change dims (concurrent_calls.c). */
    pthread_mutex_t gate;
    pthread_cond_t passed; /* is_alone or n_beside has changed */
    bool is_alone;         /* dims change */
    unsigned n_beside;
    atomic_uint n_waiting; /* who waits to change dims */
};

struct sfs_dataset {
    struct sfs_file *file;
    uint64_t address;
    char *path;
    struct sfs_dataset_info info;
    struct hdf5_storage storage; /* of a dense one */
    /* Its external files, by external_files_changed.c: */
    const char **raw_names; /* of the segments, each once */
    size_t n_raw_names;
    _Atomic uint64_t raw_state;
    _Atomic uint64_t raw_looked; /* when that was due last (clock_now) */
    size_t segment_bytes;        /* of memory that the list of its external files takes */
    struct layout layout;        /* unless its type has pointers and it is dense */
    struct cache_dataset *cache; /* the same */
    struct sparse *sparse;       /* structured chunks; NULL: what libhdf5 knows */
    struct slots *slots;         /* sparse: as in the layout; else NULL */
    struct virtual *virtual;     /* it is read from its sources (virtual_dataset.h); else NULL */
    struct series *series;       /* of a followed file: its members; else NULL */
    size_t unused_bytes;         /* while it is unused: the file's lock */
    struct use use;
    atomic_bool said_missing; /* the missing filter was logged */
    struct {
        unsigned running;     /* prefetches of its chunks */
        unsigned wrong;       /* prefetched chunks that were not read */
        atomic_bool unwanted; /* prefetches are to end early */
    } ahead;                  /* of read_ahead.c */
    /* Of the running commit; ends are of the first dim: */
    uint64_t committed_end;
    uint64_t flush_end; /* that is being committed */
    /* The header has the committed dims, not the current ones: it is not dropped. Set under the file's lock, cleared
     * without it. */
    atomic_bool header_differs;
    struct sfs_dataset *next_differing;
    atomic_uint_least64_t finished_end; /* largest end of anything unfinished that has been finished
                                         */
    atomic_int left;                    /* error for which the last commit left chunks out */
    /* Since it shrank, a chunk that was cut could not be stored, and no commit has had all of it. Changed while no
     * other thread commits. */
    bool was_cut;
    struct {
        bool waits;
        struct sfs_dataset *prev, *next;
    } claim;          /* of protected_from_libhdf5.c */
    unsigned users;   /* under file->lock; 0: kept open for reuse */
    bool is_replaced; /* of a followed file: what is there now is not found as this */
    struct sfs_dataset *prev, *next; /* the unused ones, longest unused first */
    UT_hash_handle hh;
};

/* Whether elements can be undefined: it is sparse. Of dense data in structured chunks none is. */
static inline bool dataset_has_undefined(const struct sfs_dataset *dataset)
{
    return dataset->sparse && !dataset->info.is_dense;
}

/* Group commit: one commit serves all callers that came before it began. A caller that comes during
 * a commit waits for the next one, which the first of them does. */
struct flushing {
    pthread_mutex_t lock; /* guards what follows; no other lock is taken under it */
    pthread_cond_t ended_one;
    bool running;
    bool keeps_promises;   /* a waiting caller wants everything that is finished
                            * (unfinished_begin_commit) */
    uint64_t begun, ended; /* commits */
    int error;             /* of the commit that ended last */
    int left;              /* error for which it left chunks out, or 0 */
};

/* What a worker must not change (protected_from_libhdf5.c). */
struct protected_from_libhdf5 {
    bool is_on;
    pthread_mutex_t lock;          /* guards what follows; taken after all other locks of the file
                                    */
    struct sfs_dataset *unclaimed; /* open sparse datasets that are not claimed yet */
};

struct sfs_file {
    struct store *store;
    struct protected_from_libhdf5 protected_from_libhdf5;
    struct {                   /* lock_while_writing.c */
        pthread_mutex_t lock;  /* held while the store's lock is changed */
        atomic_uint users;     /* running changes, and calls of sfs_begin_writing */
        atomic_bool is_writer; /* the store has begun to write */
        bool can_end;          /* it was opened with options->share */
    } writing;
    bool follows;
    struct use use;               /* of a followed file: calls on it and its datasets; ALONE to take
                                   * another state */
    atomic_uint_least64_t states; /* number of states taken, for sfs_states */
    atomic_bool holds_state;      /* sfs_hold_state */
    atomic_bool library_outdated; /* libhdf5 has an older state, */
    atomic_bool library_wanted;   /* and something needs it to have this one */
    atomic_bool library_failed;   /* it could not open the file again, which was logged */
    bool has_unread;              /* a dataset could not be read when the state was taken */
    struct superblock superblock;
    struct hdf5 *hdf5;
    struct cache *cache;
    struct ahead *ahead;
    bool owns_cache;          /* and `ahead` */
    struct sources *sources;  /* of its virtual datasets; NULL: none yet; under `lock` */
    bool owns_sources;        /* else they are those of the file whose source this is */
    pthread_mutex_t renewing; /* held while series are looked at again; taken first */
    bool fill_missing;        /* sfs_options */
    bool has_worker;          /* libhdf5 runs in a worker */
    struct flushing flushing;
    /* Held for reading while a chunk is stored and put into the index, or libhdf5 changes the file;
     * for writing while the store is committed. Prefers writers, so a thread must not take it for
     * reading twice. Taken after `lock`. */
    pthread_rwlock_t commit_lock;
    /* As it was: the header of a sparse dataset in which libhdf5 has counted a link, and that it may know still
     * (hard_links.c). NULL: none. Changed under commit_lock, for writing. */
    struct object_header *_Atomic counted;
    struct sfs_dataset *differing; /* in the running commit: datasets with header_differs */
    pthread_mutex_t lock;          /* guards what follows; held while a dataset is being opened */
    bool is_committing;            /* a commit has begun for all open datasets */
    struct sfs_dataset *datasets;  /* all open ones, by address */
    struct sfs_dataset *unused;
    unsigned n_unused;
    size_t unused_bytes; /* of what describes these */
};

/* What several files can share. */
struct common_cache {
    struct cache *cache;
    struct ahead *ahead;
};

/* The sizes are those of options, which may be NULL. -ENOMEM, errors of starting threads. */
int common_cache_create(const struct sfs_options *options, struct common_cache *common);
void common_cache_destroy(const struct common_cache *common);

/* Makes what stands over a store, which is taken over; on error it is closed. Until then errors are
 * said to store_why. common: the cache that it is to be over, and which outlives it; NULL: over one
 * of its own. Errors of sfs_open. */
int file_over(struct store *store, const struct common_cache *common,
              const struct sfs_options *options, bool create, struct sfs_file **file);

/* A file that is to be opened. */
struct opening {
    const char *path;
    const struct store_found *found;   /* NULL: it is at path; else found->path is path */
    const struct common_cache *common; /* as file_over has it */
    const struct sfs_options *options; /* or NULL; beside_writer is left out of account */
    struct why *why;                   /* takes its errors (store_opening); NULL: they are logged */
};

/* Errors of sfs_open; -ECHILD: no process for libhdf5 could be had for now, which says nothing of the file. */
int file_open_as(const struct opening *opening, struct sfs_file **file);

/* Opens it for writing, or, where that cannot be, for reading, whose errors are logged. *refusal:
 * the error of the former; 0: it can be written; after -ENOMEM, -EINTR and -ECHILD, which is logged, nothing else is
 * tried. opening->why says why not. Errors of file_open_as. */
int file_open_or_read(const struct opening *opening, int *refusal, struct sfs_file **file);

/* An error of these for those to whom there is no such difference: that of sfs_open. */
static inline int file_error(int error)
{
    return error == -ECHILD ? -EIO : error;
}

/* Protects the space before the superblock and that of sparse datasets from libhdf5's worker, if
 * there is one: of datasets that are added and not removed, and of all that were there when it
 * first changed something. Before other threads; -ENOMEM. */
int protected_from_libhdf5_init(struct sfs_file *file);
void protected_from_libhdf5_add(struct sfs_dataset *dataset);
void protected_from_libhdf5_remove(struct sfs_dataset *dataset);

/* hard_links.c: sfs_link_create of a hard link. Errors are logged. */
int hard_link_create(struct sfs_file *file, const char *path, const struct sfs_link *link);

/* With commit_lock for writing, before headers of sparse datasets are changed: if a link to one was
 * counted, and it could not be seen to then, libhdf5 forgets that header now. Errors, which are logged,
 * as of hdf5_reopen and hdf5_flush; -EIO also: its process has done more than to count the link, which is undone. */
int hard_link_end(struct sfs_file *file);

/* The same for one header, with `lock` or alone and without commit_lock: no error if it is as it should be then. */
int hard_link_look(struct sfs_file *file, uint64_t address);

/* Makes the table of its sources, if it has none; `lock` is held. -ENOMEM. */
int file_make_sources(struct sfs_file *file);

/* Opens a file for reading that was found as named by a virtual dataset of `from`, over the same
 * cache; it has the same sources, and is followed if `from` is. why: as that of struct opening. */
int file_open_source(struct sfs_file *from, const struct store_found *found,
                     struct sources *sources, struct sfs_file **file, struct why *why);

/* As sfs_list and so on, with a `why` that takes what these log of the object, in a phrase that does
 * not name the file (store_say); NULL: it is logged. What the disk has refused, and that a process of
 * libhdf5 has ended, the log has anyway. file_lookup and file_find do not find series. */
int file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links, struct why *why);
int file_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link,
                struct why *why);
int file_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address,
              struct why *why);
int file_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type,
                     struct why *why);
int file_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes,
                    struct why *why);
int file_dataset(struct sfs_file *file, uint64_t address, const char *path,
                 struct sfs_dataset **dataset, struct why *why);

/* external_files_changed.c: the names of external files, once the storage of a dataset is known, which has them: 0 or
 * -ENOMEM. */
int external_files_list(struct sfs_dataset *dataset);

/* The same: what is read from now on of a dataset with external raw data is what its files have; what they had a tenth
 * of a second ago if there are many, or they are written through mappings. */
void external_files_look_at(struct sfs_dataset *dataset);

/* Until the end of the block the file may be changed, under the exclusive lock; or writing.error
 * says why not: -EROFS, and errors of store_begin_writing. It comes before USING and the like,
 * which a commit may wait for. */
#define WRITING(file)                                                                              \
    __attribute__((cleanup(writing_end))) struct writer writing = writing_begin(file)
struct writer {
    struct sfs_file *file; /* NULL: it did not begin */
    int error;
};
struct writer writing_begin(struct sfs_file *file);
void writing_end(struct writer *writing);

/* Whether there may be anything to commit: then the exclusive lock is kept until sfs_end_writing.
 */
bool writing_hold(struct sfs_file *file);

/* Commits, as sfs_flush. *left: as of cache_flush_most. */
int file_flush(struct sfs_file *file, bool keeps_promises, int *left);

/* Waits for the commit that runs; none begins from then to the second call. Who calls it holds no lock of the file. */
void file_hold_commits(struct sfs_file *file);
void file_let_commits(struct sfs_file *file);

int use_init(struct use *use); /* -ENOMEM */
void use_destroy(struct use *use);

/* A running call of this thread. */
struct call {
    struct use *use;
    bool has_parts; /* it has taken use->parts */
    bool is_beside; /* it is counted in use->n_beside */
    struct call *outer;
};

/* Until the end of the block the dims are constant; calls may be nested. CHANGING: the block also
 * changes elements. PATCHING: what it writes depends on what it has found, such as the other parts of
 * an element, and it excludes all other changes. PATCHING_IF: one or the other. */
#define USING(dataset)                                                                             \
    FOLLOWED((dataset)->file);                                                                     \
    __attribute__((cleanup(use_end))) struct call call;                                            \
    use_begin(&(dataset)->use, &call)
/* The same for a whole file: a followed one stays in one state. */
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
#define PATCHING_IF(dataset, patches)                                                              \
    USING(dataset);                                                                                \
    __attribute__((cleanup(change_end), unused)) struct use *changing =                            \
        (patches) ? patch_begin(&(dataset)->use) : change_begin(&(dataset)->use)
void use_begin(struct use *use, struct call *call);
bool use_try_begin(struct use *use, struct call *call); /* false: it would wait */
void use_end(struct call *call);
bool use_is_mine(const struct use *use); /* this thread is inside a call on it */
bool use_is_only(const struct use *use); /* and inside no call on anything else */
void use_changed(struct use *use);       /* counts a change made outside of a call */
struct use *change_begin(struct use *use);
struct use *patch_begin(struct use *use);
void change_end(struct use **use);

/* Until the end of the block no other call on the dataset runs, and the dims may change; nothing
 * called in it may be USING the dataset. */
#define ALONE(dataset)                                                                             \
    __attribute__((cleanup(alone_end), unused)) struct use *alone = alone_begin(&(dataset)->use)
struct use *alone_begin(struct use *use);
void alone_end(struct use **use);

/* The same, unless alone_error says that the thread was interrupted before (-EINTR): then it is not alone. */
#define GETTING_ALONE(dataset)                                                                     \
    __attribute__((cleanup(alone_end), unused)) struct use *alone = NULL;                          \
    const int alone_error = alone_get(&(dataset)->use, &alone)
int alone_get(struct use *use, struct use **alone);

/* In such a block: what is called between them may be USING the dataset. */
void alone_call_begin(struct use *use, struct call *call);
void alone_call_end(struct call *call);

/* The result of a reading call, which is repeated as long as it ends with STORE_MOVED. Nested calls
 * leave that to the outermost one. */
#define FOLLOWING(file, call)                                                                      \
    __extension__({                                                                                \
        unsigned follow_tries = 0;                                                                 \
        int follow_error;                                                                          \
        do                                                                                         \
            follow_error = (call);                                                                 \
        while (repeat_call((file), &follow_error, &follow_tries));                                 \
        follow_error;                                                                              \
    })

/* repeat_when_moved.c: whether a call that ended with *error is to be made again, as it was STORE_MOVED, the file is
 * followed, this call is the outermost one and the last state could be taken; else *error is what the call
 * returns: -EINTR, -EBUSY (MOST_TRIES), errors of sfs_refresh. *tries: 0 before the first time. */
bool repeat_call(struct sfs_file *file, int *error, unsigned *tries);

/* follow_datasets.c: takes the last state of a followed file, as sfs_refresh does, but not of its series. */
int follow_refresh(struct sfs_file *file);

/* For calls that copy from a file that may be followed: before the FOLLOWED block libhdf5 takes the
 * state; after it, -EAGAIN if the state has changed meanwhile: the copy, or what was told of it, is to
 * be discarded. */
int follow_begin_copy(struct sfs_file *from);
int follow_end_copy(struct sfs_file *from, int error);

/* Sets the dims of a dataset of a followed file; the caller excludes all calls on the file. */
void follow_take_dims(struct sfs_dataset *dataset, const uint64_t *dims);

/* In a call: 0 if libhdf5 has the state of the file; else STORE_MOVED, and it takes it. */
int library_current(struct sfs_file *file);

/* ---- unfinished_frames.c: what a commit leaves out ---- */

/* Before the cache is flushed, or when a dataset is opened during a commit; the dims are constant
 * meanwhile. keeps_promises: the commit includes everything that is finished. */
void unfinished_begin_commit(struct sfs_dataset *dataset, bool keeps_promises);

/* Puts the dims to be committed into the header of a dataset; and, after the commit, the current
 * ones into all such headers. commit_lock is held for writing. */
int unfinished_put_dims(struct sfs_dataset *dataset);
void unfinished_restore(struct sfs_file *file);

/* What that could not do is tried again, before a commit. The file's lock is held, commit_lock not. */
void unfinished_restore_left(struct sfs_file *file);

void unfinished_end_commit(struct sfs_dataset *dataset, bool is_committed);

/* The first dim has shrunk to this: what is behind it is neither promised nor committed any more. commit_lock is held
 * for writing. */
void unfinished_cut_rows(struct sfs_dataset *dataset, uint64_t end);

/* In change_dims.c: puts dims into the header of a sparse or chunked dataset; commit_lock is held for
 * writing. */
int dataset_put_dims(struct sfs_dataset *dataset, const uint64_t *dims);

/* Closes an unused dataset; `lock` is held. The caller passes the result to virtual_close without
 * it. */
struct virtual *dataset_drop(struct sfs_dataset *dataset);

/* It is not among the unused ones any more. The file's lock must be held. */
void dataset_is_used(struct sfs_dataset *dataset);

/* Of its datatype and its elements. */
struct hdf5_owner dataset_owner(const struct sfs_dataset *dataset);

/* Closes the sources of virtual datasets; then all datasets. None may be in use. */
void dataset_close_virtual(struct sfs_file *file);
void dataset_close_all(struct sfs_file *file);

/* A slab that lies in the dataset as a box. -EINVAL. */
int dataset_box(const struct sfs_dataset *dataset, const struct sfs_slab *slab, struct box *box);

/* The same of one that has at least the bytes [offset, offset + n) in its dense view. -EINVAL,
 * -EOPNOTSUPP: they would be pointers. */
int dataset_range(const struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                  size_t n, struct box *box);

/* sfs_erase and sfs_write_values inside a changing call. dataset_check_writable has admitted it, and
 * the box lies in the dims; where elements are erased the dataset is sparse. Positions are in the
 * box, ascending: -EINVAL. */
int dataset_erase_box(struct sfs_dataset *dataset, const struct box *box);
int dataset_erase_some(struct sfs_dataset *dataset, const struct box *box,
                       const struct sfs_defined *defined);
int dataset_write_values(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined, const void *values);

/* Loads what a change of some elements of a sparse dataset needs, if this thread may be interrupted: then before the
 * first change rather than within them, which are made INTERRUPTED_LATE. Errors of reading; -EINTR. */
int dataset_prepare_some(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined);

/* What is defined in a slab, as positions in it; of a dense dataset everything. The caller frees
 * the runs, also after an error. */
int dataset_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, struct runs *runs);

/* The positions of a chunk that lie outside of dims; whole: all of them. The caller frees the runs,
 * also after an error. -ENOMEM. */
int dataset_outside(const struct layout *layout, const uint64_t *scaled, const uint64_t *dims,
                    struct runs *outside, bool *whole);

/* Memory for selections that are joined, lists of chunks, and what elements lead to, those of the process together:
 * from *taken on so many bytes in all, if these are more. `what` takes it. -EIO: chunk_memory= does not allow as much;
 * -ENOMEM: it does not beside what others have; both are logged, and no more is taken. */
int selection_memory_take(const struct sfs_dataset *dataset, const char *what, size_t bytes,
                          size_t *taken);
void selection_memory_give_back(size_t taken);

/* n times rank scaled coordinates; begins as zeros. Of long ones the memory counts with that of selections, as
 * the chunks that an index has may be many more than it takes bytes for. -ENOMEM; errors of
 * selection_memory_take. */
struct chunk_list {
    uint64_t *scaled;
    size_t n, capacity;
    size_t taken; /* bytes, of selection_memory_take */
};
int chunk_list_add(struct chunk_list *list, const struct sfs_dataset *dataset,
                   const uint64_t *scaled);
void chunk_list_free(struct chunk_list *list);

/* The chunks of a box of a sparse dataset in which something may be defined, in row-major order:
 * all that it touches where they are few, else those that are stored, or changed and not stored
 * yet. Whoever has the list frees it, also after an error. Errors of layout_each_chunk and chunk_list_add. */
int chunk_list_fill(struct chunk_list *list, struct sfs_dataset *dataset, const struct box *box);

/* Makes a description of runs, which are taken over, also after an error. -ENOMEM. */
int dataset_describe(struct runs *runs, struct sfs_defined *defined);

/* The position of that element. */
uint64_t dataset_position_of(const struct sfs_defined *defined, uint64_t n);

/* The same intervals as runs, which are not to be freed. */
static inline struct runs dataset_runs_of(const struct sfs_defined *defined)
{
    return (struct runs){.entries = defined->interval,
                         .n = defined->n,
                         .capacity = defined->n + 1,
                         .elements = defined->elements};
}

/* Calls action for the boxes that n elements, from row-major position first of a box on, consist
 * of. `elements` are theirs, or NULL. Its first error ends it. */
int dataset_each_box(struct sfs_dataset *dataset, const struct box *box, uint64_t first, uint64_t n,
                     const char *elements,
                     int (*action)(struct sfs_dataset *dataset, const struct box *piece,
                                   const void *elements));

/* Writes n elements, from row-major position first of a box on: those that equal the fill value become, or stay,
 * undefined. Errors of dataset_write_values and dataset_erase_some. */
int dataset_write_sparsely(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                           uint64_t n, const char *elements);

/* Puts the positions in the dataset of elements at ascending positions in a box into runs. -EINVAL: they are
 * not; -ENOMEM. */
int dataset_place_runs(const struct layout *layout, const struct box *box,
                       const struct sfs_defined *defined, struct runs *runs);

/* Notes which of these filters are missing, and names those without a name. Next to a filter that is not
 * ours libhdf5 runs all of them. */
void dataset_look_for_filters(size_t n, struct sfs_filter *filters);

/* Fill values, at most *n and at most about 1 MiB of them; *n is how many. The caller frees them.
 * NULL: no memory. */
void *dataset_fill(const struct sfs_dataset *dataset, uint64_t *n);

/* Writes packed values to a box piece by piece. *done false: its pieces are not intervals of it;
 * some values may have been written. */
int dataset_write_pieces(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined, const char *values, bool *done);

/* Writes a box of a dense dataset, through libhdf5; elements packed, in the file's datatype. */
int dataset_write_dense(struct sfs_dataset *dataset, const struct box *box, const void *elements);

/* The same of elements of variable length, struct sfs_sequence, also in parts. */
int dataset_write_dense_sequences(struct sfs_dataset *dataset, const struct box *box,
                                  const struct sfs_sequence *sequences);

/* Elements of variable length of a dataset that is not structured, the first-th on, HDF5_STORED.
 * Errors of sfs_read_parts. */
int dataset_stored_elements(struct sfs_dataset *dataset, uint64_t first, uint64_t n, size_t most,
                            char **bytes, size_t *bytes_n);

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

/* Whether its chunks are decoded, by our own filters. */
bool dataset_decodes(const struct sfs_dataset *dataset);

/* Reads a box, which must lie inside the dataset. depth: of virtual datasets whose sources lead
 * here. Errors of cache_read and virtual_read. The dataset is USING. */
int dataset_read_box(struct sfs_dataset *dataset, const struct box *box, const struct place *place,
                     int depth);

/* virtual_scalar.c: before libhdf5 reads a dataset: whether it may. -EIO, and the log says why; -ENOMEM,
 * -EINTR.
 */
int left_check(struct sfs_dataset *dataset);

/* As cache_lend and cache_read_held; *holder is for dataset_return, NULL if there is nothing to give
 * back. Returns 1: lent, 0, or an error, then there is no holder. What is held without being lent is
 * given back by the same thread, in the same call. */
int dataset_lend_box(struct sfs_dataset *dataset, const struct box *box, const void **bytes,
                     void **holder, int depth);
int dataset_read_held(struct sfs_dataset *dataset, void *holder, const struct box *box,
                      void *buffer);
void dataset_return(struct sfs_dataset *dataset, void *holder);

/* Where the header of an object is in the store: libhdf5 counts from the end of a user block.
 * UINT64_MAX: nowhere. */
uint64_t dataset_store_address(const struct sfs_file *file, uint64_t address);

/* Says libhdf5's error on an object to `why`, or logs it (store_say); returns error. */
int object_failed(const struct sfs_file *file, const char *what, uint64_t address, int error,
                  struct why *why);

/* In unused_space.c: tells the store what space of it is not in use, if all that the file has is
 * understood: before anything of it is changed, by its only user. */
void unused_space_find(struct store *store);

#endif
