/* The request to create: what is there is opened; else it is a new frame, or a temporary file. */
#include <errno.h>
#include <fcntl.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/requests.h"

/* Discards a file whose creation was interrupted: it is not open, and nothing is created. What others have staged of a
 * frame that was there stays. */
static void forget_created(struct mount *mount, struct open_file *file, bool is_there)
{
    bool changed;
    if (file->staged && !is_there)
        staging_refuse(mount->staging, file->staged, &changed);
    open_file_put(mount, file);
}

/* O_TRUNC of a frame that was created since the kernel looked it up. */
static int truncate_opened(struct mount *mount, struct open_file *file)
{
    bool changed;
    int error = 0;
    mount_asked(mount, file->node, mount_frame_of_times(file->inode));
    if (open_file_is_selection(file))
        error = staging_truncate(mount->staging, file->node, file->inode.frame, 0, false, &changed);
    else
        error = staging_truncate_dense(mount->staging, file->staged);
    atomic_store(&file->has_asked, !open_file_is_selection(file));
    if (!error)
        open_file_frame_changed(mount, file, views_frames(file->views), NULL, NULL);
    return error;
}

/* A name that is there is opened, and so is one of a frame behind the last: it comes to be when
 * something is written, or when it is closed. As it may not, the kernel keeps nothing of it. */
void on_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *info)
{
    LOOKING(request);
    (void)mode;
    struct mount *mount = fuse_req_userdata(request);
    struct fuse_entry_param entry = {0};
    struct inode inode;
    struct open_file *file = NULL;
    struct look look;
    bool is_new, was_removed = false;
    int error = mount_lookup(mount, inode_unpack(parent), name, &inode, &is_new);
    if (error == -ENOENT && mount_undo_removal(mount, inode_unpack(parent), name)) {
        was_removed = true;
        error = mount_lookup(mount, inode_unpack(parent), name, &inode, &is_new);
        info->flags = (info->flags & ~O_EXCL) | O_TRUNC; /* for its creator it is new */
    }
    bool is_there = !error && !is_new, is_held = !error;
    if (error == -ENOENT && !mount_parse_name(mount, inode_unpack(parent), name, &inode)) {
        create_temporary(request, parent, name, info);
        return;
    }
    if (error == -ENOENT) {
        is_new = true;
        error = mount_new_frame(mount, inode_unpack(parent), name, &inode);
    } else if (!error && info->flags & O_EXCL) {
        error = -EEXIST;
    }
    notify_begin_look(mount->notify, &look);
    if (!error)
        error = mount_attributes(mount, inode, &entry.attr, &entry.attr_timeout);
    if (!error)
        error = open_file_open(mount, request, inode_pack(inode), is_new, info, &file);
    if (!error && is_there && info->flags & O_TRUNC && file->temporary)
        error = temporary_resize(mount->temporaries, file->temporary, 0);
    else if (!error && is_there && info->flags & O_TRUNC && file->is_for_writing)
        error = truncate_opened(mount, file);
    if (error) {
        if (file)
            forget_created(mount, file, is_there);
        if (was_removed)
            mount_redo_removal(mount, inode_unpack(parent), name);
        answer_error(request, error);
    } else {
        entry.ino = inode_pack(inode); /* as in a look-up */
        entry.generation = mount_generation(mount, inode);
        entry.entry_timeout = mount_name_timeout(mount, inode);
        node_looked_up(mount->nodes, inode.node, 1);
        notify_begin_answer(mount->notify, &look);
        if (is_new || look.is_old)
            entry.attr_timeout = 0;
        if (is_new)
            entry.entry_timeout = 0;
        bool is_gone = fuse_reply_create(request, &entry, info) == -ENOENT;
        notify_end_answer(mount->notify, &look);
        if (is_gone) {
            forget_created(mount, file, is_there);
            node_forgotten(mount->nodes, inode.node, 1);
        }
    }
    if (is_held)
        node_put(mount->nodes, inode.node);
}
