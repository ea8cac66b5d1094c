/* The public interface of libsparsefs: HDF5 files as trees of groups and datasets whose elements
 * are read through one shared chunk cache.
 *
 * Conventions, unless a function says otherwise: functions return 0 or a negative errno; -EIO
 * means that the file is damaged or could not be read, and one line in the log says what, where
 * and why; results come through the last parameters, which are untouched on error; `close` and
 * `free` functions accept NULL. Every function may be called from any thread, with the same
 * objects, except that an object must not be in use while it is closed.
 *
 * Dims, starts and counts are in elements, slowest axis first. Elements are given as they stand in
 * the file: the dataset's datatype, its byte order. */
#ifndef SPARSEFS_SPARSEFS_H
#define SPARSEFS_SPARSEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SFS_MAX_RANK  32         /* the most dimensions of an HDF5 dataspace */
#define SFS_UNLIMITED UINT64_MAX /* a max dim without limit */

struct sfs_file;
struct sfs_dataset;

/* ---- Messages ---- */

/* Takes one line, without a newline, of a syslog(3) level. Called from any thread. */
typedef void (*sfs_log_function)(int level, const char *line);

/* Sets who gets the messages of the process (NULL: stderr), up to and including level. */
void sfs_set_log(sfs_log_function function, int level);

/* The version of the HDF5 library in use, e.g. "1.10.8". Owned by the library. */
const char *sfs_hdf5_version(void);

/* ---- Files ---- */

#define SFS_DEFAULT_CACHE_SIZE ((size_t)256 << 20)

struct sfs_options {
    size_t cache_size; /* memory limit of the chunk cache in bytes; 0: SFS_DEFAULT_CACHE_SIZE */
};

/* Opens an HDF5 file for reading, under the shared lock that libhdf5 takes (HDF5_USE_FILE_LOCKING
 * is honoured). options may be NULL. On error the log says why; besides errors of open(2): -EBUSY
 * another process has it open for writing, -EINVAL not an HDF5 file, truncated or damaged. */
int sfs_open(const char *path, const struct sfs_options *options, struct sfs_file **file);

/* Opens a file that an external link of `from` names, as libhdf5 finds it: absolute, or beside the
 * linking file. It shares the cache of `from`, must be closed before it, and is -ENOENT if it
 * cannot be found. */
int sfs_open_linked(struct sfs_file *from, const char *name, struct sfs_file **file);

void sfs_close(struct sfs_file *file);

/* The path that the file was opened by, and what stat(2) and statvfs(3) say of it. */
const char *sfs_path(const struct sfs_file *file);
int sfs_stat(const struct sfs_file *file, struct stat *st);
int sfs_statvfs(const struct sfs_file *file, struct statvfs *st);

struct sfs_statistics {
    uint64_t cache_limit;     /* bytes */
    uint64_t cache_bytes;     /* allocated for chunks and their encoded forms now */
    uint64_t cache_chunks;    /* entries now */
    uint64_t cache_hits;      /* pieces of chunks found */
    uint64_t cache_misses;    /* pieces of chunks that had to be looked up */
    uint64_t cache_evictions; /* chunks */
    uint64_t chunks_decoded;
    uint64_t store_reads;      /* read calls on files */
    uint64_t store_bytes_read; /* bytes */
};

void sfs_statistics(const struct sfs_file *file, struct sfs_statistics *statistics);

/* ---- Groups, links, attributes ---- */

enum sfs_object_type {
    SFS_GROUP,
    SFS_DATASET,
    SFS_DATATYPE, /* a committed datatype */
};

enum sfs_link_type {
    SFS_LINK_HARD,
    SFS_LINK_SOFT,
    SFS_LINK_EXTERNAL,
    SFS_LINK_USER, /* user-defined: only its name is known */
};

struct sfs_link {
    enum sfs_link_type type;
    char *name;
    uint64_t address;  /* hard: of the object header */
    char *target;      /* soft, external: the HDF5 path that it points to; else NULL */
    char *target_file; /* external: the file's name; else NULL */
};

struct sfs_links {
    size_t n;
    struct sfs_link *link; /* ascending by name */
};

/* Objects are named by the file address of their header. */
uint64_t sfs_root(const struct sfs_file *file);

/* All links of a group. The caller frees them with sfs_links_free. */
int sfs_list(struct sfs_file *file, uint64_t group, struct sfs_links *links);
void sfs_links_free(struct sfs_links *links);

/* One link by its name, -ENOENT if there is none. The caller frees it with sfs_link_free. */
int sfs_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link);
void sfs_link_free(struct sfs_link *link);

/* Follows an HDF5 path (soft links within the file included) from a group to an object. */
int sfs_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address);

int sfs_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type);

struct sfs_attribute {
    char *name;
    char *text; /* a single value bare, an array as [a, b, ...]; unreadable: NULL */
    char *json; /* the same as a JSON value; unreadable: NULL */
};

struct sfs_attributes {
    size_t n;
    struct sfs_attribute *attribute; /* ascending by name */
};

/* All attributes of a group, dataset or committed datatype; freed with sfs_attributes_free. */
int sfs_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes);
void sfs_attributes_free(struct sfs_attributes *attributes);

/* ---- Datatypes ---- */

