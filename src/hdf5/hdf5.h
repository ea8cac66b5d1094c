/* What libhdf5 does for us, behind plain structs and buffers: no hid_t crosses this line, so that
 * libhdf5 can run in a confined process of its own. What is called back are filters of ours
 * (hdf5_use_filters), the store, and functions with a context; all of them in this process.
 *
 * Objects are named by the file address of their header, opened datasets by that address too.
 * libhdf5 serves one call at a time: every function takes one lock for the whole process. Errors
 * are negative errnos; for -EIO and -EINVAL, hdf5_error() gives libhdf5's own words. Where a process
 * of its own does them the calls of each file wait for each other, and those that only read, but for
 * the ones that renew, end with -EINTR when nobody wants that any more (interrupt.h). */
#ifndef SPARSEFS_HDF5_HDF5_H
#define SPARSEFS_HDF5_HDF5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/filter_pipeline.h"

struct hdf5;
struct object_header;
struct store;

/* The most bytes of an element: a fill value of so many is made, and text of it. Frames of 16
 * megapixels as arrays are such elements. */
#define HDF5_MOST_ELEMENT_BYTES ((size_t)64 << 20)

/* The most bytes of a fill value of which there is JSON, and of that. */
#define HDF5_MOST_FILL_JSON ((size_t)1 << 20)

#define HDF5_LINES UINT64_MAX
#define HDF5_JSON  (UINT64_MAX - 1)

/* Why the last call of this thread failed: one line. */
const char *hdf5_error(void);

const char *hdf5_version(void);

/* libhdf5, of which nothing was called yet, does nothing when the process ends. */
void hdf5_leave_at_exit(void);

/* Opens the HDF5 file in the store, which must outlive it; for writing if the store is writable.
 * -EINVAL: not an HDF5 file, or a damaged one; -EBUSY: its superblock says that it is open for
 * writing; -EOPNOTSUPP: it cannot be written, libhdf5 keeps account of its free space itself. Bytes
 * of a writable store behind the end of the HDF5 file are freed: nothing refers to them. */
int hdf5_open(struct store *store, struct hdf5 **hdf5);

/* ---- libhdf5 in processes of its own ----
 *
 * docs/security.md says what such a process may do. The program must have one thread only, and
 * should have no secrets in memory, when it starts the first, from which the others are forked. */

/* From now on hdf5_open_in_worker can be called; calls on datatypes and elements that have no owner,
 * or one that hdf5_open has opened (but hdf5_type_of_name and hdf5_convert), are done in one without a
 * file; and the hdf5_filter_ functions run filters in other such processes, into which plugins are
 * loaded. memory: bytes of address space of a process, timeout: nanoseconds of a call, after which it
 * is ended. The filters of hdf5_use_filters are set before. -EALREADY, -ENOMEM; errors of fork(2) and
 * socketpair(2). */
int hdf5_start_workers(size_t memory, uint64_t timeout);
bool hdf5_has_workers(void);

/* What such processes say of a file that is not written is kept, so many bytes in all, for when it
 * is opened again. Initially 0. */
void hdf5_keep_answers(size_t bytes);

/* Whether of files that are opened from now on, and not followed, what is plain is answered by our
 * own reader (own_reader.h) as long as they are only read, so that a process is started for those of
 * which something else is asked. Not where such a process could not be confined, which is told when a file is
 * opened. Initially not. Before there are threads. */
void hdf5_answer_directly(bool on);

/* As hdf5_open, also for a store that is followed. -EIO also: the process has ended. -ECHILD: none could be had for
 * now, as no more could be started, or others have killed it: that says nothing of the file. Calls that copy from one
 * file to another are -EOPNOTSUPP unless both were opened by this function, or both by hdf5_open.
 *
 * What a call changes is in the store when the call has succeeded, and nothing of it if it has not;
 * but hdf5_write of more than 128 MiB writes them part by part.
 * Everything is -EROFS that would change the file when that process has ended and can never be started
 * again, which is what hdf5_is_lost says; while none can be had for now what needs one is -EIO, and nothing is lost. */
