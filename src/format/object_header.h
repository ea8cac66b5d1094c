/* The object header: the list of messages that describes a group or dataset (HDF5 file format
 * specification, section IV.A), versions 1 and 2, with all its continuation blocks in memory. */
#ifndef SPARSEFS_FORMAT_OBJECT_HEADER_H
#define SPARSEFS_FORMAT_OBJECT_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "format/superblock.h"

enum message_type {
    MESSAGE_NIL = 0x0000,
    MESSAGE_DATASPACE = 0x0001,
    MESSAGE_LINK_INFO = 0x0002,
    MESSAGE_DATATYPE = 0x0003,
    MESSAGE_OLD_FILL = 0x0004,
    MESSAGE_FILL = 0x0005,
    MESSAGE_LINK = 0x0006,
    MESSAGE_LAYOUT = 0x0008,
    MESSAGE_GROUP_INFO = 0x000a,
    MESSAGE_FILTERS = 0x000b,
    MESSAGE_ATTRIBUTE = 0x000c,
    MESSAGE_COMMENT = 0x000d,
    MESSAGE_OLD_TIME = 0x000e,
    MESSAGE_CONTINUATION = 0x0010,
    MESSAGE_SYMBOL_TABLE = 0x0011,
    MESSAGE_TIME = 0x0012,
    MESSAGE_NODE_SIZES = 0x0013,
    MESSAGE_ATTRIBUTE_INFO = 0x0015,
    MESSAGE_REFERENCES = 0x0016,
    MESSAGE_SPACE_INFO = 0x0017,
    MESSAGE_SECTION_FILTERS = 0x0019,
};

#define MESSAGE_SHARED 0x02 /* a flag: the data say where the message really is */

struct message {
    unsigned type;  /* enum message_type, or any other */
    unsigned flags; /* as stored */
    const unsigned char *data;
    size_t size;      /* bytes of data */
    uint64_t address; /* of the data in the store */
    size_t block;     /* which block it lies in */
};

/* What lies in one piece in the file. Block 0 is the header itself. */
struct header_block {
    uint64_t address;
    unsigned char *bytes; /* all of it: prefix or signature, messages, gap, checksum */
    size_t n;
    size_t messages_at;   /* where in bytes the messages begin */
    size_t message_bytes; /* of messages and gap */
};

struct object_header {
    unsigned version; /* 1 or 2 */
    unsigned flags;   /* of version 2, as stored */
    size_t n_blocks;
    struct header_block *block;
    size_t n_messages;       /* NIL and continuation messages included */
    struct message *message; /* block by block, blocks in the order in which they are named */
};

/* Reads the header at address. Errors: -EIO (the store failed and has logged it), -EILSEQ, -ENOMEM;
 * of the first two why says what and where; and as structure_read. The caller frees *header with object_header_free.
 * Unless it is changed by the functions below any number of threads may read it. */
int object_header_read(struct store *store, const struct superblock *superblock, uint64_t address,
                       struct object_header **header, struct why *why);
void object_header_free(struct object_header *header);

/* Bytes that it takes in memory; 0 of NULL. */
size_t object_header_bytes(const struct object_header *header);

/* The first message of a type, NULL if there is none. */
const struct message *object_header_find(const struct object_header *header,
                                         enum message_type type);

/* Bytes of what stands before the data of every message. */
size_t object_header_message_begin(const struct object_header *header);

/* ---- Links to the object: object_header_count.c ---- */

/* Whether `after` is what became of `before` when a link was counted: nothing is lost or changed but
 * the count, which is as before or one more, and perhaps where messages stand. -EILSEQ, of which why
 * says what; -ENOMEM. */
int object_header_check_counted(const struct object_header *before,
                                const struct object_header *after, struct why *why);

/* Bytes of its block at an address, 0: there is none. */
uint64_t object_header_block_bytes(const struct object_header *header, uint64_t address);

/* ---- Changing a header: by one thread, in memory and then in the store ---- */

/* The data of a message of the header, to be changed; object_header_write_block writes the block in
 * which it lies, with its checksum. */
unsigned char *object_header_data(struct object_header *header, const struct message *message);
int object_header_write_block(struct store *store, struct object_header *header, size_t block,
                              struct why *why);

#define NEW_MESSAGES 2 /* at most at once */

struct new_message {
    enum message_type type;
    unsigned flags;
    const void *data;
    size_t size; /* at most 65528 bytes */
};

struct message_replacement {
    const enum message_type *old; /* those of these types are taken out */
    size_t n_old;
    struct new_message new[NEW_MESSAGES];
    size_t n_new;
};

/* Takes all messages of some types out and puts the new ones in, one behind the other, where the
 * header has room, else in a new block. All other messages keep their order and their bytes.
 * Afterwards the header in memory can only be freed, also on error. Errors: those of the store;
 * -EFBIG, -EOPNOTSUPP: there is no room (of these why says where); -ENOMEM. */
int object_header_replace(struct store *store, const struct superblock *superblock,
                          struct object_header *header,
                          const struct message_replacement *replacement, struct why *why);

#endif
