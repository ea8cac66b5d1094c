/* Attributes: mode, owner and times of the HDF5 file, sizes of the views. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/interrupt.h"
#include "fs/dataset_entries.h"
#include "fs/frame_names.h"
#include "fs/mount.h"

#define READ_BITS  0444
#define WRITE_BITS 0222

/* Others see them as they are by now, but nobody may more than when it was opened: what was read since is kept for
 * those who might. */
void mount_rights(const struct mount *mount, const struct node *node, struct stat *file)
{
    const struct options *options = mount->options;
    const struct stat *opened = &node->mounted->st;
    bool is_renewed = options->allow_other && node_file(node);
    *file = *opened;
    bool is_unknown = is_renewed && sfs_stat(node_file(node), file) < 0;
    mode_t mode = options->has_umask ? acl_of_others(0777 & ~options->umask, opened, file)
                                     : file->st_mode & 0777;
    file->st_mode = is_unknown ? 0 : mode;
    file->st_uid = options->has_uid ? options->uid : file->st_uid;
    file->st_gid = options->has_gid ? options->gid : file->st_gid;
}

/* Mode, owner and times of everything in a file. */
static void common(const struct mount *mount, const struct node *node, struct inode inode,
                   bool is_writable, struct stat *st)
{
    const struct stat *opened = &node->mounted->st;
    struct stat file;
    mount_rights(mount, node, &file);
    memset(st, 0, sizeof(*st));
    st->st_ino = inode_pack(inode);
    st->st_mode = file.st_mode & (is_writable ? READ_BITS | WRITE_BITS : READ_BITS);
    st->st_nlink = 1;
    st->st_uid = file.st_uid;
    st->st_gid = file.st_gid;
    st->st_atim = opened->st_atim;
    st->st_mtim = opened->st_mtim;
    st->st_ctim = opened->st_ctim;
    st->st_blksize = 4096;
    follow_raise(mount->follow, node_file(node), &st->st_mtim);
    follow_raise(mount->follow, node_file(node), &st->st_ctim);
}

/* Directories that can be read can be searched. One link means that the number of subdirectories is
 * unknown: programs that count them must look. */
static void as_directory(struct stat *st)
{
    st->st_mode = S_IFDIR | st->st_mode | (st->st_mode & READ_BITS) >> 2;
}

uint64_t mount_frame_of_times(struct inode inode)
{
    return inode_view(inode) < VIEW_STACK_RAW ? inode.frame : TIMES_ANY_FRAME;
}

static void raise_to(struct timespec *time, uint64_t nanos)
{
    struct timespec other = {(time_t)(nanos / 1000000000), (long)(nanos % 1000000000)};
    if (other.tv_sec > time->tv_sec ||
        (other.tv_sec == time->tv_sec && other.tv_nsec > time->tv_nsec))
        *time = other;
}

/* What was written in this mount is newer than the file. Virtual datasets show what was written to any dataset. */
static void add_times(const struct mount *mount, const struct node *node, const struct views *views,
                      struct inode inode, struct stat *st)
{
    if (!mount->times)
        return;
    times_apply(mount->times, node->object, mount_frame_of_times(inode), st);
    if (views_show_others(views))
        raise_to(&st->st_mtim, atomic_load(&node->mounted->written));
    st->st_ctim = st->st_mtim;
}

/* Of its size in bytes so many are allocated, the others are holes. Programs take a file without
 * any block for one hole: a part of a block counts as one. */
static void as_file(struct stat *st, uint64_t size, uint64_t allocated)
{
    st->st_mode |= S_IFREG;
    st->st_size = (off_t)size;
    st->st_blocks = (blkcnt_t)(allocated / 512 + (allocated % 512 != 0));
}

bool mount_is_directory(const struct node *node, struct inode inode)
{
    if (inode.entry == ENTRY_NODE)
        return node->type == NODE_GROUP || node->type == NODE_DATASET ||
               node->type == NODE_UNREADABLE || node->type == NODE_FOLDER;
    return inode.entry >= ENTRY_FRAMES && inode.entry <= ENTRY_CONTROL;
}

