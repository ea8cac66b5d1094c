/* Nodes by number and by (parent, link name), the objects that they lead to, the files that
 * external links led to, and the views of the datasets that are in use. */
#include "fs/node.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/hash.h"
#include "common/log.h"
#include "fs/inode.h"
#include "fs/name.h"

#define MAX_IDLE_VIEWS 256
#define MAX_IDLE_BYTES ((size_t)32 << 20) /* kept by all idle views */

struct node_key {
    uint32_t parent;
    char name[]; /* without a NUL in the hash key */
};

struct object_key {
    struct sfs_file *file;
    uint64_t address;
};

/* What hard links lead to: what is changed through one of its nodes has changed in the others. */
struct object {
    UT_hash_handle hh;
    struct object_key key;
    uint64_t number;
    bool is_kept;                /* others know it by its number */
    struct entry_of_node *nodes; /* at least one, unless it is kept */
};

struct entry_of_node {
    struct node node; /* must be first */
    UT_hash_handle hh, hh_number;
    struct node_key *key;
    uint64_t holds;                                  /* the kernel's look-ups count as one */
    uint64_t lookups;                                /* that the kernel has not taken back */
    uint64_t children;                               /* in the table */
    struct entry_of_node *prev_unused, *next_unused; /* in the list of those that are not used */
    atomic_bool is_kept;                             /* its object is */
    struct object *object;                           /* NULL: of a symlink, or removed */
    struct entry_of_node *prev_same, *next_same;     /* in the list of the object's nodes */
    bool is_removed;                                 /* its link is gone */
    struct views *views;
    bool opening;                      /* a thread is opening views, without the lock */
    unsigned users;                    /* of views */
    size_t kept_bytes;                 /* of views while they are idle */
    struct entry_of_node *prev, *next; /* in the list of idle views, longest idle first */
};

/* A file that is mounted: the one of the command line, or one that an external link names. */
struct mounted_file {
    struct mounted_file *next;
    struct sfs_file *file;
    struct stat st;
};

struct node_attributes {
    atomic_uint users;
    uint64_t object;
    uint64_t states; /* the sfs_states that they are of */
    struct sfs_attributes attributes;
};

struct nodes {
    bool external_links;
    int frame_rank;
    pthread_mutex_t files_lock; /* guards files, while they are opened */
    struct mounted_file *files; /* first: the one of the command line */
    pthread_mutex_t lock;       /* guards what follows; never held while libhdf5 works */
    pthread_cond_t opened;      /* an entry is no longer `opening` */
    struct entry_of_node *by_number;
    uint32_t next_number;
    struct entry_of_node *by_key; /* those whose link is there */
    struct entry_of_node *unused; /* without holds and children, unused longest first */
    unsigned n_unheld;            /* without holds, with children or not */
    struct object *by_object;
    uint64_t n_objects; /* that there ever were */
    struct entry_of_node *idle;
    unsigned n_idle;
    size_t idle_bytes;
    struct node_attributes *last; /* the attributes that were asked for last */
};

/* ---- Making nodes, without the lock: nobody else knows them yet ---- */

static void free_node(struct entry_of_node *entry)
{
    if (!entry)
        return;
    views_close(entry->views);
    free(entry->node.name);
    free(entry->node.target);
    free(entry->key);
    free(entry);
}

static size_t key_bytes(const char *name)
{
    return sizeof(struct node_key) + strlen(name);
}

static struct node_key *new_key(const struct node *parent, const char *name)
{
    struct node_key *key = malloc(key_bytes(name));
    if (key) {
        key->parent = parent ? parent->number : UINT32_MAX;
        memcpy(key->name, name, strlen(name));
    }
    return key;
}

static int new_node(const struct node *parent, const char *name, const struct mounted_file *file,
                    struct entry_of_node **out)
{
    struct entry_of_node *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    entry->key = new_key(parent, name);
    entry->node.name = strdup(name);
    if (!entry->key || !entry->node.name) {
        free_node(entry);
        return -ENOMEM;
    }
    entry->node.parent = parent;
    entry->node.file = file->file;
    entry->node.file_stat = &file->st;
    *out = entry;
    return 0;
}

