/* The table of nodes: by number and by (parent, link name), the objects that they lead to, and who
 * uses them. The lock of the table must be held. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"
#include "fs/inode.h"
#include "fs/node_table.h"

/* Adds a node to those of its object. The lock must be held. */
static int add_to_object(struct nodes *nodes, struct entry_of_node *entry)
{
    struct object_key key;
    struct object *object;
    memset(&key, 0, sizeof(key)); /* hashed with whatever lies between its members */
    key.file = entry->node.mounted;
    key.address = entry->node.address;
    HASH_FIND(hh, nodes->by_object, &key, sizeof(key), object);
    if (!object) {
        object = calloc(1, sizeof(*object));
        if (!object)
            return -ENOMEM;
        object->key = key;
        HASH_ADD(hh, nodes->by_object, key, sizeof(key), object);
        if (hash_failed()) {
            free(object);
            return -ENOMEM;
        }
        object->number = nodes->n_objects++;
    }
    DL_APPEND2(object->nodes, entry, prev_same, next_same);
    entry->object = object;
    entry->node.object = object->number;
    return 0;
}

/* Frees the object with its last node, unless it is kept. The lock must be held. */
static void remove_from_object(struct nodes *nodes, struct entry_of_node *entry)
{
    struct object *object = entry->object;
    DL_DELETE2(object->nodes, entry, prev_same, next_same);
    entry->object = NULL;
    if (object->nodes || object->is_kept)
        return;
    HASH_DEL(nodes->by_object, object);
    free(object);
}

struct entry_of_node *node_find_number(struct nodes *nodes, uint32_t number)
{
    struct entry_of_node *entry;
    HASH_FIND(hh_number, nodes->by_number, &number, sizeof(number), entry);
    return entry;
}

static struct entry_of_node *parent_of(const struct entry_of_node *entry)
{
    return (struct entry_of_node *)entry->node.parent;
}

void node_hold_locked(struct nodes *nodes, struct entry_of_node *entry)
{
    if (entry->holds++ > 0)
        return;
    nodes->n_unheld--;
    nodes->unheld_bytes -= entry->text_bytes;
    if (entry->children == 0)
        DL_DELETE2(nodes->unused, entry, prev_unused, next_unused);
}

static void go_to_next_number(struct nodes *nodes)
{
    nodes->next_number = (nodes->next_number + 1) % INODE_MAX_NODES;
    if (nodes->next_number == 0)
        nodes->generation++;
}

/* The number that was free for longest, or nearly so: the kernel knows no inode of it any more, but
 * programs and NFS's clients may remember some. */
static int take_number(struct nodes *nodes, struct node *node)
{
    if (HASH_CNT(hh_number, nodes->by_number) >= INODE_MAX_NODES)
        return -ENFILE;
    while (node_find_number(nodes, nodes->next_number))
        go_to_next_number(nodes);
    node->number = nodes->next_number;
    node->generation = nodes->generation;
    go_to_next_number(nodes);
    return 0;
}

static size_t long_text(const struct entry_of_node *entry)
{
    return entry->text_bytes > NODE_SHORT_TEXT ? entry->text_bytes : 0;
}

static const char *label_of(const struct nodes *nodes, const struct node *node)
{
    return nodes->folder_files ? folder_path(mounted_files_folder(nodes->folder_files))
                               : sfs_path(node_file(node));
}

static int count_text(struct nodes *nodes, struct entry_of_node *entry)
{
    static _Atomic uint64_t said;
    const struct node *node = &entry->node;
    entry->text_bytes = strlen(node->name) + (node->target ? node->target_bytes : 0);
    if (node_is_of_folder(node))
        entry->text_bytes += strlen(node->mounted->path);
    if (long_text(entry) <= nodes->most_long_texts - nodes->long_texts)
        return 0;
    if (log_is_due(&said))
        log_warning("%s: links, or files in deep directories, are not shown: long targets and "
                    "paths of those that the kernel knows would take more than %zu MiB",
                    label_of(nodes, node), nodes->most_long_texts >> 20);
    return -ENOMEM;
}

