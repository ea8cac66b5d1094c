/* Shared by the files of src/hdf5 only: the lock around libhdf5, its errors, and open datasets. */
#ifndef SPARSEFS_HDF5_PRIVATE_H
#define SPARSEFS_HDF5_PRIVATE_H

#include <hdf5.h>
#include <stdio.h>

#include "common/hash.h"
#include "hdf5/hdf5.h"

struct open_dataset {
    uint64_t address;
    hid_t id;
    hid_t type; /* the file's */
    hid_t space;
    int rank;
    UT_hash_handle hh;
};

struct hdf5 {
    hid_t file;
    struct store *store;
    uint64_t root;
    struct open_dataset *datasets; /* by address; under the library lock */
};

/* Every entry point calls library_enter first and library_leave last. Entering also silences
 * libhdf5's own error printing for the thread. */
void library_enter(void);
void library_leave(void);

/* Keeps the reason that libhdf5 gives, or the given words, for hdf5_error(); returns error, or
 * -ENOMEM if libhdf5 failed because our driver did for want of memory. */
int library_failed(int error);
int library_failed_because(int error, const char *why);

/* The file driver over a store (driver.c). */
herr_t driver_set(hid_t fapl, struct store *store);

/* Whether a callback of this thread has failed for want of memory since the last call. */
bool driver_ran_out_of_memory(void);

/* The next read of raw data by this thread is not done but noted. */
struct driver_noted {
    unsigned reads;
    uint64_t address;
    uint64_t size;
};
void driver_note_reads(struct driver_noted *noted);
void driver_do_reads(void);

/* A small HDF5 file in memory with one dataset (filter_image.c): one byte in one chunk, whose
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
 * harm (filter_guard.c): they and the parameters agree. Of other filters nothing is known: true. */
bool filter_guard_decode(const struct sfs_filter *filter, const void *bytes, size_t n, size_t most);
bool filter_guard_encode(const struct sfs_filter *filter, size_t n);

/* Describes a datatype (datatype.c); what it points to is freed by type_free. */
int type_describe(hid_t type, struct sfs_type *description);
void type_free(struct sfs_type *description);
int type_words(hid_t type, char **words);

/* Writes one element of a native (memory) datatype as text or JSON (text.c). */
enum text_style { TEXT_BARE, TEXT_QUOTED, TEXT_JSON };
int text_element(FILE *out, hid_t object, hid_t type, const void *element, enum text_style style);

/* The type in which elements of a file type become text: its native form, or itself where there is
 * none (opaque, time). The caller closes it. */
hid_t text_memory_type(hid_t type);

/* Reads a whole attribute or dataset and writes it as text. */
int text_attribute(hid_t attribute, char **text, char **json);
int text_dataset(const struct open_dataset *dataset, size_t limit, char **text, size_t *n);

#endif