static unsigned depth_of(const struct node *node)
{
    unsigned depth = 0;
    for (; node->parent; node = node->parent)
        depth++;
    return depth;
}

/* Writes "../" for every level, and "." for none at all if nothing follows. */
static void write_up(FILE *out, unsigned levels, bool is_end)
{
    for (unsigned i = 0; i < levels; i++)
        fputs(is_end && i + 1 == levels ? ".." : "../", out);
    if (is_end && levels == 0)
        putc('.', out);
}

/* An HDF5 path, relative to the group that holds the link, as the target of a symbolic link: every
 * component is encoded as its file name, so that none can lead out of the mount. */
static char *path_as_target(const struct node *group, const char *path)
{
    char *target = NULL;
    size_t size;
    FILE *out = open_memstream(&target, &size);
    char *components = strdup(path), *rest = components;
    if (!out || !components)
        goto failed;
    bool absolute = path[0] == '/', in_root = absolute || !group->parent;
    unsigned levels = absolute ? depth_of(group) : 0;
    bool first = true;
    for (char *component; (component = strsep(&rest, "/"));) {
        char name[NAME_BYTES];
        if (!*component || !strcmp(component, "."))
            continue;
        name_encode(component, in_root, name);
        in_root = false;
        if (first)
            write_up(out, levels, false);
        fprintf(out, "%s%s", first ? "" : "/", name);
        first = false;
    }
    if (first)
        write_up(out, levels, true);
    free(components);
    if (fclose(out) == 0)
        return target;
    free(target);
    return NULL;

failed:
    free(components);
    if (out)
        fclose(out);
    free(target);
    return NULL;
}

/* A target that says what an external link names and leads nowhere. */
static char *external_as_target(const struct sfs_link *link)
{
    char *target = NULL;
    if (asprintf(&target, "external:%s:%s", link->target_file, link->target) < 0)
        return NULL;
    return target;
}

static int make_symlink(struct entry_of_node *entry, char *target)
{
    entry->node.type = NODE_SYMLINK;
    entry->node.target = target;
    return target ? 0 : -ENOMEM;
}

/* Makes the node an object of file, or a symlink to the ancestor that this object is. */
static int make_object(struct entry_of_node *entry, const struct mounted_file *file,
                       uint64_t address)
{
    unsigned levels = 0;
    for (const struct node *n = entry->node.parent; n; n = n->parent, levels++) {
        if (n->file != file->file || n->address != address)
            continue;
        char *target = NULL;
        size_t size;
        FILE *out = open_memstream(&target, &size);
        if (!out)
            return -ENOMEM;
        write_up(out, levels, true);
        if (fclose(out) != 0) {
            free(target);
            target = NULL;
        }
        return make_symlink(entry, target);
    }

    static const enum node_type types[] = {
        [SFS_GROUP] = NODE_GROUP, [SFS_DATASET] = NODE_DATASET, [SFS_DATATYPE] = NODE_DATATYPE};
    enum sfs_object_type type;
    entry->node.file = file->file;
    entry->node.file_stat = &file->st;
    entry->node.address = address;
    int error = sfs_object_type(file->file, address, &type);
    if (error == -ENOMEM || error == -EBUSY || error == -ESTALE)
        return error;
    entry->node.type = error ? NODE_UNREADABLE : types[type];
    entry->node.is_doubtful = error != 0;
    return 0;
}

static struct mounted_file *find_file(struct nodes *nodes, const struct sfs_file *file)
{
    struct mounted_file *mounted;
    pthread_mutex_lock(&nodes->files_lock);
    LL_SEARCH_SCALAR(nodes->files, mounted, file, file);
    pthread_mutex_unlock(&nodes->files_lock);
    return mounted;
}

