#include "common/invariants.h"

#include <stdio.h>
#include <stdlib.h>

void sanity_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not sane: %s\n", file, line, condition);
    abort();
}
