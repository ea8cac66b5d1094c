/* Invariants that a build with -Dsanity=true checks at quiet points, as the model tests use it. In
 * other builds a check costs nothing, but is compiled. */
#ifndef SPARSEFS_COMMON_INVARIANTS_H
#define SPARSEFS_COMMON_INVARIANTS_H

#include "config.h"

/* One that does not hold ends the process: what is wrong in memory must not get to the disk. */
#define SANE(condition)                                                                            \
    do {                                                                                           \
        if (SANITY && !(condition))                                                                \
            sanity_failed(#condition, __FILE__, __LINE__);                                         \
    } while (0)

_Noreturn void sanity_failed(const char *condition, const char *file, int line);

#endif
