/* Hyperslabs, regular or as lists of blocks, to runs. Knows nothing of what stands around them in
 * an encoded dataspace.
 *
 * The order of values is row-major over the union of all blocks.
 * libhdf5 writes blocks by walking rows; rows of one pattern are grouped, so that blocks of one row
 * range follow each other, column interval by column interval. Such groups are put out row by row,
 * and all comes out sorted. Whatever does not (other orders, overlapping blocks, more than two axes
 * nested) is kept aside, sorted and united with the rest. */
#include "selection/private.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cpu_limit.h"

/* A list of more intervals for each run that there may be is refused. Blocks that do not overlap have no more
 * than one for each element, which are at most twice as many as their runs can be. */
#define MAX_OVERLAP 16

#define ALWAYS_INLINE inline __attribute__((always_inline))

#define PENDING                                                                                    \
    65536 /* intervals out of order that are kept before they are united with the rest */

struct sink {
    const struct dataspace_extent *extent;
    struct runs *runs;
    uint64_t end; /* of the last run */
    size_t max_runs;
    struct pair *pending; /* first, last of what came out of order; the second half is spare */
    size_t n_pending, capacity;
    uint64_t n_put; /* since it was asked whether this is still wanted */
};

/* Unites what came out of order with the runs. */
static int merge_pending(struct sink *sink)
{
    if (sink->n_pending == 0)
        return 0;
    struct runs late = {0};
    sort_pairs(sink->pending, sink->pending + sink->capacity, sink->n_pending,
               sink->extent->elements);
    uint64_t end = 0;
    int error = 0;
    for (size_t i = 0; i < sink->n_pending && error == 0; i++) {
        struct pair interval = sink->pending[i];
        error = runs_append(&late, interval.key > end ? interval.key : end, interval.value);
        if (interval.value > end)
            end = interval.value;
    }
    sink->n_pending = 0;
    if (error == 0)
        error = runs_union(sink->runs, &late, sink->runs);
    if (end > sink->end)
        sink->end = end;
    runs_free(&late);
    if (error == 0 && sink->runs->n > sink->max_runs)
        error = -ENOMEM;
    return error ? error : cpu_limit_check(sink->runs->n * sizeof(struct sfs_interval));
}

static int put_late(struct sink *sink, uint64_t first, uint64_t last)
{
    size_t enough = sink->runs->n > PENDING ? sink->runs->n : PENDING;
    if (sink->n_pending == sink->capacity && sink->capacity >= enough) {
        int error = merge_pending(sink);
        if (error < 0)
            return error;
    } else if (sink->n_pending == sink->capacity) {
        size_t capacity = sink->capacity * 2 + 64;
        struct pair *pending = reallocarray(sink->pending, capacity, 2 * sizeof(*pending));
        if (!pending)
            return -ENOMEM;
        sink->pending = pending;
        sink->capacity = capacity;
    }
    sink->pending[sink->n_pending++] = (struct pair){first, last};
    return 0;
}

static inline int put(struct sink *sink, uint64_t first, uint64_t last)
{
    if (++sink->n_put >= ASK_EVERY) {
        int error = cpu_limit_check(sink->n_put * sizeof(struct sfs_interval));
        if (error < 0)
            return error;
        sink->n_put = 0;
    }
    if (first < sink->end)
        return put_late(sink, first, last);
    if (sink->runs->n >= sink->max_runs && first > sink->end)
        return -ENOMEM;
    sink->end = last;
    return runs_append(sink->runs, first, last);
}

/* ---- Lists of blocks ---- */

struct list {
    const unsigned char *bytes;
    uint64_t n;
    int rank;
};

/* Start (end == 0) or end (1) of a block along an axis. */
static inline uint64_t corner(const struct list *list, int width, uint64_t i, int end, int axis)
{
    size_t number = (i * 2 + (uint64_t)end) * (uint64_t)list->rank + (uint64_t)axis;
    return get_le(list->bytes + number * (size_t)width, width);
}

static inline bool same_rows(const struct list *list, int width, uint64_t i, uint64_t j)
{
    for (int axis = 0; axis < list->rank - 1; axis++)
        if (corner(list, width, i, 0, axis) != corner(list, width, j, 0, axis) ||
            corner(list, width, i, 1, axis) != corner(list, width, j, 1, axis))
            return false;
    return true;
}

static inline bool block_is_valid(const struct dataspace_extent *extent, const struct list *list,
                                  int width, uint64_t i)
{
    for (int axis = 0; axis < list->rank; axis++) {
        uint64_t end = corner(list, width, i, 1, axis);
        if (corner(list, width, i, 0, axis) > end || end >= extent->dims[axis])
            return false;
    }
    return true;
}