/* Adds an open file, which is closed instead if it is mounted already. files_lock must be held. */
static int add_file(struct nodes *nodes, struct sfs_file *file, struct mounted_file **out)
{
    struct stat st;
    int error = sfs_stat(file, &st);
    struct mounted_file *mounted;
    for (mounted = nodes->files; mounted && !error; mounted = mounted->next) {
        if (mounted->st.st_dev == st.st_dev && mounted->st.st_ino == st.st_ino) {
            sfs_close(file);
            *out = mounted;
            return 0;
        }
    }
    mounted = error ? NULL : calloc(1, sizeof(*mounted));
    if (!mounted) {
        sfs_close(file);
        return error ? error : -ENOMEM;
    }
    mounted->file = file;
    mounted->st = st;
    LL_APPEND(nodes->files, mounted);
    *out = mounted;
    return 0;
}

/* The file that an external link names. */
static int open_linked(struct nodes *nodes, struct sfs_file *from, const char *name,
                       struct mounted_file **out)
{
    struct sfs_file *file;
    pthread_mutex_lock(&nodes->files_lock);
    int error = sfs_open_linked(from, name, &file);
    if (!error)
        error = add_file(nodes, file, out);
    pthread_mutex_unlock(&nodes->files_lock);
    return error;
}

/* Follows an external link to its object; a link that leads nowhere is shown as one. */
static int make_external(struct nodes *nodes, struct entry_of_node *entry,
                         const struct sfs_link *link)
{
    struct sfs_file *from = entry->node.parent->file;
    struct mounted_file *mounted;
    uint64_t address;
    int error =
        nodes->external_links ? open_linked(nodes, from, link->target_file, &mounted) : -ENOENT;
    if (!error)
        error = sfs_find(mounted->file, sfs_root(mounted->file), link->target, &address);
    if (error == -ENOMEM)
        return error;
    entry->node.is_doubtful = error && error != -ENOENT;
    return error ? make_symlink(entry, external_as_target(link))
                 : make_object(entry, mounted, address);
}

/* In a file behind an external link the root of the mount is not the root of paths: soft links are
 * followed here. */
static int make_followed(struct nodes *nodes, struct entry_of_node *entry,
                         const struct sfs_link *link)
{
    const struct node *parent = entry->node.parent;
    uint64_t address;
    int error = sfs_find(parent->file, parent->address, link->target, &address);
    if (error == -ENOMEM)
        return error;
    entry->node.is_doubtful = error && error != -ENOENT;
    return error ? make_symlink(entry, path_as_target(parent, link->target))
                 : make_object(entry, find_file(nodes, parent->file), address);
}

static int make_node(struct nodes *nodes, struct entry_of_node *entry, const struct sfs_link *link)
{
    const struct node *parent = entry->node.parent;
    switch (link->type) {
    case SFS_LINK_HARD:
        return make_object(entry, find_file(nodes, parent->file), link->address);
    case SFS_LINK_SOFT:
        if (parent->file != nodes->files->file && link->target[0] == '/')
            return make_followed(nodes, entry, link);
        return make_symlink(entry, path_as_target(parent, link->target));
    case SFS_LINK_EXTERNAL:
        return make_external(nodes, entry, link);
    default:
        return make_symlink(entry, strdup("user-defined-link"));
    }
}

/* ---- The table ---- */

