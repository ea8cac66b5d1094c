/* How a temporary file becomes a frame: its content is written to the view that it is renamed to.
 * The exclusive lock is taken only then (sfs_begin_writing): a temporary file writes nothing, and
 * must not keep other programs from the HDF5 file. */
#include <errno.h>

#include "common/interrupt.h"
#include "fs/mount.h"
#include "fs/refusal.h"

/* What a content is for. */
struct target {
    struct mount *mount;
    const struct node *node;
    struct views *views;
    struct inode inode;
    unsigned directory; /* an enum entry */
};

static bool is_removed(const struct target *target)
{
    const struct temporary_place place = {target->node, target->directory};
    return removed_has(target->mount->removed, place, target->inode);
}

static int check(const struct target *target, bool replaces)
{
    enum view_kind view = inode_view(target->inode);
    uint64_t frame = target->inode.frame;
    if (!mount_shows(target->mount, target->views, view) ||
        frame > UINT64_MAX - target->mount->options->first)
        return refusal_say(target->mount, target->node, REFUSAL_NAME);
    if (!view_writable(target->views, view))
        return refusal_of_view(target->mount, target->node, view);
    if (frame < views_frames(target->views))
        return replaces || is_removed(target) ? 0 : -EEXIST;
    int error = frame < INODE_MAX_FRAMES ? views_may_extend(target->views, frame + 1) : -EFBIG;
    return error == -EFBIG ? refusal_say(target->mount, target->node, REFUSAL_GROWTH) : error;
}

/* A commit has all of it or nothing. */
static int put(void *context, const void *bytes, size_t n)
{
    const struct target *target = context;
    const struct options *options = target->mount->options;
    const struct view_content content = {
        .bytes = bytes,
        .n = n,
        .sparsify = options->sparsify,
        .most_kept = options->staging_size,
        .hold = commits_hold(mount_commits(target->mount, target->node))};
    return view_put(target->views, inode_view(target->inode), target->inode.frame, &content);
}

static pthread_mutex_t *lock_of(const struct target *target)
{
    uint64_t hash = (target->node->object * 31 + target->inode.frame) % MOUNT_BECOMING;
    return &target->mount->becoming[hash];
}

/* Of two at once each is whole, and the last one stays. */
static int become(const struct target *target, struct temporary *temporary)
{
    struct target context = *target;
    int error = sfs_begin_writing(node_file(target->node));
    if (error)
        return error;
    error = mount_apply_itself(target->mount, target->node, target->inode);
    if (!error)
        error = interrupt_lock(lock_of(target));
    if (!error) {
        error = temporary_become(target->mount->temporaries, temporary, target->node, target->inode,
                                 put, &context);
        pthread_mutex_unlock(lock_of(target));
    }
    sfs_end_writing(node_file(target->node));
    if (error == -EFBIG)
        error = refusal_say(target->mount, target->node, REFUSAL_END);
    return error;
}

/* A time that was set for the file, before it got its name, is that of the frame. */
static void take_times(const struct target *target, struct temporary *temporary)
{
    struct timespec atime, mtime;
    uint64_t frame = target->inode.frame, object = target->node->object;
    mount_written(target->mount, target->node,
                  (struct written){frame, frame, temporary_user(temporary)});
    if (temporary_times_are_set(temporary, &atime, &mtime))
        times_set(target->mount->times, object, frame, &atime, &mtime);
}

int mount_become(struct mount *mount, struct temporary *temporary, struct inode directory,
                 const char *name, bool replaces, struct change *change)
{
    struct target target = {.mount = mount,
                            .node = node_get(mount->nodes, directory.node),
                            .directory = directory.entry};
    if (!target.node)
        return -ESTALE;
    if (!mount_parse_name(mount, directory, name, &target.inode))
        return -EPERM;
    int error = node_get_views(mount->nodes, target.node, &target.views);
    if (error)
        return error;
    uint64_t frame = target.inode.frame, frames = views_frames(target.views);
    error = check(&target, replaces);
    if (!error)
        error = become(&target, temporary);
    if (!error) {
        take_times(&target, temporary);
        (void)mount_undo_removal(mount, directory, name);
    }
    if (!error || (error != -EINVAL && error != -EFBIG && error != -EEXIST))
        *change = change_since(target.node, target.views, frames, frame, frame);
    if (frame >= frames)
        change->names = true;
    node_put_views(mount->nodes, target.node);
    return error;
}
