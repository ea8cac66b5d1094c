/* rm of the file of a frame: its name is removed, and can be made again. */
#include "fs/mount.h"
#include "fs/refusal.h"

int mount_remove_name(struct mount *mount, struct inode directory, const char *name)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    struct views *views;
    struct inode inode;
    bool is_new;
    int error = mount_lookup(mount, directory, name, &inode, &is_new);
    if (error)
        return error;
    if (is_new || mount->options->is_strict)
        error = refusal_say(mount, node, REFUSAL_REMOVAL);
    else
        error = node_get_views(mount->nodes, node, &views);
    if (!error) {
        node_keep_object(mount->nodes, node);
        error = view_writable(views, inode_view(inode))
                    ? removed_add(mount->removed, (struct temporary_place){node, directory.entry},
                                  inode)
                    : refusal_of_view(mount, node, inode_view(inode));
        node_put_views(mount->nodes, node);
    }
    node_put(mount->nodes, inode.node);
    return error;
}

bool mount_undo_removal(struct mount *mount, struct inode directory, const char *name)
{
    const struct temporary_place place = {node_get(mount->nodes, directory.node), directory.entry};
    struct inode inode;
    return place.node && mount_parse_name(mount, directory, name, &inode) &&
           removed_undo(mount->removed, place, inode);
}

void mount_redo_removal(struct mount *mount, struct inode directory, const char *name)
{
    const struct temporary_place place = {node_get(mount->nodes, directory.node), directory.entry};
    struct inode inode;
    if (place.node && mount_parse_name(mount, directory, name, &inode))
        (void)removed_add(mount->removed, place, inode); /* without memory the name stays */
}
