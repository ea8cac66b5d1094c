/* Binary search. */
#ifndef SPARSEFS_COMMON_SEARCH_H
#define SPARSEFS_COMMON_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

/* The first of the places [low, high) for which a condition holds that holds for all places behind
 * it, too; high: for none. */
static inline size_t search_between(size_t low, size_t high,
                                    bool (*holds)(const void *context, size_t place),
                                    const void *context)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (holds(context, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct search_element {
    const struct sfs_interval *intervals;
    uint64_t element;
};

static inline bool search_begins_behind(const void *context, size_t place)
{
    const struct search_element *sought = context;
    return sought->intervals[place].index > sought->element;
}

/* Among n intervals: the one that the k-th selected element is in, the last one if there are not so many; 0 if
 * there is no interval. */
static inline size_t search_interval(const struct sfs_interval *intervals, size_t n, uint64_t k)
{
    const struct search_element sought = {intervals, k};
    return n > 0 ? search_between(1, n, search_begins_behind, &sought) - 1 : 0;
}

#endif
