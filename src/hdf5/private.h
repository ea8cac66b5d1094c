/* Shared by the files of src/hdf5 only: the lock around libhdf5, its errors, and open datasets. */
#ifndef SPARSEFS_HDF5_PRIVATE_H
#define SPARSEFS_HDF5_PRIVATE_H

#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/hash.h"
#include "hdf5/hdf5.h"

struct remote;

struct open_dataset {
    uint64_t address;
    hid_t id;
    hid_t type; /* the file's */
    hid_t space;
    int rank;
    size_t size;         /* bytes of an element, as it was opened first */
    bool is_external;    /* its bytes are in other files */
    char *path;          /* of a virtual one whose sources have chunk caches; or NULL */
    size_t source_bytes; /* each source's */
    UT_hash_handle hh;
};

/* Under which name an object was seen: the only way to the attributes of one that libhdf5 cannot
 * open. */
struct seen {
    uint64_t address;
    uint64_t group; /* in which it has the name */
    char *name;     /* or path */
    UT_hash_handle hh;
};

struct hdf5 {
    struct remote *remote; /* the worker that does it all: then nothing else is used; or NULL */
    hid_t file;
    struct store *store;
    uint64_t root;
    struct open_dataset *datasets; /* by address; under the library lock */
    struct seen *seen;             /* by address, longest seen first; under the library lock */
    char **types; /* paths of committed datatypes that were copied here; under the library lock */
    size_t n_types;
    atomic_uint links_changed;  /* change counter of links */
    pthread_mutex_t names_lock; /* taken before the library lock; guards what follows */
    struct names *names;        /* that were made last */
    struct hdf5 *prev, *next;   /* all open ones; under the library lock */
    bool is_doubtful;           /* what libhdf5 keeps of it may be half of what it wanted to read */
};

/* Every entry point calls library_enter first and library_leave last. Entering also silences
 * libhdf5's own error printing for the thread. The lock is fair: waiting threads get it before the
 * one that released it, so long calls are done in pieces. */
void library_enter(void);
void library_leave(void);

/* The same for what only reads: returns error, but if a followed file has moved on meanwhile, or is
 * gone, that, whatever libhdf5 has made of it. */
int library_leave_with(int error);

/* A piece of work that takes long: no more is begun when it is over. */
uint64_t piece_begin(void);
bool piece_is_over(uint64_t piece);

/* Of one that has had to find its place first: as much again as that has taken. */
uint64_t piece_prolong(uint64_t piece);

/* Keeps the reason that libhdf5 gives, or the given words, for hdf5_error(); returns error, or that
 * of our driver if libhdf5 failed because it did. */
int library_failed(int error);
void library_reason(const char *why); /* also without the lock */
int library_failed_because(int error, const char *why);

/* Where a filter that is missing comes from; the format of its number. */
#define FILTER_IS_MISSING                                                                          \
    "filter %d is not available: install its plugin for libhdf5, or name the plugin's folder in "  \
    "HDF5_PLUGIN_PATH"

/* After elements were read, by this thread since library_enter: the error of that, or else that of
 * a source of a virtual dataset. libhdf5 takes one that it cannot open or read for one that is not
 * there, and shows the fill value. */
int library_has_read(int error);

/* Opens files again of which libhdf5 may keep half of what it wanted to read, with the lock (file.c). */
void files_renew_doubtful(void);

struct superblock;

/* The superblock as it is now (file.c), without the lock. -EINVAL: it is damaged, which is the reason; errors
 * of superblock_read. */
int file_superblock(struct store *store, struct superblock *superblock);

/* Bytes of a writable store behind the end that the superblock names belong to nobody: a program
 * that died before its commit has left them (file.c). And before a commit: the superblock has the
 * store's end, and no mark of a writer. Both need no lock. */
int file_free_rest(struct store *store);
int file_flush_pending(struct store *store);

/* Writes what libhdf5 still keeps of what it has changed, and nothing else (file.c). */
int file_write_changed(struct hdf5 *hdf5);

/* ---- swmr_writer.c: programs that have the file open for writing, by the mark in its superblock ---- */

