/* Space of a file that nothing in it refers to: what is left when all that is in use has been looked
 * at. An image in memory keeps no note of it, and looking costs no reads of a disk.
 *
 * Only files are looked at of which everything is understood, to the last message: of any other there
 * is no such space. It is the same for structures that overlap, or reach beyond the end. So whatever the
 * bytes are, nothing is taken for unused that a reader of the file could come to. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "common/log.h"
#include "common/room.h"
#include "dataset/private.h"
#include "format/cursor.h"
#include "format/links.h"
#include "format/plain_dataset.h"
#include "format/structure.h"
#include "layout/sparse.h"
#include "store/store.h"

#define COLLECTION "global heap collection"

#define COUNTS_ORDER 0x01 /* a flag of an attribute info message */

struct used {
    uint64_t address, n;
};

/* An object, or a global heap collection, that was found. */
struct found {
    uint64_t address;
    bool is_collection;
    UT_hash_handle hh;
};

struct looking {
    struct store *store;
    struct superblock superblock;
    struct found *found; /* in the order in which they were */
    struct used *used;
    size_t n, room;
    uint64_t bytes; /* that are used */
    struct why why;
};

/* ---- What is in use ---- */

/* Structures that do not overlap have no more bytes than the file: that bounds the time, too. */
static int add_used(void *context, const char *name, uint64_t address, uint64_t n)
{
    struct looking *looking = context;
    uint64_t end = looking->superblock.end;
    if (n == 0)
        return 0;
    if (address > end || n > end - address || n > end - looking->bytes)
        return why_damaged(&looking->why, "%s at address %" PRIu64 ": its place", name, address);
    struct used *used = room_for_one(looking->used, looking->n, &looking->room, sizeof(*used));
    if (!used)
        return -ENOMEM;
    looking->used = used;
    looking->used[looking->n++] = (struct used){address, n};
    looking->bytes += n;
    return 0;
}

static int add_found(struct looking *looking, uint64_t address, bool is_collection, bool *is_new)
{
    struct found *found;
    HASH_FIND(hh, looking->found, &address, sizeof(address), found);
    *is_new = !found;
    if (found)
        return found->is_collection == is_collection
                   ? 0
                   : why_damaged(&looking->why, COLLECTION " at address %" PRIu64 ": an object",
                                 address);
    found = calloc(1, sizeof(*found));
    if (!found)
        return -ENOMEM;
    found->address = address;
    found->is_collection = is_collection;
    HASH_ADD(hh, looking->found, address, sizeof(found->address), found);
    if (hash_failed()) {
        free(found);
        return -ENOMEM;
    }
    return 0;
}

static int add_object(struct looking *looking, uint64_t address)
{
    bool is_new;
    return add_found(looking, address, false, &is_new);
}

static int add_collection(struct looking *looking, uint64_t address)
{
    unsigned char bytes[8 + sizeof(uint64_t)];
    size_t n = 8 + looking->superblock.length_size;
    bool is_new;
    int error = add_found(looking, address, true, &is_new);
    if (error || !is_new)
        return error;
    error = plain_within(&looking->superblock, COLLECTION, address, n, &looking->why);
    if (!error)
        error = structure_read(looking->store, COLLECTION, address, bytes, n, &looking->why);
    if (!error)
        error = structure_signed(COLLECTION, address, bytes, "GCOL", &looking->why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1);
    cursor_skip(&c, 3);
    uint64_t size = cursor_uint(&c, looking->superblock.length_size);
    if (version != 1 || size < n)
        return why_damaged(&looking->why, COLLECTION " at address %" PRIu64 ": version, or size",
                           address);
    return add_used(looking, COLLECTION, address, size);
}

/* ---- Datatypes and attributes ---- */

/* Whether values of it lead into global heaps. */
static bool has_heap(const struct plain_type *type)
{
    bool has = type->class == TYPE_VARIABLE || (type->class == TYPE_REFERENCE && type->is_region) ||
               (type->class == TYPE_ARRAY && has_heap(type->base));
    for (size_t i = 0; i < type->n_members && !has; i++)
        has = has_heap(&type->member[i].type);
    return has;
}

/* Sequences and strings of variable length: their number, collection, and number in that. */
static int look_at_sequences(struct looking *looking, struct cursor *c)
{
    size_t n = 8 + looking->superblock.offset_size;
    int error = 0;
    while (c->left >= n && !error) {
        bool is_empty = cursor_uint(c, 4) == 0;
        uint64_t address = superblock_address(&looking->superblock, c);
        is_empty &= cursor_uint(c, 4) == 0;
        if (c->failed)
            return why_damaged(&looking->why, "an attribute's sequence");
        if (!is_empty)
            error = add_collection(looking, address);
    }
    return error;
}