bool mount_shows_nothing(struct mount *mount, const struct node *node, struct views *views,
                         struct inode inode)
{
    enum view_kind kind = inode_view(inode);
    return mount->is_writable && ((kind < VIEW_STACK_RAW && inode.frame >= views_frames(views)) ||
                                  staging_is_empty(mount->staging, node, kind, inode.frame));
}

/* Size and allocated bytes of a view. Not *is_known: it cannot be read. -EINTR. */
static int size_of(struct mount *mount, const struct node *node, struct views *views,
                   struct inode inode, uint64_t *size, uint64_t *allocated, bool *is_known)
{
    enum view_kind kind = inode_view(inode);
    bool is_empty = mount_shows_nothing(mount, node, views, inode);
    bool waits = staging_size(mount->staging, node, kind, inode.frame, size);
    int error = waits ? 0 : matrix_size(mount->matrices, node, kind, &waits, size);
    if (error)
        return error;
    *is_known = true;
    if (waits || ((kind == VIEW_DEFINED || view_is_whole(kind)) && is_empty)) {
        *allocated = *size;
        return 0;
    }
    *is_known = view_size_to_show(views, kind, inode.frame, size);
    if (*is_known)
        *allocated = is_empty ? view_empty_allocated(views, kind, *size)
                              : view_allocated(views, kind, inode.frame, *size);
    return 0;
}

int mount_view_attributes(struct mount *mount, const struct node *node, struct views *views,
                          struct inode inode, struct stat *st, double *timeout)
{
    enum view_kind kind = inode_view(inode);
    uint64_t size = 0, allocated = 0;
    *timeout = mount_attribute_timeout(mount, inode);
    notify_known(mount->notify, inode);
    bool is_noted =
        !mount->notify || node_tell(mount->nodes, node, kind, mount_frame_of_times(inode));
    bool is_known;
    int error = mount_apply_staged(mount, node, inode);
    if (!error)
        error = size_of(mount, node, views, inode, &size, &allocated, &is_known);
    if (error)
        return error;
    if (!is_known || !is_noted || views_may_be_others(views, node->mounted->files))
        *timeout = 0; /* it may be possible later, or a text get another size */
    common(mount, node, inode, mount->is_writable && view_writable(views, kind), st);
    add_times(mount, node, views, inode, st);
    as_file(st, size, allocated);
    return 0;
}

static int node_attributes_of(struct mount *mount, const struct node *node, struct inode inode,
                              struct stat *st)
{
    char *text;
    int error;
    bool is_group = node->type == NODE_GROUP;
    common(mount, node, inode, mount->is_writable && is_group && sfs_is_writable(node_file(node)),
           st);
    switch (node->type) {
    case NODE_SYMLINK:
        st->st_mode = S_IFLNK | 0777;
        st->st_size = (off_t)node->target_bytes;
        return 0;
    case NODE_DATATYPE:
        error = sfs_datatype_text(node_file(node), node_address(node), &text);
        if (error)
            return error;
        as_file(st, strlen(text) + 1, strlen(text) + 1);
        free(text);
        return 0;
    default:
        as_directory(st);
        return 0;
    }
}

/* The daemon's memory is charged to the user who mounted, not to the file's owner; and statistics
 * of a folder contain names that its owners do not show to everybody. */
static void as_mounters(const struct mount *mount, struct inode inode, struct stat *st)
{
    bool is_told = inode.entry == ENTRY_LOG && mount->files;
    if (!is_told && inode.entry != ENTRY_CACHE_SIZE)
        return;
    st->st_uid = geteuid();
    if (is_told)
        st->st_mode = S_IRUSR;
}