/* Puts out blocks [i, j), which have the same starts and ends in all axes before `axis` and are
 * whole in all behind it. */
static int put_rows(struct sink *sink, const struct list *list, int width, uint64_t i, uint64_t j,
                    int axis)
{
    const uint64_t *stride = sink->extent->stride;
    uint64_t index[SFS_MAX_RANK], base = 0;
    for (int a = 0; a < axis; a++) {
        index[a] = corner(list, width, i, 0, a);
        base += index[a] * stride[a];
    }
    for (;;) {
        for (uint64_t b = i; b < j; b++) {
            uint64_t first = base + corner(list, width, b, 0, axis) * stride[axis];
            uint64_t last = base + (corner(list, width, b, 1, axis) + 1) * stride[axis];
            int error = put(sink, first, last);
            if (error < 0)
                return error;
        }
        int a = axis - 1;
        while (a >= 0 && index[a] == corner(list, width, i, 1, a)) {
            uint64_t start = corner(list, width, i, 0, a);
            base -= (index[a] - start) * stride[a];
            index[a--] = start;
        }
        if (a < 0)
            return 0;
        index[a]++;
        base += stride[a];
    }
}

/* How many rows a block has, and along which axis they extend. */
static inline uint64_t block_rows(const struct dataspace_extent *extent, const struct list *list,
                                  int width, uint64_t i, int *axis)
{
    int a = list->rank - 1;
    while (a > 0 && corner(list, width, i, 0, a) == 0 &&
           corner(list, width, i, 1, a) == extent->dims[a] - 1)
        a--;
    *axis = a;
    uint64_t rows = 1;
    while (--a >= 0)
        rows *= corner(list, width, i, 1, a) - corner(list, width, i, 0, a) + 1;
    return rows;
}

/* Puts out some blocks from i on as long as they are parts of single rows that come in order, which is
 * what scattered points are, and there is room to write them; returns where it ends. It is here
 * that almost all of the time goes: rank and width are constants, and nothing is written through
 * the sink meanwhile. */
static ALWAYS_INLINE uint64_t put_single_rows(struct sink *sink, const struct list *list, int rank,
                                              int width, uint64_t i)
{
    const struct dataspace_extent *extent = sink->extent;
    struct runs *runs = sink->runs;
    if (runs->n == 0 || runs->n >= sink->max_runs)
        return i; /* the first one has nothing before it to merge with */
    size_t room = runs->capacity - runs->n - 1;
    if (room > sink->max_runs - runs->n)
        room = sink->max_runs - runs->n;
    const unsigned char *block = list->bytes + i * (uint64_t)(2 * rank * width);
    const uint64_t begin = i, n = list->n - i < ASK_EVERY ? list->n : i + ASK_EVERY;
    struct sfs_interval *entry = runs->entries + runs->n, *limit = entry + room;
    uint64_t end = sink->end, elements = runs->elements;
    for (; i < n && entry < limit; i++, block += 2 * rank * width) {
        bool simple = true;
        uint64_t position = 0;
        for (int axis = 0; axis < rank - 1; axis++) {
            uint64_t at = get_le(block + axis * width, width);
            simple &= at == get_le(block + (rank + axis) * width, width);
            simple &= at < extent->dims[axis];
            position += at * extent->stride[axis];
        }
        uint64_t first = get_le(block + (rank - 1) * width, width);
        uint64_t last = get_le(block + (2 * rank - 1) * width, width);
        simple &= first <= last;
        simple &= last < extent->dims[rank - 1];
        first += position;
        if (!simple || first < end)
            break;
        /* Without a branch: what is written to the entry behind the last run does no harm. */
        entry->first = first;
        entry += first != end;
        end = position + last + 1;
        elements += end - first;
        entry->index = elements;
    }
    runs->n = (size_t)(entry - runs->entries);
    runs->elements = elements;
    sink->end = end;
    sink->n_put += i - begin;
    return i;
}

static ALWAYS_INLINE uint64_t put_single_rows_of_rank(struct sink *sink, const struct list *list,
                                                      int width, uint64_t i)
{
    switch (list->rank) {
    case 1:
        return put_single_rows(sink, list, 1, width, i);
    case 2:
        return put_single_rows(sink, list, 2, width, i);
    case 3:
        return put_single_rows(sink, list, 3, width, i);
    default:
        return put_single_rows(sink, list, list->rank, width, i);
    }
}

/* However large the extent is that the blocks cross. */
static uint64_t most_intervals(const struct sink *sink, const struct list *list)
{
    uint64_t most =
        sink->extent->elements < sink->max_runs ? sink->extent->elements : sink->max_runs;
    return __builtin_mul_overflow(most, (uint64_t)MAX_OVERLAP, &most) ||
                   __builtin_add_overflow(most, list->n, &most)
               ? UINT64_MAX
               : most;
}

