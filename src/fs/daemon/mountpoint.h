/* Where a file is mounted: on an empty directory, or where the caller has mounted a descriptor of
 * /dev/fuse that we inherit, as container runtimes do for programs that have no right to mount:
 * /dev/fd/N stands for it. */
#ifndef SPARSEFS_FS_DAEMON_MOUNTPOINT_H
#define SPARSEFS_FS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>

struct fuse_session;
struct options;

/* Whether it is a descriptor: it has no path, and is unmounted by the process that has mounted it. */
bool mountpoint_is_descriptor(const char *mountpoint);

/* Whether it can be mounted on, before anything is begun. Returns an exit code, and says why not; or 0 with
 * options->mountpoint_fd, an O_PATH descriptor of the directory that was looked at, and its path in
 * options->mountpoint. It stays open: whoever owns a directory above it can rename it, and put a link to any other in
 * its place. */
int mountpoint_check(struct options *options);

/* Where that directory is now. The caller frees it; NULL: it cannot be told, or it is a descriptor. */
char *mountpoint_where(const struct options *options);

/* An O_PATH descriptor of what has this path, without asking a file system that is mounted there; -1: nothing has,
 * or a link leads there. */
int mountpoint_open(const char *where);

/* What is mounted on the directory, when fuse_session_mount has been called. */
struct mounted_here {
    const struct options *options;
    bool by_descriptor; /* by that, not by the path: root's own mount(2) */
    int number;         /* in mountinfo; -1: not known */
};

/* As fuse_session_mount. Root mounts on the descriptor, wherever the path leads. What users mount, and with
 * auto_unmount, is mounted by fusermount3, which takes a path, and asks for the rights of the user. */
int mountpoint_mount(const struct options *options, struct fuse_session *session,
                     struct mounted_here *mounted);

/* As fuse_session_unmount; nothing but that mount is unmounted. */
void mountpoint_unmount(const struct mounted_here *mounted, struct fuse_session *session);

/* After libfuse has failed to mount, and said so: says what can be done about it, if that is one of
 * the things that are often missing. `for_others`: allow_other or allow_root was asked for. */
void mountpoint_explain(bool for_others);

#endif
