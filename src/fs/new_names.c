/* What a name in a directory that is not there yet can be: a frame's, a temporary file's, or nobody's. */
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

static bool has_writable_view(struct views *views, const struct frame_names *series)
{
    for (unsigned i = 0; i < series->n_views; i++)
        if (view_writable(views, series->view[i]))
            return true;
    return false;
}

int mount_place(struct mount *mount, struct inode directory, struct temporary_place *place)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    const struct frame_names *series = frame_names_in(directory.entry);
    struct views *views;
    if (!node)
        return -ESTALE;
    if (!mount->temporaries || !sfs_is_writable(node_file(node)))
        return -EROFS;
    if (node->type != NODE_DATASET || !series)
        return -EPERM;
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = has_writable_view(views, series) ? 0 : -EPERM;
    node_put_views(mount->nodes, node);
    *place = (struct temporary_place){node, directory.entry};
    return error;
}
