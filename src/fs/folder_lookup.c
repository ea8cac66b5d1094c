/* What is the folder's in a mount of one: names, attributes and listings of all that is above the
 * root groups of its files, and files that are not HDF5. It is only read, and looked at anew each
 * time: others change it. Nothing of an HDF5 file is opened for that. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/escaped_names.h"
#include "fs/mount.h"

#define READ_BITS    0444
#define WRITE_BITS   0222
#define EXECUTE_BITS 0111

/* A descriptor of what has a node's place, or -errno. */
static int find_any(struct mount *mount, const struct node *node, struct stat *st)
{
    char *path = node_folder_path(node);
    if (!path)
        return -ENOMEM;
    int fd = folder_find(mounted_files_folder(mount->files), path, st);
    free(path);
    return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
}

/* The same of what a node is. -ESTALE: that is something else; the kernel looks the name up again. */
static int find(struct mount *mount, const struct node *node, struct stat *st)
{
    int fd = find_any(mount, node, st);
    if (fd < 0 || mounted_is(node->mounted, st))
        return fd;
    close(fd);
    return -ESTALE;
}

/* Whether an HDF5 file that is not open can be written is unknown: its mode stands for it. */
static bool may_be_written(const struct mount *mount, const struct node *node)
{
    return mount->is_writable && node->type == NODE_GROUP &&
           !atomic_load(&node->mounted->is_read_only);
}

/* Nothing else can be. HDF5 files are directories: those that can be read can be searched. Whether it belongs to
 * whom the kernel was told. */
static bool show(const struct mount *mount, const struct node *node, struct stat *st)
{
    const struct options *options = mount->options;
    bool is_link = node->type == NODE_SYMLINK;
    mode_t kept = may_be_written(mount, node) ? READ_BITS | WRITE_BITS : READ_BITS;
    mode_t execute =
        node->type == NODE_GROUP ? (st->st_mode & READ_BITS) >> 2 : st->st_mode & EXECUTE_BITS;
    mode_t bits = (st->st_mode & kept) | execute;
    mode_t type = node->type == NODE_GROUP ? S_IFDIR : st->st_mode & S_IFMT;
    bool is_told = mounted_has_told_owners(node->mounted, st);
    if (options->has_umask)
        bits = (type == S_IFDIR ? kept | EXECUTE_BITS : kept) & ~options->umask;
    else
        mounted_tell(node->mounted, node->type == NODE_GROUP ? st->st_mode & kept : bits);
    st->st_mode = type | (is_link ? 0777 : bits);
    st->st_ino = inode_pack((struct inode){.node = node->number, .entry = ENTRY_NODE});
    st->st_nlink = 1;
    st->st_rdev = 0;
    st->st_uid = options->has_uid ? options->uid : st->st_uid;
    st->st_gid = options->has_gid ? options->gid : st->st_gid;
    if (node->type == NODE_GROUP)
        st->st_size = st->st_blocks = 0;
    return is_told;
}

int mount_folder_attributes(struct mount *mount, const struct node *node, struct stat *st)
{
    int fd = find_any(mount, node, st);
    if (fd < 0)
        return fd;
    close(fd);
    if (!mounted_shows(node->mounted, st))
        return -ESTALE;
    mounted_tell_owners(node->mounted, st);
    (void)show(mount, node, st);
    return 0;
}

/* The node of what was found by a descriptor, which the caller holds then. */
static int node_of_found(struct mount *mount, const struct node *directory, const char *name,
                         int found, struct in_folder *child)
{
    struct folder *folder = mounted_files_folder(mount->files);
    char target[PATH_MAX];
    struct folder_entry entry = {.name = name, .st = &child->st, .target = target};
    int error = folder_kind(folder, found, &child->st, &entry.kind);
    if (error)
        return error;
    ssize_t n = entry.kind == FOLDER_SYMLINK ? readlinkat(found, "", target, sizeof(target)) : 0;
    if (n < 0 || n == sizeof(target))
        return n < 0 ? -errno : -ENAMETOOLONG;
    target[n] = '\0';
    error = node_folder_child(mount->nodes, directory, &entry, &child->node);
    if (!error)
        child->is_told = show(mount, child->node, &child->st);
    return error;
}

static int child_in(struct mount *mount, const struct node *directory, int fd, const char *name,
                    struct in_folder *child)
{
    int found = folder_find_in(mounted_files_folder(mount->files), fd, name, &child->st);
    if (found == -ENOENT)
        node_folder_forget(mount->nodes, directory, name);
    if (found < 0)
        return found;
    int error = node_of_found(mount, directory, name, found, child);
    close(found);
    return error;
}

int mount_lookup_in_folder(struct mount *mount, const struct node *directory, const char *name,
                           struct inode *inode)
{
    struct stat st;
    struct in_folder child;
    if (!directory->parent && !strcmp(name, NAME_CONTROL)) {
        *inode = (struct inode){.entry = ENTRY_CONTROL};
        node_hold(mount->nodes, inode->node);
        return 0;
    }
    int fd = find(mount, directory, &st);
    if (fd < 0)
        return fd;
    int error = child_in(mount, directory, fd, name, &child);
    close(fd);
    if (!error)
        *inode = (struct inode){.node = child.node->number, .entry = ENTRY_NODE};
    return error;
}

int mount_listed_in_folder(struct mount *mount, const struct node *directory,
                           const struct folder_names *names, size_t i, struct in_folder *child)
{
    struct folder_entry entry = {.name = names->text + names->name[i].at, .st = &child->st};
    if (!folder_knows_listed(mounted_files_folder(mount->files), names, i, &child->st, &entry.kind))
        return child_in(mount, directory, names->directory, entry.name, child);
    int error = node_folder_child(mount->nodes, directory, &entry, &child->node);
    if (!error)
        child->is_told = show(mount, child->node, &child->st);
    return error;
}

int mount_list_folder(struct mount *mount, const struct node *directory, struct folder_names *names)
{
    struct stat st;
    int fd = find(mount, directory, &st);
    return fd < 0 ? fd : folder_list(fd, names);
}

int mount_open_passed(struct mount *mount, const struct node *node)
{
    struct stat st;
    int found = find(mount, node, &st);
    if (found < 0)
        return found;
    int fd = folder_open_found(found);
    close(found);
    return fd;
}
