/* Points as intervals and packed values, as sfs_set_defined and sfs_write_values take them. */
#include "view/points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FEW 32 /* points that are sorted one by one */

/* ---- Sorting: byte by byte, so that no order of them takes long, and in place ---- */

static void sort_few(struct point *point, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++) {
        const struct point moved = point[i];
        uint64_t to = i;
        for (; to > 0 && point[to - 1].position > moved.position; to--)
            point[to] = point[to - 1];
        point[to] = moved;
    }
}

static unsigned byte_of(const struct point *point, unsigned shift)
{
    return (unsigned)(point->position >> shift) & UINT8_MAX;
}

/* Where the points with each byte begin, and end[256] = n. */
static int count_bytes(const struct point *point, uint64_t n, unsigned shift, uint64_t *begin)
{
    int error = 0;
    memset(begin, 0, (UINT8_MAX + 2) * sizeof(*begin));
    for (uint64_t i = 0; i < n && !error; i++) {
        begin[byte_of(&point[i], shift) + 1]++;
        error = points_ask(i);
    }
    for (unsigned k = 0; k <= UINT8_MAX; k++)
        begin[k + 1] += begin[k];
    return error;
}

/* Each is exchanged with what stands where it belongs. */
static int order_by_byte(struct point *point, unsigned shift, const uint64_t *begin)
{
    uint64_t next[UINT8_MAX + 1], steps = 0;
    int error = 0;
    memcpy(next, begin, sizeof(next));
    for (unsigned k = 0; k <= UINT8_MAX; k++) {
        while (next[k] < begin[k + 1] && !error) {
            struct point *at = &point[next[k]];
            unsigned byte = byte_of(at, shift);
            const struct point moved = *at;
            *at = point[next[byte]];
            point[next[byte]++] = moved;
            error = points_ask(steps++);
        }
    }
    return error;
}

/* By this byte and those below it: it calls itself for these. */
static int sort_bytes(struct point *point, uint64_t n, unsigned shift)
{
    uint64_t begin[UINT8_MAX + 2];
    if (n <= FEW) {
        sort_few(point, n);
        return 0;
    }
    int error = interrupt_check(); /* there may be many parts of not so many points each */
    if (!error)
        error = count_bytes(point, n, shift, begin);
    if (!error)
        error = order_by_byte(point, shift, begin);
    for (unsigned k = 0; k <= UINT8_MAX && shift > 0 && !error; k++)
        if (begin[k + 1] - begin[k] > 1)
            error = sort_bytes(point + begin[k], begin[k + 1] - begin[k], shift - 8);
    return error;
}

static unsigned highest_shift(const struct point *point, uint64_t n)
{
    uint64_t all = 0;
    for (uint64_t i = 0; i < n; i++)
        all |= point[i].position;
    unsigned shift = 0;
    while (shift < 56 && all >> (shift + 8))
        shift += 8;
    return shift;
}

int points_sort(struct point *point, uint64_t n)
{
    bool is_sorted = true;
    int error = 0;
    for (uint64_t i = 1; i < n && is_sorted && !error; i++) {
        is_sorted = point[i - 1].position < point[i].position;
        error = points_ask(i);
    }
    if (is_sorted || error)
        return error;
    error = sort_bytes(point, n, highest_shift(point, n));
    for (uint64_t i = 1; i < n && !error; i++) {
        error = points_ask(i);
        if (point[i - 1].position == point[i].position)
            error = -EINVAL;
    }
    return error;
}

/* ---- As intervals ---- */

static bool begins_interval(const struct point *point, uint64_t i)
{
    return i == 0 || point[i].position != point[i - 1].position + 1;
}

static int describe(const struct point *point, uint64_t n, struct sfs_defined *defined)
{
    size_t intervals = 0;
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++) {
        intervals += begins_interval(point, i);
        error = points_ask(i);
    }
    struct sfs_interval *interval = error ? NULL : calloc(intervals + 1, sizeof(*interval));
    if (!interval)
        return error ? error : -ENOMEM;
    *defined = (struct sfs_defined){intervals, interval, n};
    for (uint64_t i = 0; i < n && !error; i++) {
        if (begins_interval(point, i))
            *interval++ = (struct sfs_interval){point[i].position, i};
        error = points_ask(i);
    }
    *interval = (struct sfs_interval){0, n};
    return error;
}

int points_make(const struct point *point, uint64_t n, const char *values, size_t item,
                struct points *points)
{
    *points = (struct points){.values = malloc(n ? (size_t)n * item : 1)};
    int error = points->values ? describe(point, n, &points->defined) : -ENOMEM;
    for (uint64_t i = 0; i < n && !error; i++) {
        memcpy(points->values + i * item, values + point[i].value * item, item);
        error = points_ask(i);
    }
    if (error)
        points_free(points);
    return error;
}

void points_free(struct points *points)
{
    sfs_defined_free(&points->defined);
    free(points->values);
    *points = (struct points){0};
}

size_t points_bytes(const struct points *points, size_t item)
{
    return (points->defined.n + 1) * sizeof(*points->defined.interval) +
           (size_t)points->defined.elements * item;
}

/* ---- Of a frame ---- */

int points_read(struct views *views, uint64_t frame, size_t most, struct points *points)
{
    struct sfs_slab slab = view_frame_slab(views, frame);
    *points = (struct points){0};
    int error = sfs_get_defined(views->dataset, &slab, &points->defined);
    if (error)
        return error;
    uint64_t n = points->defined.elements;
    size_t item = views->info->type.size;
    if (n > most / item || points_bytes(points, item) > most) {
        points_free(points);
        return -EFBIG;
    }
    points->values = malloc(n ? (size_t)n * item : 1);
    error = !points->values ? -ENOMEM
            : n > 0 ? sfs_read_values(views->dataset, &slab, &points->defined, 0, n, points->values)
                    : 0;
    if (error)
        points_free(points);
    return error;
}

bool points_are_same(const struct views *views, const struct points *a, const struct points *b)
{
    const struct sfs_defined *x = &a->defined, *y = &b->defined;
    if (x->n != y->n || x->elements != y->elements)
        return false;
    for (size_t i = 0; i < x->n; i++)
        if (x->interval[i].first != y->interval[i].first ||
            x->interval[i].index != y->interval[i].index)
            return false;
    return memcmp(a->values, b->values, (size_t)x->elements * views->info->type.size) == 0;
}
