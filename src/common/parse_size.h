/* Sizes that users write. */
#ifndef SPARSEFS_COMMON_PARSE_SIZE_H
#define SPARSEFS_COMMON_PARSE_SIZE_H

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A number of bytes, with K, M, G or T behind it for powers of 1024; false: it is none, 0 or too
 * large. */
static inline bool size_parse(const char *text, size_t *size)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    const char *unit = isalpha((unsigned char)*end) ? strchr(units, toupper(*end)) : NULL;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (*text < '0' || *text > '9' || *end || errno || number == 0 || number > SIZE_MAX >> shift)
        return false;
    *size = (size_t)number << shift;
    return true;
}

#endif
