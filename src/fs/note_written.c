/* What must be done besides when something is written: its times, its commit, and its object is kept. */
#include "fs/mount.h"

/* Of virtual datasets, which show elements of others. */
static void note_time(const struct node *node)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_store(&node->mounted->written,
                 (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void note(struct mount *mount, const struct node *node, struct written written,
                 enum times_kept kept)
{
    node_keep_object(mount->nodes, node);
    times_note(mount->times, node->object, written.first, written.last, kept);
    note_time(node);
    mount_note(mount, node, written.user);
}

void mount_written(struct mount *mount, const struct node *node, struct written written)
{
    note(mount, node, written, TIMES_KEEP_NONE);
}

void mount_asked(struct mount *mount, const struct node *node, uint64_t frame)
{
    times_unset(mount->times, node->object, frame);
}

void mount_applied(struct mount *mount, const struct node *node, struct written written)
{
    note(mount, node, written, TIMES_KEEP_SET);
}

void mount_applied_to_all(struct mount *mount, const struct node *node, struct written written)
{
    note(mount, node, written, TIMES_KEEP_OF_ALL);
}
