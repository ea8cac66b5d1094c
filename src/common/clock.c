#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>

#define SECOND 1000000000u

static uint64_t time_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_now(void)
{
    return time_of(CLOCK_MONOTONIC);
}

static _Thread_local uint64_t uncounted;

uint64_t clock_waited(void)
{
    uint64_t run = time_of(CLOCK_THREAD_CPUTIME_ID);
    return clock_now() - run - uncounted;
}

void clock_uncount_waited(uint64_t since)
{
    uint64_t now = clock_waited();
    uncounted += now > since ? now - since : 0; /* two clocks */
}

uint64_t clock_waited_for_processor(pid_t pid)
{
    char path[48];
    uint64_t waited = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*u %" SCNu64, &waited) != 1)
        waited = 0;
    fclose(file);
    return waited;
}

struct timespec clock_in(uint64_t nanos)
{
    uint64_t time = clock_now() + nanos;
    return (struct timespec){.tv_sec = (time_t)(time / SECOND), .tv_nsec = (long)(time % SECOND)};
}

bool clock_has_come(const struct timespec *time)
{
    return clock_now() >= (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_nsec;
}

void clock_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
