/* What must be done besides when something is written, and before something is looked at. */
#include "fs/interrupt.h"
#include "fs/mount.h"

void mount_written(struct mount *mount, const struct node *node, uint64_t first, uint64_t last)
{
    node_keep_object(mount->nodes, node);
    times_note(mount->times, node->object, first, last, false);
    mount_note(mount, node);
}

void mount_asked(struct mount *mount, const struct node *node, uint64_t frame)
{
    times_unset(mount->times, node->object, frame);
}

void mount_applied(struct mount *mount, const struct node *node, uint64_t first, uint64_t last)
{
    node_keep_object(mount->nodes, node);
    times_note(mount->times, node->object, first, last, true);
    mount_note(mount, node);
}

/* The close that is waited for may need requests that are still to be read. */
static void apply_staged(struct mount *mount, const struct node *node, enum view_kind view,
                         uint64_t frame, bool itself)
{
    NOT_INTERRUPTIBLE();
    if (staging_is_applied(mount->staging, node, view, frame, itself))
        return;
    loop_begin_wait(mount->loop);
    staging_apply_closed(mount->staging, node, view, frame, itself);
    loop_end_wait(mount->loop);
}

void mount_apply_staged(struct mount *mount, const struct node *node, struct inode inode)
{
    apply_staged(mount, node, inode_view(inode), inode.frame, false);
}

void mount_apply_itself(struct mount *mount, const struct node *node, struct inode inode)
{
    apply_staged(mount, node, inode_view(inode), inode.frame, true);
}

void mount_apply_names(struct mount *mount, const struct node *node)
{
    apply_staged(mount, node, VIEW_KINDS, 0, false);
}
