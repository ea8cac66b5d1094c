/* Requests of a mount of a folder: those that want something of an HDF5 file find it open, and it
 * stays so until they are answered. What is opened by one keeps it open by itself (open.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/mount.h"

#define XATTR_PREFIX "user."

/* The file that is used by a request on an inode; NULL: none, because nothing of one is wanted, or
 * because that was answered with the error. */
static bool begin(fuse_req_t request, fuse_ino_t number, bool is_of_root,
                  struct mounted_file **file)
{
    struct mount *mount = fuse_req_userdata(request);
    struct inode inode = inode_unpack(number);
    const struct node *node = node_hold_any(mount->nodes, inode.node);
    bool is_wanted = node && (!node_is_of_folder(node) ||
                              (is_of_root && node_is_top(node) && node->type == NODE_GROUP));
    *file = is_wanted ? node->mounted : NULL;
    if (is_wanted) /* what is waited for may take the serving of other requests */
        loop_begin_wait(mount->loop);
    int error = is_wanted ? mounted_use(*file, false) : 0;
    if (is_wanted)
        loop_end_wait(mount->loop);
    if (node)
        node_put(mount->nodes, node->number);
    if (error)
        fuse_reply_err(request, -error);
    return !error;
}

static void end(struct mounted_file *file)
{
    if (file)
        mounted_put(file, false);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct mounted_file *file;
    if (!begin(request, parent, strcmp(name, ".") != 0 && strcmp(name, "..") != 0, &file))
        return;
    mount_requests.lookup(request, parent, name);
    end(file);
}

/* The root group has the attributes of the file. */
static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct mounted_file *file;
    if (!begin(request, number, false, &file))
        return;
    mount_requests.getattr(request, number, info);
    end(file);
}

static void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct mounted_file *file;
    if (!begin(request, number, true, &file))
        return;
    mount_requests.open(request, number, info);
    end(file);
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct mounted_file *file;
    if (!begin(request, number, true, &file))
        return;
    mount_requests.opendir(request, number, info);
    end(file);
}

/* The names of the attributes of a file's root group, if they are known without opening it. The
 * caller frees them. */
static bool knows_names(struct mount *mount, fuse_ino_t number, char **names, size_t *n)
{
    struct inode inode = inode_unpack(number);
    if (mount->follow || inode.entry != ENTRY_NODE)
        return false;
    const struct node *node = node_hold_any(mount->nodes, inode.node);
    bool is_file = node && node_is_of_folder(node) && node_is_top(node) && node->type == NODE_GROUP;
    if (is_file)
        loop_begin_wait(mount->loop);
    bool knows = is_file && mounted_names(node->mounted, names, n) == 0;
    if (is_file)
        loop_end_wait(mount->loop);
    if (node)
        node_put(mount->nodes, node->number);
    return knows;
}

static bool is_among(const char *name, const char *names, size_t n)
{
    for (const char *at = names; at < names + n; at += strlen(at) + 1)
        if (!strcmp(at, name))
            return true;
    return false;
}

/* Others than those of the user are known without looking: ls asks for them. */
static void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    struct mounted_file *file;
    char *names;
    size_t n;
    bool is_users = !strncmp(name, XATTR_PREFIX, strlen(XATTR_PREFIX));
    if (is_users && knows_names(fuse_req_userdata(request), number, &names, &n)) {
        bool is_there = is_among(name, names, n);
        free(names);
        if (!is_there) {
            fuse_reply_err(request, ENODATA);
            return;
        }
    }
    if (!begin(request, number, is_users, &file))
        return;
    mount_requests.getxattr(request, number, name, size);
    end(file);
}

/* Programs that list a folder ask this of each file in it. */
static void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size)
{
    struct mounted_file *file;
    char *names;
    size_t n;
    if (knows_names(fuse_req_userdata(request), number, &names, &n)) {
        mount_reply_xattr(request, names, n, size);
        free(names);
        return;
    }
    if (!begin(request, number, true, &file))
        return;
    mount_requests.listxattr(request, number, size);
    end(file);
}

void mount_folder_requests(struct fuse_lowlevel_ops *requests)
{
    *requests = (struct fuse_lowlevel_ops){
        .init = mount_requests.init,
        .lookup = on_lookup,
        .forget = mount_requests.forget,
        .forget_multi = mount_requests.forget_multi,
        .getattr = on_getattr,
        .readlink = mount_requests.readlink,
        .open = on_open,
        .release = mount_requests.release,
        .flush = mount_requests.flush,
        .read = mount_requests.read,
        .lseek = mount_requests.lseek,
        .opendir = on_opendir,
        .releasedir = mount_requests.releasedir,
        .readdir = mount_requests.readdir,
        .readdirplus = mount_requests.readdirplus,
        .statfs = mount_requests.statfs,
        .getxattr = on_getxattr,
        .listxattr = on_listxattr,
    };
}
