/* Reserving room, punching holes, and zeroing ranges (fallocate). */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/read_defined.h"
#include "fs/refusal.h"
#include "fs/requests.h"

static int reserve(const struct mount *mount, const struct open_file *file, uint64_t offset,
                   uint64_t n)
{
    uint64_t size;
    int error = view_size(file->views, inode_view(file->inode), file->inode.frame, &size);
    if (error)
        return error;
    return offset <= size && n <= size - offset ? 0 : refusal_say(mount, file->node, REFUSAL_END);
}

/* Memory is taken when it is written to. */
static int allocate_temporary(struct mount *mount, struct open_file *file, int mode,
                              uint64_t offset, uint64_t n)
{
    struct temporary_state state;
    uint64_t end;
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE)
        return -EOPNOTSUPP;
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    temporary_state(file->temporary, &state);
    return mode == 0 && end > state.size
               ? temporary_resize(mount->temporaries, file->temporary, end)
               : 0;
}

static int allocate_matrix(struct mount *mount, struct open_file *file, int mode, uint64_t offset,
                           uint64_t n, struct change *change)
{
    enum view_kind kind = inode_view(file->inode);
    uint64_t size = 0, end;
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE)
        return refusal_say(mount, file->node, REFUSAL_RANGE);
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    bool waits = false;
    int error = matrix_size(mount->matrices, file->node, kind, &waits, &size);
    if (!error && !waits)
        error = view_size(file->views, kind, 0, &size);
    if (error || mode != 0 || end <= size)
        return error;
    error = matrix_resize(mount->matrices, file->matrix,
                          &(struct matrix_part){kind, file, file->user}, end);
    if (error != -EINTR)
        open_file_note_collected(mount, file, change);
    return error;
}

/* The same for a view that collects another program's file. */
static int allocate_collected(struct mount *mount, struct open_file *file, int mode,
                              uint64_t offset, uint64_t n)
{
    uint64_t size, end;
    int error = 0;
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE)
        return -EOPNOTSUPP;
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    if (mode == 0 &&
        staging_size(mount->staging, file->node, inode_view(file->inode), file->inode.frame,
                     &size) &&
        end > size)
        (void)staging_resize(mount->staging, file->staged, end, &error);
    return error;
}

static int allocate(struct mount *mount, struct open_file *file, int mode, uint64_t offset,
                    uint64_t n, struct change *change)
{
    enum view_kind kind = inode_view(file->inode);
    uint64_t frame = file->inode.frame;
    bool punch = mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    bool zero =
        mode == FALLOC_FL_ZERO_RANGE || mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
    bool reserves = mode == 0 || mode == FALLOC_FL_KEEP_SIZE;
    if (file->matrix)
        return allocate_matrix(mount, file, mode, offset, n, change);
    if (kind == VIEW_DEFINED || (!reserves && !punch && !zero))
        return refusal_say(mount, file->node, REFUSAL_RANGE);
    if (staging_is_collected(file->staged))
        return allocate_collected(mount, file, mode, offset, n);
    int error = punch ? 0 : reserve(mount, file, offset, n);
    if (error || reserves)
        return error;
    error = mount_apply_staged(mount, file->node, file->inode);
    if (error)
        return error;
    error = open_file_apply(mount, file, change);
    if (!error)
        error = punch ? view_punch(file->views, kind, frame, offset, n)
                      : view_zero(file->views, kind, frame, offset, n, mount->options->sparsify);
    if (!error_may_have_changed(error))
        return error;
    struct view_frames changed = view_frames_of(file->views, kind, frame, offset, n);
    if (!change->node)
        *change = change_of_frames(file->node, changed.first, changed.last);
    mount_written(mount, file->node, (struct written){change->first, change->last, file->user});
    return error;
}

/* When it is answered the kernel clears the range in its own pages: whether that is what the view
 * shows. It is not where what is erased is not zero, nor in a header. */
static bool is_cleared(const struct open_file *file, int mode, uint64_t offset)
{
    return offset >= view_head_size(file->views, inode_view(file->inode)) &&
           (!(mode & FALLOC_FL_PUNCH_HOLE) || file->views->info->fill_is_zero);
}

void on_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t n,
                  struct fuse_file_info *info)
{
    CHANGING(request);
    (void)number;
    struct mount *mount = mount_of(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    struct answer answer = {.kind = ANSWER_ERROR};
    struct change change = {0};
    open_file_use(opened);
    answer.error = open_file_now(mount, &file);
    if (!answer.error && file->temporary)
        answer.error = allocate_temporary(mount, file, mode, (uint64_t)offset, (uint64_t)n);
    else if (!answer.error)
        answer.error = file->is_for_writing
                           ? allocate(mount, file, mode, (uint64_t)offset, (uint64_t)n, &change)
                           : -EBADF;
    if (change.node) {
        notify_change(mount->notify, &change, 0, request, &answer);
        change.views = 1u << inode_view(file->inode);
        if (!is_cleared(file, mode, (uint64_t)offset))
            notify_again(mount->notify, &change);
    } else {
        answer_now(request, &answer);
    }
    open_file_put(mount, opened);
}