/* Before a followed file is opened: libhdf5's own writers must be followed in their way, which the store
 * knows then. It needs no lock. -EBUSY: such a one does not let others read meanwhile; -EINVAL,
 * and errors of store_read. */
int swmr_writer_look(struct store *store);

/* Of a file that is not followed, once it is open: -EBUSY: it has the mark; errors as above. */
int swmr_writer_check_mark(struct store *store);

/* -EBUSY, and the reason: the mark. Also without the lock. */
int swmr_writer_refused(void);

/* Opens a dataset (dataset.c) and, unless info is NULL, describes it. Under the library lock, as the next ones. */
int dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                 struct hdf5_storage *storage, struct open_dataset **out);

/* An open dataset, or NULL. */
struct open_dataset *dataset_find(struct hdf5 *hdf5, uint64_t address);

/* What it is (describe_dataset.c). info and storage are zeroed; what they have is to be freed also after an error. */
int describe_dataset(struct open_dataset *dataset, struct sfs_dataset_info *info,
                     struct hdf5_storage *storage);

/* Where contiguous elements are; UINT64_MAX: they have no place yet, or no bytes. */
uint64_t dataset_data_address(hid_t dataset);

/* How many external files a dataset has; negative: libhdf5 cannot say. */
int dataset_count_external(hid_t dataset);

struct driver_placed;

/* H5Dwrite_chunk of an open dataset, for what is placed (below, driver_place). It takes the lock. */
int dataset_put_chunk(struct hdf5 *hdf5, uint64_t address, const struct hdf5_stored *chunk,
                      struct driver_placed *placed);

/* Before H5Dread: -EIO: libhdf5 would read it from external files, unchecked. */
int dataset_check_readable(const struct open_dataset *dataset);

/* Closes and opens again what libhdf5 has of all open datasets (dataset.c). */
void datasets_close_all(struct hdf5 *hdf5);
int datasets_open_all(struct hdf5 *hdf5);

/* Forgets all names (attributes.c). seen_note keeps one; without memory none is kept of the object. */
void seen_clear(struct hdf5 *hdf5);
void seen_note(struct hdf5 *hdf5, uint64_t group, const char *name, uint64_t address);

/* Forgets the paths of copied datatypes (copy.c). */
void types_clear(struct hdf5 *hdf5);

/* ---- object_paths.c: the paths of all objects, as they are when they are first asked for after a change
 * of links. names_get and names_put are called without the library lock. ---- */

struct names;
int names_get(struct hdf5 *hdf5, struct names **names);
void names_put(struct hdf5 *hdf5, struct names *names);
bool names_are_there(struct hdf5 *hdf5); /* they need not be looked for */

/* The caller frees *path. -ENOENT: no hard link leads to such an object; -EFBIG: it is one of more
 * objects than are kept. */
int names_path(const struct names *names, uint64_t address, char **path);

/* Links have changed: cached names are invalid. names_clear: frees them, when the file is closed. */
void names_outdate(struct hdf5 *hdf5);
void names_clear(struct hdf5 *hdf5);

/* Looks at the links of a group in libhdf5's own order, and no longer than a piece (tree.c), under the
 * library lock: to be called again until is_done. The action's errors end it. */
typedef int (*link_action)(hid_t group, const char *name, const H5L_info_t *info, void *context);
struct link_walk {
    uint64_t group;
    link_action action;
    void *context;
    bool is_begun, is_done;
    hsize_t at, n; /* links */
    uint64_t piece;
    bool is_at_place; /* libhdf5 has skipped the links before */
    int error;
};
int tree_walk_links(struct hdf5 *hdf5, struct link_walk *walk);

/* Link access that never leaves the file (tree.c). The caller closes it. */
hid_t tree_link_access(void);

/* Does something with every attribute of an object, sparse datasets included (attributes.c). `id`
 * is invalid for one that cannot be opened. Stops at the first error and returns it. */
typedef int (*attribute_action)(hid_t id, const char *name, void *context);
int attributes_each(struct hdf5 *hdf5, uint64_t address, attribute_action action, void *context);