/* Adds a node to those of its object. The lock must be held. */
static int add_to_object(struct nodes *nodes, struct entry_of_node *entry)
{
    struct object_key key;
    struct object *object;
    memset(&key, 0, sizeof(key)); /* hashed with whatever lies between its members */
    key.file = entry->node.file;
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

/* The last node takes the object with it, unless it is kept. The lock must be held. */
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

/* The lock must be held, here and in what follows. */
static struct entry_of_node *find_number(struct nodes *nodes, uint32_t number)
{
    struct entry_of_node *entry;
    HASH_FIND(hh_number, nodes->by_number, &number, sizeof(number), entry);
    return entry;
}

static void append_idle(struct nodes *nodes, struct entry_of_node *entry)
{
    entry->kept_bytes = views_kept_bytes(entry->views);
    nodes->idle_bytes += entry->kept_bytes;
    nodes->n_idle++;
    DL_APPEND(nodes->idle, entry);
}

static void remove_idle(struct nodes *nodes, struct entry_of_node *entry)
{
    DL_DELETE(nodes->idle, entry);
    nodes->n_idle--;
    nodes->idle_bytes -= entry->kept_bytes;
}

static struct entry_of_node *parent_of(const struct entry_of_node *entry)
{
    return (struct entry_of_node *)entry->node.parent;
}

static void hold(struct nodes *nodes, struct entry_of_node *entry)
{
    if (entry->holds++ > 0)
        return;
    nodes->n_unheld--;
    if (entry->children == 0)
        DL_DELETE2(nodes->unused, entry, prev_unused, next_unused);
}

/* The number that was free for longest, or nearly so: the kernel knows no inode of it any more, but
 * programs may remember some. */
static int take_number(struct nodes *nodes, uint32_t *number)
{
    if (HASH_CNT(hh_number, nodes->by_number) >= INODE_MAX_NODES)
        return -ENFILE;
    while (find_number(nodes, nodes->next_number))
        nodes->next_number = (nodes->next_number + 1) % INODE_MAX_NODES;
    *number = nodes->next_number;
    nodes->next_number = (nodes->next_number + 1) % INODE_MAX_NODES;
    return 0;
}

/* Gives a node its number and place; it is the caller's to hold. */
static int add_node(struct nodes *nodes, struct entry_of_node *entry)
{
    bool has_object = entry->node.type != NODE_SYMLINK;
    int error = take_number(nodes, &entry->node.number);
    if (!error && has_object)
        error = add_to_object(nodes, entry);
    if (error)
        return error;
    HASH_ADD(hh_number, nodes->by_number, node.number, sizeof(entry->node.number), entry);
    if (hash_failed())
        goto failed;
    HASH_ADD_KEYPTR(hh, nodes->by_key, entry->key, key_bytes(entry->node.name), entry);
    if (hash_failed()) {
        HASH_DELETE(hh_number, nodes->by_number, entry);
        goto failed;
    }
    entry->holds = 1;
    if (entry->node.parent)
        parent_of(entry)->children++;
    return 0;

failed:
    if (has_object)
        remove_from_object(nodes, entry);
    return -ENOMEM;
}

/* The link is gone: the node is found by its number only. */
static void unlink_node(struct nodes *nodes, struct entry_of_node *entry)
{
    HASH_DEL(nodes->by_key, entry);
    if (entry->object)
        remove_from_object(nodes, entry);
    entry->is_removed = true;
}

/* Takes a node out of the table; it is added to *gone, which the caller frees without the lock. */
static void take_out(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    if (!entry->is_removed)
        unlink_node(nodes, entry);
    if (entry->views)
        remove_idle(nodes, entry);
    HASH_DELETE(hh_number, nodes->by_number, entry);
    nodes->n_unheld--;
    parent_of(entry)->children--;
    LL_PREPEND2(*gone, entry, next_unused);
}

static bool is_used(const struct entry_of_node *entry)
{
    return entry->holds > 0 || entry->children > 0;
}

/* A node may not be used any more: nobody finds it if it was removed, and so on with those above
 * it. The root is always used. */
static void let_go(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    for (; !is_used(entry) && entry->is_removed; entry = parent_of(entry))
        take_out(nodes, entry, gone);
    if (!is_used(entry))
        DL_APPEND2(nodes->unused, entry, prev_unused, next_unused);
}

static void put(struct nodes *nodes, struct entry_of_node *entry, struct entry_of_node **gone)
{
    if (--entry->holds > 0)
        return;
    nodes->n_unheld++;
    let_go(nodes, entry, gone);
    while (nodes->n_unheld > NODES_UNHELD && nodes->unused) {
        entry = nodes->unused;
        DL_DELETE2(nodes->unused, entry, prev_unused, next_unused);
        take_out(nodes, entry, gone);
        let_go(nodes, parent_of(entry), gone);
    }
}

static void free_gone(struct entry_of_node *gone)
{
    struct entry_of_node *next;
    for (; gone; gone = next) {
        next = gone->next_unused;
        free_node(gone);
    }
}

static struct entry_of_node *find_node(struct nodes *nodes, const struct node_key *key,
                                       const char *name)
{
    struct entry_of_node *entry;
    HASH_FIND(hh, nodes->by_key, key, key_bytes(name), entry);
    return entry;
}

/* ---- Making and freeing it ---- */

int nodes_create(struct sfs_file *file, bool external_links, int frame_rank, struct nodes **out)
{
    struct nodes *nodes = calloc(1, sizeof(*nodes));
    struct mounted_file *mounted = calloc(1, sizeof(*mounted));
    int error = nodes && mounted ? sfs_stat(file, &mounted->st) : -ENOMEM;
    if (error) {
        free(nodes);
        free(mounted);
        return error;
    }
    nodes->external_links = external_links;
    nodes->frame_rank = frame_rank;
    pthread_mutex_init(&nodes->lock, NULL);
    pthread_mutex_init(&nodes->files_lock, NULL);
    pthread_cond_init(&nodes->opened, NULL);
    mounted->file = file;
    LL_APPEND(nodes->files, mounted);

    struct entry_of_node *root = NULL;
    error = new_node(NULL, "", mounted, &root);
    if (!error) {
        root->node.type = NODE_GROUP;
        root->node.address = sfs_root(file);
        error = add_node(nodes, root);
    }
    if (error) {
        free_node(root);
        nodes_destroy(nodes);
        return error;
    }
    *out = nodes;
    return 0;
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
        free_node(entry);
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
        free(mounted);
    }
    pthread_cond_destroy(&nodes->opened);
    pthread_mutex_destroy(&nodes->files_lock);
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}