static ALWAYS_INLINE int put_list(struct sink *sink, const struct list *list, int width,
                                  const char **why)
{
    const struct dataspace_extent *extent = sink->extent;
    const uint64_t limit = most_intervals(sink, list);
    uint64_t work = 0;
    for (uint64_t i = 0, j; i < list->n; i = put_single_rows_of_rank(sink, list, width, j)) {
        *why = "block";
        if (!block_is_valid(extent, list, width, i))
            return -EILSEQ;
        j = i + 1;
        int axis;
        uint64_t rows = block_rows(extent, list, width, i, &axis);
        if (rows > 1 && axis == list->rank - 1)
            for (; j < list->n && same_rows(list, width, i, j); j++)
                if (!block_is_valid(extent, list, width, j))
                    return -EILSEQ;
        if (rows > sink->max_runs) /* each is a run, or part of one, by itself */
            return -ENOMEM;
        *why = "blocks, which overlap too often";
        uint64_t intervals;
        if (__builtin_mul_overflow(rows, j - i, &intervals) || intervals > limit - work)
            return -EILSEQ;
        work += intervals;
        int error = put_rows(sink, list, width, i, j, axis);
        if (error < 0)
            return error;
    }
    return 0;
}

int block_list_runs(const struct dataspace_extent *extent, const struct stored_blocks *blocks,
                    size_t max_runs, struct runs *runs, const char **why)
{
    struct sink sink = {.extent = extent, .runs = runs, .max_runs = max_runs};
    uint64_t n = blocks->n;
    struct list list = {blocks->bytes, n, extent->rank};
    uint64_t likely = n < extent->elements / 2 ? n : extent->elements / 2 + 1;
    int error = runs_reserve(runs, likely < max_runs ? (size_t)likely : max_runs);
    if (error < 0)
        return error;
    if (blocks->width == 2)
        error = put_list(&sink, &list, 2, why);
    else if (blocks->width == 4)
        error = put_list(&sink, &list, 4, why);
    else
        error = put_list(&sink, &list, 8, why);
    if (error == 0)
        error = merge_pending(&sink);
    free(sink.pending);
    return error;
}

/* ---- Regular ones ---- */

bool regular_is_valid(const struct dataspace_extent *extent, const struct regular *regular)
{
    for (int i = 0; i < extent->rank; i++) {
        uint64_t count = regular->count[i], block = regular->block[i], last;
        if (count == 0 || block == 0 || (count > 1 && regular->stride[i] < block) ||
            __builtin_mul_overflow(count - 1, regular->stride[i], &last) ||
            __builtin_add_overflow(last, regular->start[i], &last) ||
            __builtin_add_overflow(last, block, &last) || last > extent->dims[i])
            return false;
    }
    return true;
}

/* Puts out the row that begins at base. */
static int put_regular_row(struct sink *sink, const struct regular *regular, int axis,
                           uint64_t base)
{
    uint64_t stride = sink->extent->stride[axis];
    base += regular->start[axis] * stride;
    for (uint64_t i = 0; i < regular->count[axis]; i++) {
        uint64_t first = base + i * regular->stride[axis] * stride;
        int error = put(sink, first, first + regular->block[axis] * stride);
        if (error < 0)
            return error;
    }
    return 0;
}

int regular_runs(const struct dataspace_extent *extent, const struct regular *given,
                 size_t max_runs, struct runs *runs)
{
    struct sink sink = {.extent = extent, .runs = runs, .max_runs = max_runs};
    struct regular regular = *given;
    for (int i = 0; i < extent->rank; i++)
        if (regular.count[i] == 1 || regular.stride[i] == regular.block[i]) {
            regular.block[i] *= regular.count[i];
            regular.count[i] = 1;
            regular.stride[i] = regular.block[i];
        }
    int axis = extent->rank - 1; /* rows extend along this one, whole in those behind it */
    while (axis > 0 && regular.block[axis] == extent->dims[axis])
        axis--;

    uint64_t index[SFS_MAX_RANK] = {0}; /* along an axis, among the selected ones */
    for (;;) {
        uint64_t base = 0;
        for (int i = 0; i < axis; i++) {
            uint64_t block = index[i] / regular.block[i], within = index[i] % regular.block[i];
            base += (regular.start[i] + block * regular.stride[i] + within) * extent->stride[i];
        }
        int error = put_regular_row(&sink, &regular, axis, base);
        if (error < 0)
            return error;
        int i = axis - 1;
        while (i >= 0 && ++index[i] == regular.count[i] * regular.block[i])
            index[i--] = 0;
        if (i < 0)
            return 0;
    }
}
