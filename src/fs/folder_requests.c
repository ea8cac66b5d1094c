/* Requests of a mount of a folder: requests on an HDF5 file open it, and hold it open until they
 * are answered. An open file handle holds it by itself (open.h). Changes of the folder's own files
 * are refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/caller_rights.h"
#include "fs/interrupt.h"
#include "fs/mount.h"
#include "fs/refusal.h"

#define XATTR_PREFIX "user."

/* The inode's node is held; NULL: there is none. */
static const struct node *node_of(fuse_req_t request, fuse_ino_t number)
{
    const struct mount *mount = fuse_req_userdata(request);
    return node_hold_any(mount->nodes, inode_unpack(number).node);
}

static void put_node(fuse_req_t request, const struct node *node)
{
    const struct mount *mount = fuse_req_userdata(request);
    if (node)
        node_put(mount->nodes, node->number);
}

/* Of an HDF5 file. */
static bool is_root_group(const struct node *node)
{
    return node_is_of_folder(node) && node_is_top(node) && node->type == NODE_GROUP;
}

/* What a request does with a file. */
enum need {
    NEEDS_FILE,
    NEEDS_TO_OPEN, /* handles may come of it: of what is opened, made, or written by its name */
};

/* One that is open shows who may read it, and the kernel asks. To open one locks it, and is done for nobody who may not
 * read it: some calls do not ask the kernel, and it remembers for a while what was allowed. For most it has asked, and
 * knows the groups of all: whose are not known here is let in. */
static int use_of_caller(fuse_req_t request, enum need need, const struct node *node)
{
    uid_t user = fuse_req_ctx(request)->uid;
    if (!caller_reads_all(request)) {
        int error = mounted_use_open(node->mounted, user, need == NEEDS_TO_OPEN);
        if (error != -EAGAIN)
            return error;
        error = caller_may_read_closed(request, node, true);
        if (error)
            return error;
    }
    return (need == NEEDS_TO_OPEN ? mounted_use_to_open : mounted_use)(node->mounted, user);
}

/* What is waited for may take the serving of other requests. */
static int use(fuse_req_t request, enum request_kind kind, enum need need, const struct node *node)
{
    INTERRUPTIBLE(request, kind);
    const struct mount *mount = fuse_req_userdata(request);
    loop_begin_wait(mount->loop);
    int error = use_of_caller(request, need, node);
    loop_end_wait(mount->loop);
    return error;
}

/* Of which inodes a request wants the file: of none, of all but its root group itself, of all. */
enum wanted { WANTS_NOTHING, WANTS_INSIDE, WANTS_ALL };

/* The file that is used by a request on an inode, and how; file NULL: none. */
struct used {
    const struct mount *mount;
    struct mounted_file *file;
    uid_t user;
    bool opens;
};

/* None, because nothing of one is wanted, or (false) because that was answered with the error. */
static bool begin_of_kind(fuse_req_t request, enum request_kind kind, enum need need,
                          fuse_ino_t number, enum wanted wanted, struct used *used)
{
    const struct node *node = wanted != WANTS_NOTHING ? node_of(request, number) : NULL;
    bool is_inside = wanted == WANTS_ALL || inode_unpack(number).entry != ENTRY_NODE;
    bool is_wanted = node && (!node_is_of_folder(node) || (is_inside && is_root_group(node)));
    *used = (struct used){fuse_req_userdata(request), is_wanted ? node->mounted : NULL,
                          fuse_req_ctx(request)->uid, need == NEEDS_TO_OPEN};
    int error = is_wanted ? use(request, kind, need, node) : 0;
    put_node(request, node);
    if (error)
        answer_error(request, error);
    return !error;
}

static bool begin(fuse_req_t request, fuse_ino_t number, enum wanted wanted, struct used *used)
{
    return begin_of_kind(request, REQUEST_LOOKS, NEEDS_FILE, number, wanted, used);
}

/* The same of one that changes something, which is refused where that is the folder's. */
static bool begin_change_of_kind(fuse_req_t request, enum need need, fuse_ino_t number,
                                 enum wanted wanted, struct used *used)
{
    const struct mount *mount = fuse_req_userdata(request);
    const struct node *node = node_of(request, number);
    bool is_folders = node && node_is_of_folder(node) && node->type != NODE_GROUP;
    bool is_refused = (is_folders || (node && node->type == NODE_FOLDER)) &&
                      !control_is_writable(mount, inode_unpack(number).entry);
    int error = is_refused ? refusal_say(mount, node, REFUSAL_FOLDER) : 0;
    put_node(request, node);
    if (error)
        answer_error(request, error);
    return !error && begin_of_kind(request, REQUEST_CHANGES, need, number, wanted, used);
}

