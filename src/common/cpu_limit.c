#include "common/cpu_limit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/interrupt.h"

#define STEP_BYTES ((size_t)1 << 20)
#define SECOND     1000000000u

static atomic_uint_fast64_t limit; /* nanoseconds; 0: none */

static _Thread_local struct {
    bool is_limited;
    size_t bytes;   /* since it was looked */
    uint64_t began; /* 0: it has not been looked yet, as most chunks are small */
} work;

void cpu_limit_set(double seconds)
{
    atomic_store(&limit, (uint64_t)(seconds * SECOND));
}

double cpu_limit(void)
{
    return (double)atomic_load(&limit) / SECOND;
}

void cpu_limit_begin(void)
{
    work.is_limited = atomic_load(&limit) > 0;
    work.bytes = 0;
    work.began = 0;
}

void cpu_limit_end(void)
{
    work.is_limited = false;
}

static uint64_t processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

int cpu_limit_check(size_t bytes)
{
    work.bytes = bytes < SIZE_MAX - work.bytes ? work.bytes + bytes : SIZE_MAX;
    if (work.bytes < STEP_BYTES)
        return 0;
    work.bytes = 0;
    int error = interrupt_check();
    if (error || !work.is_limited)
        return error;
    uint64_t now = processor_time();
    if (work.began == 0)
        work.began = now;
    return now - work.began > atomic_load(&limit) ? -ETIMEDOUT : 0;
}