int hdf5_open_in_worker(struct store *store, struct hdf5 **hdf5);
bool hdf5_is_lost(const struct hdf5 *hdf5);

/* Starts its process, if it has one and that has not been wanted yet: what keeps it from starting is no fault of the
 * file. Errors of hdf5_open_in_worker, with -EIO for -ECHILD. */
int hdf5_begin(struct hdf5 *hdf5);

/* A new HDF5 file (superblock version 3, no user block) in an empty writable store (else -EINVAL);
 * it stands in the file with the first store_commit. */
int hdf5_create(struct store *store, struct hdf5 **hdf5);

/* The same, for a process of its own. */
int hdf5_create_in_worker(struct store *store, struct hdf5 **hdf5);

/* Makes everything that libhdf5 holds in memory visible in the store, with the superblock's end at
 * the store's and without the mark of a writer. It comes right before store_commit: until then
 * no other call may change the file or allocate space. Errors of this and of all that changes the file
 * are also those of store_write and store_allocate. */
int hdf5_flush(struct hdf5 *hdf5);

/* Closes and opens libhdf5's file again, with the datasets that are open here, so that it holds no
 * old copy of what others have changed in the store (a header that was turned into that of a sparse
 * dataset). What it held is in the store then, as after hdf5_flush; space that it had freed and
 * kept for itself is given back. After an error the file may be closed: every later call tries to
 * open it again first, and fails as long as that does. */
int hdf5_reopen(struct hdf5 *hdf5);

/* The same for a file that is followed, after store_refresh: what libhdf5 knew of it is forgotten.
 * After an error it can be tried again. Errors as of hdf5_open, -ESTALE and STORE_MOVED. A dataset
 * that is no longer there is no error: it cannot be read. */
int hdf5_renew(struct hdf5 *hdf5);

/* What was not flushed and committed before is lost. */
void hdf5_close(struct hdf5 *hdf5);
uint64_t hdf5_root(const struct hdf5 *hdf5);

/* As sfs_list, sfs_lookup and sfs_find, without series. */
int hdf5_list(struct hdf5 *hdf5, uint64_t group, struct sfs_links *links);
int hdf5_lookup(struct hdf5 *hdf5, uint64_t group, const char *name, struct sfs_link *link);
int hdf5_find(struct hdf5 *hdf5, uint64_t group, const char *path, uint64_t *address);

/* Type and attributes of sparse datasets, too, which libhdf5 cannot open otherwise. */
int hdf5_object_type(struct hdf5 *hdf5, uint64_t address, enum sfs_object_type *type);
int hdf5_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *attributes);

/* A piece of the raw data of a dataset: bytes of another file. */
struct hdf5_segment {
    char *name;      /* as it stands in the HDF5 file */
    uint64_t offset; /* in that file, in bytes */
    uint64_t size;   /* bytes; UINT64_MAX: all that follow */
};

/* Where the raw data of a dataset is, besides what sfs_dataset_info says. */
struct hdf5_storage {
    size_t n_segments; /* SFS_EXTERNAL: the files that its bytes are in, one after the other */
    struct hdf5_segment *segments;
    uint64_t address;      /* SFS_CONTIGUOUS: of its bytes; UINT64_MAX: not allocated */
    uint64_t bytes;        /* SFS_CONTIGUOUS: allocated */
    bool in_array;         /* SFS_CHUNKED: the index is a fixed or an extensible array */
    bool unfiltered_edges; /* SFS_CHUNKED: chunks that reach over the edge are stored as they are */
};

/* Opens a dataset and describes it; hdf5_info_free frees what info points to, and
 * hdf5_segments_free the segments. The dataset stays open for the calls below until
 * hdf5_dataset_close. What has external raw data cannot be read by libhdf5 here: it would open
 * whatever file is named. -EIO also: more than 65,535 segments, or such as cannot be. */
int hdf5_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                      struct hdf5_storage *storage);
void hdf5_dataset_close(struct hdf5 *hdf5, uint64_t address);
void hdf5_segments_free(size_t n, struct hdf5_segment *segments);

