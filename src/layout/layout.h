/* Layouts: how the chunks of one dataset are stored. The chunk cache knows a dataset only through
 * struct layout and its callbacks, which are named as in the HDF Group's RFC "Shared Chunk Cache
 * Internal API" (2025) without the H5SC prefix:
 *
 *   sparse      structured chunks, which we read and write ourselves
 *   chunked     chunks that libhdf5 locates and our threads read and decode, or have decoded
 *   contiguous  the whole dataset is one chunk, stored as it is
 *   external    the bytes of a contiguous dataset, in pieces, that are in other files
 *   library     pieces of what only libhdf5 can read: virtual, compact
 *
 * chunk/memory_form.h says what the cache holds of a chunk. Callbacks that return int return 0 or a negative
 * errno and say the reason of -EIO (layout_failed), unless it is the store's own error; decode also errors of
 * cpu_limit_check (common). They are
 * called from any thread, without locks of the cache held; encode, new_chunk, insert and insert_many
 * lock commit_lock for reading, so that the caller does not hold it. */
#ifndef SPARSEFS_LAYOUT_LAYOUT_H
#define SPARSEFS_LAYOUT_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk/memory_form.h"
#include "format/chunk_record.h"
#include "sparsefs/sparsefs.h"

struct box;
struct hdf5;
struct hdf5_storage;
struct pool;
struct slots;
struct sparse;
struct store;
struct why;
struct layout;
struct encoded;
struct insertion;
struct decoding;

struct layout_ops {
    /* Finds the chunk with these scaled coordinates. A chunk that is not stored is no error:
     * record->exists is false. Of *record, dense layouts set only the members that they know.
     * `lost`; -ESTALE, also of the store; -EIO; -ENOMEM; STORE_MOVED (store.h); -EINTR (interrupt.h). */
    int (*lookup)(struct layout *layout, const uint64_t *scaled, struct chunk_record *record);

    /* The stored bytes that decode wants for these parts: *n of them at *offset of the chunk's
     * address. Absent: all, for all parts. */
    void (*stored)(const struct layout *layout, const struct chunk_record *record, unsigned parts,
                   uint64_t *offset, uint64_t *n);

    /* The most memory in bytes that decode takes, the parts themselves included. Absent if decode
     * is. */
    size_t (*decode_bytes)(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts);

    /* Adds parts to a form out of the stored bytes. (The RFC's decode and decode_defined_values.) The
     * caller frees the form, which has some of the parts after an error. Absent: the stored bytes are
     * the dense form, and parts of it may be read alone. */
    int (*decode)(struct layout *layout, const struct decoding *chunk);

    /* Whether the packed values of a chunk are stored as they are, in the order of its selection:
     * *n bytes of them at *address, of which parts can be read (the RFC's vector_read). Absent:
     * never. */
    bool (*values_at)(const struct layout *layout, const uint64_t *scaled,
                      const struct chunk_record *record, uint64_t *address, uint64_t *n);

    /* Whether elements can be undefined in this layout. */
    bool is_sparse;

    /* How many elements of a chunk are defined, as its index says. Sparse layouts only. */
    uint64_t (*defined_count)(const struct layout *layout, const struct chunk_record *record);

    /* Whether the index can hold a chunk with these scaled coordinates, and so all that precede it
     * in every axis. Absent: it can hold any. */
    bool (*can_hold)(const struct layout *layout, const uint64_t *scaled);

    /* The most memory in bytes that encode takes for a packed or dense form; NULL: for one that is
     * full. Of filters that are not ours it is an estimate. Absent if encode is. */
    size_t (*encode_bytes)(const struct layout *layout, const struct cache_form *form);

    /* Makes the stored bytes of a packed form in which something is defined, or of a dense one.
     * *encoded is zero before; the caller gives encoded->bytes back to the pool, also after an error.
     * Absent: the elements are stored as they are. */
    int (*encode)(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                  struct pool *pool, struct encoded *encoded);

