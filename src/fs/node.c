/* The interface of nodes: finding, holding, making and removing them. */
#include "fs/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/object_names.h"
#include "fs/escaped_names.h"
#include "fs/node_table.h"

/* With a root of this type, in this file, which the table refers to from now on. */
static int create_table(struct mounted_file *mounted, enum node_type type, int frame_rank,
                        struct nodes **out)
{
    struct entry_of_node *root = NULL;
    struct nodes *nodes = calloc(1, sizeof(*nodes));
    if (!nodes)
        return -ENOMEM;
    nodes->frame_rank = frame_rank;
    nodes->most_long_texts = NODES_LONG_TEXTS;
    nodes->most_told_frames = NODES_TOLD;
    nodes->most_described = NODES_DESCRIBED;
    if (getrandom(&nodes->generation, sizeof(nodes->generation), 0) < 0)
        nodes->generation = (uint32_t)clock_now();
    pthread_mutex_init(&nodes->lock, NULL);
    pthread_mutex_init(&nodes->files_lock, NULL);
    pthread_cond_init(&nodes->opened, NULL);
    LL_APPEND(nodes->files, mounted);
    int error = node_new(NULL, "", mounted, &root);
    if (!error) {
        root->node.type = type;
        root->node.address = mounted->root;
        error = node_add(nodes, root);
    }
    if (!error) {
        *out = nodes;
        return 0;
    }
    node_free(root);
    nodes->files = NULL; /* the caller's */
    nodes_destroy(nodes);
    return error;
}

int nodes_create(struct sfs_file *file, bool external_links, int frame_rank, struct nodes **out)
{
    struct stat st;
    int error = sfs_stat(file, &st);
    struct mounted_file *mounted = error ? NULL : mounted_new(NULL, "", &st);
    if (!mounted)
        return error ? error : -ENOMEM;
    mounted->file = file;
    mounted->root = sfs_root(file);
    error = create_table(mounted, NODE_GROUP, frame_rank, out);
    if (error)
        mounted_unref(mounted);
    else
        (*out)->external_links = external_links;
    return error;
}

int nodes_create_of_folder(struct mounted_files *files, const struct stat *st, int frame_rank,
                           struct nodes **out)
{
    struct mounted_file *mounted = mounted_new(NULL, "", st);
    int error = mounted ? create_table(mounted, NODE_FOLDER, frame_rank, out) : -ENOMEM;
    if (error)
        mounted_unref(mounted);
    else
        (*out)->folder_files = files;
    return error;
}

void nodes_destroy(struct nodes *nodes)
{
    if (!nodes)
        return;
    HASH_CLEAR(hh, nodes->by_key);
    struct object *object, *next_object;
    HASH_ITER (hh, nodes->by_object, object, next_object) {
        HASH_DEL(nodes->by_object, object);
        free(object);
    }
    struct entry_of_node *entry, *next_entry;
    HASH_ITER (hh_number, nodes->by_number, entry, next_entry) {
        HASH_DELETE(hh_number, nodes->by_number, entry);
        node_free(entry);
    }
    node_put_attributes(nodes->last);
    /* The first file is the caller's; the others share its cache and go before it. */
    struct mounted_file *mounted, *next;
    LL_FOREACH_SAFE(nodes->files, mounted, next)
    {
        if (mounted != nodes->files)
            sfs_close(mounted->file);
    }
    for (mounted = nodes->files; mounted; mounted = next) {
        next = mounted->next;
        mounted_unref(mounted);
    }
    pthread_cond_destroy(&nodes->opened);
    pthread_mutex_destroy(&nodes->files_lock);
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}

const struct node *node_get(struct nodes *nodes, uint32_t number)
{
    pthread_mutex_lock(&nodes->lock);
    const struct entry_of_node *entry = node_find_number(nodes, number);
    if (entry && entry->is_removed)
        entry = NULL;
    pthread_mutex_unlock(&nodes->lock);
    return entry ? &entry->node : NULL;
}

const struct node *node_get_any(struct nodes *nodes, uint32_t number)
{
    pthread_mutex_lock(&nodes->lock);
    const struct entry_of_node *entry = node_find_number(nodes, number);
    pthread_mutex_unlock(&nodes->lock);
    return entry ? &entry->node : NULL;
}

const struct node *node_hold_any(struct nodes *nodes, uint32_t number)
{
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find_number(nodes, number);
    if (entry && entry->is_removed)
        entry = NULL;
    if (entry)
        node_hold_locked(nodes, entry);
    pthread_mutex_unlock(&nodes->lock);
    return entry ? &entry->node : NULL;
}

size_t node_same(struct nodes *nodes, const struct node *node, uint32_t **numbers)
{
    const struct entry_of_node *entry = (const struct entry_of_node *)node, *same;
    size_t n = 0;
    pthread_mutex_lock(&nodes->lock);
    if (entry->object)
        DL_COUNT2(entry->object->nodes, same, n, next_same);
    *numbers = n ? malloc(n * sizeof(**numbers)) : NULL;
    if (!*numbers)
        n = 0;
    size_t i = 0;
    for (same = n ? entry->object->nodes : NULL; same; same = same->next_same)
        (*numbers)[i++] = same->node.number;
    pthread_mutex_unlock(&nodes->lock);
    return n;
}