/* Of an open virtual dataset, that has this path: its sources, all together, may keep so many bytes
 * of decoded chunks, since several mappings may show parts of one. Once for each opening. */
int hdf5_cache_sources(struct hdf5 *hdf5, uint64_t address, const char *path, size_t bytes);

/* What one side of a mapping of a virtual dataset selects: of every axis `count` blocks of `block`
 * elements, `stride` apart. At most one of all counts and blocks is SFS_UNLIMITED. */
struct hdf5_axis {
    uint64_t start, stride, count, block;
};
struct hdf5_slab {
    bool is_all; /* all of the dataspace, whatever its rank: there are no axes */
    int rank;
    struct hdf5_axis *axis;
};

/* One mapping: names as they stand in the file, UTF-8, "." for this file, with %b where blocks of
 * an unlimited selection are numbered, and %% for a percent sign. */
struct hdf5_mapping {
    char *file, *dataset;
    bool is_regular; /* else the slabs are boxes in which what is selected lies; is_all: anywhere */
    struct hdf5_slab shown, source; /* in the virtual dataset, in its source */
};
struct hdf5_mappings {
    size_t n;
    struct hdf5_mapping *mapping;
};

/* The mappings of an open virtual dataset in their order: where they overlap, libhdf5 shows the
 * later one. One that lists indices along an axis is given as several, which do not overlap. The
 * caller frees them with hdf5_mappings_free. Axes are as libhdf5 gives them: strides, counts and
 * blocks are not 0, blocks do not overlap; nothing else is known of them. -EINTR (interrupt.h). */
int hdf5_mappings(struct hdf5 *hdf5, uint64_t address, struct hdf5_mappings *mappings);
void hdf5_mappings_free(struct hdf5_mappings *mappings);

/* Stands for what stays the same as long as it is the same dataset, and is relied on while it is open: what
 * its elements are, and how and where they are stored. Chunks can become more, and a contiguous one get its place. */
uint64_t hdf5_form(const struct sfs_dataset_info *info, const struct hdf5_storage *storage);

/* What is now where an open dataset of this rank is, or was: if it has that form, the same. -ESTALE: it has
 * another rank, or is none; -EIO: it could not be read, which may pass. */
struct hdf5_renewed {
    uint64_t dims[SFS_MAX_RANK], form;
    uint64_t data_address; /* as in hdf5_storage */
};
int hdf5_dataset_renew(struct hdf5 *hdf5, uint64_t address, int rank, struct hdf5_renewed *renewed);
void hdf5_info_free(struct sfs_dataset_info *info);

/* Bytes of memory of all that info points to: type, encoded type, fill value and its JSON, filters. */
size_t hdf5_info_bytes(const struct sfs_dataset_info *info);

/* Takes over one element of the datatype, in malloc's memory, as the fill value: says whether it is zero.
 * Large ones of zeros have their memory in common. And its JSON, unless it has more than
 * HDF5_MOST_FILL_JSON. */
void hdf5_info_set_fill(struct sfs_dataset_info *info, void *fill);
void hdf5_info_set_fill_json(struct sfs_dataset_info *info, char *json);

/* Where the chunk that begins at element coordinates `start` is stored. */
struct hdf5_chunk {
    uint64_t address; /* UINT64_MAX: no such chunk */
    uint64_t size;    /* bytes as stored */
    uint32_t filter_mask;
};
int hdf5_locate(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                struct hdf5_chunk *chunk);

/* Reads a box of elements, in the file's datatype, through libhdf5, to the origin of a row-major
 * array of dims `memory_dims`. rank, start, count are ignored for a scalar dataspace. */
int hdf5_read(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
              const uint64_t *memory_dims, void *buffer);

/* Writes a row-major box of elements, in the file's datatype, through libhdf5. A dataset that
 * is not open is opened, and stays open; in a process of its own that is -EBADF. -EINVAL: out of
 * bounds; -EOPNOTSUPP: its elements have pointers, or are in other files. */