/* The file driver over a store (driver.c). */
herr_t driver_set(hid_t fapl, struct store *store);

/* A file that libhdf5 looks for, as a virtual dataset of another one names it, wherever it looks:
 * here, but not in the working directory. *is_refused: it may not be read, which must not be taken
 * for what is not there. Errors of store_find and store_open. */
int driver_find_other(const struct store *from, const char *name, struct store **store,
                      bool *is_refused);

/* Who finds such files instead. */
void driver_set_finder(int (*finder)(const struct store *from, const char *name,
                                     struct store **store, bool *is_refused));

/* Why a callback of this thread has failed since the last call: -ENOMEM, or what the store said, or
 * -EIO of a file that a virtual dataset names and of which it is unknown whether it is there, or of a
 * write that is not what driver_expect has; 0 if none has. */
int driver_failure(void);

/* Whether a read of any thread has failed since the last call, other than of a followed file that
 * has moved on, or a write was kept that the store could not take. */
bool driver_read_failed(void);

/* STORE_MOVED or -ESTALE, if a read of this thread has met that since the last call; else 0. */
int driver_moved(void);

/* Whether a file that a virtual dataset names was refused since the last call, which the log says;
 * libhdf5 takes it for one that is not there. */
bool driver_refused(void);

/* From here on, what this thread writes goes nowhere: a file can be closed whose disk is full. */
void driver_discard(bool discard);
bool driver_is_discarding(void);

/* After a file could not be closed: libhdf5 does not touch the store any more. */
void driver_cut_off(const struct store *store);

/* Writes what the store could not take before; and forgets it. */
int driver_write_kept(struct store *store);
void driver_forget_kept(const struct store *store);

/* The next read of raw data by this thread is not done but noted. */
struct driver_noted {
    unsigned reads;
    uint64_t address;
    uint64_t size;
};
void driver_note_reads(struct driver_noted *noted);
void driver_do_reads(void);

/* Bytes of a chunk that are in the store already, for which this thread calls libhdf5: the space
 * that it allocates for n bytes of raw data is at that address, and is not written again. NULL: no
 * more. */
struct driver_placed {
    uint64_t address;
    uint64_t n; /* 0: nothing is there */
    bool is_taken;
};
void driver_place(struct driver_placed *placed);

/* What this thread writes of raw data is some of these n bytes, or an error: they stand for others.
 * NULL: no more. */
void driver_expect(const void *bytes, size_t n);

/* Whether libhdf5 can run a filter, by itself, a plugin or us (filter_available.c). */
bool filter_is_available(int id);

/* library_failed_because, of words with room for the id of the filter. */
int filter_failed_for(const struct sfs_filter *filter, int error, const char *why);

/* Whether libhdf5 can run it in this direction. -EOPNOTSUPP, with the reason for hdf5_error(). */
int filter_look_for(const struct sfs_filter *filter, bool decoding);

/* The id of what run_filter.c registers: the last there is, which no filter has. */
#define FILTER_HAND 65535

/* Makes libhdf5 know the filters of a dataset as far as they are there. Returns those that are not,
 * as bits of a chunk's filter mask; *first: the id of the first of them. Under the library lock, as
 * all with a hid_t. */
uint32_t dataset_register_filters(hid_t dataset, int *first);

/* Filters of ours (register_own_filters.c): libhdf5 gets the one of an id, in place of any that it has, or all
 * those that it does not have yet; whether there is one. */
bool filter_register_own(int id);
void filter_register_all(void);
bool filter_has_own(int id);

/* Whether it needs no plugin. Without the lock, as its filters never change. */
bool filter_is_built_in(int id);

/* Registers a filter of this id and name that cannot be run, unless libhdf5 has one: without any it
 * makes no dataset with the filter, even if its parameters are complete (filter_complete.c). */
bool filter_stand_in(int id, const char *name);

/* A file in memory that is gone when it is closed (run_filter.c). */
hid_t filter_scratch_file(void);

/* Whether ours stands for a plugin, but not with these parameters. */
bool filter_own_lacks(const struct sfs_filter *filter);