static bool begin_change(fuse_req_t request, fuse_ino_t number, struct used *used)
{
    return begin_change_of_kind(request, NEEDS_FILE, number, WANTS_ALL, used);
}

/* The request may have been answered, and be gone. */
static void end(const struct used *used)
{
    if (!used->file)
        return;
    mount_begin_letting_go(used->mount);
    (used->opens ? mounted_put_opened : mounted_put)(used->file, used->user);
    mount_end_letting_go(used->mount);
}

/* A handle that was made up may be of a node that another request makes in this moment, whose file is not used here. */
static bool is_of_no_node(fuse_req_t request, fuse_ino_t number)
{
    const struct node *node = node_of(request, number);
    put_node(request, node);
    return !node;
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct used used;
    bool is_itself = !strcmp(name, ".") || !strcmp(name, "..");
    if (is_itself && is_of_no_node(request, parent)) {
        answer_error(request, -ESTALE);
        return;
    }
    if (!begin(request, parent, is_itself ? WANTS_INSIDE : WANTS_ALL, &used))
        return;
    mount_requests.lookup(request, parent, name);
    end(&used);
}

/* The root group has the attributes of the file. */
static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct used used;
    if (!begin(request, number, WANTS_INSIDE, &used))
        return;
    mount_requests.getattr(request, number, info);
    end(&used);
}

static void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct used used;
    bool changes = (info->flags & O_ACCMODE) != O_RDONLY;
    if (changes ? !begin_change_of_kind(request, NEEDS_TO_OPEN, number, WANTS_ALL, &used)
                : !begin_of_kind(request, REQUEST_LOOKS, NEEDS_TO_OPEN, number, WANTS_ALL, &used))
        return;
    mount_requests.open(request, number, info);
    end(&used);
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct used used;
    if (!begin_of_kind(request, REQUEST_LOOKS, NEEDS_TO_OPEN, number, WANTS_ALL, &used))
        return;
    mount_requests.opendir(request, number, info);
    end(&used);
}

/* The names of the attributes of a file's root group, if they are known without opening it. The
 * caller frees them. */
static bool knows_names(struct mount *mount, fuse_ino_t number, char **names, size_t *n)
{
    struct inode inode = inode_unpack(number);
    if (mount->follow || inode.entry != ENTRY_NODE)
        return false;
    const struct node *node = node_hold_any(mount->nodes, inode.node);
    bool is_file = node && is_root_group(node);
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

/* Of other names it is known without looking that there are none: ls asks for them, and for most the kernel asks
 * nobody for permission, whatever is done with them. */
static bool is_users(const char *name)
{
    return !strncmp(name, XATTR_PREFIX, strlen(XATTR_PREFIX));
}

static void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    struct used used;
    char *names;
    size_t n;
    bool is_wanted = is_users(name) && inode_unpack(number).entry == ENTRY_NODE;
    if (is_wanted && knows_names(fuse_req_userdata(request), number, &names, &n)) {
        bool is_there = is_among(name, names, n);
        free(names);
        if (!is_there) {
            fuse_reply_err(request, ENODATA);
            return;
        }
    }
    if (!begin(request, number, is_wanted ? WANTS_ALL : WANTS_NOTHING, &used))
        return;
    mount_requests.getxattr(request, number, name, size);
    end(&used);
}

/* The kernel asks nobody for permission to list names: before any are known of a file that is not open it is asked here
 * whether the caller may read it, of one that is (*is_open) when it is used. -EACCES: he has none. */
static int may_list(fuse_req_t request, fuse_ino_t number, bool *is_open)
{
    const struct node *node = node_of(request, number);
    bool is_of_file = node && (!node_is_of_folder(node) || is_root_group(node));
    *is_open = is_of_file && mounted_is_open(node->mounted);
    bool is_asked = is_of_file && inode_unpack(number).entry == ENTRY_NODE && !*is_open &&
                    !caller_reads_all(request);
    const struct mount *mount = fuse_req_userdata(request);
    if (is_asked)
        loop_begin_wait(mount->loop);
    int error = is_asked ? caller_may_read_closed(request, node, false) : 0;
    if (is_asked)
        loop_end_wait(mount->loop);
    put_node(request, node);
    return error;
}

