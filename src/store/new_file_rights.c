/* Permissions of new files that are to be as another one: neighbours and copies. In a folder with a
 * default ACL a new file has that: nobody gets in by it before it is taken away, as its mask is empty
 * until then. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/acl.h"
#include "store/private.h"

/* Some file systems have the same modes for all files, and change none (FAT; some in userspace). */
static int set_mode(int fd, mode_t mode)
{
    struct stat st;
    if (fchmod(fd, mode) == 0)
        return 0;
    int error = -errno;
    return fstat(fd, &st) == 0 && !(st.st_mode & 0666 & ~mode) ? 0 : error;
}

int rights_give(int fd, gid_t group, mode_t mode)
{
    struct stat st;
    bool had_acl;
    if (fstat(fd, &st) < 0)
        return -errno;
    int error = acl_remove(fd, &st, &had_acl);
    if (error)
        return error;
    if (st.st_gid != group && fchown(fd, (uid_t)-1, group) < 0)
        mode = acl_without_group(mode);
    return set_mode(fd, mode);
}
