/* What libhdf5's process and ours say to each other, as bytes. Both are this program on this
 * machine, so integers stand as they are, in 8 bytes; but what comes from there is no more to be
 * trusted than the file: all of it is checked here, once, and what cannot be is -EIO. */
#ifndef SPARSEFS_HDF5_WORKER_WIRE_H
#define SPARSEFS_HDF5_WORKER_WIRE_H

#include "format/cursor.h"
#include "hdf5/hdf5.h"

#define WIRE_MOST_BYTES ((uint64_t)256 << 20) /* of a message */

/* A message that is being written; it grows. {0} is an empty one. */
struct wire {
    unsigned char *bytes;
    size_t n, room;
    bool failed; /* there was no memory, or it would have more than WIRE_MOST_BYTES */
};

void wire_free(struct wire *wire);

/* Room for n bytes at the end; NULL: it has failed. */
void *wire_room(struct wire *wire, size_t n);
void wire_put(struct wire *wire, const void *bytes, size_t n);
void wire_uint(struct wire *wire, uint64_t value);
void wire_uints(struct wire *wire, const uint64_t *values, int n);
void wire_bytes(struct wire *wire, const void *bytes, size_t n); /* with their number */
void wire_string(struct wire *wire, const char *string);         /* may be NULL */

/* Reading marks the cursor as failed where something does not fit, or is more than it may be. */
uint64_t take_uint(struct cursor *cursor, uint64_t most);
bool take_bool(struct cursor *cursor);
void take_uints(struct cursor *cursor, uint64_t *values, int n);

/* The caller frees *string, which is NULL if that was sent, after errors, and for want of memory,
 * which is -ENOMEM. needed: NULL is a failure. No NUL is in it. */
int take_string(struct cursor *cursor, bool needed, char **string);

/* How many of something follow, each of which takes at least `least` bytes. */
size_t take_count(struct cursor *cursor, size_t least);

/* 0, or -EIO: something was wrong, or (all) bytes are left. */
int take_end(const struct cursor *cursor, bool all);

/* ---- Structures. take_... fill *out, which the caller frees as always, or leave nothing. ---- */

void wire_link(struct wire *wire, const struct sfs_link *link);
void wire_links(struct wire *wire, const struct sfs_links *links);
void wire_attributes(struct wire *wire, const struct sfs_attributes *attributes);
void wire_type(struct wire *wire, const struct sfs_type *type);
void wire_info(struct wire *wire, const struct sfs_dataset_info *info);
void wire_storage(struct wire *wire, const struct hdf5_storage *storage);
void wire_mappings(struct wire *wire, const struct hdf5_mappings *mappings);
void wire_chunk(struct wire *wire, const struct hdf5_chunk *chunk);

int take_link(struct cursor *cursor, struct sfs_link *out);
int take_links(struct cursor *cursor, struct sfs_links *out);
int take_attributes(struct cursor *cursor, struct sfs_attributes *out);
int take_type(struct cursor *cursor, struct sfs_type *out);
int take_info(struct cursor *cursor, struct sfs_dataset_info *out);
int take_storage(struct cursor *cursor, const struct sfs_dataset_info *info,
                 struct hdf5_storage *out);
int take_mappings(struct cursor *cursor, struct hdf5_mappings *out);
int take_chunk(struct cursor *cursor, struct hdf5_chunk *out);

#endif
