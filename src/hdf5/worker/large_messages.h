/* What large messages of workers take of memory, those of all files of the process together: so many files, whatever
 * they claim, can be asked at the same time. Each is given back before its client waits for anything but what the
 * message says is to be done. Thread-safe. */
#ifndef SPARSEFS_HDF5_WORKER_LARGE_MESSAGES_H
#define SPARSEFS_HDF5_WORKER_LARGE_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

/* A message and what is made of it, in bytes of it. */
#define LARGE_TIMES 4

/* Waits for so many bytes in turn, until a time of clock_now(); more than there are for all are given when nobody else
 * has any. Meanwhile ask(context) is called several times in a second, whose error ends it. -ETIMEDOUT. */
int large_take(size_t n, uint64_t until, int (*ask)(void *context), void *context);
void large_give_back(size_t n);

#endif
