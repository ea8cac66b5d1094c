/* POSIX access ACLs (acl(5)). Of a file that has one the group's bits of the mode are its mask: the most that
 * the group, and the users and groups that it names, may do; none of them may do all of that for
 * certain. Other kinds of ACLs, as those of NFS version 4, are not looked at.
 *
 * Descriptors may be ones that only name a file (O_PATH); st is what fstat(2) says of it: the kernel
 * is only asked where it has bits for the group or others. One that cannot be read, or has more than
 * ACL_ENTRIES entries, is taken for one that keeps everything from all but the owner, and lets
 * somebody write. */
#ifndef SPARSEFS_COMMON_ACL_H
#define SPARSEFS_COMMON_ACL_H

#include <stdbool.h>
#include <sys/stat.h>

#define ACL_ENTRIES 1000

/* Takes from the mode what the ACL keeps from somebody: from the group's bits what the group may
 * not, or a user that is named, who may be in it; from others' bits what any user or group that is
 * named may not. */
void acl_narrow(int fd, struct stat *st);

/* Whether a user or group that it names may write. */
bool acl_names_writer(int fd, const struct stat *st);

/* Whether two files have the same one, or none. */
bool acl_is_same(int a, const struct stat *st_a, int b, const struct stat *st_b);

/* Whether a user who is not the owner may write, by the ACL or the mode. is_member: of a group; it
 * is asked only where that decides. */
bool acl_lets_write(int fd, const struct stat *st, uid_t user, bool (*is_member)(uid_t, gid_t));

/* Whether a user is in a group, by the system's lists. */
bool acl_is_member(uid_t user, gid_t group);

/* Removes it; *has_one: it had one. Then only the owner has permissions until the caller sets the
 * mode. The descriptor is no O_PATH. Errors of fchmod(2) and fremovexattr(2). */
int acl_remove(int fd, const struct stat *st, bool *has_one);

/* Permission bits of which the group has no more than others: of a file that got another group. */
mode_t acl_without_group(mode_t mode);

/* Permission bits of which an owner and a group that are not those of before have no more than both the group and
 * others had. */
mode_t acl_of_others(mode_t mode, const struct stat *before, const struct stat *now);

#endif
