/* Extended attributes: those of groups, datasets and committed datatypes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/caller_rights.h"
#include "fs/interrupt.h"
#include "fs/refusal.h"
#include "fs/requests.h"

#define XATTR_PREFIX     "user."
#define XATTR_NAME_BYTES 255   /* XATTR_NAME_MAX of Linux */
#define XATTR_BYTES      65536 /* XATTR_SIZE_MAX and XATTR_LIST_MAX */
#define SHORTENED        " ... (shortened)"

static bool can_have_attributes(const struct node *node)
{
    return node->type != NODE_SYMLINK && (!node_is_of_folder(node) || node->type == NODE_GROUP);
}

/* The attributes of an inode that has any; NULL without an error if it can have none. -EIO: it is
 * not known of what kind the object is. */
static int attributes_of(struct mount *mount, struct inode inode,
                         struct node_attributes **attributes)
{
    *attributes = NULL;
    const struct node *node = inode.entry == ENTRY_NODE ? node_get(mount->nodes, inode.node) : NULL;
    struct mounted_file *file = node ? node->mounted : NULL;
    int error = file ? mounted_lock_to_read(file) : 0;
    if (error || !file)
        return error;
    node = node_get(mount->nodes, inode.node);
    if (node && node->type == NODE_UNREADABLE)
        error = -EIO;
    else if (node && can_have_attributes(node))
        error = node_get_attributes(mount->nodes, node, attributes);
    mounted_unlock(file);
    return error;
}

void mount_reply_xattr(fuse_req_t request, const char *value, size_t n, size_t size)
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

/* As much of a text as an extended attribute can have, with the mark that it is not all; whole
 * characters, if it is UTF-8. The caller frees it. */
static char *shorten(const char *text)
{
    size_t n = XATTR_BYTES - strlen(SHORTENED);
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    char *shorter = malloc(n + sizeof(SHORTENED));
    if (shorter) {
        memcpy(shorter, text, n);
        strcpy(shorter + n, SHORTENED);
    }
    return shorter;
}

/* The value of the extended attribute for an HDF5 attribute; NULL: none. The caller frees it. */
static int find_value(struct mount *mount, struct inode inode, const char *name, char **value)
{
    size_t n = strlen(XATTR_PREFIX);
    struct node_attributes *attributes = NULL;
    const char *text = NULL;
    *value = NULL;
    int error = strncmp(name, XATTR_PREFIX, n) != 0 ? 0 : attributes_of(mount, inode, &attributes);
    if (error || !attributes)
        return error;
    const struct sfs_attributes *all = node_attributes(attributes);
    for (size_t i = 0; i < all->n && !text; i++)
        if (!strcmp(all->attribute[i].name, name + n))
            text = all->attribute[i].text;
    if (text)
        *value = strlen(text) > XATTR_BYTES ? shorten(text) : strdup(text);
    node_put_attributes(attributes);
    return text && !*value ? -ENOMEM : 0;
}

void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    LOOKING(request);
    /* ls asks every file for these until it is told that there are none here at all. For other
     * names ENOSYS would end all extended attributes of the mount. */
    if (!strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) ||
        !strcmp(name, "security.selinux")) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    char *value;
    int error = find_value(mount_of(request), inode_unpack(number), name, &value);
    if (value)
        mount_reply_xattr(request, value, strlen(value), size);
    else
        answer_error(request, error ? error : -ENODATA);
    free(value);
}

/* Of a name that users can set. Those of a file's owner or of a security module are copied without
 * being asked for. */
static int refuse_new(struct mount *mount, struct inode inode, const char *name)
{
    if (!strncmp(name, XATTR_PREFIX, strlen(XATTR_PREFIX)))
        (void)refusal_say(mount, node_get(mount->nodes, inode.node), REFUSAL_ATTRIBUTE);
    return -EOPNOTSUPP;
}

static int refuse_change(struct mount *mount, struct inode inode)
{
    return refusal_say(mount, node_get(mount->nodes, inode.node), REFUSAL_ATTRIBUTE);
}

/* Attributes can be set to what they are. Programs that copy files take it for granted that there
 * are places without some extended attributes, and say nothing when they are told so; that an
 * attribute which is there keeps its value they must be told. */
void on_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *bytes,
                 size_t n, int flags)
{
    LOOKING(request);
    (void)flags;
    char *value;
    struct mount *mount = mount_of(request);
    int error = find_value(mount, inode_unpack(number), name, &value);
    if (!error && !value)
        error = refuse_new(mount, inode_unpack(number), name);
    else if (!error && (strlen(value) != n || memcmp(value, bytes, n) != 0))
        error = refuse_change(mount, inode_unpack(number));
    answer_error(request, error);
    free(value);
}

void on_removexattr(fuse_req_t request, fuse_ino_t number, const char *name)
{
    LOOKING(request);
    char *value;
    struct mount *mount = mount_of(request);
    int error = find_value(mount, inode_unpack(number), name, &value);
    if (!error)
        error = value ? refuse_change(mount, inode_unpack(number)) : -ENODATA;
    answer_error(request, error);
    free(value);
}

/* Left out are attributes that getxattr could not give: unreadable, or with too long a name. */
static bool is_listable(const struct sfs_attribute *attribute)
{
    return attribute->text && strlen(XATTR_PREFIX) + strlen(attribute->name) <= XATTR_NAME_BYTES;
}

/* The names, one behind the other; the caller frees them. No more than a list can have, or Linux
 * would give none at all. */
static int list_names(const struct sfs_attributes *all, char **list, size_t *n)
{
    *n = 0;
    char *at = *list = malloc(XATTR_BYTES);
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; i < all->n; i++) {
        const struct sfs_attribute *attribute = &all->attribute[i];
        if (!is_listable(attribute))
            continue;
        size_t bytes = strlen(XATTR_PREFIX) + strlen(attribute->name) + 1;
        if (bytes > XATTR_BYTES - *n)
            break;
        at = stpcpy(stpcpy(at, XATTR_PREFIX), attribute->name) + 1;
        *n += bytes;
    }
    return 0;
}

/* Of the root group of a folder's file, which is open just now and is none that others write. */
static void keep_names(struct mount *mount, struct inode inode, const char *list, size_t n)
{
    const struct node *node = mount->files ? node_get(mount->nodes, inode.node) : NULL;
    if (node && node_is_top(node) && !mount->follow)
        mounted_keep_names(node->mounted, list, n);
}

/* The kernel asks nobody for permission to list names. Who may not read them has none, as with names that are only for
 * root in other file systems: programs that list folders expect no error. */
static int may_list(fuse_req_t request, struct inode inode)
{
    const struct node *node =
        inode.entry == ENTRY_NODE ? node_get(mount_of(request)->nodes, inode.node) : NULL;
    return node && can_have_attributes(node) ? caller_may_read(request, node) : 0;
}

/* Who copies a tree asks this of every file: most have none, and are answered at once. */
void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size)
{
    LOOKING(request);
    struct node_attributes *attributes = NULL;
    char *list = NULL;
    size_t n = 0;
    bool may = may_list(request, inode_unpack(number)) == 0;
    int error = may ? attributes_of(mount_of(request), inode_unpack(number), &attributes) : 0;
    if (attributes)
        error = list_names(node_attributes(attributes), &list, &n);
    if (attributes && !error)
        keep_names(mount_of(request), inode_unpack(number), list, n);
    if (error)
        answer_error(request, error);
    else
        mount_reply_xattr(request, list, n, size);
    node_put_attributes(attributes);
    free(list);
}
