/* The calls of hdf5.h, done by a worker: what local_or_remote.c passes on to. Everything is as it is
 * said there; besides, everything is -EIO for which a worker has ended twice. Calls about a file
 * wait for each other. Of those that only read a wait ends with -EINTR when nobody wants the answer
 * any more (interrupt.h), but not of remote_renew, remote_dataset_renew and remote_type_equal;
 * remote_dataset_close does not wait, unless the file is written or there is no memory. */
#ifndef SPARSEFS_HDF5_WORKER_REMOTE_H
#define SPARSEFS_HDF5_WORKER_REMOTE_H

#include "hdf5/hdf5.h"

struct remote;

/* timeout: see client.h. directly: what can be answered without libhdf5 is (hdf5/own_reader.h), of a
 * store that is not followed, as long as it is only read; no process is started before one is
 * needed. */
int remote_open(struct store *store, uint64_t timeout, bool directly, struct remote **remote,
                uint64_t *root);
void remote_close(struct remote *remote);
int remote_begin(struct remote *remote); /* the process, if it has not been needed yet */
int remote_renew(struct remote *remote, uint64_t *root);
int remote_list(struct remote *remote, uint64_t group, struct sfs_links *links);
int remote_lookup(struct remote *remote, uint64_t group, const char *name, struct sfs_link *link);
int remote_find(struct remote *remote, uint64_t group, const char *path, uint64_t *address);
int remote_object_type(struct remote *remote, uint64_t address, enum sfs_object_type *type);
int remote_attributes(struct remote *remote, uint64_t address, struct sfs_attributes *attributes);
int remote_dataset_open(struct remote *remote, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage);
void remote_dataset_close(struct remote *remote, uint64_t address);
int remote_dataset_renew(struct remote *remote, uint64_t address, int rank,
                         struct hdf5_renewed *renewed);
int remote_cache_sources(struct remote *remote, uint64_t address, const char *path, size_t bytes);
int remote_mappings(struct remote *remote, uint64_t address, struct hdf5_mappings *mappings);
int remote_locate(struct remote *remote, uint64_t dataset, const uint64_t *start,
                  struct hdf5_chunk *chunk);
/* Only where they are, for who is about to change them: not -EINTR. */
int remote_locate_many(struct remote *remote, uint64_t dataset, const struct hdf5_stored *chunks,
                       unsigned n, struct hdf5_chunk *found);
int remote_read(struct remote *remote, uint64_t dataset, const uint64_t *start,
                const uint64_t *count, const uint64_t *memory_dims, void *buffer);
int remote_text(struct remote *remote, uint64_t dataset, size_t limit, char **text, size_t *n);
int remote_parts(struct remote *remote, uint64_t dataset, const struct hdf5_parts *wanted,
                 char **bytes, size_t *bytes_n);
int remote_paths(struct remote *remote, uint64_t dataset, const struct hdf5_addresses *addresses,
                 size_t most, char **lines, size_t *lines_n);
int remote_datatype_text(struct remote *remote, uint64_t address, char **text);

/* Of one whose store is writable. */
bool remote_is_lost(const struct remote *remote);
int remote_flush(struct remote *remote); /* libhdf5's part of it */
int remote_write(struct remote *remote, uint64_t dataset, const uint64_t *start,
                 const uint64_t *count, const void *buffer); /* of an open one, else -EBADF */
int remote_write_sequences(struct remote *remote, uint64_t dataset, const uint64_t *start,
                           const uint64_t *count, const struct hdf5_sequences *sequences);
int remote_set_extent(struct remote *remote, uint64_t dataset, const uint64_t *dims);
int remote_write_chunks(struct remote *remote, uint64_t dataset, const struct hdf5_stored *chunks,
                        unsigned n);
int remote_place(struct remote *remote, uint64_t dataset, uint64_t *address, uint64_t n,
                 const void *element);
int remote_create_group(struct remote *remote, const char *path);
int remote_remove_group(struct remote *remote, const char *path);
int remote_reopen(struct remote *remote);
int remote_unlink(struct remote *remote, const char *path);
int remote_create_link(struct remote *remote, const char *path, const struct sfs_link *link,
                       const struct object_header *counted);

/* from: the file that attributes are of, instead of the one in create; NULL: of none. */
int remote_create_dataset(struct remote *remote, const char *path, bool is_dense,
                          const struct hdf5_create *create, struct remote *from, uint64_t *address);
int remote_copy_attributes(struct remote *to, uint64_t object, struct remote *from, uint64_t of);
int remote_copy_object(struct remote *to, const char *path, struct remote *from, uint64_t of);
int remote_copy_group(struct remote *to, const char *path, struct remote *from, uint64_t of);
int remote_copy_references(struct remote *to, const char *path, struct remote *from, uint64_t of,
                           const struct sfs_moved *moved, size_t n);

/* Datatypes: of an object of the remote's file; NULL, and of a remote without a store: of none. */
struct about {
    struct remote *remote;
    const uint64_t *object;
};

int remote_type_of_message(const struct about *of, const void *message, size_t n, void **type,
                           size_t *type_n);
int remote_type_describe(const struct about *of, const void *type, size_t n,
                         struct sfs_type *description);
int remote_type_size(const struct about *of, const void *type, size_t n, size_t *size);
bool remote_type_equal(const struct about *of, const struct sfs_encoded *a,
                       const struct sfs_encoded *b);
int remote_element_json(const struct about *of, const void *type, size_t n, const void *element,
                        char **json);
int remote_elements_text(const struct about *of, const struct hdf5_elements *elements, char **text,
                         size_t *text_n);
int remote_element_parse(const struct about *of, const void *type, size_t n, const char *text,
                         void *element);

#endif
