#include "common/result_limit.h"

static _Thread_local struct {
    bool (*take)(void *context, size_t n);
    void *context;
} limit;

void result_limit_begin(bool (*take)(void *context, size_t n), void *context)
{
    limit.take = take;
    limit.context = context;
}

void result_limit_end(void)
{
    limit.take = NULL;
}

bool result_limit_take(size_t n)
{
    return !limit.take || limit.take(limit.context, n);
}
