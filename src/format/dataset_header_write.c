/* Changing the headers of datasets. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "format/cursor.h"
#include "format/dataset_header.h"
#include "store/store.h"

#define CONSTANT        0x01 /* flag of a message: it does not change */
#define CHUNKED         2    /* class of a layout message */
#define FILTERED_SINGLE 0x02 /* its flag: the only chunk's size and filter mask stand in it */

/* The rank that an ordinary chunked layout has, with that of an element, and where its index is;
 * false: it is not such a layout. */
static bool decode_chunked(const struct superblock *superblock, const struct message *message,
                           unsigned *n_dims, uint64_t *address)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1);
    if (version < 3 || version > 5 || cursor_uint(&c, 1) != CHUNKED)
        return false;
    if (version == 3) {
        *n_dims = (unsigned)cursor_uint(&c, 1);
        *address = superblock_address(superblock, &c);
        return !c.failed;
    }
    static const unsigned char parameters[] = {0, 0, 0, 1, 5, 6};
    unsigned flags = (unsigned)cursor_uint(&c, 1);
    *n_dims = (unsigned)cursor_uint(&c, 1);
    cursor_skip(&c, *n_dims * cursor_uint(&c, 1));
    unsigned kind = (unsigned)cursor_uint(&c, 1);
    if (kind < 1 || kind >= sizeof(parameters))
        return false;
    cursor_skip(&c, parameters[kind]);
    if (kind == INDEX_SINGLE && flags & FILTERED_SINGLE)
        cursor_skip(&c, superblock->length_size + 4);
    *address = superblock_address(superblock, &c);
    return !c.failed;
}

static int check_ordinary(const struct superblock *superblock, const struct object_header *header,
                          const struct layout_message *layout, struct why *why)
{
    const struct message *old = object_header_find(header, MESSAGE_LAYOUT);
    unsigned n_dims = 0;
    uint64_t index = NO_ADDRESS, at = header->block[0].address;
    if (!old || old->flags & MESSAGE_SHARED || !decode_chunked(superblock, old, &n_dims, &index))
        return why_refused(why, -EINVAL,
                           "object header at address %" PRIu64
                           ": it is not that of an ordinary chunked dataset",
                           at);
    if (index != NO_ADDRESS)
        return why_refused(why, -EINVAL,
                           "object header at address %" PRIu64 ": the dataset has chunks already",
                           at);
    if (n_dims != (unsigned)layout->rank + 1)
        return why_refused(why, -EINVAL,
                           "object header at address %" PRIu64 ": rank %u, but that of the new "
                           "layout is %d",
                           at, n_dims - 1, layout->rank);
    return 0;
}

/* The new messages, in the order in which they stand; the caller frees the bytes of both. */
static int encode_messages(const struct superblock *superblock, const struct layout_message *layout,
                           const struct section_filters *filters,
                           struct message_replacement *replacement,
                           unsigned char *bytes[NEW_MESSAGES], struct why *why)
{
    struct new_message *message = replacement->new;
    size_t *n = &replacement->n_new;
    int error = 0;
    if (filters && section_filters_any(filters)) {
        message[0] = (struct new_message){
            .type = filters->is_rfc ? MESSAGE_FILTERS : MESSAGE_SECTION_FILTERS, .flags = CONSTANT};
        error = section_filters_encode(filters, &bytes[0], &message[0].size, why);
        message[0].data = bytes[0];
        *n = 1;
    }
    if (error)
        return error;
    message[*n] = (struct new_message){.type = MESSAGE_LAYOUT};
    error = layout_message_encode(superblock, layout, &bytes[*n], &message[*n].size, why);
    message[*n].data = bytes[*n];
    ++*n;
    return error;
}

/* libhdf5's process says where it is: it could be among bytes that it may not change itself. */
static int check_lent(struct store *store, const struct object_header *header, struct why *why)
{
    UNINTERRUPTED();
    int error = store_let_claim(store);
    for (size_t i = 0; i < header->n_blocks && !error; i++) {
        const struct header_block *block = &header->block[i];
        if (store_check_lent(store, block->address, block->n) < 0)
            error = why_refused(why, -EACCES,
                                "object header at address %" PRIu64
                                ": its bytes at address %" PRIu64 " are in use by others",
                                header->block[0].address, block->address);
    }
    return error;
}