static int look_at_values(struct looking *looking, const unsigned char *bytes, size_t n,
                          struct cursor *values)
{
    struct plain_type type;
    size_t used;
    int error = plain_type_decode(bytes, n, &type, &used, &looking->why);
    if (error)
        return error;
    if (type.class == TYPE_VARIABLE)
        error = look_at_sequences(looking, values);
    else if (has_heap(&type))
        error = why_unsupported(&looking->why, "an attribute whose values lead into a heap");
    plain_type_free(&type);
    return error;
}

static uint64_t padded(uint64_t n, uint64_t version)
{
    return version == 1 ? (n + 7) & ~(uint64_t)7 : n;
}

static int look_at_attribute(struct looking *looking, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1), flags = cursor_uint(&c, 1); /* shared parts */
    uint64_t name_n = cursor_uint(&c, 2), type_n = cursor_uint(&c, 2), space_n = cursor_uint(&c, 2);
    cursor_skip(&c, version == 3 ? 1 : 0); /* character set */
    cursor_skip(&c, padded(name_n, version));
    const unsigned char *type = cursor_bytes(&c, padded(type_n, version));
    cursor_skip(&c, padded(space_n, version));
    if (c.failed || version < 1 || version > 3 || flags != 0 || !type)
        return why_unsupported(&looking->why, "attribute message at address %" PRIu64,
                               message->address);
    return look_at_values(looking, type, (size_t)type_n, &c);
}

/* Many attributes are in a heap, and its index. */
static int look_at_attribute_info(struct looking *looking, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1), flags = cursor_uint(&c, 1);
    cursor_skip(&c, flags & COUNTS_ORDER ? 2 : 0);
    bool is_elsewhere = superblock_address(&looking->superblock, &c) != NO_ADDRESS ||
                        superblock_address(&looking->superblock, &c) != NO_ADDRESS;
    if (c.failed || version != 0 || is_elsewhere)
        return why_unsupported(&looking->why, "attribute info message at address %" PRIu64,
                               message->address);
    return 0;
}

/* ---- Objects ---- */

static int look_at_group(struct looking *looking, const struct object_header *header)
{
    const struct links_blocks blocks = {add_used, looking};
    struct sfs_links links;
    int error = links_read_blocks(looking->store, &looking->superblock, header, &blocks, &links,
                                  &looking->why);
    if (error)
        return error;
    for (size_t i = 0; i < links.n && !error; i++)
        if (links.link[i].type == SFS_LINK_HARD)
            error = add_object(looking, links.link[i].address);
    links_free(&links);
    return error;
}

static int look_at_dense(struct looking *looking, const struct object_header *header)
{
    struct plain_dataset dataset;
    int error = plain_dataset_decode(&looking->superblock, header, &dataset, &looking->why);
    if (error)
        return error;
    if (dataset.layout == SFS_CHUNKED || has_heap(&dataset.type))
        error = why_unsupported(&looking->why, "dense dataset at address %" PRIu64,
                                header->block[0].address);
    else if (dataset.layout == SFS_CONTIGUOUS && dataset.address != NO_ADDRESS)
        error = add_used(looking, "data", dataset.address, dataset.bytes);
    plain_dataset_free(&dataset);
    return error;
}

static int add_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled;
    return add_used(context, "chunk", record->address, record->size);
}

static int look_at_index(struct looking *looking, struct index *index)
{
    int error = index_each_block(index, add_used, looking, &looking->why);
    return error ? error : index_iterate(index, add_chunk, looking, &looking->why);
}

/* Sequences are in the chunks, those of the fill value are not. */
static int look_at_elements(struct looking *looking, const struct dataset_header *header)
{
    struct plain_type type;
    size_t used;
    int error = plain_type_decode(header->datatype.data, header->datatype.size, &type, &used,
                                  &looking->why);
    if (error)
        return error;
    bool is_in_chunks =
        type.class == TYPE_VARIABLE && header->layout.n_sections > 2 && header->fill.size == 0;
    if (has_heap(&type) && !is_in_chunks)
        error = why_unsupported(&looking->why, "sparse dataset whose elements lead into a heap");
    plain_type_free(&type);
    return error;
}

static int look_at_sparse(struct looking *looking, uint64_t address)
{
    struct sparse *sparse;
    int error = sparse_open(looking->store, &looking->superblock, address, &sparse, &looking->why);
    if (error)
        return error;
    const struct object_header *committed = sparse->header.committed;
    if (committed)
        error = add_object(looking, committed->block[0].address);
    if (!error)
        error = look_at_elements(looking, &sparse->header);
    if (!error)
        error = look_at_index(looking, sparse->index);
    sparse_close(sparse);
    return error;
}

static bool is_sparse(const struct object_header *header)
{
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    return layout && layout_message_is_structured(layout);
}