enum sfs_type_class {
    SFS_INTEGER,
    SFS_FLOAT,
    SFS_STRING, /* of fixed length */
    SFS_BITFIELD,
    SFS_OPAQUE, /* bytes without meaning here, or a number format that no machine type has */
    SFS_COMPOUND,
    SFS_REFERENCE,
    SFS_ENUM,
    SFS_VARIABLE, /* variable-length sequence or string */
    SFS_ARRAY,
};

struct sfs_type {
    enum sfs_type_class class;
    size_t size;     /* bytes of an element */
    bool big_endian; /* SFS_INTEGER, SFS_FLOAT, SFS_BITFIELD, SFS_ENUM */
    bool is_signed;  /* SFS_INTEGER, SFS_ENUM */
    bool is_boolean; /* SFS_ENUM of FALSE = 0 and TRUE = 1 in one byte, as h5py writes bool */
    bool is_string;  /* SFS_VARIABLE: a string */
    /* It is, or contains, a variable-length part or a reference: what stands in the file are
     * pointers into the file, which mean nothing outside it. */
    bool has_pointers;
    size_t n_members; /* SFS_COMPOUND */
    struct sfs_member *members;
    int array_rank; /* SFS_ARRAY */
    uint64_t array_dims[SFS_MAX_RANK];
    struct sfs_type *base; /* SFS_ARRAY, SFS_VARIABLE that is no string */
    char *description;     /* one line of text, e.g. "32-bit big-endian integer"; only at the top */
};

struct sfs_member {
    char *name;
    size_t offset; /* bytes */
    struct sfs_type type;
};

/* A committed datatype in words. The caller frees *text. */
int sfs_datatype_text(struct sfs_file *file, uint64_t address, char **text);

/* ---- Datasets ---- */

enum sfs_space { SFS_SPACE_SIMPLE, SFS_SPACE_SCALAR, SFS_SPACE_NULL };
enum sfs_layout { SFS_COMPACT, SFS_CONTIGUOUS, SFS_EXTERNAL, SFS_CHUNKED, SFS_VIRTUAL };

struct sfs_filter {
    int id;                 /* as registered with the HDF Group */
    bool optional;          /* a chunk may have been stored without it */
    char name[64];          /* as the file or the library names it */
    size_t n_values;        /* its parameters */
    const unsigned *values; /* owned by the description */
};

struct sfs_dataset_info {
    enum sfs_space space;
    int rank; /* 0 for scalar and null dataspaces */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t max_dims[SFS_MAX_RANK]; /* SFS_UNLIMITED where there is no limit */
    uint64_t elements;               /* product of dims; UINT64_MAX if it exceeds 63 bits */
    struct sfs_type type;
    void *fill;        /* one element in the file's datatype; NULL if type.has_pointers */
    bool fill_is_zero; /* all bytes of it */
    char *fill_json;   /* the fill value as JSON; NULL if type.has_pointers */
    enum sfs_layout layout;
    uint64_t chunk_dims[SFS_MAX_RANK]; /* SFS_CHUNKED */
    size_t n_filters;
    struct sfs_filter *filters; /* in the order of writing */
};

/* Opens a dataset; path is used in messages only. Opening one that is open already is cheap.
 * Each successful call is paired with sfs_dataset_close. */
int sfs_dataset_open(struct sfs_file *file, uint64_t address, const char *path,
                     struct sfs_dataset **dataset);
void sfs_dataset_close(struct sfs_dataset *dataset);

/* The description; valid until the dataset is closed. */
const struct sfs_dataset_info *sfs_dataset_info(const struct sfs_dataset *dataset);

/* A box of elements of a dataset. rank is that of the dataset, but 1 (start 0, count 1) for a
 * scalar dataspace. */
struct sfs_slab {
    int rank;
    uint64_t start[SFS_MAX_RANK];
    uint64_t count[SFS_MAX_RANK];
};

/* Reads n bytes from byte offset on of the row-major dense view of slab into buffer; undefined and
 * unallocated elements read as the fill value. The range must lie inside the view. -EOPNOTSUPP if
 * type.has_pointers, -EINVAL if slab or range are out of bounds. */
int sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
             void *buffer, size_t n);

/* Memory that holds a range of bytes of a dense view already, lent without copying. */
struct sfs_loan {
    const void *bytes;
    void *holder; /* what must not go away meanwhile */
};

/* As sfs_read, but lends the bytes where they lie without a gap in a cached chunk or, stored as
 * they are, in the file; false where they do not (nothing is lent, nothing is wrong). *error is 0
 * or what sfs_read would return. A loan keeps memory from being evicted: give it back soon with
 * sfs_return. The bytes may be a mapping of the file, which may shrink: hand them to a system call
 * such as write(2), which then fails with EFAULT; a program that touches them itself may die of
 * SIGBUS. */
bool sfs_lend(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset, size_t n,
              struct sfs_loan *loan, int *error);
void sfs_return(struct sfs_dataset *dataset, struct sfs_loan *loan);

/* The selection of the defined elements of slab as H5Sencode would encode it in a dataspace of the
 * last space_rank axes of slab (the others have count 1). The caller frees *encoded. */
int sfs_encode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                       void **encoded, size_t *n);

/* All elements as text: a single value bare, otherwise one line per row of the last axis, values
 * separated by a space, strings of arrays quoted; a line's end closes each. -EFBIG if it exceeds
 * limit bytes. The caller frees *text. */
int sfs_text(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n);

#endif
