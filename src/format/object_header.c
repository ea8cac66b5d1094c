/* Reading object headers: first the prefix, which says how long block 0 is, then block by block. */
#include "format/object_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "format/cursor.h"
#include "format/structure.h"
#include "store/store.h"

#define NAME         "object header"
#define CONTINUATION "object header continuation"

#define LONGEST_PREFIX 34 /* of version 2: with times, attribute limits, a size of 8 bytes */
#define OLD_PREFIX     16 /* of version 1 */
#define OLD_HEADER     8  /* of a message of version 1 */

#define HAS_ORDER     0x04 /* flags of version 2 */
#define HAS_LIMITS    0x10
#define HAS_TIMES     0x20
#define UNKNOWN_FLAGS 0xc0

/* More than any header needs: what a damaged one may make us read and keep. */
#define MOST_BLOCKS   1024
#define MOST_MESSAGES ((size_t)1 << 16) /* what version 1 can count */
#define MOST_BYTES    ((uint64_t)64 << 20)

struct reader {
    struct store *store;
    const struct superblock *superblock;
    struct object_header *header;
    uint64_t bytes; /* of all blocks */
    struct why *why;
};

void object_header_free(struct object_header *header)
{
    if (!header)
        return;
    for (size_t i = 0; i < header->n_blocks; i++)
        free(header->block[i].bytes);
    free(header->block);
    free(header->message);
    free(header);
}

size_t object_header_bytes(const struct object_header *header)
{
    size_t n = header ? header->n_messages * sizeof(*header->message) : 0;
    for (size_t i = 0; header && i < header->n_blocks; i++)
        n += header->block[i].n;
    return n;
}

const struct message *object_header_find(const struct object_header *header, enum message_type type)
{
    for (size_t i = 0; i < header->n_messages; i++)
        if (header->message[i].type == type)
            return &header->message[i];
    return NULL;
}

/* Room for one more at the end of an array of n: a new array where n is a power of two. */
static int grow(void **array, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return 0;
    void *more = reallocarray(*array, n ? 2 * n : 1, size);
    if (!more)
        return -ENOMEM;
    *array = more;
    return 0;
}

/* Reads a block of n bytes of which messages begin at messages_at and are followed by tail. */
static int add_block(struct reader *reader, const char *name, uint64_t address, uint64_t n,
                     size_t messages_at, size_t tail)
{
    struct object_header *header = reader->header;
    if (header->n_blocks == MOST_BLOCKS || n > MOST_BYTES - reader->bytes)
        return why_damaged(reader->why, "%s at address %" PRIu64 ": it makes the header too large",
                           name, address);
    for (size_t i = 0; i < header->n_blocks; i++)
        if (header->block[i].address == address)
            return why_damaged(reader->why,
                               "%s at address %" PRIu64 ": it is part of the header twice", name,
                               address);
    int error = structure_within(reader->store, name, address, n, reader->why);
    if (!error)
        error = grow((void **)&header->block, header->n_blocks, sizeof(*header->block));
    if (error)
        return error;
    unsigned char *bytes = malloc((size_t)n);
    if (!bytes)
        return -ENOMEM;
    reader->bytes += n;
    header->block[header->n_blocks++] = (struct header_block){
        .address = address,
        .bytes = bytes,
        .n = (size_t)n,
        .messages_at = messages_at,
        .message_bytes = (size_t)n - messages_at - tail,
    };
    return structure_read(reader->store, name, address, bytes, (size_t)n, reader->why);
}

static int add_first_old(struct reader *reader, uint64_t address, struct cursor *prefix,
                         size_t *n_expected)
{
    cursor_skip(prefix, 2); /* version, reserved */
    *n_expected = (size_t)cursor_uint(prefix, 2);
    cursor_skip(prefix, 4); /* reference count */
    uint64_t size = cursor_uint(prefix, 4);
    cursor_skip(prefix, 4);
    if (prefix->failed)
        return why_damaged(reader->why, NAME " at address %" PRIu64 ": it is cut short", address);
    return add_block(reader, NAME, address, OLD_PREFIX + size, OLD_PREFIX, 0);
}

static int add_first_new(struct reader *reader, uint64_t address, struct cursor *prefix)
{
    size_t whole = prefix->left;
    int error = structure_signed(NAME, address, prefix->at, "OHDR", reader->why);
    if (error)
        return error;
    cursor_skip(prefix, SIGNATURE_BYTES);
    unsigned version = (unsigned)cursor_uint(prefix, 1);
    if (version != 2)
        return why_damaged(reader->why, NAME " at address %" PRIu64 ": version %u", address,
                           version);
    unsigned flags = reader->header->flags = (unsigned)cursor_uint(prefix, 1);
    if (flags & UNKNOWN_FLAGS)
        return why_damaged(reader->why, NAME " at address %" PRIu64 ": flags 0x%02x", address,
                           flags);
    cursor_skip(prefix, (flags & HAS_TIMES ? 16 : 0) + (flags & HAS_LIMITS ? 4 : 0));
    uint64_t size = cursor_uint(prefix, 1u << (flags & 3));
    if (prefix->failed)
        return why_damaged(reader->why, NAME " at address %" PRIu64 ": it is cut short", address);
    size_t messages_at = whole - prefix->left;
    if (size > MOST_BYTES)
        return why_damaged(reader->why, NAME " at address %" PRIu64 ": size of block 0 is %" PRIu64,
                           address, size);
    error = add_block(reader, NAME, address, messages_at + size + CHECKSUM_BYTES, messages_at,
                      CHECKSUM_BYTES);
    if (error)
        return error;
    const struct header_block *block = &reader->header->block[0];
    return structure_summed(NAME, address, block->bytes, block->n, reader->why);
}