int hdf5_write(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
               const void *buffer);

/* Elements of variable length, row-major: their lengths in base elements, or in bytes of strings, and
 * n bytes, which are all of them one after the other. Of elements with such parts anywhere: as
 * HDF5_STORED (below), lengths in bytes. Owned by the caller. */
struct hdf5_sequences {
    const uint64_t *lengths;
    const void *bytes;
    size_t n;
};

/* The same of such elements of an open dataset. -EBADF: it is not open; -EFBIG: more than one call can
 * take; -EOPNOTSUPP also: hdf5_spoils. */
int hdf5_write_sequences(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                         const uint64_t *count, const struct hdf5_sequences *sequences);

/* Whether libhdf5 cannot write elements of such a datatype without loss: it has compounds with parts
 * of variable length in arrays that are in arrays or in sequences, or in sequences that are in
 * arrays. */
bool hdf5_spoils(const struct sfs_type *type);
#define HDF5_SPOILS                                                                                \
    "libhdf5 loses what is in arrays of compounds with parts of variable length, where these "     \
    "arrays are in arrays or sequences, and in arrays of sequences of such compounds"

/* H5Dset_extent of an open chunked dataset. */
int hdf5_set_extent(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *dims);

/* A chunk as it is stored, filtered already but for the filters whose bit is set in mask. */
struct hdf5_stored {
    uint64_t start[SFS_MAX_RANK]; /* coordinates of its first element */
    uint32_t mask;
    const void *bytes;
    size_t n;
};

/* Puts up to HDF5_MOST_STORED different chunks of an open dataset into the file as they are. After
 * an error any of them may be there. */
#define HDF5_MOST_STORED 64
int hdf5_write_chunks(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_stored *chunks,
                      unsigned n);

/* Gives an open contiguous dataset that has no place yet the n bytes at *address, which are all of
 * its elements and in the store already; element is any one. On return *address is where they are
 * now: if elsewhere, those bytes are not used, and what is there may be anything. After an error they are still the
 * caller's, or, if it is not known whether they are, *address is UINT64_MAX. */
int hdf5_place(struct hdf5 *hdf5, uint64_t dataset, uint64_t *address, uint64_t n,
               const void *element);

/* ---- New objects ----
 *
 * Paths are absolute. hdf5_create_group, hdf5_create_dataset and hdf5_create_dense make missing groups
 * on the way; of these -EEXIST: the name is in use; -ENOTDIR, -ENOENT: what stands on the way is no
 * group, or leads nowhere; -EINVAL. Of copies, links and hdf5_unlink all of this is -EIO. */

int hdf5_create_group(struct hdf5 *hdf5, const char *path);

/* Removes an empty group. -ENOENT; -ENOTDIR: it is none, or a link to one; -ENOTEMPTY; -EINVAL. */
int hdf5_remove_group(struct hdf5 *hdf5, const char *path);

/* Copies all attributes of an object to another one, which libhdf5 can open. -EEXIST: one of that
 * name is there. Attributes are left out as by hdf5_create_dataset. */
int hdf5_copy_attributes(struct hdf5 *to, uint64_t object, struct hdf5 *from, uint64_t of);

/* Copies a dataset that is not sparse, as it is stored, or a committed datatype. Datatypes that are
 * committed in both files are one again; references become null. Of a group: itself, with neither
 * attributes nor links. The group on the way must be there. */
int hdf5_copy_object(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);
int hdf5_copy_group(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);

/* Where an object is in the copy; NULL: it is not there. */
const char *moved_path(const struct sfs_moved *moved, size_t n, uint64_t address);

/* As sfs_references_copy. */
int hdf5_copy_references(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of,
                         const struct sfs_moved *moved, size_t n);

/* As sfs_link_create. counted: the header of a sparse dataset that a hard link is made to, which a
 * worker may change though it is not lent: that it does no more than to count the link is for the
 * caller to see. NULL: none. The caller reopens the file before and after. */
int hdf5_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link,
                     const struct object_header *counted);

