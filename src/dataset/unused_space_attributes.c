/* What attributes take: those in headers, and those in heaps. */
#include <errno.h>
#include <inttypes.h>

#include "dataset/unused_space.h"
#include "format/btree2_of_heap.h"
#include "format/cursor.h"
#include "format/fractal_heap.h"

#define COUNTS_ORDER  0x01 /* flags of an attribute info message */
#define INDEXES_ORDER 0x02

#define MOST_BYTES  ((uint64_t)256 << 20) /* of a heap of attributes */
#define NAME_BYTES  9                     /* of a record behind the object: flags, order, hash; */
#define ORDER_BYTES 5                     /* flags, order */

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
            error = looking_add_collection(looking, address);
    }
    return error;
}

/* Values of a datatype that is not known lie here all the same, and may lead into any heap. */
static int look_at_values(struct looking *looking, const unsigned char *bytes, size_t n,
                          struct cursor *values)
{
    struct plain_type type;
    size_t used;
    int error = plain_type_decode(bytes, n, &type, &used, &looking->why);
    looking->all_collections |= error == -EOPNOTSUPP;
    if (error)
        return error == -EOPNOTSUPP ? 0 : error;
    if (type.class == TYPE_VARIABLE)
        error = look_at_sequences(looking, values);
    else
        looking->all_collections |= looking_has_heap(&type);
    plain_type_free(&type);
    return error;
}

static uint64_t padded(uint64_t n, uint64_t version)
{
    return version == 1 ? (n + 7) & ~(uint64_t)7 : n;
}

int looking_at_attribute(struct looking *looking, const struct message *message)
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

/* ---- Many ---- */

struct many {
    struct looking *looking;
    struct fractal_heap *heap;
};

static int look_at_record(void *context, struct cursor *record)
{
    struct many *many = context;
    struct looking *looking = many->looking;
    struct message message = {.type = MESSAGE_ATTRIBUTE};
    const unsigned char *id = cursor_bytes(record, fractal_heap_id_bytes(many->heap));
    if (cursor_uint(record, 1) & MESSAGE_SHARED)
        return why_unsupported(&looking->why, "a shared attribute");
    int error = fractal_heap_find(many->heap, id, &message.data, &message.size, &message.address,
                                  &looking->why);
    return error ? error : looking_at_attribute(looking, &message);
}

/* Addresses of the heap, and of the indexes by name and by order. */
struct places {
    uint64_t heap, names, order;
};

static int look_at_many(struct looking *looking, const struct places *places)
{
    const struct plain_blocks blocks = {looking_add_used, looking};
    struct many many = {.looking = looking};
    int error = fractal_heap_open(looking->store, &looking->superblock, places->heap, MOST_BYTES,
                                  &many.heap, &looking->why);
    if (error)
        return error;
    size_t id = fractal_heap_id_bytes(many.heap);
    struct heap_btree2 names = {places->names, TREE_ATTRIBUTE_NAMES, id + NAME_BYTES,
                                &blocks,       look_at_record,       &many};
    struct heap_btree2 order = {
        places->order, TREE_ATTRIBUTE_ORDER, id + ORDER_BYTES, &blocks, NULL, NULL};
    error = fractal_heap_each_block(many.heap, &blocks, &looking->why);
    if (!error)
        error = heap_btree2_walk(looking->store, &looking->superblock, &names, &looking->why);
    if (!error && places->order != NO_ADDRESS)
        error = heap_btree2_walk(looking->store, &looking->superblock, &order, &looking->why);
    fractal_heap_close(many.heap);
    return error;
}

/* Many attributes are in a heap, with an index of their names and perhaps one of their order. */
int looking_at_attribute_info(struct looking *looking, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1), flags = cursor_uint(&c, 1);
    struct places places = {.order = NO_ADDRESS};
    cursor_skip(&c, flags & COUNTS_ORDER ? 2 : 0);
    places.heap = superblock_address(&looking->superblock, &c);
    places.names = superblock_address(&looking->superblock, &c);
    if (flags & INDEXES_ORDER)
        places.order = superblock_address(&looking->superblock, &c);
    bool is_elsewhere = places.heap != NO_ADDRESS;
    if (c.failed || version != 0 || flags & ~(uint64_t)(COUNTS_ORDER | INDEXES_ORDER) ||
        is_elsewhere != (places.names != NO_ADDRESS) ||
        (!is_elsewhere && places.order != NO_ADDRESS))
        return why_unsupported(&looking->why, "attribute info message at address %" PRIu64,
                               message->address);
    return is_elsewhere ? look_at_many(looking, &places) : 0;
}
