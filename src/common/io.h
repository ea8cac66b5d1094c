/* Reading and writing all bytes of a range, and changing names, over interruptions by signals and short counts.
 * Any thread. */
#ifndef SPARSEFS_COMMON_IO_H
#define SPARSEFS_COMMON_IO_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>

/* Reads n bytes from an offset on, or from where the descriptor is. *done: how many were read, fewer
 * than n (0 is returned) at the end of the file. Errors of pread(2), read(2). */
int io_read_at(int fd, uint64_t offset, void *buffer, size_t n, size_t *done);
int io_read(int fd, void *buffer, size_t n, size_t *done);

/* Writes n bytes. *done: how many were written, also after an error. Errors of pwrite(2), write(2);
 * -EIO: nothing was taken. */
int io_write_at(int fd, uint64_t offset, const void *bytes, size_t n, size_t *done);
int io_write(int fd, const void *bytes, size_t n, size_t *done);

/* Removes a name in a folder, or renames it, also from one folder to another. File systems of networks and FUSE
 * may say EINTR, and have done it: it is tried again, and a name that is gone then is success. Errors of
 * unlinkat(2), renameat(2). */
int io_unlink_at(int folder, const char *name);
int io_rename_at(int folder, const char *name, int to_folder, const char *to);

#define IO_OPEN_AT (O_CLOEXEC | O_NOFOLLOW) /* what it adds to flags of openat(2) */

/* Opens what has a name in a folder, without following symbolic links. What is mounted there is not asked: it may
 * never answer. A descriptor; -EXDEV: something is mounted there, which kernels before 5.6 do not tell; errors of
 * openat2(2). */
int io_open_at(int folder, const char *name, int flags);

/* Opens a regular file by its path: links are followed, and anything else, which open(2) might wait for or set going,
 * is not opened: -EINVAL. A descriptor; errors of open(2). */
int io_open_regular(const char *path, int flags);

/* What was opened with O_PATH. Errors of open(2). */
int io_open_again(int fd, int flags);

/* Closes a descriptor, which is not open any more in any case. Errors of close(2), but for EINTR. */
int io_close(int fd);

#endif
