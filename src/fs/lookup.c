/* From a name in a directory to an inode. */
#include <errno.h>
#include <string.h>

#include "fs/dataset_entries.h"
#include "fs/escaped_names.h"
#include "fs/frame_names.h"
#include "fs/mount.h"

/* Names that were cut are found by cutting every name of the group. */
static int lookup_cut(struct mount *mount, const struct node *group, const char *name,
                      const struct node **child)
{
    struct sfs_links links;
    int error = sfs_list(node_file(group), node_address(group), &links);
    if (error)
        return error;
    error = -ENOENT;
    for (size_t i = 0; i < links.n && error == -ENOENT; i++) {
        char encoded[NAME_BYTES];
        link_name_encode(links.link[i].name, !group->parent, encoded);
        if (!strcmp(encoded, name))
            error = node_child(mount->nodes, group, &links.link[i], child);
    }
    sfs_links_free(&links);
    return error;
}

/* group.json, in the place of a link that is not there. */
static int lookup_group_json(struct mount *mount, const struct node *group, const char *name,
                             struct inode *inode)
{
    int error = strcmp(name, NAME_GROUP_JSON) ? -ENOENT : group_find(mount, group);
    if (!error) {
        *inode = (struct inode){.node = group->number, .entry = ENTRY_GROUP_JSON};
        node_hold(mount->nodes, group->number);
    }
    return error;
}

/* The node of the inode is held then. The tree lock must be held for reading. */
static int lookup_in_locked(struct mount *mount, const struct node *group, const char *name,
                            struct inode *inode)
{
    char link_name[NAME_BYTES];
    const struct node *child;
    int error;
    if (!group->parent && !strcmp(name, NAME_CONTROL)) {
        *inode = (struct inode){.entry = ENTRY_CONTROL};
        node_hold(mount->nodes, inode->node);
        return 0;
    }
    if (link_name_decode(name, !group->parent, link_name)) {
        struct sfs_link link;
        error = sfs_lookup(node_file(group), node_address(group), link_name, &link);
        if (error == -ENOENT)
            return lookup_group_json(mount, group, name, inode);
        if (error)
            return error;
        error = node_child(mount->nodes, group, &link, &child);
        sfs_link_free(&link);
    } else {
        error = link_name_is_cut(name) ? lookup_cut(mount, group, name, &child) : -ENOENT;
    }
    if (!error)
        *inode = (struct inode){.node = child->number, .entry = ENTRY_NODE};
    return error;
}

static int lookup_in_group(struct mount *mount, const struct node *group, const char *name,
                           struct inode *inode)
{
    struct mounted_file *file = group->mounted;
    int error = mounted_lock_to_read(file);
    if (error)
        return error;
    error = node_get(mount->nodes, group->number) ? lookup_in_locked(mount, group, name, inode)
                                                  : -ESTALE;
    mounted_unlock(file);
    return error;
}

/* -ENOENT, -EINTR. */
static int find_frame(struct mount *mount, struct views *views, uint32_t number,
                      enum view_kind view, uint64_t frame, bool *is_new)
{
    if (frame < views_frames(views))
        return 0;
    const struct node *node = node_get(mount->nodes, number);
    int error = node ? mount_apply_names(mount, node) : -ENOENT;
    if (error)
        return error;
    *is_new = frame >= views_frames(views);
    return !*is_new || staging_is_new(mount->staging, node, view, frame) ? 0 : -ENOENT;
}

/* The view and frame that a name in a directory of frames stands for. */
static bool find_in_series(const struct mount *mount, struct views *views, unsigned directory,
                           const char *name, enum view_kind *view, uint64_t *frame)
{
    const struct frame_names *series = frame_names_in(directory);
    if (!series)
        return false;
    if (series->are_chunks) {
        *view = series->view[0];
        return mount_shows(mount, views, *view) && view_chunk_frame(views, name, frame);
    }
    return frame_name_parse(series, name, mount->options->first, frame, view) &&
           mount_shows(mount, views, *view);
}

/* The node of the inode is held then. */
static bool lookup_temporary(struct mount *mount, const struct node *node, struct inode directory,
                             const char *name, struct inode *inode)
{
    const struct temporary_place place = {node, directory.entry};
    struct temporary *temporary = temporary_find(mount->temporaries, place, name);
    if (!temporary)
        return false;
    *inode = temporary_inode(temporary);
    node_hold(mount->nodes, inode->node);
    temporary_put(mount->temporaries, temporary);
    return true;
}

static int lookup_in_dataset(struct mount *mount, struct views *views, struct inode directory,
                             const char *name, struct inode *inode, bool *is_new)
{
    *inode = (struct inode){.node = directory.node};
    const struct entry_name *fixed = entry_names(directory.entry);
    for (; fixed && fixed->name; fixed++) {
        if (!strcmp(name, fixed->name) && mount_shows_name(mount, views, fixed)) {
            inode->entry = fixed->entry;
            return 0;
        }
    }
    uint64_t frame;
    enum view_kind view;
    if (!find_in_series(mount, views, directory.entry, name, &view, &frame))
        return -ENOENT;
    int error = find_frame(mount, views, directory.node, view, frame, is_new);
    if (error)
        return error;
    if (frame >= INODE_MAX_FRAMES)
        return -EOVERFLOW;
    inode->frame = frame;
    inode->entry = ENTRY_VIEW + view;
    const struct temporary_place place = {node_get(mount->nodes, directory.node), directory.entry};
    return place.node && removed_has(mount->removed, place, *inode) ? -ENOENT : 0;
}

