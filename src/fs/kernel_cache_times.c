/* How long the kernel may keep what it was told: of names, and of attributes. */
#include "fs/mount.h"

#define FOLDER_SECONDS 1.0 /* of what is the folder's: nobody says that it has changed */
#define RIGHTS_SECONDS 1.0 /* the same of mode and owner, by which the kernel lets others in */

static bool is_doubtful(const struct mount *mount, struct inode inode)
{
    const struct node *node = inode.entry == ENTRY_NODE ? node_get(mount->nodes, inode.node) : NULL;
    return node && node->is_doubtful;
}

/* Also of what was removed just now. */
static bool is_of_folder(const struct mount *mount, struct inode inode)
{
    const struct node *node = mount->files ? node_get(mount->nodes, inode.node) : NULL;
    return mount->files && inode.entry == ENTRY_NODE && (!node || node_is_of_folder(node));
}

double mount_name_timeout(const struct mount *mount, struct inode inode)
{
    if (is_of_folder(mount, inode) && !is_doubtful(mount, inode))
        return mount_folder_timeout(mount);
    return is_doubtful(mount, inode) || inode.entry == ENTRY_TEMPORARY ||
                   inode.entry == ENTRY_GROUP_JSON
               ? 0
           : mount->follow ? follow_timeout(mount->follow)
                           : MOUNT_TIMEOUT_SECONDS;
}

double mount_attribute_timeout(const struct mount *mount, struct inode inode)
{
    bool is_live = inode.entry == ENTRY_GROUP_JSON ||
                   (inode.entry > ENTRY_CONTROL && inode.entry < ENTRY_VIEW);
    return is_live || mount->follow || is_doubtful(mount, inode) ? 0
           : mount->options->allow_other                         ? RIGHTS_SECONDS
                                                                 : MOUNT_TIMEOUT_SECONDS;
}

double mount_folder_timeout(const struct mount *mount)
{
    bool is_sooner = mount->follow && follow_timeout(mount->follow) < FOLDER_SECONDS;
    return is_sooner ? follow_timeout(mount->follow) : FOLDER_SECONDS;
}
