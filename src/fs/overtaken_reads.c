/* Tables of times, by hash of inodes and of blocks of them. That two share a place matters only
 * where one of them is in such a race, too. */
#include "fs/overtaken_reads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define PLACES       8192
#define BLOCK_BYTES  ((uint64_t)64 << 10)
#define MOST_BLOCKS  1024       /* of a larger part it is not noted that it was forgotten */
#define ALL          UINT64_MAX /* in place of a block */
#define SECOND_NANOS 1000000000LL
#define RECENT_NANOS (5 * SECOND_NANOS)

struct recent {
    /* Nanoseconds; 0: never. */
    atomic_llong read[PLACES];        /* something of a block */
    atomic_llong forgotten[PLACES];   /* all of a block, or of an inode */
    atomic_llong invalidated[PLACES]; /* something of an inode */
};

struct recent *recent_create(void)
{
    return calloc(1, sizeof(struct recent));
}

void recent_destroy(struct recent *recent)
{
    free(recent);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND_NANOS + time.tv_nsec;
}

static size_t place(uint64_t inode, uint64_t block)
{
    return (inode * 0x9E3779B97F4A7C15u ^ block * 0xC2B2AE3D27D4EB4Fu) >> 40 & (PLACES - 1);
}

static bool is_recent(long long time, long long now)
{
    return time > 0 && now - time <= RECENT_NANOS;
}

void recent_read(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n)
{
    long long time = now();
    for (uint64_t block = offset / BLOCK_BYTES; block <= (offset + n) / BLOCK_BYTES; block++)
        atomic_store(&recent->read[place(inode, block)], time);
}

void recent_begin_forgetting(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n)
{
    long long time = now();
    uint64_t first = offset / BLOCK_BYTES + (offset % BLOCK_BYTES != 0);
    uint64_t end = (offset + n) / BLOCK_BYTES;
    atomic_store(&recent->invalidated[place(inode, ALL)], time);
    if (n == 0)
        atomic_store(&recent->forgotten[place(inode, ALL)], time);
    for (uint64_t block = first; block < end && end - first <= MOST_BLOCKS; block++)
        atomic_store(&recent->forgotten[place(inode, block)], time);
}

void recent_end_forgetting(struct recent *recent, uint64_t inode)
{
    atomic_store(&recent->invalidated[place(inode, ALL)], now());
}

bool recent_is_doubtful(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n)
{
    long long time = now();
    if (!is_recent(atomic_load(&recent->invalidated[place(inode, ALL)]), time))
        return false;
    long long all = atomic_load(&recent->forgotten[place(inode, ALL)]);
    for (uint64_t block = offset / BLOCK_BYTES; block <= (offset + n) / BLOCK_BYTES; block++) {
        long long read = atomic_load(&recent->read[place(inode, block)]);
        if (is_recent(read, time) && read >= all &&
            read >= atomic_load(&recent->forgotten[place(inode, block)]))
            return true;
    }
    return false;
}