int node_add(struct nodes *nodes, struct entry_of_node *entry)
{
    bool has_object = entry->node.type != NODE_SYMLINK && !node_is_of_folder(&entry->node);
    int error = count_text(nodes, entry);
    if (!error)
        error = take_number(nodes, &entry->node);
    if (!error && !has_object)
        entry->node.object = nodes->n_objects++;
    if (!error && has_object)
        error = add_to_object(nodes, entry);
    if (error)
        return error;
    HASH_ADD(hh_number, nodes->by_number, node.number, sizeof(entry->node.number), entry);
    if (hash_failed())
        goto failed;
    HASH_ADD_KEYPTR(hh, nodes->by_key, entry->key, node_key_bytes(entry->key), entry);
    if (hash_failed()) {
        HASH_DELETE(hh_number, nodes->by_number, entry);
        goto failed;
    }
    entry->holds = 1;
    nodes->long_texts += long_text(entry);
    if (entry->node.parent)
        parent_of(entry)->children++;
    return 0;

failed:
    if (has_object)
        remove_from_object(nodes, entry);
    return -ENOMEM;
}

void node_unlink(struct nodes *nodes, struct entry_of_node *entry)
{
    HASH_DEL(nodes->by_key, entry);
    if (entry->object)
        remove_from_object(nodes, entry);
    entry->is_removed = true;
}

/* The root group of a folder's file is taken out, and so no other node of it is there: another file
 * may come to be where this one is in memory. */
static void forget_objects(struct nodes *nodes, const struct mounted_file *file)
{
    struct object *object, *next;
    HASH_ITER (hh, nodes->by_object, object, next) {
        if (object->key.file != file)
            continue;
        HASH_DEL(nodes->by_object, object);
        free(object);
    }
}

/* Takes a node out of the table; it is added to *gone, which the caller frees without the lock. */
static void take_out(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    if (!entry->is_removed)
        node_unlink(nodes, entry);
    if (entry->views) {
        node_remove_idle(nodes, entry);
        nodes->described -= entry->described_bytes;
    }
    node_remove_told(nodes, entry);
    if (node_is_top(&entry->node) && atomic_load(&entry->node.mounted->keeps_objects))
        forget_objects(nodes, entry->node.mounted);
    HASH_DELETE(hh_number, nodes->by_number, entry);
    nodes->n_unheld--;
    nodes->unheld_bytes -= entry->text_bytes;
    nodes->long_texts -= long_text(entry);
    parent_of(entry)->children--;
    LL_PREPEND2(*gone, entry, next_unused);
}

static bool is_used(const struct entry_of_node *entry)
{
    return entry->holds > 0 || entry->children > 0;
}

/* A node may be unused now: it is not found if it was removed, and so on with those above
 * it. The root is always used. */
static void let_go(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    for (; !is_used(entry) && entry->is_removed; entry = parent_of(entry))
        take_out(nodes, entry, gone);
    if (!is_used(entry))
        DL_APPEND2(nodes->unused, entry, prev_unused, next_unused);
}

void node_put_locked(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    if (--entry->holds > 0)
        return;
    nodes->n_unheld++;
    nodes->unheld_bytes += entry->text_bytes;
    let_go(nodes, entry, gone);
    while ((nodes->n_unheld > NODES_UNHELD || nodes->unheld_bytes > NODES_UNHELD_BYTES) &&
           nodes->unused) {
        entry = nodes->unused;
        DL_DELETE2(nodes->unused, entry, prev_unused, next_unused);
        take_out(nodes, entry, gone);
        let_go(nodes, parent_of(entry), gone);
    }
}

void nodes_free_gone(struct entry_of_node *gone)
{
    struct entry_of_node *next;
    for (; gone; gone = next) {
        next = gone->next_unused;
        node_free(gone);
    }
}

struct entry_of_node *node_find(struct nodes *nodes, const struct node_key *key)
{
    struct entry_of_node *entry;
    HASH_FIND(hh, nodes->by_key, key, node_key_bytes(key), entry);
    return entry;
}
