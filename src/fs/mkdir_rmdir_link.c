/* Names that are made and removed: those of groups. All others are computed, or belong to objects
 * that are made by other means. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "fs/escaped_names.h"
#include "fs/interrupt.h"
#include "fs/refusal.h"
#include "fs/requests.h"

/* A group in which names can be made. */
static int get_group(struct mount *mount, struct inode inode, const struct node **group)
{
    *group = node_get(mount->nodes, inode.node);
    if (!*group)
        return -ENOENT;
    if (!mount->is_writable || !sfs_is_writable(node_file(*group)))
        return -EROFS;
    return inode.entry == ENTRY_NODE && (*group)->type == NODE_GROUP
               ? 0
               : refusal_say(mount, *group, REFUSAL_DIRECTORY);
}

/* The HDF5 path of a link in a group; the caller frees it. */
static int path_of_link(const struct node *group, const char *link, char **path)
{
    char *directory;
    int error = node_whole_path(group, &directory);
    if (error)
        return error;
    int n = asprintf(path, "%s/%s", node_is_top(group) ? "" : directory, link);
    free(directory);
    return n < 0 ? -ENOMEM : 0;
}

/* The file of a directory, whose tree lock is held for writing then. -ENOENT: there is none; -EINTR. */
static int lock_to_change(struct mount *mount, struct inode directory, struct mounted_file **file)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    *file = node ? node->mounted : NULL;
    return node ? mounted_lock_to_change(*file) : -ENOENT;
}

/* The tree lock must be held for writing. */
static int make_group(struct mount *mount, const struct node *group, const char *name)
{
    char link[NAME_BYTES], *path;
    if (!link_name_for_group(name, !group->parent, link))
        return refusal_say(mount, group, REFUSAL_GROUP_NAME);
    int error = path_of_link(group, link, &path);
    if (error)
        return error;
    error = listings_begin_change(mount->listings, group, link);
    if (!error) {
        error = sfs_group_create(node_file(group), path);
        listings_end_change(mount->listings, group, link, error ? LINK_UNCHANGED : LINK_MADE);
    }
    free(path);
    return error;
}

/* Looks up a name that was made, whoever waits for that: it is there. */
static int entry_of(struct mount *mount, struct inode parent, const char *name,
                    struct fuse_entry_param *entry)
{
    UNINTERRUPTED();
    struct inode inode;
    bool is_new;
    int error = mount_lookup(mount, parent, name, &inode, &is_new);
    if (error)
        return error;
    error = mount_attributes(mount, inode, &entry->attr, &entry->attr_timeout);
    if (!error) {
        entry->ino = inode_pack(inode);
        entry->generation = mount_generation(mount, inode);
        entry->entry_timeout = MOUNT_TIMEOUT_SECONDS;
        node_looked_up(mount->nodes, inode.node, 1);
    }
    node_put(mount->nodes, inode.node);
    return error;
}

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode)
{
    CHANGING(request);
    (void)mode;
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ENTRY};
    const struct node *group;
    struct mounted_file *file;
    answer.error = lock_to_change(mount, inode_unpack(parent), &file);
    if (!answer.error) {
        answer.error = get_group(mount, inode_unpack(parent), &group);
        if (!answer.error)
            answer.error = make_group(mount, group, name);
        mounted_unlock(file);
    }
    if (!answer.error) {
        const struct change change = {.node = group};
        mount_note(mount, group, fuse_req_ctx(request)->uid);
        answer.error = entry_of(mount, inode_unpack(parent), name, &answer.entry);
        notify_change(mount->notify, &change, 0, request, &answer);
    } else {
        answer_now(request, &answer);
    }
}

/* Removes an empty group by its link. */
static int remove_link(struct mount *mount, const struct node *group, const char *name)
{
    char *path;
    int error = path_of_link(group, name, &path);
    if (error)
        return error;
    error = listings_begin_change(mount->listings, group, name);
    if (!error) {
        error = sfs_group_remove(node_file(group), path);
        listings_end_change(mount->listings, group, name, error ? LINK_UNCHANGED : LINK_REMOVED);
    }
    free(path);
    return error;
}

/* The tree lock must be held for writing. */
static int remove_group(struct mount *mount, const struct node *group, const struct node *child)
{
    char *name;
    int error = node_whole_name(child, &name);
    if (error)
        return error;
    error = remove_link(mount, group, name);
    if (!error) {
        atomic_fetch_add(&group->mounted->removals, 1);
        listings_forget(mount->listings, child);
        error = node_remove(mount->nodes, group, name);
    }
    free(name);
    return error;
}

/* The node of a child that was found is held. */
static int remove_found(struct mount *mount, struct inode parent, struct inode found,
                        const struct node **group)
{
    struct mounted_file *file;
    int error = lock_to_change(mount, parent, &file);
    if (error)
        return error;
    error = get_group(mount, parent, group);
    const struct node *child = node_get(mount->nodes, found.node);
    if (!error && !child)
        error = -ENOENT;
    else if (!error && (found.entry != ENTRY_NODE || child->type != NODE_GROUP))
        error = refusal_say(mount, child, REFUSAL_REMOVAL);
    else if (!error)
        error = remove_group(mount, *group, child);
    mounted_unlock(file);
    return error;
}

void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    CHANGING(request);
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ERROR};
    struct inode inode;
    const struct node *group = NULL;
    bool is_new;
    answer.error = mount_lookup(mount, inode_unpack(parent), name, &inode, &is_new);
    bool is_held = !answer.error;
    if (!answer.error)
        answer.error = remove_found(mount, inode_unpack(parent), inode, &group);
    if (is_held)
        node_put(mount->nodes, inode.node);
    if (!answer.error) {
        const struct change change = {.node = group};
        mount_note(mount, group, fuse_req_ctx(request)->uid);
        notify_change(mount->notify, &change, 0, request, &answer);
    } else {
        answer_now(request, &answer);
    }
}

/* ---- What cannot be done to any name: the kernel answers for a read-only mount ---- */

static void refuse(fuse_req_t request, fuse_ino_t parent, enum refusal refusal)
{
    struct mount *mount = mount_of(request);
    const struct node *node = node_get(mount->nodes, inode_unpack(parent).node);
    answer_error(request, refusal_say(mount, node, refusal));
}

void on_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name)
{
    (void)target, (void)name;
    refuse(request, parent, REFUSAL_LINK);
}

void on_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name)
{
    (void)number, (void)name;
    refuse(request, parent, REFUSAL_LINK);
}
