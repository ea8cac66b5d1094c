/* Truncating, and times, modes and owners that are asked for (chmod, chown, utimens). */
#include <errno.h>
#include <time.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/requests.h"
#include "fs/read_defined.h"
#include "fs/refusal.h"

#define PERMISSION_BITS 07777
#define NOW_SECONDS     2 /* as long a time is still now */

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
        *change = change_of_frames(node, frame, frame);
        change->only_attributes = true;
    }
    answer->error = mount_attributes(mount, inode, &answer->st, &answer->timeout);
}

/* What is truncated, or extended, and to how many bytes. */
struct truncation {
    struct inode inode;
    /* Through which it is done, or (by_opening) which is being opened; NULL: by its name. */
    struct open_file *file;
    bool by_opening;
    uint64_t size;
};

/* What comes before a write that may be refused waits for it: a truncation when the file is opened,
 * or one that leaves no whole header. */
static bool is_before_writing(struct views *views, enum view_kind kind,
                              const struct truncation *truncation)
{
    bool is_all = view_is_whole(kind) && truncation->size == 0;
    return truncation->file && kind != VIEW_DEFINED &&
           (truncation->by_opening || is_all || truncation->size < view_head_size(views, kind));
}

/* Of a file of csr: by its name, it is closed with that, too. */
static int truncate_matrix(struct mount *mount, const struct node *node,
                           const struct truncation *truncation, struct change *change)
{
    struct inode inode = truncation->inode;
    struct open_file now = {.node = node, .inode = inode};
    struct open_file *file = truncation->file && truncation->file->matrix ? truncation->file : NULL;
    int error = node_get_views(mount->nodes, node, &now.views);
    if (error)
        return error;
    error = file ? 0 : matrix_begin(mount->matrices, node, &now.matrix);
    struct matrix *matrix = file ? file->matrix : now.matrix;
    if (!error) {
        *change = change_of_frames(node, inode.frame, inode.frame);
        change->views = 1u << inode_view(inode);
        const struct matrix_part part = {inode_view(inode), file ? file : &now};
        error = matrix_resize(mount->matrices, matrix, &part, truncation->size);
    }
    if (!error && file && truncation->size > 0)
        atomic_store(&file->has_staged, true);
    if (!error && !file)
        error = open_file_take(mount, &now, MATRIX_CLOSED);
    if (now.matrix)
        matrix_end(mount->matrices, now.matrix);
    node_put_views(mount->nodes, node);
    return error;
}

/* Sets *change, whose node is NULL if nothing can have changed; so do the others. */
static int truncate_view(struct mount *mount, const struct node *node, struct views *views,
                         const struct truncation *truncation, struct change *change)
{
    struct inode inode = truncation->inode;
    struct open_file *file = truncation->file;
    uint64_t size = truncation->size;
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
        return truncate_matrix(mount, node, truncation, change);
    if (file && file->staged && size > 0 &&
        staging_resize(mount->staging, file->staged, size, &error)) {
        open_file_note_collected(mount, file, change);
        return error;
    }
    if (is_before_writing(views, kind, truncation)) {
        staging_truncate_dense(mount->staging, file->staged);
        atomic_store(&file->has_asked, true);
        *change = change_of_frames(node, inode.frame, inode.frame);
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
        if (!error_may_have_changed(error) || size >= total)
            return error;
        changed = view_frames_of(views, kind, inode.frame, size, total - size);
    }
    /* A truncation to nothing that is staged is applied when another view is looked at: they all
     * must be asked for again. */
    *change = change_of_frames(node, changed.first, changed.last);
    if (is_changed)
        mount_written(mount, node, changed.first, changed.last);
    return error;
}

static int truncate_inode(struct mount *mount, const struct truncation *truncation,
                          struct change *change)
{
    struct inode inode = truncation->inode;
    const struct node *node = node_get(mount->nodes, inode.node);
    struct views *views;
    if (!node)
        return -ESTALE;
    if (!mount->is_writable)
        return -EROFS;
    if (inode.entry == ENTRY_TEMPORARY)
        return truncate_temporary(mount, inode, truncation->size);
    if (control_is_writable(mount, inode.entry) && truncation->size == 0)
        return 0; /* what is written next is all of it */
    if (!inode_is_view(inode))
        return refusal_say(mount, node, REFUSAL_COMPUTED);
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    error = truncate_view(mount, node, views, truncation, change);
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
        const struct truncation truncation = {inode, file, by_opening,
                                              (uint64_t)attributes->st_size};
        answer.error = truncate_inode(mount, &truncation, &change);
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
