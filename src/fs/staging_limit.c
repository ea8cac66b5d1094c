#include "fs/staging_limit.h"

#include <errno.h>

void staging_limit_init(struct staging_limit *limit, size_t most)
{
    limit->most = most;
    atomic_init(&limit->taken, 0);
}

int staging_limit_take(struct staging_limit *limit, size_t n)
{
    size_t taken = atomic_load(&limit->taken);
    do {
        if (n > limit->most - taken)
            return -ENOSPC;
    } while (!atomic_compare_exchange_weak(&limit->taken, &taken, taken + n));
    return 0;
}

void staging_limit_give_back(struct staging_limit *limit, size_t n)
{
    atomic_fetch_sub(&limit->taken, n);
}