/* Programs that list a folder ask this of each file in it. */
static void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size)
{
    struct used used;
    char *names;
    size_t n;
    bool is_open;
    int error = may_list(request, number, &is_open);
    if (error == -EACCES) {
        mount_reply_xattr(request, NULL, 0, size);
        return;
    }
    if (error) {
        answer_error(request, error);
        return;
    }
    if (!is_open && knows_names(fuse_req_userdata(request), number, &names, &n)) {
        mount_reply_xattr(request, names, n, size);
        free(names);
        return;
    }
    bool is_wanted = inode_unpack(number).entry == ENTRY_NODE;
    if (!begin(request, number, is_wanted ? WANTS_ALL : WANTS_NOTHING, &used))
        return;
    mount_requests.listxattr(request, number, size);
    end(&used);
}

/* ---- Those that change something ---- */

/* Nothing is set by chown(2) without owner and group, for which the kernel asks nobody for permission: it is a question
 * for attributes. */
static void on_setattr(fuse_req_t request, fuse_ino_t number, struct stat *attributes, int to_set,
                       struct fuse_file_info *info)
{
    struct used used;
    bool is_change = to_set & ~FUSE_SET_ATTR_CTIME;
    if (!begin_change_of_kind(request, NEEDS_TO_OPEN, number, is_change ? WANTS_ALL : WANTS_INSIDE,
                              &used))
        return;
    mount_requests.setattr(request, number, attributes, to_set, info);
    end(&used);
}

static void on_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value,
                        size_t n, int flags)
{
    struct used used;
    if (!begin_change_of_kind(request, NEEDS_FILE, number,
                              is_users(name) ? WANTS_ALL : WANTS_NOTHING, &used))
        return;
    mount_requests.setxattr(request, number, name, value, n, flags);
    end(&used);
}

static void on_removexattr(fuse_req_t request, fuse_ino_t number, const char *name)
{
    struct used used;
    if (!begin_change_of_kind(request, NEEDS_FILE, number,
                              is_users(name) ? WANTS_ALL : WANTS_NOTHING, &used))
        return;
    mount_requests.removexattr(request, number, name);
    end(&used);
}

static void on_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *info)
{
    struct used used;
    if (!begin_change_of_kind(request, NEEDS_TO_OPEN, parent, WANTS_ALL, &used))
        return;
    mount_requests.create(request, parent, name, mode, info);
    end(&used);
}

static void on_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                     dev_t device)
{
    struct used used;
    if (!begin_change_of_kind(request, NEEDS_TO_OPEN, parent, WANTS_ALL, &used))
        return;
    mount_requests.mknod(request, parent, name, mode, device);
    end(&used);
}

static void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct used used;
    if (!begin_change(request, parent, &used))
        return;
    mount_requests.mkdir(request, parent, name, mode);
    end(&used);
}

static void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct used used;
    if (!begin_change(request, parent, &used))
        return;
    mount_requests.rmdir(request, parent, name);
    end(&used);
}

static void on_unlink(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct used used;
    if (!begin_change(request, parent, &used))
        return;
    mount_requests.unlink(request, parent, name);
    end(&used);
}

static void on_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name)
{
    struct used used;
    if (!begin_change(request, parent, &used))
        return;
    mount_requests.symlink(request, target, parent, name);
    end(&used);
}

/* Between two files, or a file and the folder, programs copy. Both are used, or none, and that was
 * answered. */
static bool begin_both(fuse_req_t request, fuse_ino_t one, fuse_ino_t other, struct used *used)
{
    if (!begin_change(request, one, used))
        return false;
    const struct node *node = node_of(request, other);
    bool is_same = !node || node->mounted == used->file;
    put_node(request, node);
    if (is_same)
        return true;
    end(used);
    fuse_reply_err(request, EXDEV);
    return false;
}

static void on_rename(fuse_req_t request, fuse_ino_t parent, const char *name,
                      fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
    struct used used;
    if (!begin_both(request, parent, new_parent, &used))
        return;
    mount_requests.rename(request, parent, name, new_parent, new_name, flags);
    end(&used);
}

static void on_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name)
{
    struct used used;
    if (!begin_both(request, parent, number, &used))
        return;
    mount_requests.link(request, number, parent, name);
    end(&used);
}

void mount_folder_requests(struct fuse_lowlevel_ops *requests)
{
    *requests = mount_requests;
    requests->lookup = on_lookup;
    requests->getattr = on_getattr;
    requests->setattr = on_setattr;
    requests->mknod = on_mknod;
    requests->mkdir = on_mkdir;
    requests->unlink = on_unlink;
    requests->rmdir = on_rmdir;
    requests->symlink = on_symlink;
    requests->rename = on_rename;
    requests->link = on_link;
    requests->create = on_create;
    requests->open = on_open;
    requests->opendir = on_opendir;
    requests->getxattr = on_getxattr;
    requests->listxattr = on_listxattr;
    requests->setxattr = on_setxattr;
    requests->removexattr = on_removexattr;
}