/* What a plain header may have (format/plain_headers.c), and filters of sections. */
static int look_at_message(struct looking *looking, const struct message *message, bool is_sparse)
{
    bool is_shared = message->flags & MESSAGE_SHARED;
    if (is_shared && !(is_sparse && message->type == MESSAGE_DATATYPE))
        return why_unsupported(&looking->why, "shared message at address %" PRIu64,
                               message->address);
    switch (message->type) {
    case MESSAGE_ATTRIBUTE:
        return look_at_attribute(looking, message);
    case MESSAGE_ATTRIBUTE_INFO:
        return look_at_attribute_info(looking, message);
    case MESSAGE_NIL:
    case MESSAGE_DATASPACE:
    case MESSAGE_LINK_INFO:
    case MESSAGE_DATATYPE:
    case MESSAGE_OLD_FILL:
    case MESSAGE_FILL:
    case MESSAGE_LINK:
    case MESSAGE_LAYOUT:
    case MESSAGE_GROUP_INFO:
    case MESSAGE_FILTERS:
    case MESSAGE_COMMENT:
    case MESSAGE_OLD_TIME:
    case MESSAGE_CONTINUATION:
    case MESSAGE_SYMBOL_TABLE:
    case MESSAGE_TIME:
    case MESSAGE_REFERENCES:
        return 0;
    case MESSAGE_SECTION_FILTERS:
        return is_sparse ? 0 : why_unsupported(&looking->why, "filters of sections");
    default:
        return why_unsupported(&looking->why, "message at address %" PRIu64 ": type 0x%04x",
                               message->address, message->type);
    }
}

static int look_at_header(struct looking *looking, const struct object_header *header)
{
    int error = 0;
    for (size_t i = 0; i < header->n_blocks && !error; i++)
        error = add_used(looking, "object header", header->block[i].address, header->block[i].n);
    for (size_t i = 0; i < header->n_messages && !error; i++)
        error = look_at_message(looking, &header->message[i], is_sparse(header));
    return error;
}

static int look_at_object(struct looking *looking, uint64_t address)
{
    struct object_header *header;
    enum sfs_object_type type;
    int error =
        object_header_read(looking->store, &looking->superblock, address, &header, &looking->why);
    if (error)
        return error;
    error = look_at_header(looking, header);
    if (!error)
        error = plain_type(header, &type, &looking->why);
    if (!error && type == SFS_GROUP)
        error = look_at_group(looking, header);
    else if (!error && type == SFS_DATASET)
        error =
            is_sparse(header) ? look_at_sparse(looking, address) : look_at_dense(looking, header);
    object_header_free(header);
    return error;
}

/* ---- All of it ---- */

static uint64_t superblock_bytes(const struct superblock *superblock)
{
    uint64_t offset = superblock->offset_size, entry = superblock->length_size + offset + 24;
    return superblock->version >= 2   ? SUPERBLOCK_BYTES + 4 * offset + 4
           : superblock->version == 1 ? 28 + 4 * offset + entry
                                      : 24 + 4 * offset + entry;
}

static int look_at_all(struct looking *looking)
{
    struct superblock *superblock = &looking->superblock;
    int error = plain_superblock(looking->store, superblock, &looking->why);
    if (!error)
        error =
            add_used(looking, "superblock", 0, superblock->address + superblock_bytes(superblock));
    if (!error)
        error = add_object(looking, superblock->root);
    /* The hash keeps the order in which they were added, and may grow meanwhile. */
    for (struct found *found = looking->found; found && !error; found = found->hh.next)
        error = found->is_collection ? 0 : look_at_object(looking, found->address);
    return error;
}

static int compare(const void *a, const void *b)
{
    uint64_t first = ((const struct used *)a)->address, second = ((const struct used *)b)->address;
    return first < second ? -1 : first > second;
}

static int check_apart(struct looking *looking)
{
    const struct used *used = looking->used;
    qsort(looking->used, looking->n, sizeof(*looking->used), compare);
    for (size_t i = 1; i < looking->n; i++)
        if (used[i].address - used[i - 1].address < used[i - 1].n)
            return why_damaged(&looking->why, "structures at address %" PRIu64 ": they overlap",
                               used[i].address);
    return 0;
}

static int give_back(struct looking *looking)
{
    uint64_t at = 0;
    int error = 0;
    for (size_t i = 0; i <= looking->n && !error; i++) {
        bool is_last = i == looking->n;
        uint64_t next = is_last ? looking->superblock.end : looking->used[i].address;
        if (at < next)
            error = store_free_unused(looking->store, at, next - at);
        at = is_last ? next : next + looking->used[i].n;
    }
    return error;
}

void unused_space_find(struct store *store)
{
    struct looking *looking = calloc(1, sizeof(*looking));
    struct found *found, *next;
    if (!looking)
        return;
    looking->store = store;
    int error = look_at_all(looking);
    if (!error)
        error = check_apart(looking);
    if (!error)
        error = give_back(looking);
    if (error)
        log_message(LOG_DEBUG, "%s: space that is not in use is not told: %s", store_path(store),
                    looking->why.text[0] ? looking->why.text : strerror(-error));
    HASH_ITER (hh, looking->found, found, next) {
        HASH_DEL(looking->found, found);
        free(found);
    }
    free(looking->used);
    free(looking);
}
