#include "common/acl.h"

#include <endian.h>
#include <errno.h>
#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define NAME      "system.posix_acl_access"
#define MODE_BITS 07

#define NAMES_BYTES 16384 /* of a user, with all that getpwuid_r(3) says */
#define FIRST_COUNT 64    /* of groups */

struct acl {
    ssize_t n; /* entries; 0: there is no ACL; -1: it cannot be read */
    struct {
        struct posix_acl_xattr_header header;
        struct posix_acl_xattr_entry entry[ACL_ENTRIES];
    } stored;
};

static ssize_t get(int fd, void *bytes, size_t n)
{
    char path[32];
    ssize_t got = fgetxattr(fd, NAME, bytes, n);
    if (got >= 0 || errno != EBADF) /* which it is for O_PATH */
        return got;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return getxattr(path, NAME, bytes, n);
}

static void read_acl(int fd, const struct stat *st, struct acl *acl)
{
    acl->n = 0;
    if (S_ISLNK(st->st_mode) || !(st->st_mode & (S_IRWXG | S_IRWXO)))
        return;
    ssize_t n = get(fd, &acl->stored, sizeof(acl->stored));
    if (n < 0) {
        acl->n = errno == ENODATA || errno == EOPNOTSUPP ? 0 : -1;
        return;
    }
    n -= (ssize_t)sizeof(acl->stored.header);
    bool is_known = n > 0 && n % (ssize_t)sizeof(*acl->stored.entry) == 0 &&
                    le32toh(acl->stored.header.a_version) == POSIX_ACL_XATTR_VERSION;
    acl->n = is_known ? n / (ssize_t)sizeof(*acl->stored.entry) : -1;
}

static unsigned tag_of(const struct acl *acl, ssize_t i)
{
    return le16toh(acl->stored.entry[i].e_tag);
}

static bool is_masked(unsigned tag)
{
    return tag == ACL_USER || tag == ACL_GROUP_OBJ || tag == ACL_GROUP;
}

/* What an entry lets do, as bits of others. */
static mode_t rights_of(const struct acl *acl, ssize_t i)
{
    mode_t mask = MODE_BITS;
    for (ssize_t j = 0; j < acl->n && is_masked(tag_of(acl, i)); j++)
        if (tag_of(acl, j) == ACL_MASK)
            mask = le16toh(acl->stored.entry[j].e_perm);
    return le16toh(acl->stored.entry[i].e_perm) & mask & MODE_BITS;
}

void acl_narrow(int fd, struct stat *st)
{
    struct acl acl;
    read_acl(fd, st, &acl);
    mode_t group = acl.n < 0 ? 0 : MODE_BITS, others = group;
    for (ssize_t i = 0; i < acl.n; i++) {
        unsigned tag = tag_of(&acl, i);
        if (tag == ACL_USER || tag == ACL_GROUP_OBJ)
            group &= rights_of(&acl, i);
        if (tag == ACL_USER || tag == ACL_GROUP)
            others &= rights_of(&acl, i);
    }
    st->st_mode &= ~(mode_t)(S_IRWXG | S_IRWXO) | group << 3 | others;
}

bool acl_names_writer(int fd, const struct stat *st)
{
    struct acl acl;
    read_acl(fd, st, &acl);
    bool found = acl.n < 0;
    for (ssize_t i = 0; i < acl.n && !found; i++)
        found = (tag_of(&acl, i) == ACL_USER || tag_of(&acl, i) == ACL_GROUP) &&
                rights_of(&acl, i) & S_IWOTH;
    return found;
}

bool acl_is_same(int a, const struct stat *st_a, int b, const struct stat *st_b)
{
    struct acl of_a, of_b;
    read_acl(a, st_a, &of_a);
    read_acl(b, st_b, &of_b);
    return of_a.n >= 0 && of_a.n == of_b.n &&
           (of_a.n == 0 || memcmp(of_a.stored.entry, of_b.stored.entry,
                                  (size_t)of_a.n * sizeof(*of_a.stored.entry)) == 0);
}

/* An entry that names the user decides; else those of his groups, if there are any; else others'. */
static bool lets_write(const struct acl *acl, const struct stat *st, uid_t user,
                       bool (*is_member)(uid_t, gid_t))
{
    for (ssize_t i = 0; i < acl->n; i++)
        if (tag_of(acl, i) == ACL_USER && le32toh(acl->stored.entry[i].e_id) == user)
            return rights_of(acl, i) & S_IWOTH;
    bool is_in = false;
    for (ssize_t i = 0; i < acl->n; i++) {
        unsigned tag = tag_of(acl, i);
        gid_t group = tag == ACL_GROUP ? le32toh(acl->stored.entry[i].e_id) : st->st_gid;
        if ((tag != ACL_GROUP && tag != ACL_GROUP_OBJ) || !is_member(user, group))
            continue;
        is_in = true;
        if (rights_of(acl, i) & S_IWOTH)
            return true;
    }
    return !is_in && st->st_mode & S_IWOTH;
}

bool acl_lets_write(int fd, const struct stat *st, uid_t user, bool (*is_member)(uid_t, gid_t))
{
    struct acl acl;
    if (!(st->st_mode & (S_IWGRP | S_IWOTH)))
        return false;
    read_acl(fd, st, &acl);
    if (acl.n != 0)
        return lets_write(&acl, st, user, is_member);
    bool group_may = st->st_mode & S_IWGRP, others_may = st->st_mode & S_IWOTH;
    return group_may == others_may || is_member(user, st->st_gid) ? group_may : others_may;
}

int acl_remove(int fd, const struct stat *st, bool *has_one)
{
    ssize_t n = get(fd, NULL, 0);
    *has_one = n >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
    if (!*has_one)
        return 0;
    /* Without it the mask is what the group may do. */
    if (fchmod(fd, st->st_mode & S_IRWXU) < 0)
        return -errno;
    return fremovexattr(fd, NAME) < 0 && errno != ENODATA ? -errno : 0;
}

mode_t acl_without_group(mode_t mode)
{
    return mode & ~(mode_t)(S_IRWXG & ~(mode << 3));
}

mode_t acl_of_others(mode_t mode, const struct stat *before, const struct stat *now)
{
    mode_t all = mode & mode >> 3 & MODE_BITS, taken = 0;
    if (now->st_uid != before->st_uid)
        taken |= S_IRWXU & ~(all << 6);
    if (now->st_gid != before->st_gid)
        taken |= S_IRWXG & ~(all << 3);
    return mode & ~taken;
}

bool acl_is_member(uid_t user, gid_t group)
{
    struct passwd entry, *found;
    char *names = malloc(NAMES_BYTES);
    gid_t *groups = NULL;
    int n = FIRST_COUNT, room = 0;
    bool is_in = false;
    if (names && getpwuid_r(user, &entry, names, NAMES_BYTES, &found) == 0 && found) {
        do {
            gid_t *more = reallocarray(groups, (size_t)n, sizeof(*groups));
            if (!more)
                break;
            groups = more;
            room = n;
        } while (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) < 0 && n > room);
        for (int i = 0; i < n && i < room && !is_in; i++)
            is_in = groups[i] == group;
    }
    free(groups);
    free(names);
    return is_in;
}