/* Whether the inode exists: file handles can be made up. */
static bool exists_in_control(const struct mount *mount, struct inode inode)
{
    struct inode file;
    bool is_there = inode.entry == ENTRY_CONTROL;
    for (unsigned i = 0; !is_there && control_name(mount, i, &file); i++)
        is_there = file.entry == inode.entry;
    return is_there && inode.node == 0 && inode.frame == 0;
}

/* -ENOENT, -EINTR. */
static int find_in_dataset(struct mount *mount, struct views *views, struct inode inode,
                           bool *is_new)
{
    if (inode_is_view(inode)) {
        enum view_kind view = inode_view(inode);
        if (view >= VIEW_KINDS || !mount_shows(mount, views, view))
            return -ENOENT;
        if (view < VIEW_STACK_RAW)
            return find_frame(mount, views, inode.node, view, inode.frame, is_new);
        return inode.frame == 0 ? 0 : -ENOENT;
    }
    const struct entry_name *directory = entry_names(ENTRY_NODE);
    while (directory->name && directory->entry != inode.entry)
        directory++;
    bool exists = directory->name && inode.frame == 0 && mount_shows_name(mount, views, directory);
    return exists ? 0 : -ENOENT;
}

static int check_exists(struct mount *mount, const struct node *node, struct inode inode,
                        bool *is_new)
{
    struct views *views;
    bool exists = inode.entry == ENTRY_NODE && inode.frame == 0;
    if (inode.entry == ENTRY_TEMPORARY) {
        struct temporary *temporary = temporary_get(mount->temporaries, inode);
        exists = temporary;
        temporary_put(mount->temporaries, temporary);
    } else if (inode.entry == ENTRY_GROUP_JSON) {
        int error = mounted_lock_to_read(node->mounted);
        if (error)
            return error;
        error = group_find(mount, node);
        mounted_unlock(node->mounted);
        if (error == -EINTR)
            return error;
        exists = inode.frame == 0 && !error;
    } else if (inode.entry >= ENTRY_CONTROL && inode.entry < ENTRY_VIEW) {
        exists = exists_in_control(mount, inode);
    } else if (inode.entry != ENTRY_NODE && node->type == NODE_DATASET) {
        int error = node_get_views(mount->nodes, node, &views);
        if (error)
            return error;
        error = find_in_dataset(mount, views, inode, is_new);
        node_put_views(mount->nodes, node);
        if (error == -EINTR)
            return error;
        exists = !error;
    }
    return exists ? 0 : -ESTALE;
}

struct inode mount_parent(const struct node *node, struct inode inode)
{
    if (inode.entry == ENTRY_NODE && node->parent)
        node = node->parent;
    return (struct inode){.node = node->number, .entry = ENTRY_NODE};
}

/* The node of the inode is held then. */
static int lookup_self(struct mount *mount, struct inode self, bool wants_parent,
                       struct inode *inode, bool *is_new)
{
    const struct node *node = node_hold_any(mount->nodes, self.node);
    if (!node)
        return -ESTALE;
    int error = check_exists(mount, node, self, is_new);
    *inode = wants_parent ? mount_parent(node, self) : self;
    if (!error && inode->node != self.node)
        node_hold(mount->nodes, inode->node);
    if (error || inode->node != self.node)
        node_put(mount->nodes, self.node);
    return error;
}

uint64_t mount_generation(struct mount *mount, struct inode inode)
{
    /* The kernel has made the root's inode itself, with this. */
    if (inode_pack(inode) == FUSE_ROOT_ID)
        return 0;
    const struct node *node = node_get(mount->nodes, inode.node);
    return node ? node->generation : 0;
}

int mount_lookup(struct mount *mount, struct inode directory, const char *name, struct inode *inode,
                 bool *is_new)
{
    struct views *views;
    *is_new = false;
    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return lookup_self(mount, directory, name[1] == '.', inode, is_new);
    if (directory.entry == ENTRY_CONTROL) {
        int error = control_lookup(mount, name, inode);
        if (!error)
            node_hold(mount->nodes, inode->node);
        return error;
    }
    const struct node *node = node_get(mount->nodes, directory.node);
    if (!node)
        return -ESTALE;
    if (node->type == NODE_FOLDER)
        return mount_lookup_in_folder(mount, node, name, inode);
    if (node->type == NODE_GROUP)
        return lookup_in_group(mount, node, name, inode);
    if (node->type != NODE_DATASET)
        return -EIO;
    if (lookup_temporary(mount, node, directory, name, inode))
        return 0;
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = lookup_in_dataset(mount, views, directory, name, inode, is_new);
    if (!error)
        node_hold(mount->nodes, inode->node);
    node_put_views(mount->nodes, node);
    return error;
}