/* Files are added only: the lock need not be held while something is done with one. */
static struct mounted_file *next_file(struct nodes *nodes, const struct mounted_file *mounted)
{
    pthread_mutex_lock(&nodes->files_lock);
    struct mounted_file *next = mounted ? mounted->next : nodes->files;
    pthread_mutex_unlock(&nodes->files_lock);
    return next;
}

int nodes_refresh(struct nodes *nodes)
{
    int error = 0;
    for (struct mounted_file *mounted = NULL; (mounted = next_file(nodes, mounted));) {
        int failed = sfs_refresh(mounted->file);
        error = error ? error : failed;
    }
    return error;
}

void nodes_interrupt(struct nodes *nodes)
{
    for (struct mounted_file *mounted = NULL; (mounted = next_file(nodes, mounted));)
        sfs_interrupt(mounted->file);
}

const struct node *node_get(struct nodes *nodes, uint32_t number)
{
    pthread_mutex_lock(&nodes->lock);
    const struct entry_of_node *entry = find_number(nodes, number);
    if (entry && entry->is_removed)
        entry = NULL;
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
    hold(nodes, find_number(nodes, number));
    pthread_mutex_unlock(&nodes->lock);
}

void node_put(struct nodes *nodes, uint32_t number)
{
    struct entry_of_node *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    put(nodes, find_number(nodes, number), &gone);
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
}

void node_looked_up(struct nodes *nodes, uint32_t number, uint64_t times)
{
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = find_number(nodes, number);
    if (entry->lookups == 0 && times > 0)
        hold(nodes, entry);
    entry->lookups += times;
    pthread_mutex_unlock(&nodes->lock);
}

void node_forgotten(struct nodes *nodes, uint32_t number, uint64_t times)
{
    struct entry_of_node *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = find_number(nodes, number);
    if (entry && entry->lookups > 0) {
        entry->lookups -= times < entry->lookups ? times : entry->lookups;
        if (entry->lookups == 0)
            put(nodes, entry, &gone);
    }
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
}

