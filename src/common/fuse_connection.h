/* The end of a FUSE connection, by the kernel's control file system (Documentation/filesystems/fuse.rst): whoever waits
 * for it gets an error. Numbers are used again: of a mount that is gone they mean another one. */
#ifndef SPARSEFS_COMMON_FUSE_CONNECTION_H
#define SPARSEFS_COMMON_FUSE_CONNECTION_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor; negative: there is none, or it is not ours to end. It goes on to mean the connection that has the
 * number now, so that its mount can be looked at before it is aborted. */
int fuse_connection_open(unsigned number);

/* Of such a descriptor: whether this user has made its mount, which need not be in our table of mounts. */
bool fuse_connection_is_of(int fd, uid_t user);

/* Of such a descriptor. False: it is gone. */
bool fuse_connection_abort(int fd);

#endif