struct hdf5_create {
    int rank; /* 0: a scalar, which cannot be chunked */
    const uint64_t *dims;
    const uint64_t *max_dims;   /* SFS_UNLIMITED where there is no limit; NULL: as dims */
    const uint64_t *chunk_dims; /* NULL: contiguous, then max_dims do not matter */
    const void *type;           /* as H5Tencode encodes it */
    size_t type_size;           /* bytes of that */
    const void *fill;           /* one element; NULL: none */
    size_t n_filters;
    const struct sfs_filter *filters; /* their parameters are adapted to the datatype */
    struct hdf5 *attributes_from;     /* NULL: no attributes are copied */
    uint64_t attributes_of;           /* the object there that has them */
    bool selection_version_1;         /* marked by the attribute sparsefs.selection_version */
    bool unfiltered_edges;            /* chunked: H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS */
    enum sfs_allocation allocation;
    enum sfs_fill_time fill_time;
};

/* A chunked dataset to be turned into a sparse one; *address is that of its header. Attributes that
 * mean nothing elsewhere (references), are too large or cannot be read are left out, and the log
 * says so. -EFBIG:
 * chunks of 4 GiB and more; -EOPNOTSUPP: a filter that cannot be run. On error nothing is there,
 * except for groups on the way. */
int hdf5_create_dataset(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                        uint64_t *address);

/* A dense dataset, chunked or contiguous. */
int hdf5_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                      uint64_t *address);

/* Takes the link at path away, and with the last one its object. */
int hdf5_unlink(struct hdf5 *hdf5, const char *path);

/* ---- Datatypes and elements ----
 *
 * A datatype outside of a file is its bytes as H5Tencode encodes them; the caller frees *type.
 * -EINVAL: it is damaged, or none that libhdf5 knows. */

/* Of a name as sfs_type_encode takes it. */
int hdf5_type_of_name(const char *name, void **type, size_t *n);

/* Whose datatype, or elements, something is: calls about it are of that file, in whose process they
 * are done, and where they end that it is this object's affair. NULL: of no file. */
struct hdf5_owner {
    const struct hdf5 *hdf5;
    uint64_t object; /* its address */
};

/* Of the bytes of a datatype message in an object header. */
int hdf5_type_of_message(const struct hdf5_owner *owner, const void *message, size_t n, void **type,
                         size_t *type_n);

int hdf5_type_describe(const struct hdf5_owner *owner, const void *type, size_t n,
                       struct sfs_type *description);
void hdf5_type_free(struct sfs_type *description);
size_t hdf5_type_bytes(const struct sfs_type *description); /* of memory that it points to */
int hdf5_type_size(const void *type, size_t n, size_t *size);
bool hdf5_type_equal(const struct hdf5_owner *owner, const struct sfs_encoded *a,
                     const struct sfs_encoded *b);

/* Converts n elements in place; buffer has room for n of the larger ones, and so has background,
 * which is needed for compounds only. -EOPNOTSUPP: there is no conversion. */
int hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                 void *buffer, void *background);

/* One element as JSON, which the caller frees; -EOPNOTSUPP: it has pointers. */
int hdf5_element_json(const struct hdf5_owner *owner, const void *type, size_t n,
                      const void *element, char **json);

/* n elements, the first of which is at row-major position `first` of a dataset whose last dim is
 * row_length (0: it has a single element; HDF5_LINES, HDF5_JSON: of whatever dims, see below). Those
 * with parts of variable length are as stored (format/variable_slots.h), but for references: in place of the
 * bytes of each there is the text for it, or no byte, which is null. */
struct hdf5_elements {
    const struct sfs_encoded *type;
    uint64_t first, n, row_length;
    struct sfs_encoded elements;
};

/* The elements as sfs_text has them; HDF5_LINES, HDF5_JSON: as SFS_LINES and SFS_JSON have them. The
 * caller frees *text. -EINVAL: there are other bytes than of n elements. */
int hdf5_elements_text(const struct hdf5_owner *owner, const struct hdf5_elements *elements,
                       char **text, size_t *text_n);