size_t nodes_count(struct nodes *nodes)
{
    pthread_mutex_lock(&nodes->lock);
    size_t n = HASH_CNT(hh_number, nodes->by_number);
    pthread_mutex_unlock(&nodes->lock);
    return n;
}

void node_keep_object(struct nodes *nodes, const struct node *node)
{
    struct entry_of_node *entry = (struct entry_of_node *)node;
    if (atomic_load_explicit(&entry->is_kept, memory_order_relaxed))
        return;
    pthread_mutex_lock(&nodes->lock);
    atomic_store(&entry->is_kept, true);
    if (entry->object)
        entry->object->is_kept = true;
    pthread_mutex_unlock(&nodes->lock);
}

/* The lock must be held. */
static void remove_child(struct nodes *nodes, struct entry_of_node *child,
                         struct entry_of_node **removed)
{
    hold(nodes, child);
    unlink_node(nodes, child);
    LL_PREPEND2(*removed, child, next_unused);
}

/* Of what was removed, all that nobody else holds is gone. The lock must be held. */
static void put_removed(struct nodes *nodes, struct entry_of_node *removed,
                        struct entry_of_node **gone)
{
    struct entry_of_node *next;
    for (; removed; removed = next) {
        next = removed->next_unused;
        put(nodes, removed, gone);
    }
}

int node_remove(struct nodes *nodes, const struct node *group, const char *name)
{
    const struct entry_of_node *entry = (const struct entry_of_node *)group, *same;
    struct entry_of_node *removed = NULL, *gone = NULL;
    struct node_key *key = new_key(group, name);
    if (!key)
        return -ENOMEM;
    pthread_mutex_lock(&nodes->lock);
    for (same = entry->object ? entry->object->nodes : NULL; same; same = same->next_same) {
        key->parent = same->node.number;
        struct entry_of_node *child = find_node(nodes, key, name);
        if (child)
            remove_child(nodes, child, &removed);
    }
    put_removed(nodes, removed, &gone);
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
    free(key);
    return 0;
}

/* Makes the node of a link and adds it, unless another thread was faster, or what was found before
 * is as good: a doubtful one goes for one that is not. */
static int make_child(struct nodes *nodes, const struct node *group, const struct sfs_link *link,
                      struct entry_of_node **out)
{
    struct entry_of_node *entry, *found, *removed = NULL, *gone = NULL;
    int error = new_node(group, link->name, find_file(nodes, group->file), &entry);
    if (error)
        return error;
    error = make_node(nodes, entry, link);
    if (error) {
        free_node(entry);
        return error;
    }
    pthread_mutex_lock(&nodes->lock);
    found = find_node(nodes, entry->key, link->name);
    if (found && found->node.is_doubtful && !entry->node.is_doubtful) {
        remove_child(nodes, found, &removed);
        found = NULL;
    }
    if (found)
        hold(nodes, found);
    else
        error = add_node(nodes, entry);
    put_removed(nodes, removed, &gone);
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
    if (found || error)
        free_node(entry);
    *out = found ? found : entry;
    return error;
}

/* Whether a link of a followed file leads to another object than when the node was made. */
static bool is_another(const struct node *node, const struct sfs_link *link)
{
    return sfs_is_following(node->file) && link->type == SFS_LINK_HARD &&
           node->type != NODE_SYMLINK && node->address != link->address;
}