void node_hold(struct nodes *nodes, uint32_t number)
{
    pthread_mutex_lock(&nodes->lock);
    node_hold_locked(nodes, node_find_number(nodes, number));
    pthread_mutex_unlock(&nodes->lock);
}

void node_put(struct nodes *nodes, uint32_t number)
{
    struct entry_of_node *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    node_put_locked(nodes, node_find_number(nodes, number), &gone);
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
}

void node_looked_up(struct nodes *nodes, uint32_t number, uint64_t times)
{
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find_number(nodes, number);
    if (entry->lookups == 0 && times > 0)
        node_hold_locked(nodes, entry);
    entry->lookups += times;
    pthread_mutex_unlock(&nodes->lock);
}

void node_forgotten(struct nodes *nodes, uint32_t number, uint64_t times)
{
    struct entry_of_node *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find_number(nodes, number);
    if (entry && entry->lookups > 0) {
        entry->lookups -= times < entry->lookups ? times : entry->lookups;
        if (entry->lookups == 0)
            node_put_locked(nodes, entry, &gone);
    }
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
}

size_t nodes_count(struct nodes *nodes)
{
    pthread_mutex_lock(&nodes->lock);
    size_t n = HASH_CNT(hh_number, nodes->by_number);
    pthread_mutex_unlock(&nodes->lock);
    return n;
}

/* By a node that was removed none below it is found, but the kernel may know one. The lock must be held. */
static bool can_be_reached(const struct entry_of_node *entry)
{
    while (entry && !entry->is_removed && entry->lookups == 0)
        entry = (const struct entry_of_node *)entry->node.parent;
    return !entry || !entry->is_removed;
}

bool node_is_lost(struct nodes *nodes, const struct node *node)
{
    if (atomic_load(&node->mounted->is_gone))
        return true;
    const struct entry_of_node *entry = (const struct entry_of_node *)node, *same;
    pthread_mutex_lock(&nodes->lock);
    bool can = can_be_reached(entry);
    for (same = entry->object ? entry->object->nodes : NULL; same && !can; same = same->next_same)
        can = can_be_reached(same);
    pthread_mutex_unlock(&nodes->lock);
    return !can;
}

void node_keep_object(struct nodes *nodes, const struct node *node)
{
    struct entry_of_node *entry = (struct entry_of_node *)node;
    if (atomic_load_explicit(&entry->is_kept, memory_order_relaxed))
        return;
    pthread_mutex_lock(&nodes->lock);
    atomic_store(&entry->is_kept, true);
    if (entry->object) {
        entry->object->is_kept = true;
        atomic_store(&node->mounted->keeps_objects, true);
    }
    pthread_mutex_unlock(&nodes->lock);
}

void node_remove_child(struct nodes *nodes, struct entry_of_node *child,
                       struct entry_of_node **removed)
{
    node_hold_locked(nodes, child);
    node_unlink(nodes, child);
    LL_PREPEND2(*removed, child, next_unused);
}

void node_put_removed(struct nodes *nodes, struct entry_of_node *removed,
                      struct entry_of_node **gone)
{
    struct entry_of_node *next;
    for (; removed; removed = next) {
        next = removed->next_unused;
        node_put_locked(nodes, removed, gone);
    }
}

int node_remove(struct nodes *nodes, const struct node *group, const char *name)
{
    const struct entry_of_node *entry = (const struct entry_of_node *)group, *same;
    struct entry_of_node *removed = NULL, *gone = NULL;
    struct node_key *key = node_new_key(group, name);
    if (!key)
        return -ENOMEM;
    pthread_mutex_lock(&nodes->lock);
    for (same = entry->object ? entry->object->nodes : NULL; same; same = same->next_same) {
        key->parent = same->node.number;
        struct entry_of_node *child = node_find(nodes, key);
        if (child)
            node_remove_child(nodes, child, &removed);
    }
    node_put_removed(nodes, removed, &gone);
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
    free(key);
    return 0;
}

int node_add_or_free(struct nodes *nodes, struct entry_of_node **entry,
                     bool (*gives_way)(const struct node *there, const struct node *made))
{
    struct entry_of_node *made = *entry, *removed = NULL, *gone = NULL;
    int error = 0;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *there = node_find(nodes, made->key);
    if (there && gives_way(&there->node, &made->node)) {
        node_remove_child(nodes, there, &removed);
        there = NULL;
    }
    if (there)
        node_hold_locked(nodes, there);
    else
        error = node_add(nodes, made);
    node_put_removed(nodes, removed, &gone);
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
    if (there || error)
        node_free(made);
    *entry = there ? there : made;
    return error;
}

static bool is_more_doubtful(const struct node *node, const struct node *found)
{
    return node->is_doubtful && !found->is_doubtful;
}

/* Makes the node of a link and adds it, unless what was found before is as good: a doubtful one
 * goes for one that is not. */
