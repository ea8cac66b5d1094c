/* Writing, truncating, erasing, and making it durable. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <time.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/requests.h"
#include "fs/selection.h"
#include "fs/refusal.h"

#define PERMISSION_BITS 07777
#define NOW_SECONDS     2 /* as long a time is still now */

static struct mount *mount_of(fuse_req_t request)
{
    return fuse_req_userdata(request);
}

/* An error in the midst of a change leaves some of it done, but for those that are found before. */
static bool may_have_changed(int error)
{
    return error != -EINVAL && error != -EFBIG && error != -EROFS && error != -EOPNOTSUPP;
}

/* ---- write: *change, whose node is NULL if nothing can have changed ---- */

static int write_staged(struct mount *mount, struct open_file *file, const struct view_bytes *bytes,
                        struct change *change)
{
    int error = staging_write(mount->staging, file->staged, bytes->bytes, bytes->n, bytes->offset);
    if (error)
        return error;
    mount_asked(mount, file->node, file->inode.frame);
    *change = mount_change(file->node, file->inode.frame, file->inode.frame);
    change->views = 1u << VIEW_DEFINED; /* the others, when it is applied */
    atomic_store(&file->has_staged, true);
    return 0;
}

/* The other views show it when it is applied. */
static void note_collected(struct mount *mount, struct open_file *file, struct change *change)
{
    mount_asked(mount, file->node, file->inode.frame);
    *change = mount_change(file->node, file->inode.frame, file->inode.frame);
    change->views = 1u << inode_view(file->inode);
    atomic_store(&file->has_staged, true);
    atomic_store(&file->has_asked, true);
}

/* With the first element that is written all of such a dataset gets its place, and the fill value
 * everywhere, however large it is: that can be ended, as nothing of it counts before its end. */
static bool makes_room(const struct open_file *file)
{
    const struct views *views = file->views;
    return views && views->dataset && sfs_dataset_info(views->dataset)->layout == SFS_CONTIGUOUS;
}

static int write_or_end(fuse_req_t request, struct mount *mount, struct open_file *file,
                        const struct view_bytes *bytes, size_t *written)
{
    CHANGING(request);
    return staging_write_dense(mount->staging, file->staged, bytes, written);
}

static int write_matrix(struct mount *mount, struct open_file *file, const struct view_bytes *bytes,
                        struct change *change)
{
    int error = matrix_write(mount->matrices, file->matrix, inode_view(file->inode), bytes->bytes,
                             bytes->n, bytes->offset);
    note_collected(mount, file, change);
    return error;
}