/* One element out of text: numbers, nan, inf, names of enumerations, true and false, strings of
 * fixed length. -EINVAL: the text is not such an element; -EOPNOTSUPP: another datatype. */
int hdf5_element_parse(const void *type, size_t n, const char *text, void *element);

/* Besides SFS_LENGTHS and so on: elements with parts of variable length anywhere, each as in a
 * sequence in structured chunks (format/variable_slots.h: slot_store). */
#define HDF5_STORED ((enum sfs_parts)(SFS_JSON + 1))

/* Parts of n elements, at most SFS_MOST_PARTS, from row-major position `first` on, in no more than
 * `most` bytes. */
struct hdf5_parts {
    enum sfs_parts parts;
    uint64_t first, n;
    size_t most;
};

/* As sfs_read_parts, of an open dataset whose elements have variable length or are references. */
int hdf5_parts(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_parts *wanted, char **bytes,
               size_t *bytes_n);

/* As sfs_text. */
int hdf5_text(struct hdf5 *hdf5, uint64_t dataset, size_t limit, char **text, size_t *n);

/* Of objects that references lead to; 0: of none. */
struct hdf5_addresses {
    const uint64_t *address;
    size_t n; /* at most SFS_MOST_PARTS */
};

/* A line for each of the addresses that references in a dataset have: the path of
 * the object, with \\, \n and \r in it as sfs_read_parts has them, or null. -EFBIG: more than `most`
 * bytes. */
int hdf5_paths(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_addresses *addresses,
               size_t most, char **lines, size_t *lines_n);

/* Filters that the caller can run for libhdf5 where there is no plugin. They are called under its
 * lock, also by other users of libhdf5 in this process. encode and decode allocate *out, which
 * libhdf5's side frees, after errors, too; 0 or -errno. */
struct hdf5_own_filters {
    bool (*has)(int id);
    /* Of a filter that it has: whether this build is without what these parameters ask for. */
    bool (*lacks)(const struct sfs_filter *filter);
    /* From parameters of H5Pset_filter to those of a header (H5Z_set_local_func_t); false: they
     * cannot be. */
    bool (*complete)(int id, size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room);
    int (*encode)(const struct sfs_filter *filter, const void *in, size_t size, void **out,
                  size_t *out_size);
    int (*decode)(const struct sfs_filter *filter, const void *in, size_t in_size, void **out,
                  size_t *out_size);
};

/* filters stay as they are for as long as the process runs. */
void hdf5_use_filters(const struct hdf5_own_filters *filters);

/* Of folders where libhdf5 looks for plugins those are left out, in all of this process, in which
 * others than root and this user may put some, for root others than root; the log says which. */
void hdf5_sift_plugins(void);

/* Whether libhdf5 finds a filter: its own, registered, a plugin on HDF5_PLUGIN_PATH, or one of
 * hdf5_use_filters. */
bool hdf5_filter_available(int id);

/* Undoes filters that libhdf5 finds, last to first, but not those whose bit is set in the mask, on one
 * string of bytes. Their parameters are used as they are. The result must be exactly out_size
 * bytes. -EILSEQ: the bytes or the parameters are damaged, or the sizes do not fit; -EOPNOTSUPP: a
 * filter is not available; -ENOMEM; hdf5_error() says more. What makes libhdf5's own filters read
 * or write out of bounds is refused first; of plugins nothing is known. -EIO: the process that runs
 * them has ended. */
int hdf5_filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                       void *out, size_t out_size);

/* Applies filters first to last, and sets the mask: one that is optional and is not available or fails
 * leaves the bytes as they are. The caller frees *out, which is NULL if there are no
 * bytes: those are not filtered. -EINVAL: a filter does not take the bytes or its parameters;
 * -EOPNOTSUPP, -ENOMEM and -EIO as above. */
int hdf5_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                       size_t *out_size);

/* The text of a committed datatype, e.g. "16-bit little-endian unsigned integer". */
int hdf5_datatype_text(struct hdf5 *hdf5, uint64_t address, char **text);

#endif