int node_child(struct nodes *nodes, const struct node *group, const struct sfs_link *link,
               const struct node **child)
{
    struct node_key *key = new_key(group, link->name);
    if (!key)
        return -ENOMEM;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = find_node(nodes, key, link->name);
    if (entry)
        hold(nodes, entry);
    pthread_mutex_unlock(&nodes->lock);
    free(key);
    int error = 0;
    struct entry_of_node *found = entry;
    if (found && is_another(&found->node, link)) {
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
    for (const struct node *i = node; i->parent; i = i->parent)
        n += strlen(i->name) + 1;
    char *path = malloc(n + 1);
    if (!path)
        return NULL;
    path[n] = path[n - 1] = '\0';
    char *at = path + n - 1;
    for (const struct node *i = node; i->parent; i = i->parent) {
        at -= strlen(i->name);
        memcpy(at, i->name, strlen(i->name));
        *--at = '/';
    }
    if (!node->parent)
        strcpy(path, "/");
    return path;
}

/* Opens the views of a node while others wait for it. The lock must be held; it is dropped. */
static int open_views(struct nodes *nodes, struct entry_of_node *entry)
{
    struct views *views = NULL;
    entry->opening = true;
    pthread_mutex_unlock(&nodes->lock);
    char *path = node_path(&entry->node);
    int error =
        path ? views_open(entry->node.file, entry->node.address, path, nodes->frame_rank, &views)
             : -ENOMEM;
    free(path);
    pthread_mutex_lock(&nodes->lock);
    entry->views = views;
    entry->opening = false;
    pthread_cond_broadcast(&nodes->opened);
    return error;
}

int node_get_views(struct nodes *nodes, const struct node *node, struct views **views)
{
    struct entry_of_node *entry = (struct entry_of_node *)node, *gone = NULL;
    int error = 0;
    pthread_mutex_lock(&nodes->lock);
    hold(nodes, entry);
    while (entry->opening)
        pthread_cond_wait(&nodes->opened, &nodes->lock);
    if (!entry->views)
        error = open_views(nodes, entry);
    else if (entry->users == 0)
        remove_idle(nodes, entry);
    if (error) {
        put(nodes, entry, &gone);
    } else {
        entry->users++;
        *views = entry->views;
    }
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
    return error;
}

void node_put_views(struct nodes *nodes, const struct node *node)
{
    struct entry_of_node *entry = (struct entry_of_node *)node, *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    if (--entry->users == 0)
        append_idle(nodes, entry);
    put(nodes, entry, &gone);
    while (nodes->n_idle > MAX_IDLE_VIEWS || nodes->idle_bytes > MAX_IDLE_BYTES) {
        struct entry_of_node *oldest = nodes->idle;
        struct views *views = oldest->views;
        remove_idle(nodes, oldest);
        oldest->views = NULL;
        pthread_mutex_unlock(&nodes->lock);
        views_close(views);
        pthread_mutex_lock(&nodes->lock);
    }
    pthread_mutex_unlock(&nodes->lock);
    free_gone(gone);
}

int node_get_attributes(struct nodes *nodes, const struct node *node, struct node_attributes **out)
{
    pthread_mutex_lock(&nodes->lock);
    struct node_attributes *attributes = nodes->last;
    uint64_t states = sfs_states(node->file);
    if (attributes && attributes->object == node->object && attributes->states == states) {
        atomic_fetch_add(&attributes->users, 1);
        pthread_mutex_unlock(&nodes->lock);
        *out = attributes;
        return 0;
    }
    pthread_mutex_unlock(&nodes->lock);

    attributes = calloc(1, sizeof(*attributes));
    if (!attributes)
        return -ENOMEM;
    int error = sfs_attributes(node->file, node->address, &attributes->attributes);
    if (error) {
        free(attributes);
        return error;
    }
    attributes->object = node->object;
    attributes->states = states;
    atomic_init(&attributes->users, 2); /* the caller's and that of nodes->last */
    pthread_mutex_lock(&nodes->lock);
    struct node_attributes *before = nodes->last;
    nodes->last = attributes;
    pthread_mutex_unlock(&nodes->lock);
    node_put_attributes(before);
    *out = attributes;
    return 0;
}

const struct sfs_attributes *node_attributes(const struct node_attributes *attributes)
{
    return &attributes->attributes;
}

void node_put_attributes(struct node_attributes *attributes)
{
    if (!attributes || atomic_fetch_sub(&attributes->users, 1) > 1)
        return;
    sfs_attributes_free(&attributes->attributes);
    free(attributes);
}
