/* Ordinary HDF5 files: those whose superblock and headers hold nothing but what is understood here
 * to the last field, so that what is made of them is what libhdf5 makes of them. Everything else,
 * the damaged and the merely unusual, is not plain: an error, upon which libhdf5 is to be asked.
 *
 * All functions: -EILSEQ, -EOPNOTSUPP: it is not plain, and why says what is not; -EIO (the store
 * failed and has logged it), STORE_MOVED, -ESTALE; -ENOMEM; -ETIMEDOUT: the thread has a deadline
 * (common/deadline.h), which has come, and is looked at before each read. Any thread. */
#ifndef SPARSEFS_FORMAT_PLAIN_HEADERS_H
#define SPARSEFS_FORMAT_PLAIN_HEADERS_H

#include "format/object_header.h"
#include "sparsefs/sparsefs.h"

/* Whoever wants to know what structures take is called with each of them; what it returns ends the
 * reading unless it is 0, and is returned. */
struct plain_blocks {
    int (*each)(void *context, const char *name, uint64_t address, uint64_t n);
    void *context;
};

/* Without the mark of a writer, without an extension, and not cut short. */
int plain_superblock(struct store *store, struct superblock *superblock, struct why *why);

/* The same, or with an extension of which everything is understood: sizes of B-tree nodes, which are
 * put into *superblock, and how space is managed, if nothing of that is kept in the file. Its header
 * is told. */
int plain_superblock_extended(struct store *store, const struct plain_blocks *blocks,
                              struct superblock *superblock, struct why *why);

/* Whether n bytes at address lie in front of the end that the superblock names: libhdf5 reads
 * nothing behind it, whatever is there. */
int plain_within(const struct superblock *superblock, const char *name, uint64_t address,
                 uint64_t n, struct why *why);

/* The header of a group, a dataset or a committed datatype, all of whose messages are known, not
 * shared (but for the datatype), and there once where there can be only one. The caller frees it
 * with object_header_free. */
int plain_header(struct store *store, const struct superblock *superblock, uint64_t address,
                 struct object_header **header, struct why *why);

/* What it is the header of, as libhdf5 tells it by the messages. */
int plain_type(const struct object_header *header, enum sfs_object_type *type, struct why *why);

#endif
