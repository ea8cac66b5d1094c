/* Truncating and extending what is open, or named: views, files of csr/, temporary files. */
#include <errno.h>

#include "fs/open.h"
#include "fs/refusal.h"
#include "fs/requests.h"
#include "fs/truncate.h"

/* What comes before a write that may be refused waits for it: a truncation when the file is opened,
 * or one that leaves no whole header. */
static bool is_before_writing(struct views *views, enum view_kind kind,
                              const struct truncation *truncation)
{
    bool is_all = view_is_whole(kind) && truncation->size == 0;
    return truncation->file && kind != VIEW_DEFINED &&
           (truncation->by_opening || is_all || truncation->size < view_head_size(views, kind));
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

/* Of a file of csr: by its name, it is closed with that, too. */
static int truncate_matrix(struct mount *mount, const struct node *node,
                           const struct truncation *truncation, struct change *change)
{
    struct inode inode = truncation->inode;
    struct open_file now = {.node = node, .inode = inode, .user = truncation->user};
    struct open_file *file = truncation->file && truncation->file->matrix ? truncation->file : NULL;
    int error = node_get_views(mount->nodes, node, &now.views);
    if (error)
        return error;
    error = file ? 0 : matrix_begin(mount->matrices, node, &now.matrix);
    struct matrix *matrix = file ? file->matrix : now.matrix;
    if (!error) {
        *change = change_of_frames(node, inode.frame, inode.frame);
        change->views = 1u << inode_view(inode);
        const struct matrix_part part = {inode_view(inode), file ? file : &now, truncation->user};
        error = matrix_resize(mount->matrices, matrix, &part, truncation->size);
    }
    if (!error && file && truncation->size > 0)
        atomic_store(&file->has_staged, true);
    if (!error && !file)
        error =
            open_file_take(mount, &now, MATRIX_ENDED); /* nobody else could take what it has left */
    if (now.matrix)
        matrix_end(mount->matrices, now.matrix, truncation->user);
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
    int error = (file ? mount_apply_staged : mount_apply_itself)(mount, node, inode);
    if (error)
        return error;
    mount_asked(mount, node, mount_frame_of_times(inode));
    if (view_is_csr(kind))
        return truncate_matrix(mount, node, truncation, change);
    if (file && file->staged && size > 0 &&
        staging_resize(mount->staging, file->staged, size, &error)) {
        if (!error)
            open_file_note_collected(mount, file, change);
        return error;
    }
    if (is_before_writing(views, kind, truncation)) {
        error = staging_truncate_dense(mount->staging, file->staged);
        if (error)
            return error;
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
        mount_written(mount, node, (struct written){changed.first, changed.last, truncation->user});
    return error;
}

int mount_truncate(struct mount *mount, const struct truncation *truncation, struct change *change)
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