/* A small HDF5 file in memory with one dataset (filter_carrier.c): one byte in one chunk, whose
 * filters are `outer`, `filter`, `outer`. All have the parameters given; outer has one, 0 in the
 * first place and 1 in the last. -EINVAL: too many parameters for a file. The caller frees
 * image->bytes. */
struct filter_image {
    unsigned char *bytes;
    size_t n;
    uint64_t dataset; /* address of its header */
};
int filter_image_make(const struct sfs_filter *filter, int outer, struct filter_image *image);

/* Whether n bytes can be given to one of libhdf5's own filters to be undone or applied without
 * harm (check_filter_parameters.c): they and the parameters agree. Of other filters nothing is known: true. */
bool filter_check_decode(const struct sfs_filter *filter, const void *bytes, size_t n, size_t most);
bool filter_check_encode(const struct sfs_filter *filter, size_t n);

/* Describes a datatype (describe_type.c); freed with hdf5_type_free. */
int type_describe(hid_t type, struct sfs_type *description);
int type_words(hid_t type, char **words);

/* A datatype out of its bytes (encoded_type.c), which the caller closes; invalid on error. */
int type_decode(const void *type, size_t n, hid_t *id);

/* libhdf5 1.10 does not ask how many bytes there are, nor whether their bits lie in elements: -EINVAL,
 * before it is given them. */
int type_check_encoded(const void *type, size_t n);

/* What a reference leads to, of class H5T_REFERENCE (describe_type.c). */
enum sfs_reference type_reference(hid_t type);

/* The bytes of a datatype, which the caller frees. */
int type_encode(hid_t type, void **bytes, size_t *n);

/* Whether elements hold pointers. Errors as of type_describe. */
int type_has_pointers(hid_t type, bool *has_pointers);

/* Writes a box of elements, as they are in memory. A lock of the library is held, here and below.
 */
int dataset_write_box(const struct open_dataset *dataset, const uint64_t *start,
                      const uint64_t *count, const void *buffer);

/* -EOPNOTSUPP: what it shows is not in this file. */
int dataset_check_storage(const struct open_dataset *dataset);

/* ---- Elements as structured chunks store them in sequences (variable_as_stored.c) ---- */

struct box;

/* Why a string is not written: libhdf5 would end it there. */
#define HDF5_CUT_STRING "a string has a zero byte, at which it would end"

/* Describes a datatype with parts of variable length, as libhdf5 has its elements in memory, with
 * members in the order of their places; freed with hdf5_type_free. -EOPNOTSUPP: it has none, or
 * references. */
int stored_type(hid_t id, struct sfs_type *type);

/* Writes such an element. */
void stored_put(FILE *out, const struct sfs_type *type, const char *element);

/* Makes native elements of n such ones that are stored in so many bytes; the caller frees what they
 * lead to with text_reclaim, and *out. -EINVAL: they are not; -EIO; -ENOMEM; -EOPNOTSUPP as above. */
int stored_native(hid_t id, hid_t native, uint64_t n, const struct sfs_encoded *stored, char **out);

/* Writes a box of such elements, which are stored in so many bytes, to an open dataset. -EINVAL:
 * they are not; -EOPNOTSUPP: libhdf5 spoils them, and as above. */
int stored_write(const struct open_dataset *dataset, const struct box *box, const void *stored,
                 size_t stored_n);

/* ---- Elements whose references were made text (reference_text_type.c) ---- */

/* A datatype with parts of variable length with strings of any length in place of references, which the
 * caller closes, also after an error, unless it is invalid. -EOPNOTSUPP: members lie over each other. */
int shown_type(hid_t id, hid_t *shown);

struct text_type;

/* Marks these strings in the text_type of the native form of what was shown for `id`: where they are empty
 * there is null. */
int shown_mark(hid_t id, struct text_type *type);

/* ---- Text (text_type.c, element_text.c) ---- */

/* What text needs to know of a native (memory) datatype, to be used without the library lock.
 * text_type_make and text_type_free are called with it. */
