/* The small messages of a dataset, as far as opening a sparse one needs them: dataspace, element
 * size of the datatype, fill value (HDF5 file format specification, sections IV.A.2.b, d, e, f).
 * Bytes in, plain values out, but for new dims; address is that of the message's data, for why. All
 * functions: -EILSEQ, -EOPNOTSUPP (the message is shared; why says what is wrong); results untouched on
 * error; any thread. */
#ifndef SPARSEFS_FORMAT_DATASET_MESSAGES_H
#define SPARSEFS_FORMAT_DATASET_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#include "format/object_header.h"
#include "sparsefs/sparsefs.h"

struct dataspace_message {
    enum sfs_space space;
    int rank; /* 0 unless SFS_SPACE_SIMPLE */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t max_dims[SFS_MAX_RANK]; /* at least dims; SFS_UNLIMITED where there is no limit */
};

/* Versions 1 and 2. */
int dataspace_decode(const struct superblock *superblock, const struct message *message,
                     struct dataspace_message *dataspace, struct why *why);

/* Writes other current dims into the message's data, at bytes. -EINVAL: another rank, more than
 * the max dims, or, where the message has no max dims, any other dims; and the errors of
 * dataspace_decode. */
int dataspace_encode_dims(const struct superblock *superblock, const struct message *message,
                          unsigned char *bytes, int rank, const uint64_t *dims, struct why *why);

/* Bytes of an element, of any class and version; -EOPNOTSUPP: the datatype is committed, its
 * message is elsewhere. */
int datatype_decode_size(const struct message *message, uint64_t *size, struct why *why);

struct fill_message {
    size_t size;                /* bytes of value; 0: no value is stored, it is all zeros */
    const unsigned char *value; /* in the message; in the file's datatype */
    enum sfs_allocation allocation;
    enum sfs_fill_time fill_time;
};

/* Message 0x0005, versions 1 to 3, and message 0x0004. */
int fill_decode(const struct message *message, struct fill_message *fill, struct why *why);

/* Writes another time of allocation into the data of message 0x0005, at bytes, which fill_decode
 * takes. */
int fill_encode_allocation(const struct message *message, unsigned char *bytes,
                           enum sfs_allocation allocation, struct why *why);

#endif
