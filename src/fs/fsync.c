/* fsync, of a file or a directory: what was written before is durable when it is answered. */
#include <errno.h>

#include "fs/daemon/loop.h"
#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/read_defined.h"
#include "fs/requests.h"
#include "fs/unfinished_new_frames.h"

/* Applies what is staged, which can be interrupted: then it stays, for another fsync or the close. */
static int apply(fuse_req_t request, struct open_file *file, struct change *change)
{
    CHANGING(request);
    struct mount *mount = mount_of(request);
    int error = 0;
    if (file->staged) {
        error = open_file_apply(mount, file, change);
        selection_forget(file);
        if (error != -EINTR)
            atomic_store(&file->has_staged, false);
    }
    if (file->matrix) {
        atomic_store(&file->has_staged, false);
        error = open_file_take(mount, file, MATRIX_CLOSED);
    }
    return error;
}

int commit_for_request(fuse_req_t request, struct commits *commits, struct sfs_dataset *dataset)
{
    CHANGING(request);
    struct mount *mount = mount_of(request);
    loop_begin_wait(mount->loop);
    int error = commits ? commits_now(commits, dataset) : mount_commit_folder(mount);
    loop_end_wait(mount->loop);
    return error;
}

/* It waits for what was closed, too. What was closed and is lost is told, but all else is committed. */
static int commit(fuse_req_t request, struct commits *commits, struct sfs_dataset *dataset)
{
    int lost = mount_apply_closed(request, commits);
    if (lost == -EINTR)
        return lost;
    int error = commit_for_request(request, commits, dataset);
    return error ? error : lost;
}

static int find_now(fuse_req_t request, struct open_file **file)
{
    CHANGING(request);
    return open_file_now(mount_of(request), file);
}

void on_fsync(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info)
{
    (void)number, (void)data_only;
    struct mount *mount = mount_of(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    struct answer answer = {.kind = ANSWER_ERROR};
    struct change change = {0};
    open_file_use(opened);
    answer.error = find_now(request, &file);
    if (file->staged || file->matrix)
        answer.error = apply(request, file, &change);
    struct commits *commits = mount_commits(mount, file->node);
    fresh_finish(mount_fresh(mount, file->node), file->fresh);
    if (!answer.error && commits && !file->temporary)
        answer.error = commit(request, commits, file->views ? file->views->dataset : NULL);
    if (file->is_for_writing) { /* told once, with this one if that has failed, too */
        int earlier = commits_error(commits, &file->commits_seen);
        if (!answer.error)
            answer.error = earlier;
    }
    if (change.node)
        notify_change(mount->notify, &change, 0, request, &answer);
    else
        notify_answer(mount->notify, request, &answer);
    open_file_put(mount, opened);
}

/* Of any directory: all that was written before, to the file in which it is, if it is in one. */
void on_fsyncdir(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info)
{
    (void)data_only, (void)info;
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ERROR};
    const struct node *node = node_get(mount->nodes, inode_unpack(number).node);
    bool is_of_folder = mount->files && (!node || node->type == NODE_FOLDER);
    struct commits *commits = is_of_folder ? NULL : mount_commits(mount, node);
    if (is_of_folder || commits)
        answer.error = commit(request, commits, NULL);
    notify_answer(mount->notify, request, &answer);
}
