/* Frames that are not there yet: whether a name in a directory can be that of one. */
#include <errno.h>

#include "fs/frame_names.h"
#include "fs/mount.h"
#include "fs/refusal.h"

bool mount_parse_name(struct mount *mount, struct inode directory, const char *name,
                      struct inode *inode)
{
    const struct frame_names *series = frame_names_in(directory.entry);
    uint64_t number;
    enum view_kind view;
    if (!series || series->are_chunks || !frame_name_parse(series, name, 0, &number, &view))
        return false;
    uint64_t frame = number - mount->options->first; /* before the first: huge */
    *inode = (struct inode){.node = directory.node, .frame = frame, .entry = ENTRY_VIEW + view};
    return true;
}

/* The view and frame that a name in a directory stands for, whether the frame exists or not. */
static int parse_name(struct mount *mount, struct views *views, struct inode directory,
                      const char *name, struct inode *inode)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    if (!mount_parse_name(mount, directory, name, inode) ||
        inode->frame > UINT64_MAX - mount->options->first)
        return refusal_say(mount, node, REFUSAL_NAME);
    if (!view_writable(views, inode_view(*inode)))
        return refusal_of_view(mount, node, inode_view(*inode));
    return inode->frame < INODE_MAX_FRAMES ? 0 : refusal_say(mount, node, REFUSAL_GROWTH);
}

int mount_new_frame(struct mount *mount, struct inode directory, const char *name,
                    struct inode *inode)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    struct views *views;
    if (!node || node->type != NODE_DATASET)
        return refusal_say(mount, node, REFUSAL_NAME);
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = parse_name(mount, views, directory, name, inode);
    if (!error)
        error = views_may_extend(views, inode->frame + 1);
    if (error == -EFBIG)
        error = refusal_say(mount, node, REFUSAL_GROWTH);
    node_put_views(mount->nodes, node);
    return error;
}