static int write_view(fuse_req_t request, struct mount *mount, struct open_file *file,
                      const struct view_bytes *bytes, size_t *written, struct change *change)
{
    enum view_kind kind = inode_view(file->inode);
    uint64_t frame = file->inode.frame, frames = views_frames(file->views);
    mount_apply_staged(mount, file->node, file->inode);
    bool was_empty = staging_is_empty(mount->staging, file->node, kind, frame);
    int error = makes_room(file)
                    ? write_or_end(request, mount, file, bytes, written)
                    : staging_write_dense(mount->staging, file->staged, bytes, written);
    if (!staging_waits(file->staged))
        atomic_store(&file->has_asked, false);
    if (!error && staging_is_collected(file->staged)) {
        note_collected(mount, file, change);
        return 0;
    }
    if (!may_have_changed(error))
        return error;
    struct view_frames changed =
        view_frames_of(file->views, kind, frame, bytes->offset, error ? bytes->n : *written);
    *change = was_empty ? open_file_change(file, frames)
                        : mount_change_since(file->node, file->views, frames, changed.first,
                                             changed.last);
    mount_written(mount, file->node, change->first, change->last);
    return error;
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
    struct change change = mount_change(file->node, file->inode.frame, file->inode.frame);
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
static int write_temporary(struct mount *mount, struct open_file **file, const char *bytes,
                           size_t n, uint64_t offset)
{
    int error = open_file_now(mount, file);
    if (error || !(*file)->temporary)
        return error;
    error = temporary_write(mount->temporaries, (*file)->temporary, bytes, n, offset);
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
                              : write_temporary(mount, &file, bytes, n, (uint64_t)offset);
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
    else if (is_selection)
        answer.error = write_staged(mount, file, &given, &change);
    else if (file->matrix)
        answer.error = write_matrix(mount, file, &given, &change);
    else
        answer.error = write_view(request, mount, file, &given, &answer.written, &change);
    if (answer.error == -EFBIG)
        answer.error = tell_end(mount, file, is_appending(info) ? UINT64_MAX : (uint64_t)offset);
    if (answer.error == -EINVAL && !is_selection)
        answer.error = refusal_say(mount, file->node, REFUSAL_HEADER);
    bool is_refused = answer.error && file->staged && refuse(mount, file);
    if (!answer.error && !is_selection && is_synchronous(info)) {
        fresh_finish(mount_fresh(mount, file->node), file->fresh);
        answer.error = commits_now(mount_commits(mount, file->node),
                                   file->views ? file->views->dataset : NULL);
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

/* ---- setattr ---- */

static bool is_now(const struct timespec *time)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec - time->tv_sec <= NOW_SECONDS && time->tv_sec <= now.tv_sec;
}

static bool is_same_time(bool set, bool set_now, const struct timespec *time,
                         const struct timespec *is)
{
    if (set_now)
        return is_now(is);
    return !set || (time->tv_sec == is->tv_sec && time->tv_nsec == is->tv_nsec);
}

/* Whether nothing would be other than it is. */
static bool is_same(const struct stat *is, const struct stat *attributes, int to_set)
{
    if (to_set & FUSE_SET_ATTR_MODE &&
        (attributes->st_mode & PERMISSION_BITS) != (is->st_mode & PERMISSION_BITS))
        return false;
    if (to_set & FUSE_SET_ATTR_UID && attributes->st_uid != is->st_uid)
        return false;
    if (to_set & FUSE_SET_ATTR_GID && attributes->st_gid != is->st_gid)
        return false;
    return is_same_time(to_set & FUSE_SET_ATTR_ATIME, to_set & FUSE_SET_ATTR_ATIME_NOW,
                        &attributes->st_atim, &is->st_atim) &&
           is_same_time(to_set & FUSE_SET_ATTR_MTIME, to_set & FUSE_SET_ATTR_MTIME_NOW,
                        &attributes->st_mtim, &is->st_mtim);
}

static void choose_time(bool set, bool set_now, const struct timespec *wanted,
                        struct timespec *time)
{
    if (set_now)
        clock_gettime(CLOCK_REALTIME, time);
    else if (set)
        *time = *wanted;
}

static int set_temporary_times(struct mount *mount, struct inode inode,
                               const struct timespec *atime, const struct timespec *mtime)
{
    struct temporary *temporary = temporary_get(mount->temporaries, inode);
    if (!temporary)
        return -ESTALE;
    temporary_set_times(temporary, atime, mtime);
    temporary_put(mount->temporaries, temporary);
    return 0;
}

static int truncate_temporary(struct mount *mount, struct inode inode, uint64_t size)
{
    struct temporary *temporary = temporary_get(mount->temporaries, inode);
    if (!temporary)
        return -ESTALE;
    int error = temporary_resize(mount->temporaries, temporary, size);
    temporary_put(mount->temporaries, temporary);
    return error;
}

/* What a temporary file is now: itself, or the view that it has become. */
static struct inode inode_now(struct mount *mount, struct inode inode)
{
    struct temporary_state state = {0};
    struct temporary *temporary =
        inode.entry == ENTRY_TEMPORARY ? temporary_get(mount->temporaries, inode) : NULL;
    if (temporary)
        temporary_state(temporary, &state);
    temporary_put(mount->temporaries, temporary);
    return state.has_become ? state.became : inode;
}

/* Mode, owner and times are those of the HDF5 file. The kernel has checked the permission to set them;
 * times of views are kept as long as the mount, for programs that compare them, all else is let be.
 */
static void set_times(struct mount *mount, struct inode inode, const struct stat *attributes,
                      int to_set, struct answer *answer, struct change *change)
{
    const struct node *node = node_get(mount->nodes, inode.node);
    struct timespec atime = answer->st.st_atim, mtime = answer->st.st_mtim;
    const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
                      FUSE_SET_ATTR_MTIME_NOW;
    if (!node || !mount->times || !(to_set & times))
        return;
    choose_time(to_set & FUSE_SET_ATTR_ATIME, to_set & FUSE_SET_ATTR_ATIME_NOW,
                &attributes->st_atim, &atime);
    choose_time(to_set & FUSE_SET_ATTR_MTIME, to_set & FUSE_SET_ATTR_MTIME_NOW,
                &attributes->st_mtim, &mtime);
    if (inode.entry == ENTRY_TEMPORARY)
        answer->error = set_temporary_times(mount, inode, &atime, &mtime);
    if (!inode_is_view(inode))
        return;
    uint64_t frame = mount_frame_of_times(inode);
    times_set(mount->times, node->object, frame, &atime, &mtime);
    if (!change->node && frame != TIMES_ANY_FRAME) { /* other views of it show the same */
        *change = mount_change(node, frame, frame);
        change->only_attributes = true;
    }
    answer->error = mount_attributes(mount, inode, &answer->st, &answer->timeout);
}

/* What comes before a write that may be refused waits for it: a truncation when the file is opened,
 * or one that leaves no whole header. */
static bool is_before_writing(struct views *views, enum view_kind kind,
                              const struct open_file *file, bool by_opening, uint64_t size)
{
    bool is_all = view_is_whole(kind) && size == 0;
    return file && kind != VIEW_DEFINED &&
           (by_opening || is_all || size < view_head_size(views, kind));
}

/* Of a file of csr: by its name, it is closed with that, too. */
static int truncate_matrix(struct mount *mount, const struct node *node, struct inode inode,
                           struct open_file *file, uint64_t size, struct change *change)
{
    struct open_file now = {.node = node, .inode = inode};
    int error = node_get_views(mount->nodes, node, &now.views);
    if (error)
        return error;
    error = file ? 0 : matrix_begin(mount->matrices, node, &now.matrix);
    struct matrix *matrix = file ? file->matrix : now.matrix;
    if (!error) {
        *change = mount_change(node, inode.frame, inode.frame);
        change->views = 1u << inode_view(inode);
        error = matrix_resize(mount->matrices, matrix, inode_view(inode), size);
    }
    if (!error && file && size > 0)
        atomic_store(&file->has_staged, true);
    if (!error && !file)
        error = open_file_take(mount, &now, false, change);
    if (now.matrix)
        matrix_end(mount->matrices, now.matrix);
    node_put_views(mount->nodes, node);
    return error;
}

/* Sets *change, whose node is NULL if nothing can have changed; so do the others. file: through
 * which it is done, or (by_opening) which is being opened; or NULL. */
static int truncate_view(struct mount *mount, const struct node *node, struct views *views,
                         struct inode inode, struct open_file *file, bool by_opening, uint64_t size,
                         struct change *change)
{
    enum view_kind kind = inode_view(inode);
    struct view_frames changed = {inode.frame, inode.frame};
    uint64_t total;
    bool is_changed = true;
    if (!sfs_is_writable(node_file(node)))
        return -EROFS;
    if (!view_writable(views, kind))
        return refusal_of_view(mount, node, kind);
    int error = 0;
    (file ? mount_apply_staged : mount_apply_itself)(mount, node, inode);
    mount_asked(mount, node, mount_frame_of_times(inode));
    if (view_is_csr(kind))
        return truncate_matrix(mount, node, inode, file && file->matrix ? file : NULL, size,
                               change);
    if (file && file->staged && size > 0 &&
        staging_resize(mount->staging, file->staged, size, &error)) {
        note_collected(mount, file, change);
        return error;
    }
    if (is_before_writing(views, kind, file, by_opening, size)) {
        staging_truncate_dense(mount->staging, file->staged);
        atomic_store(&file->has_asked, true);
        *change = mount_change(node, inode.frame, inode.frame);
        change->views = 1u << kind;
        return 0;
    }
    if (kind == VIEW_DEFINED) {
        error = staging_truncate(mount->staging, node, inode.frame, size, !file, &is_changed);
    } else {
        error = view_size(views, kind, inode.frame, &total);
        if (error)
            return error;
        error = view_truncate(views, kind, inode.frame, size);
        if (error == -EFBIG)
            error = refusal_say(mount, node, REFUSAL_END);
        if (!may_have_changed(error) || size >= total)
            return error;
        changed = view_frames_of(views, kind, inode.frame, size, total - size);
    }
    /* A truncation to nothing that is staged is applied when another view is looked at: they all
     * must be asked for again. */
    *change = mount_change(node, changed.first, changed.last);
    if (is_changed)
        mount_written(mount, node, changed.first, changed.last);
    return error;
}

static int truncate_inode(struct mount *mount, struct inode inode, struct open_file *file,
                          bool by_opening, uint64_t size, struct change *change)
{
    const struct node *node = node_get(mount->nodes, inode.node);
    struct views *views;
    if (!node)
        return -ESTALE;
    if (!mount->is_writable)
        return -EROFS;
    if (inode.entry == ENTRY_TEMPORARY)
        return truncate_temporary(mount, inode, size);
    if (control_is_writable(mount, inode.entry) && size == 0)
        return 0; /* what is written next is all of it */
    if (!inode_is_view(inode))
        return refusal_say(mount, node, REFUSAL_COMPUTED);
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = truncate_view(mount, node, views, inode, file, by_opening, size, change);
    node_put_views(mount->nodes, node);
    return error;
}

void on_setattr(fuse_req_t request, fuse_ino_t number, struct stat *attributes, int to_set,
                struct fuse_file_info *info)
{
    CHANGING(request);
    struct mount *mount = mount_of(request);
    struct inode inode = inode_now(mount, inode_unpack(number));
    struct open_file *opened = info ? open_file_of(info) : NULL;
    bool by_opening = !opened && to_set & FUSE_SET_ATTR_SIZE && attributes->st_size == 0;
    if (opened)
        open_file_use(opened);
    else if (by_opening)
        opened = open_file_just_opened(number, fuse_req_ctx(request)->pid);
    struct answer answer = {.kind = ANSWER_ATTRIBUTES};
    struct change change = {0};
    struct open_file *file = opened && inode_is_view(inode) ? opened : NULL;
    if (file)
        answer.error = open_file_now(mount, &file);
    if (!answer.error)
        answer.error = mount_attributes(mount, inode, &answer.st, &answer.timeout);
    bool is_other = !answer.error && !is_same(&answer.st, attributes, to_set);
    if (is_other && mount->options->is_strict)
        answer.error = refusal_say(mount, node_get(mount->nodes, inode.node), REFUSAL_STRICT);
    else if (is_other && !mount->is_writable)
        answer.error = -EROFS;
    if (!answer.error && to_set & FUSE_SET_ATTR_SIZE) {
        answer.error =
            truncate_inode(mount, inode, file, by_opening, (uint64_t)attributes->st_size, &change);
        if (file)
            selection_forget(file);
        if (!answer.error && file && open_file_is_selection(file) && attributes->st_size > 0)
            atomic_store(&file->has_staged, true);
        if (!answer.error)
            answer.error = mount_attributes(mount, inode, &answer.st, &answer.timeout);
    }
    if (!answer.error && is_other)
        set_times(mount, inode, attributes, to_set, &answer, &change);
    if (change.node)
        notify_change(mount->notify, &change, number, request, &answer);
    else
        answer_now(request, &answer);
    if (opened)
        open_file_put(mount, opened);
}

/* ---- fallocate ---- */

static int reserve(const struct mount *mount, const struct open_file *file, uint64_t offset,
                   uint64_t n)
{
    uint64_t size;
    int error = view_size(file->views, inode_view(file->inode), file->inode.frame, &size);
    if (error)
        return error;
    return offset <= size && n <= size - offset ? 0 : refusal_say(mount, file->node, REFUSAL_END);
}

/* Applies what is staged, if anything. */
static int apply_before(struct mount *mount, struct open_file *file, struct change *change)
{
    bool changed;
    uint64_t frames = views_frames(file->views);
    int error = staging_apply(mount->staging, file->staged, &changed);
    atomic_store(&file->has_asked, false);
    if (changed)
        *change = open_file_change(file, frames);
    return error;
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
    int error = matrix_size(mount->matrices, file->node, kind, &size)
                    ? 0
                    : view_size(file->views, kind, 0, &size);
    if (error || mode != 0 || end <= size)
        return error;
    note_collected(mount, file, change);
    return matrix_resize(mount->matrices, file->matrix, kind, end);
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
    mount_apply_staged(mount, file->node, file->inode);
    error = apply_before(mount, file, change);
    if (!error)
        error = punch ? view_punch(file->views, kind, frame, offset, n)
                      : view_zero(file->views, kind, frame, offset, n, mount->options->sparsify);
    if (!may_have_changed(error))
        return error;
    struct view_frames changed = view_frames_of(file->views, kind, frame, offset, n);
    if (!change->node)
        *change = mount_change(file->node, changed.first, changed.last);
    mount_written(mount, file->node, change->first, change->last);
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

/* ---- fsync, of a file or a directory ---- */

void on_fsync(fuse_req_t request, fuse_ino_t number, int data_only, struct fuse_file_info *info)
{
    (void)number, (void)data_only;
    struct mount *mount = mount_of(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    struct answer answer = {.kind = ANSWER_ERROR};
    struct change change = {0};
    open_file_use(opened);
    answer.error = open_file_now(mount, &file);
    if (file->staged) {
        answer.error = apply_before(mount, file, &change);
        selection_forget(file);
        atomic_store(&file->has_staged, false);
    }
    if (change.node)
        mount_applied(mount, file->node, change.first, change.last);
    if (file->matrix) {
        atomic_store(&file->has_staged, false);
        answer.error = open_file_take(mount, file, false, &change);
    }
    struct commits *commits = mount_commits(mount, file->node);
    fresh_finish(mount_fresh(mount, file->node), file->fresh);
    if (!answer.error && commits && !file->temporary)
        answer.error = commits_now(commits, file->views ? file->views->dataset : NULL);
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
    struct commits *commits = mount_commits(mount, node);
    if (mount->files && (!node || node->type == NODE_FOLDER))
        answer.error = mount_commit_folder(mount);
    else if (commits)
        answer.error = commits_now(commits, NULL);
    notify_answer(mount->notify, request, &answer);
}
