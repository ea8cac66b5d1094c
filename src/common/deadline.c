#include "common/deadline.h"

#include <errno.h>

#include "common/clock.h"

static _Thread_local uint64_t deadline; /* 0: none */

void deadline_begin(uint64_t until)
{
    deadline = until;
}

void deadline_end(void)
{
    deadline = 0;
}

int deadline_check(void)
{
    return deadline > 0 && clock_now() >= deadline ? -ETIMEDOUT : 0;
}
