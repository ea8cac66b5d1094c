/* The calls of hdf5.h as libhdf5 does them in this very process: what local_or_remote.c passes on to,
 * and what a worker does for another process. Everything is as it is said there. */
#ifndef SPARSEFS_HDF5_LOCAL_H
#define SPARSEFS_HDF5_LOCAL_H

#include "hdf5/hdf5.h"

/* The parameters that a filter has in the header of a dataset. */
#define COMPLETED_MOST 256 /* libhdf5 takes no more */
struct completed {
    size_t n;
    unsigned values[COMPLETED_MOST];
    char name[64]; /* of the filter */
};

/* Where objects of the source are in a copy. */
struct copied_paths {
    const struct sfs_moved *moved; /* ascending by address */
    size_t n;
    const char *(*find)(uint64_t address); /* if not NULL, instead: NULL, or good until the next */
};

int local_open(struct store *store, struct hdf5 **hdf5);
void local_close(struct hdf5 *hdf5);
int local_renew(struct hdf5 *hdf5);
int local_list(struct hdf5 *hdf5, uint64_t group, struct sfs_links *links);
int local_lookup(struct hdf5 *hdf5, uint64_t group, const char *name, struct sfs_link *link);
int local_find(struct hdf5 *hdf5, uint64_t group, const char *path, uint64_t *address);
int local_object_type(struct hdf5 *hdf5, uint64_t address, enum sfs_object_type *type);
int local_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *attributes);

/* -EAGAIN also: all groups would have to be walked through first. */
int local_attributes_at_hand(struct hdf5 *hdf5, uint64_t address,
                             struct sfs_attributes *attributes);
int local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                       struct hdf5_storage *storage);
void local_dataset_close(struct hdf5 *hdf5, uint64_t address);
int local_cache_sources(struct hdf5 *hdf5, uint64_t address, const char *path, size_t bytes);

/* -EBADF also: it is not open. */
int local_dataset_renew(struct hdf5 *hdf5, uint64_t address, int rank,
                        struct hdf5_renewed *renewed);
int local_mappings(struct hdf5 *hdf5, uint64_t address, struct hdf5_mappings *mappings);
int local_locate(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                 struct hdf5_chunk *chunk);
int local_read(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
               const uint64_t *memory_dims, void *buffer);
int local_text(struct hdf5 *hdf5, uint64_t dataset, size_t limit, char **text, size_t *n);

/* -EAGAIN also: all groups would have to be walked through first. */
int local_text_at_hand(struct hdf5 *hdf5, uint64_t dataset, size_t limit, char **text, size_t *n);
int local_parts(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_parts *wanted, char **bytes,
                size_t *bytes_n);
int local_paths(struct hdf5 *hdf5, const struct hdf5_addresses *addresses, size_t most,
                char **lines, size_t *lines_n);
int local_datatype_text(struct hdf5 *hdf5, uint64_t address, char **text);
int local_type_of_message(const void *message, size_t n, void **type, size_t *type_n);
int local_type_describe(const void *type, size_t n, struct sfs_type *description);
int local_type_size(const void *type, size_t n, size_t *size);
bool local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n);
int local_element_json(const void *type, size_t n, const void *element, char **json);
int local_elements_text(const struct hdf5_elements *elements, char **text, size_t *text_n);
int local_element_parse(const void *type, size_t n, const char *text, void *element);
bool local_filter_available(int id);

/* From those of H5Pset_filter, as its plugin does it. -EINVAL: it does not take them;
 * -EOPNOTSUPP. */
int local_filter_complete(const struct sfs_filter *filter, const struct sfs_encoded *type, int rank,
                          const uint64_t *chunk_dims, struct completed *completed);
int local_filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                        void *out, size_t out_size);
int local_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                        size_t *out_size);

int local_flush(struct hdf5 *hdf5);
int local_write(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
                const void *buffer);
int local_write_sequences(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                          const uint64_t *count, const struct hdf5_sequences *sequences);
int local_set_extent(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *dims);
int local_write_chunks(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_stored *chunks,
                       unsigned n);
int local_place(struct hdf5 *hdf5, uint64_t dataset, uint64_t *address, uint64_t n,
                const void *element);
int local_create_group(struct hdf5 *hdf5, const char *path);
int local_remove_group(struct hdf5 *hdf5, const char *path);
int local_reopen(struct hdf5 *hdf5);
int local_create_dataset(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                         uint64_t *address);
int local_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                       uint64_t *address);
int local_unlink(struct hdf5 *hdf5, const char *path);
int local_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link);
int local_copy_attributes(struct hdf5 *to, uint64_t object, struct hdf5 *from, uint64_t of);
int local_copy_object(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);
int local_copy_group(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);
int local_copy_references(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of,
                          const struct copied_paths *paths);

#endif
