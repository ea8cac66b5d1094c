/* Points as intervals and packed values, as sfs_set_defined and sfs_write_values take them. */
#include "view/points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_position(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return (x->position > y->position) - (x->position < y->position);
}

int points_sort(struct point *point, uint64_t n)
{
    bool is_sorted = true;
    for (uint64_t i = 1; i < n && is_sorted; i++)
        is_sorted = point[i - 1].position < point[i].position;
    if (!is_sorted)
        qsort(point, (size_t)n, sizeof(*point), by_position);
    for (uint64_t i = 1; i < n; i++)
        if (point[i - 1].position == point[i].position)
            return -EINVAL;
    return 0;
}

static int describe(const struct point *point, uint64_t n, struct sfs_defined *defined)
{
    size_t intervals = 0;
    for (uint64_t i = 0; i < n; i++)
        intervals += i == 0 || point[i].position != point[i - 1].position + 1;
    struct sfs_interval *interval = calloc(intervals + 1, sizeof(*interval));
    if (!interval)
        return -ENOMEM;
    *defined = (struct sfs_defined){intervals, interval, n};
    for (uint64_t i = 0; i < n; i++)
        if (i == 0 || point[i].position != point[i - 1].position + 1)
            *interval++ = (struct sfs_interval){point[i].position, i};
    *interval = (struct sfs_interval){0, n};
    return 0;
}

int points_make(const struct point *point, uint64_t n, const char *values, size_t item,
                struct points *points)
{
    *points = (struct points){.values = malloc(n ? (size_t)n * item : 1)};
    int error = points->values ? describe(point, n, &points->defined) : -ENOMEM;
    if (error) {
        points_free(points);
        return error;
    }
    for (uint64_t i = 0; i < n; i++)
        memcpy(points->values + i * item, values + point[i].value * item, item);
    return 0;
}

void points_free(struct points *points)
{
    sfs_defined_free(&points->defined);
    free(points->values);
    *points = (struct points){0};
}
