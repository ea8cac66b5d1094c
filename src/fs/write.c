/* Writing. */
#include <errno.h>
#include <fcntl.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/read_defined.h"
#include "fs/refusal.h"
#include "fs/requests.h"

/* Of all that is written here: *change, whose node is NULL if nothing can have changed. */

static int write_staged(struct mount *mount, struct open_file *file, const struct view_bytes *bytes,
                        struct change *change)
{
    int error = staging_write(mount->staging, file->staged, bytes->bytes, bytes->n, bytes->offset);
    if (error)
        return error;
    mount_asked(mount, file->node, file->inode.frame);
    *change = change_of_frames(file->node, file->inode.frame, file->inode.frame);
    change->views = 1u << VIEW_DEFINED; /* the others, when it is applied */
    atomic_store(&file->has_staged, true);
    return 0;
}

static int write_matrix(struct mount *mount, struct open_file *file, const struct view_bytes *bytes,
                        struct change *change)
{
    const struct matrix_part part = {inode_view(file->inode), file, file->user};
    int error = matrix_write(mount->matrices, file->matrix, &part, bytes);
    if (error != -EINTR)
        open_file_note_collected(mount, file, change);
    return error;
}

static int write_view(struct mount *mount, struct open_file *file, const struct view_bytes *bytes,
                      size_t *written, struct change *change)
{
    enum view_kind kind = inode_view(file->inode);
    uint64_t frame = file->inode.frame, frames = views_frames(file->views);
    int error = mount_apply_staged(mount, file->node, file->inode);
    if (error)
        return error;
    bool was_empty = staging_is_empty(mount->staging, file->node, kind, frame);
    error = staging_write_dense(mount->staging, file->staged, bytes, written);
    if (!staging_waits(file->staged))
        atomic_store(&file->has_asked, false);
    if (!error && staging_is_collected(file->staged)) {
        open_file_note_collected(mount, file, change);
        return 0;
    }
    if (!error_may_have_changed(error))
        return error;
    struct view_frames changed =
        view_frames_of(file->views, kind, frame, bytes->offset, error ? bytes->n : *written);
    *change = was_empty
                  ? open_file_change(file, frames)
                  : change_since(file->node, file->views, frames, changed.first, changed.last);
    mount_written(mount, file->node, (struct written){change->first, change->last, file->user});
    return error;
}

/* What chunks have to be decoded for, the place of a contiguous dataset, which gets the fill value everywhere, and the
 * present content of what is collected may take long: that ends early, with EINTR, before anything has changed. */
static int write_or_end(fuse_req_t request, struct mount *mount, struct open_file *file,
                        const struct view_bytes *bytes, size_t *written, struct change *change)
{
    CHANGING(request);
    if (open_file_is_selection(file))
        return write_staged(mount, file, bytes, change);
    return file->matrix ? write_matrix(mount, file, bytes, change)
                        : write_view(mount, file, bytes, written, change);
}

/* Explains -EFBIG: the range is behind the end of the file, or the dataset cannot grow. */
static int tell_end(const struct mount *mount, const struct open_file *file, uint64_t offset)
{
    uint64_t size;
    enum view_kind kind = inode_view(file->inode);
    bool is_inside = kind != VIEW_DEFINED &&
                     view_size(file->views, kind, file->inode.frame, &size) == 0 && offset < size;
    return refusal_say(mount, file->node, is_inside ? REFUSAL_GROWTH : REFUSAL_END);
}

/* What waited for the file is forgotten. Returns whether it shows something else now. */
static bool refuse(struct mount *mount, struct open_file *file)
{
    bool changed;
    staging_refuse(mount->staging, file->staged, &changed);
    atomic_store(&file->has_asked, false);
    return changed;
}

/* The kernel may have pages of the file that show what was forgotten. It is told after the answer,
 * because it may hold some of them until then, and before a close is answered. */
static void notify_refused(struct mount *mount, const struct open_file *file)
{
    struct change change = change_of_frames(file->node, file->inode.frame, file->inode.frame);
    change.views = 1u << inode_view(file->inode);
    notify_change(mount->notify, &change, 0, NULL, NULL);
}

/* O_SYNC and O_DSYNC. For a file that goes through its page cache the kernel sends an fsync, too,
 * which then finds nothing to do; for others it does not. */
static bool is_synchronous(const struct fuse_file_info *info)
{
    return info->flags & O_DSYNC && !info->writepage;
}

/* The kernel, which knows no file of which the end does not move, appends by writing at an end of
 * which it has an idea. */
static bool is_appending(const struct fuse_file_info *info)
{
    return info->flags & O_APPEND && !info->writepage;
}

/* Writes to a temporary file. What else *file may be, or has become, is for the caller to write to.
 */
static int write_temporary(fuse_req_t request, struct mount *mount, struct open_file **file,
                           const struct view_bytes *bytes)
{
    CHANGING(request);
    int error = open_file_now(mount, file);
    if (error || !(*file)->temporary)
        return error;
    error = temporary_write(mount->temporaries, (*file)->temporary, bytes->bytes, bytes->n,
                            bytes->offset);
    return error == -ESTALE ? open_file_now(mount, file) : error;
}

void on_write(fuse_req_t request, fuse_ino_t number, const char *bytes, size_t n, off_t offset,
              struct fuse_file_info *info)
{
    struct mount *mount = mount_of(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    struct answer answer = {.kind = ANSWER_WRITTEN,
                            .written = n,
                            .offset = (uint64_t)offset,
                            .is_of_map = info->writepage};
    const struct view_bytes given = {(uint64_t)offset, bytes, n, mount->options->sparsify};
    struct change change = {0};
    open_file_use(opened);
    bool is_control = control_is_writable(mount, file->inode.entry);
    answer.error = is_control ? control_write(mount, bytes, n)
                              : write_temporary(request, mount, &file, &given);
    if (answer.error || is_control || file->temporary) {
        answer_now(request, &answer);
        open_file_put(mount, opened);
        return;
    }
    bool is_selection = open_file_is_selection(file);
    selection_forget(file);
    atomic_store(&file->has_written, true);
    fresh_written(mount_fresh(mount, file->node), file->fresh);
    if (!file->is_for_writing)
        answer.error = -EBADF;
    else if (is_appending(info))
        answer.error = -EFBIG;
    else
        answer.error = write_or_end(request, mount, file, &given, &answer.written, &change);
    if (answer.error == -EFBIG)
        answer.error = tell_end(mount, file, is_appending(info) ? UINT64_MAX : (uint64_t)offset);
    if (answer.error == -EINVAL && !is_selection)
        answer.error = refusal_say(mount, file->node, REFUSAL_HEADER);
    bool is_refused = answer.error && answer.error != -EINTR && file->staged && refuse(mount, file);
    if (!answer.error && !is_selection && is_synchronous(info)) {
        fresh_finish(mount_fresh(mount, file->node), file->fresh);
        struct commits *commits = mount_commits(mount, file->node);
        /* What others closed and lost is in the log; these bytes are not. */
        if (mount_apply_closed(request, commits) == -EINTR)
            answer.error = -EINTR;
        else
            answer.error =
                commit_for_request(request, commits, file->views ? file->views->dataset : NULL);
    }
    /* Of a selection the kernel holds no pages. */
    uint64_t writer = is_selection ? 0 : number;
    if (change.node)
        notify_change(mount->notify, &change, writer, request, &answer);
    else
        answer_now(request, &answer);
    if (is_refused)
        notify_refused(mount, file);
    open_file_put(mount, opened);
}
