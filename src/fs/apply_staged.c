/* What was staged and closed is applied before it is looked at. */
#include "fs/interrupt.h"
#include "fs/mount.h"

/* The close that is waited for may need requests that are still to be read. */
static int apply_staged(struct mount *mount, const struct node *node, enum view_kind view,
                        uint64_t frame, bool itself)
{
    if (staging_is_applied(mount->staging, node, view, frame, itself))
        return 0;
    loop_begin_wait(mount->loop);
    int error = staging_apply_closed(mount->staging, node, view, frame, itself);
    loop_end_wait(mount->loop);
    return error;
}

int mount_apply_staged(struct mount *mount, const struct node *node, struct inode inode)
{
    return apply_staged(mount, node, inode_view(inode), inode.frame, false);
}

int mount_apply_itself(struct mount *mount, const struct node *node, struct inode inode)
{
    return apply_staged(mount, node, inode_view(inode), inode.frame, true);
}

int mount_apply_names(struct mount *mount, const struct node *node)
{
    return apply_staged(mount, node, VIEW_KINDS, 0, false);
}

int mount_apply_closed(fuse_req_t request, const struct commits *commits)
{
    CHANGING(request);
    const struct mount *mount = fuse_req_userdata(request);
    if (!staging_any_waits(mount->staging))
        return 0;
    loop_begin_wait(mount->loop);
    int error = staging_apply_before_commit(mount->staging, commits);
    loop_end_wait(mount->loop);
    return error;
}