static int add_continuation(struct reader *reader, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t address = superblock_address(reader->superblock, &c);
    uint64_t n = cursor_uint(&c, reader->superblock->length_size);
    if (c.failed || address == NO_ADDRESS)
        return why_damaged(reader->why,
                           NAME " message at address %" PRIu64 ": it names no continuation block",
                           message->address);
    if (reader->header->version == 1)
        return add_block(reader, CONTINUATION, address, n, 0, 0);

    if (n < SIGNATURE_BYTES + CHECKSUM_BYTES)
        return why_damaged(reader->why, CONTINUATION " at address %" PRIu64 ": length %" PRIu64,
                           address, n);
    int error = add_block(reader, CONTINUATION, address, n, SIGNATURE_BYTES, CHECKSUM_BYTES);
    if (error)
        return error;
    const struct header_block *block = &reader->header->block[reader->header->n_blocks - 1];
    error = structure_signed(CONTINUATION, address, block->bytes, "OCHK", reader->why);
    if (!error)
        error = structure_summed(CONTINUATION, address, block->bytes, block->n, reader->why);
    return error;
}

size_t object_header_message_begin(const struct object_header *header)
{
    return header->version == 1 ? OLD_HEADER : header->flags & HAS_ORDER ? 6 : 4;
}

/* The header of one message; what follows is its data. */
static void decode_message(const struct object_header *header, struct cursor *c,
                           struct message *message)
{
    bool old = header->version == 1;
    message->type = (unsigned)cursor_uint(c, old ? 2 : 1);
    message->size = (size_t)cursor_uint(c, 2);
    message->flags = (unsigned)cursor_uint(c, 1);
    cursor_skip(c, old ? 3 : header->flags & HAS_ORDER ? 2 : 0);
}

static int add_messages(struct reader *reader, size_t b)
{
    struct object_header *header = reader->header;
    const struct header_block block = header->block[b];
    const unsigned char *begin = block.bytes + block.messages_at;
    struct cursor c = cursor_over(begin, block.message_bytes);
    while (c.left >= object_header_message_begin(header)) {
        struct message message = {.block = b};
        decode_message(header, &c, &message);
        message.address = block.address + (uint64_t)(c.at - block.bytes);
        message.data = cursor_bytes(&c, message.size);
        if (c.failed || (header->version == 1 && message.size % 8 != 0))
            return why_damaged(reader->why,
                               NAME " message at address %" PRIu64 ": type 0x%04x, size %zu",
                               message.address, message.type, message.size);
        if (header->n_messages == MOST_MESSAGES)
            return why_damaged(reader->why, NAME " block at address %" PRIu64 ": too many messages",
                               block.address);
        int error = grow((void **)&header->message, header->n_messages, sizeof(message));
        if (error)
            return error;
        header->message[header->n_messages++] = message;
        if (message.type == MESSAGE_CONTINUATION)
            error = add_continuation(reader, &message);
        if (error)
            return error;
    }
    if (header->version == 1 && c.left > 0)
        return why_damaged(reader->why,
                           NAME " block at address %" PRIu64 ": %zu bytes behind its last message",
                           block.address, c.left);
    return 0;
}

static int read_header(struct reader *reader, uint64_t address)
{
    unsigned char bytes[LONGEST_PREFIX];
    uint64_t size = store_size(reader->store);
    uint64_t left = address < size ? size - address : 0;
    size_t n = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
    if (n < OLD_PREFIX)
        n = OLD_PREFIX; /* for why */
    int error = structure_read(reader->store, NAME, address, bytes, n, reader->why);
    if (error)
        return error;

    size_t n_expected = 0;
    struct cursor prefix = cursor_over(bytes, n);
    reader->header->version = bytes[0] == 1 ? 1 : 2;
    if (reader->header->version == 1)
        error = add_first_old(reader, address, &prefix, &n_expected);
    else
        error = add_first_new(reader, address, &prefix);
    for (size_t b = 0; !error && b < reader->header->n_blocks; b++)
        error = add_messages(reader, b);
    if (error)
        return error;
    if (reader->header->version == 1 && reader->header->n_messages != n_expected)
        return why_damaged(reader->why,
                           NAME " at address %" PRIu64 ": it should have %zu messages and has %zu",
                           address, n_expected, reader->header->n_messages);
    return 0;
}

int object_header_read(struct store *store, const struct superblock *superblock, uint64_t address,
                       struct object_header **header, struct why *why)
{
    struct reader reader = {.store = store, .superblock = superblock, .why = why};
    reader.header = calloc(1, sizeof(*reader.header));
    if (!reader.header)
        return -ENOMEM;
    int error = read_header(&reader, address);
    if (error) {
        object_header_free(reader.header);
        return error;
    }
    *header = reader.header;
    return 0;
}
