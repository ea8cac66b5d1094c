/* The descriptors of this process. */
#ifndef SPARSEFS_COMMON_DESCRIPTORS_H
#define SPARSEFS_COMMON_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens those of 0 to 2 that are not open: a file, a socket or /dev/fuse that got such a number would be taken for
 * standard input, or be written as messages are. What is opened is neither read nor written: -EBADF, as of one that is
 * closed. False: it cannot be done. Before anything else is opened. */
bool descriptors_fill_standard(void);

/* Closes all from this one on. */
void descriptors_close_from(int first);

/* Lets the process have so many open at a time, or as many as it may have; returns how many that are. */
uint64_t descriptors_allow(uint64_t wanted);

/* Sends n bytes over a socket of either kind, and with them a descriptor, or none (-1). -EPIPE: the other end is
 * closed, or not all of them were sent; other errors of sendmsg(2), as for want of memory. */
int descriptor_send(int socket, const void *bytes, size_t n, int fd);

/* Receives n bytes so: *fd is closed on exec, and the caller closes it, also after false; -1: none came
 * with them. False: the other end is closed, or has sent fewer. From our own processes only: of a
 * second descriptor that comes along neither would be closed. */
bool descriptor_receive(int socket, void *bytes, size_t n, int *fd);

#endif