struct text_type {
    H5T_class_t class;
    size_t size;
    bool has_references;  /* it is one, or contains some */
    bool is_signed;       /* integers */
    bool has_pointers;    /* strings: of variable length */
    bool is_space_padded; /* strings of fixed length */
    enum sfs_reference reference;
    bool is_text;     /* references: they are strings of variable length (reference_text_type.c) */
    bool is_boolean;  /* enumerations: of FALSE and TRUE */
    size_t n_members; /* compounds */
    struct text_member *members;
    size_t n_values; /* enumerations */
    struct text_value *values;
    int rank; /* arrays */
    hsize_t dims[SFS_MAX_RANK];
    struct text_type *base; /* enumerations, arrays, sequences */
};
struct text_member {
    char *name;
    size_t offset;
    struct text_type type;
};
struct text_value {
    uint64_t value;
    char *name;
};
int text_type_make(hid_t id, struct text_type *type);
void text_type_free(struct text_type *type);

/* An integer of up to 8 bytes, its higher bits being 0; the name of a value, or NULL. */
uint64_t text_integer(const void *element, size_t size);
const char *text_value_name(const struct text_type *type, const void *element);

/* Where references lead to. */
struct text_source {
    struct hdf5 *hdf5;
    struct names *names;
};

/* Where text goes. Where there are references, source is not NULL and the library lock is not
 * held. */
struct text_writer {
    FILE *out;
    const struct text_source *source;
};

/* Writes one element of a native datatype as text or JSON. */
enum text_style { TEXT_BARE, TEXT_QUOTED, TEXT_JSON };
int text_element(const struct text_writer *writer, const struct text_type *type,
                 const void *element, enum text_style style);

/* One element of a file's datatype as JSON (element.c), which the caller frees. */
int element_json(hid_t type, const void *element, char **json);

/* An element of an integer datatype out of decimal or hexadecimal ("0x") digits (element.c), in the datatype's bytes.
 * -EINVAL: not a number, or not one of the datatype; -EOPNOTSUPP: libhdf5 does not convert it. */
int element_parse_integer(hid_t type, const char *text, void *element);

/* The type in which elements of a file type become text: its native form, or itself where there is
 * none (opaque, time). The caller closes it. */
hid_t text_memory_type(hid_t type);

/* Frees what the variable-length parts of n elements point to. */
void text_reclaim(hid_t type, hsize_t n, void *elements);

/* Elements that can be read as other types: of an attribute, or of a dataset. */
struct lengths_source {
    int (*read)(void *context, hid_t type, void *buffer); /* all of them; errors are returned */
    void *context;
};

/* Whether n elements, which have this type in the file, have variable-length parts of no more bytes
 * in memory than `most`: before libhdf5 believes their lengths. -EFBIG; -ENOMEM; errors of read. */
int lengths_check(const struct lengths_source *source, hid_t type, uint64_t n, uint64_t most);

/* The type to read elements of variable length as, which gives their lengths alone as they stand in
 * the file, uint64_t. The caller closes it. */
hid_t lengths_type(void);

/* One element as a line: strings, names and paths as they are, but for backslashes, and ends of
 * lines, which are \\, \n and \r; as text_element. */
int text_line(const struct text_writer *writer, const struct text_type *type, const void *element);

/* Writes n elements of a native datatype, the first of which is at *position, which is moved on; a
 * line ends after every row_length. 0: it is a single value, bare; HDF5_LINES: as text_line;
 * HDF5_JSON: each as JSON, in a line. */
int text_elements(const struct text_writer *writer, const struct text_type *type,
                  const char *elements, uint64_t n, uint64_t row_length, uint64_t *position);

/* A whole attribute. It is read and closed with the library lock, and written without it. */
struct read_attribute {
    hid_t native;
    struct text_type type;
    bool is_null; /* its dataspace */
    int rank;
    hsize_t dims[SFS_MAX_RANK];
    uint64_t n;     /* elements */
    char *elements; /* in native form */
};
int text_read_attribute(hid_t id, struct read_attribute *attribute);
void text_close_attribute(struct read_attribute *attribute);
int text_attribute(const struct text_source *source, const struct read_attribute *attribute,
                   char **text, char **json);

#endif
