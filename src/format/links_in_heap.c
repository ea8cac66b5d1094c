/* Links by the index of their names. */
#include "format/links_in_heap.h"

#include "format/btree2_of_heap.h"
#include "format/fractal_heap.h"

#define HASH_BYTES  4
#define ORDER_BYTES 8

struct walk {
    struct fractal_heap *heap;
    heap_link_function function;
    void *context;
    struct why *why;
};

static int use_record(void *context, struct cursor *record)
{
    struct walk *walk = context;
    struct message message = {.type = MESSAGE_LINK};
    uint32_t hash = (uint32_t)cursor_uint(record, HASH_BYTES);
    const unsigned char *id = cursor_bytes(record, fractal_heap_id_bytes(walk->heap));
    int error = fractal_heap_find(walk->heap, id, &message.data, &message.size, &message.address,
                                  walk->why);
    return error ? error : walk->function(walk->context, &message, hash);
}

int heap_links_each(struct store *store, const struct superblock *superblock,
                    const struct link_info *info, heap_link_function function, void *context,
                    struct why *why)
{
    struct walk walk = {.function = function, .context = context, .why = why};
    int error =
        fractal_heap_open(store, superblock, info->heap, DENSE_LINKS_MOST_BYTES, &walk.heap, why);
    if (error)
        return error;
    size_t id = fractal_heap_id_bytes(walk.heap);
    struct heap_btree2 names = {info->index,  TREE_LINK_NAMES, HASH_BYTES + id,
                                info->blocks, use_record,      &walk};
    struct heap_btree2 order = {
        info->by_order, TREE_LINK_ORDER, ORDER_BYTES + id, info->blocks, NULL, NULL};
    error = heap_btree2_walk(store, superblock, &names, why);
    if (!error && info->blocks)
        error = fractal_heap_each_block(walk.heap, info->blocks, why);
    if (!error && info->blocks && info->by_order != NO_ADDRESS)
        error = heap_btree2_walk(store, superblock, &order, why);
    fractal_heap_close(walk.heap);
    return error;
}