static int control_attributes(struct mount *mount, const struct node *root, struct inode inode,
                              struct stat *st)
{
    char *text;
    size_t n;
    common(mount, root, inode, control_is_writable(mount, inode.entry), st);
    st->st_mode &= ~(mode_t)(S_IWGRP | S_IWOTH);
    if (inode.entry == ENTRY_CONTROL) {
        as_directory(st);
        return 0;
    }
    if (inode.entry == ENTRY_IMAGE) {
        uint64_t size = sfs_committed_size(mount->file);
        as_file(st, size, size);
        return interrupt_check();
    }
    int error = control_text(mount, inode.entry, &text, &n);
    if (error)
        return error;
    free(text);
    as_mounters(mount, inode, st);
    as_file(st, n, n);
    return 0;
}

static int group_json_attributes(struct mount *mount, const struct node *group, struct inode inode,
                                 struct stat *st)
{
    char *text;
    size_t n;
    int error = group_text(mount, group, &text, &n);
    if (error)
        return error;
    free(text);
    common(mount, group, inode, false, st);
    as_file(st, n, n);
    return 0;
}

/* A directory below a dataset: names can be made in it where the frames that they stand for can be
 * written. */
static void directory_attributes(struct mount *mount, const struct node *node, struct views *views,
                                 struct inode inode, struct stat *st)
{
    const struct frame_names *series = frame_names_in(inode.entry);
    bool is_writable = mount->is_writable && series && view_writable(views, series->view[0]);
    common(mount, node, inode, is_writable, st);
    as_directory(st);
}

/* What has become a frame has its attributes. */
static int temporary_attributes(struct mount *mount, const struct node *node, struct inode inode,
                                struct stat *st, double *timeout)
{
    struct temporary_state state;
    struct temporary *temporary = temporary_get(mount->temporaries, inode);
    if (!temporary)
        return -ESTALE;
    temporary_state(temporary, &state);
    int error = state.has_become ? mount_attributes(mount, state.became, st, timeout) : 0;
    *timeout = 0;
    if (!state.has_become) {
        common(mount, node, inode, true, st);
        as_file(st, state.size, state.size);
        st->st_atim = state.atime;
        st->st_mtim = st->st_ctim = state.mtime;
    }
    temporary_put(mount->temporaries, temporary);
    return error;
}

/* Who reads a file of the folder asks for its attributes by the node that it had when it was opened,
 * also when it has got another one, as it lets in less by now. */
static const struct node *node_with_attributes(const struct mount *mount, uint32_t number)
{
    const struct node *node = node_get(mount->nodes, number);
    const struct node *any = node ? node : node_get_any(mount->nodes, number);
    return any && any->type == NODE_PASSED ? any : node;
}

int mount_attributes(struct mount *mount, struct inode inode, struct stat *st, double *timeout)
{
    const struct node *node = node_with_attributes(mount, inode.node);
    struct views *views;
    if (!node)
        return -ESTALE;
    *timeout = mount_attribute_timeout(mount, inode);
    notify_known(mount->notify, inode);
    if (inode.entry == ENTRY_NODE && node_is_of_folder(node)) {
        *timeout = mount_folder_timeout(mount);
        return mount_folder_attributes(mount, node, st);
    }
    if (inode.entry == ENTRY_NODE)
        return node_attributes_of(mount, node, inode, st);
    if (inode.entry == ENTRY_GROUP_JSON)
        return group_json_attributes(mount, node, inode, st);
    if (inode.entry == ENTRY_TEMPORARY)
        return temporary_attributes(mount, node, inode, st, timeout);
    if (inode.entry >= ENTRY_CONTROL && inode.entry < ENTRY_VIEW)
        return control_attributes(mount, node, inode, st);
    int error = node_get_views(mount->nodes, node, &views);
    if (error)
        return error;
    if (inode_is_view(inode))
        error = mount_view_attributes(mount, node, views, inode, st, timeout);
    else
        directory_attributes(mount, node, views, inode, st);
    node_put_views(mount->nodes, node);
    return error;
}
