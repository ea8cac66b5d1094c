/* Reading and writing all bytes of a range, over interruptions by signals and short counts. Any
 * thread. */
#ifndef SPARSEFS_COMMON_IO_H
#define SPARSEFS_COMMON_IO_H

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

#endif