    /* Gives a chunk that is not stored its place in the store, with the fill value everywhere.
     * Absent: it gets one when it is inserted. -EINTR (interrupt.h): it has none. */
    int (*new_chunk)(struct layout *layout, const uint64_t *scaled, struct chunk_record *record);

    /* Puts a chunk into the store and the index, in place of what *record says is there; NULL, of
     * sparse layouts only: takes it out of both (the RFC's insert and delete_chunk). *record is then
     * what is there; of a chunked layout only record->exists, and lookup finds the rest. Absent: the
     * layout is not written through the cache. Of sparse datasets, logged: -EILSEQ: the index is
     * damaged; -EFBIG: it cannot hold the chunk; -EINVAL: the chunk lies outside of the max dims, or
     * its record contradicts itself. Errors of store_allocate, store_write and store_free. */
    int (*insert)(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record);

    /* The same for up to LAYOUT_MOST_INSERTED different chunks, none of which is taken out: those
     * that come to lie one behind the other are written by one call of the system, and libhdf5 is
     * asked once. The error of that one call is the error of all its chunks, any of which may be
     * there. Absent: one after the other. */
    void (*insert_many)(struct layout *layout, struct insertion *insertions, size_t n);

    /* Writes the elements of a box where they are stored, at once and past the cache, and finds out
     * whether n elements from the first-th of the dataset on can be written so. Nothing is written
     * where that is known to be impossible; an error of the disk may come in the midst of it.
     * Absent: it is written through the cache, or by libhdf5. Errors of open(2) and pwrite(2), but
     * -EIO, which is logged, for a file that is not there, not regular or refused, and where the
     * files end before the elements; write: -EFBIG: its end exceeds 64 bits; -ENOMEM. */
    int (*write)(struct layout *layout, const struct box *box, const void *elements);
    int (*check_write)(struct layout *layout, uint64_t first, uint64_t n);
};

/* A chunk to be decoded. */
struct decoding {
    const uint64_t *scaled;
    const struct chunk_record *record;
    unsigned parts;          /* that are added to the form, */
    const void *stored;      /* out of the bytes that `stored` wants for them; NULL: of none, */
    struct pool *pool;       /* with memory of it */
    struct cache_form *form; /* out */
};

/* What insert is called with. */
struct insertion {
    const uint64_t *scaled;
    const struct encoded *encoded;
    struct chunk_record *record;
    int error; /* out */
};
#define LAYOUT_MOST_INSERTED 64

/* A chunk as it is to be stored. */
struct encoded {
    void *bytes; /* a block of the pool, got for room bytes; room 0: those of the cached form */
    size_t n, room;
    struct chunk_record record; /* all but its address */
};

struct layout {
    const struct layout_ops *ops;
    struct store *store;
    struct why *why; /* takes what is wrong with its chunks (store_say): of a copy; NULL: the log */
    struct hdf5 *hdf5;
    const struct sfs_dataset_info *info;
    uint64_t dataset; /* address of its header */
    const char *path; /* for messages */

    /* What the RFC's layout_query gives: */
    int rank; /* 1 for a scalar dataspace */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t chunk_dims[SFS_MAX_RANK];
    size_t element_size;
    /* Sparse: the slots of elements with parts of variable length, if these are read and written;
     * else NULL. The dataset's. */
    const struct slots *slots;
    size_t chunk_bytes;
    size_t scratch_bytes;               /* chunked: of the filters */
    uint64_t data_address;              /* contiguous */
    const struct hdf5_storage *storage; /* external: its segments */
    bool fill_missing;     /* external: a file that is not there reads as the fill value */
    bool in_array;         /* chunked: the index is an array */
    bool unfiltered_edges; /* chunks that reach over the edge are stored without filters */
    struct sparse *sparse; /* sparse: owned by the dataset */
    /* Where a filter is missing every chunk fails: whether the log says so; else NULL. */
    atomic_bool *said_missing;
    /* Of a followed file: -ESTALE: it is no longer there; -EIO: it could not be read when the state was taken;
     * else 0. */
    atomic_int lost;
    pthread_rwlock_t *commit_lock; /* of the file; held for reading while a chunk is stored */
};

