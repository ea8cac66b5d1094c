/* What of a file needs no libhdf5: kinds of objects, links of groups and descriptions of datasets,
 * where all of it is plain (format/plain.h), read from the store. What it says is what libhdf5
 * would say, or else -EAGAIN: libhdf5 is to be asked, also for the errors of what is damaged. */
#ifndef SPARSEFS_HDF5_DIRECT_H
#define SPARSEFS_HDF5_DIRECT_H

#include "hdf5/hdf5.h"

struct direct;
struct plain_type;

/* Of a store that is only read, and does not change. It must outlive *direct. *root: the address of
 * the root group. -EAGAIN, -ENOMEM, -EINTR; so do those below fail.
 * One thread at a time, but for different files. Closing NULL is fine. */
int direct_open(struct store *store, struct direct **direct, uint64_t *root);
void direct_close(struct direct *direct);

/* The file is changed: what was read of it before is not said any more. NULL is fine. */
void direct_forget(struct direct *direct);

/* As hdf5_list, hdf5_object_type and hdf5_dataset_open. */
int direct_list(struct direct *direct, uint64_t group, struct sfs_links *links);
int direct_object_type(struct direct *direct, uint64_t address, enum sfs_object_type *type);
int direct_dataset_open(struct direct *direct, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage);

/* ---- direct_type.c ---- */

#define DIRECT_MOST_ELEMENT ((size_t)1 << 20) /* bytes of an element, and of its JSON */

/* As hdf5_type_describe, and hdf5_element_json of an element in the file; of one without pointers.
 * -ENOMEM. */
int direct_type_describe(const struct plain_type *type, struct sfs_type *description);
int direct_element_json(const struct plain_type *type, const void *element, char **json);

/* The bytes of a datatype of n bytes in the file as H5Tencode writes them; *out is the caller's. */
int direct_type_encode(const struct plain_type *type, const void *message, size_t n, void **out,
                       size_t *out_n);

#endif
