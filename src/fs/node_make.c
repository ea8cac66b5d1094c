/* Making nodes: what a link leads to. Needs no lock of the table: the nodes are not in it yet. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "fs/escaped_names.h"
#include "fs/link_targets.h"
#include "fs/node_table.h"

void node_free(struct entry_of_node *entry)
{
    if (!entry)
        return;
    views_close(entry->views);
    if (entry->views)
        mounted_views_closed(entry->node.mounted);
    mounted_unref(entry->node.mounted);
    free(entry->node.target);
    free(entry->key);
    free(entry);
}

size_t node_key_bytes(const struct node_key *key)
{
    return offsetof(struct node_key, name) + strlen(key->name);
}

static bool is_too_long(const char *name)
{
    return strlen(name) >= NAME_BYTES;
}

struct node_key *node_new_key(const struct node *parent, const char *name)
{
    char shown[NAME_BYTES];
    if (is_too_long(name)) {
        link_name_encode(name, false, shown);
        name = shown;
    }
    struct node_key *key = malloc(sizeof(*key) + strlen(name) + 1);
    if (key) {
        key->parent = parent ? parent->number : UINT32_MAX;
        strcpy(key->name, name);
    }
    return key;
}

int node_new(const struct node *parent, const char *name, struct mounted_file *file,
             struct entry_of_node **out)
{
    struct entry_of_node *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    entry->key = node_new_key(parent, name);
    if (!entry->key) {
        node_free(entry);
        return -ENOMEM;
    }
    entry->node.name = entry->key->name;
    entry->node.is_cut = is_too_long(name);
    entry->node.parent = parent;
    entry->node.level = parent ? parent->level + 1 : 0;
    entry->node.mounted = file;
    mounted_ref(file);
    *out = entry;
    return 0;
}

int node_make_symlink(struct entry_of_node *entry, char *target)
{
    if (!target)
        return -ENOMEM;
    entry->node.type = NODE_SYMLINK;
    entry->node.target_bytes = strlen(target);
    if (entry->node.target_bytes >= PATH_MAX) { /* the kernel has no room for it */
        free(target);
        target = NULL;
    }
    entry->node.target = target;
    return 0;
}

static const enum node_type types[] = {
    [SFS_GROUP] = NODE_GROUP, [SFS_DATASET] = NODE_DATASET, [SFS_DATATYPE] = NODE_DATATYPE};

bool node_is_of_type(const struct node *node, enum sfs_object_type type)
{
    return node->type == types[type];
}

/* Makes the node an object of file, or a symlink to the ancestor that this object is. */
static int make_object(struct entry_of_node *entry, struct mounted_file *file, uint64_t address)
{
    unsigned levels = 0;
    for (const struct node *n = entry->node.parent; n; n = n->parent, levels++) {
        if (n->mounted != file || node_address(n) != address)
            continue;
        return node_make_symlink(entry, link_target_write(levels, "", "", false));
    }

    enum sfs_object_type type;
    mounted_ref(file);
    mounted_unref(entry->node.mounted);
    entry->node.mounted = file;
    entry->node.address = address;
    int error = sfs_object_type(file->file, address, &type);
    if (error == -ENOMEM || error == -EBUSY || error == -ESTALE || error == -EINTR)
        return error;
    if (!error && type == SFS_GROUP && entry->node.level > NODE_MOST_LEVELS)
        return node_make_symlink(entry, strdup(NAME_TOO_DEEP));
    entry->node.type = error ? NODE_UNREADABLE : types[type];
    entry->node.is_doubtful = error != 0;
    return 0;
}

/* Why a link is shown as one, once for each. */
static void tell_external(const struct entry_of_node *entry, const struct sfs_link *link, int error)
{
    const char *from = sfs_path(node_file(entry->node.parent));
    if (error == -EXDEV)
        log_warning("%s: an external link leads out of its folder, to %s: -o external_links "
                    "or external_files would follow it",
                    from, link->target_file);
    else if (error == -EPERM)
        log_warning("%s: an external link is not followed: others would see what the owner of %s "
                    "does not let them see, by its mode or that of a folder above it; "
                    "external_files=DIR opens folders of who mounts",
                    from, link->target_file);
    else if (error == -EDEADLK)
        log_warning("%s: an external link leads into a mount of sparsefs: %s", from,
                    link->target_file);
    else
        log_info("%s: an external link leads nowhere: %s: %s: %s", from, link->target_file,
                 link->target, strerror(-error));
}

/* The file is in the mount itself, in its own place. */
static int make_link_in_folder(struct entry_of_node *entry, const struct sfs_link *link)
{
    const struct node *group = entry->node.parent;
    unsigned levels = group->level + 1;
    char *file, *target = NULL;
    int error = node_folder_resolve(group->mounted, link->target_file, &file);
    for (const char *c = group->mounted->path; *c; c++)
        levels += *c == '/';
    if (!error)
        target = link_target_write(levels, file, link->target, false);
    if (error == -ENOMEM)
        return error;
    if (error)
        log_info("%s: an external link leads nowhere: %s: %s: it is no file of the folder",
                 sfs_path(node_file(group)), link->target_file, link->target);
    entry->node.is_doubtful = error; /* it may come */
    entry->node.unfollowed = error;
    free(file);
    return node_make_symlink(entry, error ? link_target_of_external(link) : target);
}

/* Follows an external link to its object; a link that leads nowhere, or out of the folder of the
 * file unless that is allowed, is shown as one. */
static int make_external(struct nodes *nodes, struct entry_of_node *entry,
                         const struct sfs_link *link)
{
    struct sfs_file *from = node_file(entry->node.parent);
    struct mounted_file *mounted;
    uint64_t address;
    if (nodes->folder_files)
        return make_link_in_folder(entry, link);
    int error = nodes_open_linked(nodes, from, link->target_file, &mounted);
    if (!error)
        error = sfs_find(mounted->file, sfs_root(mounted->file), link->target, &address);
    if (error == -ENOMEM || error == -EINTR)
        return error;
    if (error)
        tell_external(entry, link, error);
    entry->node.is_doubtful = error && error != -ENOENT && error != -EXDEV;
    entry->node.unfollowed = error;
    return error ? node_make_symlink(entry, link_target_of_external(link))
                 : make_object(entry, mounted, address);
}

/* In a file behind an external link, if no folder is mounted, the root of the mount is not the root
 * of paths: soft links are followed here. */
static int make_followed(struct entry_of_node *entry, const struct sfs_link *link)
{
    const struct node *parent = entry->node.parent;
    uint64_t address;
    int error = sfs_find(node_file(parent), node_address(parent), link->target, &address);
    if (error == -ENOMEM || error == -EINTR)
        return error;
    entry->node.is_doubtful = error && error != -ENOENT;
    return error ? node_make_symlink(entry, link_target_of_path(parent, link->target))
                 : make_object(entry, parent->mounted, address);
}

int node_make(struct nodes *nodes, struct entry_of_node *entry, const struct sfs_link *link)
{
    const struct node *parent = entry->node.parent;
    switch (link->type) {
    case SFS_LINK_HARD:
    case SFS_LINK_SERIES:
        return make_object(entry, parent->mounted, link->address);
    case SFS_LINK_SOFT:
        if (!nodes->folder_files && parent->mounted != nodes->files && link->target[0] == '/')
            return make_followed(entry, link);
        return node_make_symlink(entry, link_target_of_path(parent, link->target));
    case SFS_LINK_EXTERNAL:
        return make_external(nodes, entry, link);
    default:
        return node_make_symlink(entry, strdup(NAME_USER_DEFINED));
    }
}
