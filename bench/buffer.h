/* What the two readers share: the clock, and a buffer whose pages exist before the clock starts. */
#ifndef SPARSEFS_BENCH_BUFFER_H
#define SPARSEFS_BENCH_BUFFER_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Monotonic time in seconds. */
static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* At least size bytes on touched huge pages (numpy asks for these too, so all readers are alike);
 * the caller frees them. NULL: no memory. */
static inline char *buffer_create(size_t size)
{
    const size_t huge_page = (size_t)2 << 20;
    size_t rounded = (size / huge_page + 1) * huge_page;
    char *buffer = aligned_alloc(huge_page, rounded);
    if (buffer) {
        madvise(buffer, rounded, MADV_HUGEPAGE);
        memset(buffer, 0, rounded);
    }
    return buffer;
}

#endif