int dataset_header_convert(struct store *store, const struct superblock *superblock,
                           uint64_t address, const struct layout_message *layout,
                           const struct section_filters *filters, struct why *why)
{
    static const enum message_type replaced[] = {MESSAGE_LAYOUT, MESSAGE_FILTERS};
    struct message_replacement replacement = {.old = replaced, .n_old = 2};
    unsigned char *bytes[NEW_MESSAGES] = {NULL, NULL};
    struct object_header *header;
    int error = object_header_read(store, superblock, address, &header, why);
    if (error)
        return error;
    error = check_ordinary(superblock, header, layout, why);
    if (!error)
        error = check_lent(store, header, why);
    if (!error)
        error = encode_messages(superblock, layout, filters, &replacement, bytes, why);
    if (!error)
        error = object_header_replace(store, superblock, header, &replacement, why);
    free(bytes[0]);
    free(bytes[1]);
    object_header_free(header);
    return error;
}

int dataset_header_set_layout(struct store *store, const struct superblock *superblock,
                              uint64_t address, const struct layout_message *layout,
                              struct why *why)
{
    struct object_header *header;
    int error = object_header_read(store, superblock, address, &header, why);
    if (error)
        return error;
    const struct message *message = object_header_find(header, MESSAGE_LAYOUT);
    if (!message || !layout_message_is_structured(message))
        error = why_refused(why, -EINVAL,
                            "object header at address %" PRIu64 ": it is not that of a sparse "
                            "dataset",
                            address);
    if (!error)
        error = layout_message_encode_over(superblock, layout, object_header_data(header, message),
                                           message->size, why);
    if (!error)
        error = object_header_write_block(store, header, message->block, why);
    object_header_free(header);
    return error;
}

/* What is changed in a message. */
struct message_change {
    enum message_type type;
    const char *name; /* of the type */
    /* Writes something else into the data of a message, at bytes, which stays as long as it is. */
    int (*encode)(const struct superblock *superblock, const struct message *message,
                  unsigned char *bytes, const void *context, struct why *why);
    const void *context;
};

static int change_message(struct store *store, const struct superblock *superblock,
                          uint64_t address, const struct message_change *change, struct why *why)
{
    struct object_header *header;
    int error = object_header_read(store, superblock, address, &header, why);
    if (error)
        return error;
    const struct message *message = object_header_find(header, change->type);
    if (!message)
        error = why_refused(why, -EINVAL, "object header at address %" PRIu64 ": no %s message",
                            address, change->name);
    if (!error)
        error = change->encode(superblock, message, object_header_data(header, message),
                               change->context, why);
    if (!error)
        error = object_header_write_block(store, header, message->block, why);
    object_header_free(header);
    return error;
}

static int encode_allocation(const struct superblock *superblock, const struct message *message,
                             unsigned char *bytes, const void *context, struct why *why)
{
    (void)superblock;
    return fill_encode_allocation(message, bytes, *(const enum sfs_allocation *)context, why);
}

int dataset_header_set_allocation(struct store *store, const struct superblock *superblock,
                                  uint64_t address, enum sfs_allocation allocation, struct why *why)
{
    const struct message_change change = {MESSAGE_FILL, "fill value", encode_allocation,
                                          &allocation};
    return change_message(store, superblock, address, &change, why);
}

struct new_dims {
    int rank;
    const uint64_t *dims;
};

static int encode_dims(const struct superblock *superblock, const struct message *message,
                       unsigned char *bytes, const void *context, struct why *why)
{
    const struct new_dims *new = context;
    return dataspace_encode_dims(superblock, message, bytes, new->rank, new->dims, why);
}

int dataset_header_set_dims(struct store *store, const struct superblock *superblock,
                            uint64_t address, int rank, const uint64_t *dims, struct why *why)
{
    const struct new_dims new = {rank, dims};
    const struct message_change change = {MESSAGE_DATASPACE, "dataspace", encode_dims, &new};
    return change_message(store, superblock, address, &change, why);
}
