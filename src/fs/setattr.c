/* Sizes (truncate.c), and times, modes and owners that are asked for (chmod, chown, utimens). */
#include <errno.h>
#include <time.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/read_defined.h"
#include "fs/refusal.h"
#include "fs/requests.h"
#include "fs/truncate.h"

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
        const struct truncation truncation = {
            inode, file, by_opening, (uint64_t)attributes->st_size, fuse_req_ctx(request)->uid};
        answer.error = mount_truncate(mount, &truncation, &change);
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
