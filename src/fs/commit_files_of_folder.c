/* Commits of a mount: which file a change is of, and, of a folder, all files one after the other, in the
 * background too. */
#include "fs/mount.h"

/* By its node the file is found again that has to be committed still. */
static void keep_top(struct mount *mount, const struct node *node)
{
    while (!node_is_top(node))
        node = node->parent;
    if (atomic_exchange(&node->mounted->keeps_top, true))
        return;
    node_hold(mount->nodes, node->number);
    node->mounted->top = node->number;
}

/* Nothing is left to commit. A thread that writes again has called sfs_begin_writing before it sees
 * the node kept: so it is seen here. */
static void let_go_of_top(struct mount *mount, struct mounted_file *file)
{
    if (!together_is_shared(file->file) || !atomic_exchange(&file->keeps_top, false))
        return;
    bool is_kept = !together_is_shared(file->file) && !atomic_exchange(&file->keeps_top, true);
    if (!is_kept)
        node_put(mount->nodes, file->top);
}

void mount_note(struct mount *mount, const struct node *node)
{
    if (mount->files)
        keep_top(mount, node);
    commits_note(mount_commits(mount, node));
}

struct commits *mount_commits(const struct mount *mount, const struct node *node)
{
    return mount->files && node ? node->mounted->commits : mount->commits;
}

struct fresh *mount_fresh(const struct mount *mount, const struct node *node)
{
    return mount->files && node ? node->mounted->fresh : mount->fresh;
}

static int commit(void *context, struct mounted_file *file)
{
    (void)context;
    return file->commits ? commits_now(file->commits, NULL) : 0;
}

int mount_commit_folder(struct mount *mount)
{
    return mounted_files_each(mount->files, commit, NULL);
}

static int commit_in_background(void *context, struct mounted_file *file)
{
    if (!file->commits)
        return 0;
    commits_in_background(file->commits);
    let_go_of_top(context, file);
    if (together_is_outdated(file->file))
        mounted_outdate(file);
    return 0;
}

void mount_commit_regularly(void *mount)
{
    (void)mounted_files_each(((struct mount *)mount)->files, commit_in_background, mount);
}