static int make_child(struct nodes *nodes, const struct node *group, const struct sfs_link *link,
                      struct entry_of_node **out)
{
    int error = node_new(group, link->name, group->mounted, out);
    if (error)
        return error;
    if (sfs_is_following(node_file(group)))
        atomic_store(&(*out)->states, sfs_states(node_file(group)));
    error = node_make(nodes, *out, link);
    if (error) {
        node_free(*out);
        return error;
    }
    return node_add_or_free(nodes, out, is_more_doubtful);
}

/* Whether a link of a followed file leads to another object than when the node was made, perhaps at the same address.
 * Of datasets that is known once they are open; is_gone: it is so. */
static bool is_another(struct entry_of_node *entry, const struct sfs_link *link, bool is_gone)
{
    const struct node *node = &entry->node;
    enum sfs_object_type type;
    if (!sfs_is_following(node_file(node)) || link->type != SFS_LINK_HARD ||
        node->type == NODE_SYMLINK)
        return false;
    if (node->address != link->address || is_gone)
        return true;
    uint64_t states = sfs_states(node_file(node));
    if (atomic_load(&entry->states) == states ||
        sfs_object_type(node_file(node), node->address, &type) < 0)
        return false;
    atomic_store(&entry->states, states);
    return !node_is_of_type(node, type);
}

int node_child(struct nodes *nodes, const struct node *group, const struct sfs_link *link,
               const struct node **child)
{
    struct node_key *key = node_new_key(group, link->name);
    if (!key)
        return -ENOMEM;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find(nodes, key);
    bool is_gone = entry && entry->users > 0 && node_views_are_gone(entry);
    if (entry)
        node_hold_locked(nodes, entry);
    pthread_mutex_unlock(&nodes->lock);
    free(key);
    int error = 0;
    struct entry_of_node *found = entry;
    if (found && is_another(found, link, is_gone)) {
        error = node_remove(nodes, group, link->name);
        entry = NULL;
    }
    if (!error && (!entry || entry->node.is_doubtful))
        error = make_child(nodes, group, link, &entry);
    else if (!error)
        found = NULL; /* the caller holds it */
    if (found)
        node_put(nodes, found->node.number);
    if (!error)
        *child = &entry->node;
    return error;
}

char *node_path(const struct node *node)
{
    size_t n = 1;
    for (const struct node *i = node; !node_is_top(i); i = i->parent)
        n += strlen(i->name) + 1;
    char *path = malloc(n + 1);
    if (!path)
        return NULL;
    path[n] = path[n - 1] = '\0';
    char *at = path + n - 1;
    for (const struct node *i = node; !node_is_top(i); i = i->parent) {
        at -= strlen(i->name);
        memcpy(at, i->name, strlen(i->name));
        *--at = '/';
    }
    if (node_is_top(node))
        strcpy(path, "/");
    return path;
}

/* The link of a group whose name is shown so. */
static int find_cut(const struct node *group, const char *shown, char **name)
{
    struct sfs_links links;
    int error = sfs_list(node_file(group), node_address(group), &links);
    if (error)
        return error;
    error = -ENOENT;
    for (size_t i = 0; i < links.n && error == -ENOENT; i++) {
        char encoded[NAME_BYTES];
        if (strlen(links.link[i].name) < NAME_BYTES)
            continue;
        link_name_encode(links.link[i].name, false, encoded);
        if (strcmp(encoded, shown) != 0)
            continue;
        *name = strdup(links.link[i].name);
        error = *name ? 0 : -ENOMEM;
    }
    sfs_links_free(&links);
    return error;
}

int node_whole_name(const struct node *node, char **name)
{
    if (node->is_cut)
        return find_cut(node->parent, node->name, name);
    *name = strdup(node->name);
    return *name ? 0 : -ENOMEM;
}

static int refuse_path(const struct node *node)
{
    static _Atomic uint64_t said;
    if (log_is_due(&said))
        log_warning("%s: %.80s...: its path in the file has more than %zu KiB",
                    sfs_path(node_file(node)), node->name, OBJECT_NAMES_MOST_PATH >> 10);
    return -ENAMETOOLONG;
}

int node_whole_path(const struct node *node, char **out)
{
    size_t n = 0; /* bytes at the end of the path, which is written backwards */
    int error = 0;
    char *path = malloc(OBJECT_NAMES_MOST_PATH + 1);
    if (!path)
        return -ENOMEM;
    char *end = path + OBJECT_NAMES_MOST_PATH;
    *end = '\0';
    for (const struct node *i = node; !error && !node_is_top(i); i = i->parent) {
        char *name = NULL;
        error = node_whole_name(i, &name);
        size_t more = error ? 0 : strlen(name);
        if (!error && more + 1 > OBJECT_NAMES_MOST_PATH - n)
            error = refuse_path(node);
        if (!error) {
            memcpy(end - n - more, name, more);
            n += more + 1;
            end[-(ptrdiff_t)n] = '/';
        }
        free(name);
    }
    *out = error ? NULL : strdup(n ? end - n : "/");
    free(path);
    return error ? error : *out ? 0 : -ENOMEM;
}