/* Chooses the layout of a dataset, whose store, hdf5, info, dataset, path and sparse are set, while all
 * that it chooses is 0: sparse if sparse is not NULL, else a dense one (storage), whose elements must
 * have no pointers. What these point to, and storage, must outlive it; nothing is to be freed. memory:
 * of the cache in bytes, for which pieces of virtual datasets are cut. Both errors are said (store_say): -EFBIG:
 * a chunk does not fit in memory; -EIO: contiguous, and fewer bytes are stored than its elements take. */
int layout_init(struct layout *layout, const struct hdf5_storage *storage, size_t memory,
                struct why *why);

extern const struct layout_ops layout_chunked;
extern const struct layout_ops layout_chunked_plain; /* without filters */
extern const struct layout_ops layout_contiguous;
extern const struct layout_ops layout_external;
extern const struct layout_ops layout_library;
extern const struct layout_ops layout_sparse;

/* lookup and decode_bytes of layouts whose chunks are pieces of what is not stored so. Every piece
 * exists: where nothing is stored, decode gives what reads there. */
int layout_find_piece(struct layout *layout, const uint64_t *scaled, struct chunk_record *record);
size_t layout_piece_bytes(const struct layout *layout, const struct chunk_record *record,
                          unsigned parts);

/* Calls each for every stored chunk of a sparse layout inside the dims or, if box is not NULL,
 * touched by it, in the order of the index; a result other than 0 ends the walk and is returned.
 * Takes time in proportion to the stored chunks, and holds no lock while it calls: chunks that are
 * stored or deleted meanwhile may be visited or not. `lost`; -EIO, which is logged: the
 * index cannot be read; STORE_MOVED; -ENOMEM; -EINTR (interrupt.h). */
int layout_each_chunk(struct layout *layout, const struct box *box,
                      int (*each)(void *context, const uint64_t *scaled,
                                  const struct chunk_record *record),
                      void *context);

/* Whether the index can hold a chunk: one that it cannot must be refused when it is written, as it
 * could never be stored. 0; -EFBIG, which is logged. */
int layout_check_room(const struct layout *layout, const uint64_t *scaled);

/* Whether a chunk of a chunked layout may be stored in n bytes: larger sizes are damaged. */
bool layout_is_size(const struct layout *layout, uint64_t n);

/* Whether a chunk has elements outside of the dataset. */
bool layout_is_edge(const struct layout *layout, const uint64_t *scaled);

/* Whether a chunk is stored without its filters because of that: the dims of now tell. Sizes do
 * not, as there are filters that keep them; nor does the mask of a chunk that libhdf5 has written.
 */
bool layout_is_unfiltered(const struct layout *layout, const uint64_t *scaled);

/* The first element of a chunk, which lies in the dataset, and how many elements of it per axis do. */
void layout_inside(const struct layout *layout, const uint64_t *scaled, uint64_t *start,
                   uint64_t *count);

/* Says to the layout's `why`, or logs, that a chunk, of these scaled coordinates and this address
 * (UINT64_MAX: not known), cannot be read or written; returns -EIO. */
int layout_failed(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                  const char *reason);

/* The same if decoding it has exceeded the limit of processor time (common/cpu_limit.h). */
int layout_takes_too_long(const struct layout *layout, const uint64_t *scaled, uint64_t address);

/* The same if bytes, what reading or changing it takes, are more than `most`; else 0. */
int layout_check_bytes(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                       size_t bytes, size_t most);

/* The same of what libhdf5 could not do, with the hdf5_error of this thread; where a filter is missing
 * (said_missing), which concerns every chunk, it is logged the first time only. */
int layout_library_failed(const struct layout *layout, const uint64_t *scaled, uint64_t address);

#endif
