/* Extended attributes: those of groups, datasets and committed datatypes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/requests.h"

#define XATTR_PREFIX     "user."
#define XATTR_NAME_BYTES 255   /* XATTR_NAME_MAX of Linux */
#define XATTR_BYTES      65536 /* XATTR_SIZE_MAX and XATTR_LIST_MAX */

static struct mount *mount_of(fuse_req_t request)
{
    return fuse_req_userdata(request);
}

/* The attributes of an inode that has any; NULL without an error if it can have none. */
static int attributes_of(struct mount *mount, struct inode inode,
                         struct node_attributes **attributes)
{
    int error = 0;
    *attributes = NULL;
    pthread_rwlock_rdlock(&mount->tree_lock);
    const struct node *node = node_get(mount->nodes, inode.node);
    if (node && inode.entry == ENTRY_NODE && node->type != NODE_SYMLINK &&
        node->type != NODE_UNREADABLE)
        error = node_get_attributes(mount->nodes, node, attributes);
    pthread_rwlock_unlock(&mount->tree_lock);
    return error;
}

static void reply_xattr(fuse_req_t request, const char *value, size_t n, size_t size)
{
    if (n > XATTR_BYTES)
        fuse_reply_err(request, E2BIG);
    else if (size == 0)
        fuse_reply_xattr(request, n);
    else if (n > size)
        fuse_reply_err(request, ERANGE);
    else
        fuse_reply_buf(request, value, n);
}

/* The value of the attribute that an extended attribute is of; NULL: there is none. Given back, in
 * any case, by node_put_attributes of *attributes. */
static int find_value(struct mount *mount, struct inode inode, const char *name,
                      struct node_attributes **attributes, const char **value)
{
    size_t n = strlen(XATTR_PREFIX);
    *value = NULL;
    *attributes = NULL;
    int error = strncmp(name, XATTR_PREFIX, n) != 0 ? 0 : attributes_of(mount, inode, attributes);
    if (error || !*attributes)
        return error;
    const struct sfs_attributes *all = node_attributes(*attributes);
    for (size_t i = 0; i < all->n && !*value; i++)
        if (!strcmp(all->attribute[i].name, name + n))
            *value = all->attribute[i].text;
    return 0;
}

void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    /* ls asks every file for these until it is told that there are none here at all. For other
     * names ENOSYS would end all extended attributes of the mount. */
    if (!strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) ||
        !strcmp(name, "security.selinux")) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    struct node_attributes *attributes;
    const char *value;
    int error = find_value(mount_of(request), inode_unpack(number), name, &attributes, &value);
    if (value)
        reply_xattr(request, value, strlen(value), size);
    else
        fuse_reply_err(request, error ? -error : ENODATA);
    node_put_attributes(attributes);
}

/* Attributes can be set to what they are. Programs that copy files take it for granted that there
 * are places without some extended attributes, and say nothing when they are told so; that an
 * attribute which is there keeps its value they must be told. */
void on_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *bytes,
                 size_t n, int flags)
{
    (void)flags;
    struct node_attributes *attributes;
    const char *value;
    int error = find_value(mount_of(request), inode_unpack(number), name, &attributes, &value);
    if (!error && !value)
        error = -EOPNOTSUPP;
    else if (!error && (strlen(value) != n || memcmp(value, bytes, n) != 0))
        error = -EPERM;
    fuse_reply_err(request, -error);
    node_put_attributes(attributes);
}

void on_removexattr(fuse_req_t request, fuse_ino_t number, const char *name)
{
    struct node_attributes *attributes;
    const char *value;
    int error = find_value(mount_of(request), inode_unpack(number), name, &attributes, &value);
    fuse_reply_err(request, error ? -error : value ? EPERM : ENODATA);
    node_put_attributes(attributes);
}

/* Left out are attributes that getxattr could not give: too long, or unreadable. */
static bool is_listable(const struct sfs_attribute *attribute)
{
    return attribute->text && strlen(attribute->text) <= XATTR_BYTES &&
           strlen(XATTR_PREFIX) + strlen(attribute->name) <= XATTR_NAME_BYTES;
}

void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size)
{
    struct node_attributes *attributes;
    char *list = NULL;
    size_t n = 0;
    int error = attributes_of(mount_of(request), inode_unpack(number), &attributes);
    FILE *out = error ? NULL : open_memstream(&list, &n);
    if (!out) {
        fuse_reply_err(request, error ? -error : ENOMEM);
        return;
    }
    const struct sfs_attributes *all = attributes ? node_attributes(attributes) : NULL;
    for (size_t i = 0; all && i < all->n; i++)
        if (is_listable(&all->attribute[i]))
            fprintf(out, XATTR_PREFIX "%s%c", all->attribute[i].name, '\0');
    node_put_attributes(attributes);
    if (fclose(out) == 0)
        reply_xattr(request, list, n, size);
    else
        fuse_reply_err(request, ENOMEM);
    free(list);
}
