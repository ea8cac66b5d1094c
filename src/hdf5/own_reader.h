/* What of a file needs no libhdf5: kinds of objects, links of groups and descriptions of datasets,
 * where all of it is plain (format/plain_headers.h), read from the store. What it says is what libhdf5
 * would say, or else -EAGAIN: libhdf5 is to be asked, also for the errors of what is damaged.
 *
 * Each call has as much time as one of libhdf5's process, with what the disk takes of it: who waits
 * for it waits no longer. The time is looked at before each read of up to 1 MiB; one that the
 * system does not end, of a disk or server that does not answer, cannot be ended here either. When
 * it has passed nothing is said of the file any more, so that it is lost once: libhdf5's process,
 * whose time is counted without the disk, is asked instead. */
#ifndef SPARSEFS_HDF5_OWN_READER_H
#define SPARSEFS_HDF5_OWN_READER_H

#include "hdf5/hdf5.h"

struct direct;
struct plain_type;

/* Of a store that is only read, and does not change; or of one that is shared (store.h), and then
 * for calls while it is: after a time of writing its superblock is read again, and if that has
 * another root now, or is not plain any more, nothing is said of it. The store must outlive *direct.
 * timeout: nanoseconds for each call, this one included. *root: the address of the root group.
 * -EAGAIN, -ENOMEM, -EINTR; so do those below fail.
 * One thread at a time, but for different files. Closing NULL is fine. */
int direct_open(struct store *store, uint64_t timeout, struct direct **direct, uint64_t *root);
void direct_close(struct direct *direct);

/* As hdf5_list, hdf5_object_type and hdf5_dataset_open. */
int direct_list(struct direct *direct, uint64_t group, struct sfs_links *links);
int direct_object_type(struct direct *direct, uint64_t address, enum sfs_object_type *type);
int direct_dataset_open(struct direct *direct, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage);

/* ---- own_reader_type.c ---- */

#define DIRECT_MOST_ELEMENT ((size_t)1 << 20) /* bytes of an element, and of its JSON */
#define DIRECT_MOST_TEXT    ((size_t)4 << 20) /* bytes, by which time and memory have an end */

/* As hdf5_type_describe, and hdf5_element_json of an element in the file; of one without pointers.
 * -ENOMEM; -EAGAIN: its JSON would have more than DIRECT_MOST_ELEMENT. */
int direct_type_describe(const struct plain_type *type, struct sfs_type *description);
int direct_element_json(const struct plain_type *type, const void *element, char **json);

/* As hdf5_elements_text of a worker, which is not asked. -EAGAIN: it is to be: the datatype is not plain, has pointers
 * or references, or the text may have more than DIRECT_MOST_TEXT. -ENOMEM. Any thread. */
int direct_elements_text(const struct hdf5_elements *elements, char **text, size_t *text_n);

/* Whether libhdf5 of this version knows datatype messages of the type's version. */
bool direct_type_is_known(const struct plain_type *type);

/* The bytes of a datatype of n bytes in the file as H5Tencode writes them, in version 3 or older;
 * *out is the caller's. */
int direct_type_encode(const struct plain_type *type, const void *message, size_t n, void **out,
                       size_t *out_n);

#endif
