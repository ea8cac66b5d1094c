/* What of superblocks and headers is plain. */
#include "format/plain_headers.h"

#include <inttypes.h>
#include <stdbool.h>

#include "format/cursor.h"
#include "format/structure.h"
#include "store/store.h"

#define CONSTANT         0x01 /* flags of a message: it does not change, */
#define NOT_TO_BE_SHARED 0x04 /* and where it is */

#define MOST_STRATEGY 3 /* of managing space */

#define OLD_COUNT_AT 4 /* of references, in a header of version 1 */

static int read_superblock(struct store *store, struct superblock *superblock, struct why *why)
{
    int error = superblock_read(store, superblock, why);
    if (error)
        return error;
    if (superblock->has_more || superblock->is_moved || superblock->leaf_k == 0 ||
        superblock->internal_k == 0)
        return why_unsupported(why, "superblock at address %" PRIu64 ": it is not plain",
                               superblock->address);
    if (superblock->end > store_size(store) || superblock->end < superblock->base)
        return why_damaged(why, "superblock at address %" PRIu64 ": the file ends at %" PRIu64,
                           superblock->address, superblock->end);
    return 0;
}

int plain_superblock(struct store *store, struct superblock *superblock, struct why *why)
{
    int error = read_superblock(store, superblock, why);
    return !error && superblock->extension != NO_ADDRESS
               ? why_unsupported(why, "superblock at address %" PRIu64 ": it has an extension",
                                 superblock->address)
               : error;
}

/* ---- An extension ---- */

static bool take_node_sizes(struct cursor *c, struct superblock *superblock)
{
    uint64_t version = cursor_uint(c, 1);
    superblock->chunk_k = (unsigned)cursor_uint(c, 2);
    superblock->internal_k = (unsigned)cursor_uint(c, 2);
    superblock->leaf_k = (unsigned)cursor_uint(c, 2);
    return version == 0 && superblock->chunk_k > 0 && superblock->internal_k > 0 &&
           superblock->leaf_k > 0;
}

/* Where nothing of free space is kept: then whoever opens the file knows of none. */
static bool take_space_info(struct cursor *c)
{
    uint64_t version = cursor_uint(c, 1), strategy = cursor_uint(c, 1), is_kept = cursor_uint(c, 1);
    return version == 1 && strategy <= MOST_STRATEGY && is_kept == 0;
}

static int take_message(const struct message *message, struct superblock *superblock,
                        struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    bool is_plain = !(message->flags & MESSAGE_SHARED);
    switch (message->type) {
    case MESSAGE_NIL:
    case MESSAGE_CONTINUATION:
        break;
    case MESSAGE_NODE_SIZES:
        is_plain &= take_node_sizes(&c, superblock);
        break;
    case MESSAGE_SPACE_INFO:
        is_plain &= take_space_info(&c);
        break;
    default:
        is_plain = false;
    }
    return is_plain && !c.failed
               ? 0
               : why_unsupported(why,
                                 "extension of the superblock: message 0x%04x at address "
                                 "%" PRIu64,
                                 message->type, message->address);
}

int plain_superblock_extended(struct store *store, const struct plain_blocks *blocks,
                              struct superblock *superblock, struct why *why)
{
    struct object_header *header;
    int error = read_superblock(store, superblock, why);
    if (error || superblock->extension == NO_ADDRESS)
        return error;
    error = object_header_read(store, superblock, superblock->extension, &header, why);
    if (error)
        return error;
    for (size_t i = 0; i < header->n_blocks && !error; i++)
        error = blocks->each(blocks->context, "extension of the superblock",
                             header->block[i].address, header->block[i].n);
    for (size_t i = 0; i < header->n_messages && !error; i++)
        error = take_message(&header->message[i], superblock, why);
    object_header_free(header);
    return error;
}

int plain_within(const struct superblock *superblock, const char *name, uint64_t address,
                 uint64_t n, struct why *why)
{
    if (address > superblock->end || n > superblock->end - address)
        return why_damaged(why, "%s at address %" PRIu64 ": it lies behind the end of the file",
                           name, address);
    return 0;
}

