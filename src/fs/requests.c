/* The requests of FUSE's low-level interface: a thin front over look-up, attributes, listings and
 * views. This is where negative errnos become replies. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/requests.h"

/* Other programs create and remove files. */
static bool is_in_folder(struct mount *mount, fuse_ino_t parent)
{
    struct inode inode = inode_unpack(parent);
    const struct node *node = mount->files ? node_get(mount->nodes, inode.node) : NULL;
    return mount->files && inode.entry == ENTRY_NODE && (!node || node->type == NODE_FOLDER);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    LOOKING(request);
    struct mount *mount = mount_of(request);
    struct fuse_entry_param entry = {0};
    struct inode inode = {0};
    struct look look;
    bool is_new = false;
    int error = mount_lookup(mount, inode_unpack(parent), name, &inode, &is_new);
    bool is_held = !error;
    notify_begin_look(mount->notify, &look);
    if (!error)
        error = mount_attributes(mount, inode, &entry.attr, &entry.attr_timeout);
    bool may_be_gone = !is_held && inode.entry == ENTRY_NODE; /* a handle can be made up */
    entry.entry_timeout = mount_name_timeout(mount, may_be_gone ? (struct inode){0} : inode);
    if (!error) {
        entry.ino =
            inode_pack(inode); /* the attributes can be those of what it has become meanwhile */
        entry.generation = mount_generation(mount, inode);
        node_looked_up(mount->nodes, inode.node, 1);
    }
    if (is_held)
        node_put(mount->nodes, inode.node);
    if (is_new)
        entry.attr_timeout = entry.entry_timeout = 0;
    /* Negative entries may become stale, unless the mount is read-only. */
    bool may_come = mount->is_writable || mount->follow || is_in_folder(mount, parent);
    if (error && (error != -ENOENT || may_come)) {
        answer_error(request, error);
        return;
    }
    notify_begin_answer(mount->notify, &look);
    if (look.is_old)
        entry.attr_timeout = 0;
    bool is_gone = fuse_reply_entry(request, &entry) == -ENOENT;
    notify_end_answer(mount->notify, &look);
    if (is_gone && entry.ino)
        node_forgotten(mount->nodes, inode.node, 1);
}

/* The root is there for as long as the mount. */
static void forget(const struct mount *mount, fuse_ino_t number, uint64_t times)
{
    if (number != FUSE_ROOT_ID)
        node_forgotten(mount->nodes, inode_unpack(number).node, times);
}

static void on_forget(fuse_req_t request, fuse_ino_t number, uint64_t times)
{
    const struct mount *mount = mount_of(request);
    mount_begin_letting_go(mount);
    forget(mount, number, times);
    mount_end_letting_go(mount);
    fuse_reply_none(request);
}

static void on_forget_multi(fuse_req_t request, size_t n, struct fuse_forget_data *forgotten)
{
    const struct mount *mount = mount_of(request);
    mount_begin_letting_go(mount);
    for (size_t i = 0; i < n; i++)
        forget(mount, forgotten[i].ino, forgotten[i].nlookup);
    mount_end_letting_go(mount);
    fuse_reply_none(request);
}

static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    (void)info;
    struct inode inode = inode_unpack(number);
    struct stat st;
    double timeout;
    int error = mount_attributes(mount_of(request), inode, &st, &timeout);
    if (error)
        answer_error(request, error);
    else
        fuse_reply_attr(request, &st, timeout);
}

static void on_readlink(fuse_req_t request, fuse_ino_t number)
{
    const struct node *node = node_get(mount_of(request)->nodes, inode_unpack(number).node);
    if (!node || node->type != NODE_SYMLINK)
        fuse_reply_err(request, EINVAL);
    else if (!node->target)
        fuse_reply_err(request, ENAMETOOLONG);
    else
        fuse_reply_readlink(request, node->target);
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    struct mount *mount = mount_of(request);
    if (!atomic_load(&mount->opens_directories)) {
        fuse_reply_err(request, ENOSYS); /* it never asks again, and keeps what they hold */
        return;
    }
    uid_t user = fuse_req_ctx(request)->uid;
    struct open_file *file = open_file_new(mount, number, user);
    int error = file ? directory_open(mount, file->inode, user, &file->directory) : -ENOMEM;
    if (error) {
        if (file)
            open_file_put(mount, file);
        answer_error(request, error);
        return;
    }
    info->fh = (uintptr_t)file;
    info->cache_readdir = info->keep_cache =
        mount_keeps_listings(mount) && !is_in_folder(mount, number);
    if (fuse_reply_open(request, info) == -ENOENT)
        open_file_put(mount, file);
}

static void read_directory(fuse_ino_t number, struct fuse_file_info *info,
                           const struct directory_read *read)
{
    LOOKING(read->request);
    struct mount *mount = mount_of(read->request);
    if (atomic_load(&mount->opens_directories))
        directory_read_open(mount, open_file_of(info)->directory, read);
    else
        directory_read(mount, inode_unpack(number), read);
}

static void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                       struct fuse_file_info *info)
{
    read_directory(number, info, &(struct directory_read){request, size, offset, false});
}

static void on_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                           struct fuse_file_info *info)
{
    read_directory(number, info, &(struct directory_read){request, size, offset, true});
}

static void on_statfs(fuse_req_t request, fuse_ino_t number)
{
    (void)number;
    struct statvfs st;
    const struct mount *mount = mount_of(request);
    int error = mount->files ? folder_statvfs(mounted_files_folder(mount->files), &st)
                             : sfs_statvfs(mount->file, &st);
    if (error) {
        answer_error(request, error);
        return;
    }
    st.f_namemax = 255;
    fuse_reply_statfs(request, &st);
}

const struct fuse_lowlevel_ops mount_requests = {
    .init = on_init,
    .lookup = on_lookup,
    .forget = on_forget,
    .forget_multi = on_forget_multi,
    .getattr = on_getattr,
    .readlink = on_readlink,
    .setattr = on_setattr,
    .mknod = on_mknod,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .symlink = on_symlink,
    .rename = on_rename,
    .link = on_link,
    .create = on_create,
    .open = on_open,
    .release = on_release,
    .flush = on_flush,
    .read = on_read,
    .write = on_write,
    .fallocate = on_fallocate,
    .lseek = on_lseek,
    .fsync = on_fsync,
    .opendir = on_opendir,
    .releasedir = on_release,
    .readdir = on_readdir,
    .readdirplus = on_readdirplus,
    .fsyncdir = on_fsyncdir,
    .statfs = on_statfs,
    .getxattr = on_getxattr,
    .listxattr = on_listxattr,
    .setxattr = on_setxattr,
    .removexattr = on_removexattr,
};
