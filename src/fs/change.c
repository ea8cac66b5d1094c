/* What must be done besides when something is written or looked at. */
#include <errno.h>

#include "fs/entry.h"
#include "fs/interrupt.h"
#include "fs/mount.h"

void mount_written(struct mount *mount, const struct node *node, uint64_t first, uint64_t last)
{
    times_note(mount->times, node->object, first, last);
    commits_note(mount->commits);
}

struct change mount_change(const struct node *node, uint64_t first, uint64_t last)
{
    return (struct change){.node = node, .first = first, .last = last, .views = CHANGED_VIEWS};
}

void mount_settle(struct mount *mount, const struct node *node, struct inode inode)
{
    enum view_kind kind = inode_view(inode);
    NOT_INTERRUPTIBLE();
    if (kind != VIEW_DEFINED)
        staging_settle(mount->staging, node,
                       kind < VIEW_STACK_RAW ? inode.frame : STAGING_ANY_FRAME);
}

/* The frame that a name in a directory stands for, whether it is there or not. */
static int frame_of_name(struct mount *mount, struct views *views, struct inode directory,
                         const char *name, uint64_t *frame)
{
    const struct entry_series *series = entry_series(directory.entry);
    uint64_t number;
    enum view_kind view;
    if (!series || !entry_parse(series, name, &number, &view) || number < mount->options->first ||
        !view_writable(views, view))
        return -EPERM;
    *frame = number - mount->options->first;
    return *frame < INODE_MAX_FRAMES ? 0 : -EFBIG;
}

int mount_extend(struct mount *mount, struct inode directory, const char *name,
                 struct fresh_frame **fresh)
{
    const struct node *node = node_get(mount->nodes, directory.node);
    struct views *views;
    uint64_t frame;
    if (!node || node->type != NODE_DATASET)
        return -EPERM;
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = frame_of_name(mount, views, directory, name, &frame);
    uint64_t frames = views_frames(views);
    if (!error)
        error = fresh_make(mount->fresh, node, frame, fresh);
    if (!error)
        error = views_extend(views, frame + 1);
    node_put_views(mount->nodes, node);
    if (error)
        return error;
    struct change change = mount_change(node, frames, frame);
    change.names = true;
    mount_written(mount, node, frames < frame ? frames : frame, frame);
    notify_change(mount->notify, &change, 0, NULL, NULL);
    return 0;
}