/* How often a header may have a message of a type. */
enum times { NEVER, ONCE, OFTEN };

static enum times times_of(unsigned type)
{
    switch (type) {
    case MESSAGE_NIL:
    case MESSAGE_LINK:
    case MESSAGE_ATTRIBUTE:
    case MESSAGE_CONTINUATION:
        return OFTEN;
    case MESSAGE_DATASPACE:
    case MESSAGE_LINK_INFO:
    case MESSAGE_DATATYPE:
    case MESSAGE_OLD_FILL:
    case MESSAGE_FILL:
    case MESSAGE_LAYOUT:
    case MESSAGE_GROUP_INFO:
    case MESSAGE_FILTERS:
    case MESSAGE_COMMENT:
    case MESSAGE_OLD_TIME:
    case MESSAGE_SYMBOL_TABLE:
    case MESSAGE_TIME:
    case MESSAGE_ATTRIBUTE_INFO:
    case MESSAGE_REFERENCES:
        return ONCE;
    default:
        return NEVER;
    }
}

static int check_messages(const struct object_header *header, struct why *why)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < header->n_messages; i++) {
        const struct message *message = &header->message[i];
        enum times times = times_of(message->type);
        unsigned known = CONSTANT | NOT_TO_BE_SHARED;
        if (message->type == MESSAGE_DATATYPE)
            known |= MESSAGE_SHARED; /* a committed one: such a dataset is none but by its kind */
        if (times == NEVER || message->flags & ~known ||
            (times == ONCE && seen >> message->type & 1))
            return why_unsupported(why, "message at address %" PRIu64 ": type 0x%04x, flags 0x%02x",
                                   message->address, message->type, message->flags);
        seen |= (uint64_t)1 << message->type;
    }
    return 0;
}

/* libhdf5 does not open what nothing refers to. */
static int check_references(const struct object_header *header, struct why *why)
{
    const struct header_block *block = &header->block[0];
    const struct message *message = object_header_find(header, MESSAGE_REFERENCES);
    struct cursor c = header->version == 1 ? cursor_over(block->bytes + OLD_COUNT_AT, 4)
                      : message            ? cursor_over(message->data, message->size)
                                           : cursor_over("\1\0\0\0", 4);
    bool is_odd = message && (header->version == 1 || cursor_uint(&c, 1) != 0);
    uint64_t count = cursor_uint(&c, 4);
    if (is_odd || c.failed || count == 0 || count > INT32_MAX)
        return why_unsupported(why, "object header at address %" PRIu64 ": %" PRIu64 " references",
                               block->address, count);
    return 0;
}

int plain_header(struct store *store, const struct superblock *superblock, uint64_t address,
                 struct object_header **out, struct why *why)
{
    struct object_header *header;
    int error = object_header_read(store, superblock, address, &header, why);
    if (error)
        return error;
    for (size_t i = 0; i < header->n_blocks && !error; i++)
        error = plain_within(superblock, "object header", header->block[i].address,
                             header->block[i].n, why);
    if (!error)
        error = check_messages(header, why);
    if (!error)
        error = check_references(header, why);
    if (error)
        object_header_free(header);
    else
        *out = header;
    return error;
}

int plain_type(const struct object_header *header, enum sfs_object_type *type, struct why *why)
{
    bool is_group = object_header_find(header, MESSAGE_SYMBOL_TABLE) ||
                    object_header_find(header, MESSAGE_LINK_INFO);
    bool has_type = object_header_find(header, MESSAGE_DATATYPE);
    if (is_group == has_type)
        return why_unsupported(why,
                               "object header at address %" PRIu64 ": neither group nor dataset",
                               header->block[0].address);
    *type = is_group                                        ? SFS_GROUP
            : object_header_find(header, MESSAGE_DATASPACE) ? SFS_DATASET
                                                            : SFS_DATATYPE;
    return 0;
}
