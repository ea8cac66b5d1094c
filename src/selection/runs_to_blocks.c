/* Runs to lists of blocks. Knows nothing of how a block list is encoded.
 *
 * The list is the one that libhdf5 makes (H5Sencode, hyperslab version 1): along every axis
 * neighbouring slabs in which the same is selected become one, and within it the same is done along
 * the next axis. In two dimensions: rows of one pattern are grouped, and a group gives one block
 * for each interval of columns.
 *
 * Where few rows are alike as a whole but many parts of them are (discs, bands), tall blocks are
 * fewer: each interval of columns that stands in consecutive rows is a block of its own. */
#include "selection/runs_to_blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "common/interrupt.h"

#define MOST_BLOCK_BYTES (2 * SFS_MAX_RANK * 8)

/* Whether the walk may go on, past so many runs. */
static bool goes_on(struct block_list *list, uint64_t n)
{
    list->n_walked += n;
    if (list->n_walked >= ASK_EVERY && list->asks && !list->error)
        list->error = interrupt_check();
    if (list->n_walked >= ASK_EVERY)
        list->n_walked = 0;
    return !list->error;
}

/* What the blocks of a row have in common: all coordinates but those along the last axis. */
static void put_block(const struct block_list *list, unsigned char *block, int width)
{
    int rank = list->extent->rank;
    unsigned char *end = block + rank * width;
    for (int k = 0; k < rank - 1; k++) {
        put_le(block + k * width, list->start[k], width);
        put_le(end + k * width, list->end[k], width);
    }
}

/* Writes the blocks of a row, one for each of the runs i to j, which lie in it at least in part.
 * Where rank and width are constants a block is a few stores. */
static inline __attribute__((always_inline)) unsigned char *
put_row_of(const struct block_list *list, unsigned char *at, uint64_t base, uint64_t limit,
           size_t i, size_t j, int rank, int width)
{
    const struct sfs_interval *entries = list->runs->entries;
    size_t bytes = 2 * (size_t)rank * (size_t)width;
    unsigned char block[MOST_BLOCK_BYTES] = {0};
    put_block(list, block, width);
    for (; i <= j; i++, at += bytes) {
        uint64_t first = entries[i].first;
        uint64_t last = first + (entries[i + 1].index - entries[i].index);
        first = first > base ? first - base : 0;
        last = (last < limit ? last : limit) - base - 1;
        memcpy(at, block, bytes);
        put_le(at + bytes / 2 - width, first, width);
        put_le(at + bytes - width, last, width);
    }
    return at;
}

/* Frames have two dims, and chunks of them often three. */
static unsigned char *put_row(const struct block_list *list, unsigned char *at, uint64_t base,
                              uint64_t limit, size_t i, size_t j)
{
    int rank = list->extent->rank, width = list->width;
    if (rank == 2 && width == 2)
        return put_row_of(list, at, base, limit, i, j, 2, 2);
    if (rank == 2 && width == 4)
        return put_row_of(list, at, base, limit, i, j, 2, 4);
    if (rank == 3 && width == 2)
        return put_row_of(list, at, base, limit, i, j, 3, 2);
    if (rank == 3 && width == 4)
        return put_row_of(list, at, base, limit, i, j, 3, 4);
    return put_row_of(list, at, base, limit, i, j, rank, width);
}

/* The blocks of a row, of which run i is the first that ends behind its base; j is the first that
 * ends behind its limit. */
static void list_row(struct block_list *list, uint64_t base, uint64_t limit, size_t i, size_t j)
{
    const struct runs *runs = list->runs;
    if (j == runs->n || runs->entries[j].first >= limit) {
        if (j == i)
            return;
        j--;
    }
    uint64_t last = runs_at(runs, j).last, end = (last < limit ? last : limit) - base - 1;
    list->n += j - i + 1;
    if (end > list->highest)
        list->highest = end;
    while (list->at && i <= j) {
        size_t part = j - i < ASK_EVERY ? j - i + 1 : ASK_EVERY;
        list->at = put_row(list, list->at, base, limit, i, i + part - 1);
        if (!goes_on(list, part))
            return;
        i += part;
    }
}

/* ---- libhdf5's list ---- */

/* Whether in two slabs of size positions at a and b the same is selected. *i is the first run that
 * ends after a, *j that of b, and if so, *j becomes the first one that ends after b's slab. */
static bool slabs_are_equal(const struct runs *runs, uint64_t a, size_t i, uint64_t b, size_t *j,
                            uint64_t size)
{
    size_t k = *j;
    for (;;) {
        bool has_a = i < runs->n && runs->entries[i].first < a + size;
        bool has_b = k < runs->n && runs->entries[k].first < b + size;
        if (has_a != has_b)
            return false;
        if (!has_a) {
            *j = k;
            return true;
        }
        struct run x = runs_at(runs, i), y = runs_at(runs, k);
        bool ends_a = x.last >= a + size, ends_b = y.last >= b + size;
        uint64_t x_first = x.first > a ? x.first - a : 0, y_first = y.first > b ? y.first - b : 0;
        if (x_first != y_first || ends_a != ends_b || (!ends_a && x.last - a != y.last - b))
            return false;
        if (ends_a) {
            *j = y.last > b + size ? k : k + 1;
            return true;
        }
        i++, k++;
    }
}

/* What is along an axis under the first of everything along the axes before it: if the selection is
 * regular, that is all of it. */
static void note_span(struct regular *regular, int axis, uint64_t first, uint64_t end)
{
    if (regular->count[axis] == 0) {
        regular->start[axis] = first;
        regular->stride[axis] = 1;
        regular->block[axis] = end - first + 1;
    } else if (regular->count[axis] == 1) {
        regular->stride[axis] = first - regular->start[axis];
    }
    regular->count[axis]++;
}

#define LINE_BYTES   64  /* of the processor's cache */
#define MOST_FETCHED 128 /* lines */

/* Asks for the runs of the next slab, which will be searched by leaps: it has about as many as the
 * last one had. */
static void fetch_next(const struct runs *runs, size_t next, size_t n)
{
    size_t in_line = LINE_BYTES / sizeof(*runs->entries), most = MOST_FETCHED * in_line;
    size_t end = next + 2 * (n < most / 2 ? n : most / 2);
    for (; next < runs->n && next < end; next += in_line)
        __builtin_prefetch(&runs->entries[next]);
}

/* The blocks within a slab at position base, which is all that the axes from `axis` on span. Run i
 * is the first that ends after base, run end the first that ends after the slab. */
static void list_slab(struct block_list *list, int axis, uint64_t base, size_t i, size_t end,
                      bool note)
{
    const struct dataspace_extent *extent = list->extent;
    const struct runs *runs = list->runs;
    uint64_t size = extent->stride[axis], limit = base + extent->dims[axis] * size, low = base;
    if (axis == extent->rank - 1) {
        list_row(list, base, limit, i, end);
        for (; note && i < runs->n && runs->entries[i].first < limit; i++) {
            struct run run = runs_at(runs, i);
            note_span(&list->regular, axis, run.first > base ? run.first - base : 0,
                      (run.last < limit ? run.last : limit) - base - 1);
        }
        return;
    }
    bool note_inner = note;
    while (i < runs->n && runs->entries[i].first < limit && low < limit && goes_on(list, 1)) {
        struct run run = runs_at(runs, i);
        uint64_t k = ((run.first > low ? run.first : low) - base) / size, slab = base + k * size;
        uint64_t next = k + 1;
        if (run.first <= slab && run.last >= slab + size) /* whole slabs: as many as there are */
            next = ((run.last < limit ? run.last : limit) - base) / size;
        size_t first_end = runs_find_from(runs, i, slab + size);
        fetch_next(runs, first_end, first_end - i);
        size_t j = next == k + 1 ? first_end : runs_find_from(runs, first_end, base + next * size);
        while (next < extent->dims[axis] &&
               slabs_are_equal(runs, slab, i, base + next * size, &j, size))
            next++;
        list->start[axis] = k;
        list->end[axis] = next - 1;
        if (next - 1 > list->highest)
            list->highest = next - 1;
        if (note)
            note_span(&list->regular, axis, k, next - 1);
        list_slab(list, axis + 1, slab, i, first_end, note_inner);
        note_inner = false;
        i = j;
        low = base + next * size;
    }
}

int blocks_count(struct block_list *list, const struct dataspace_extent *extent,
                 const struct runs *runs, bool asks)
{
    *list = (struct block_list){.extent = extent, .runs = runs, .asks = asks};
    if (runs->n > 0)
        list_slab(list, 0, 0, 0, runs->n, true);
    return list->error;
}

int blocks_write(struct block_list *list, unsigned char *to, int width)
{
    list->at = to;
    list->width = width;
    list_slab(list, 0, 0, 0, list->runs->n, false);
    return list->error;
}

bool blocks_are_regular(const struct block_list *list)
{
    const struct regular *regular = &list->regular;
    uint64_t n = 1;
    if (!regular_is_valid(list->extent, regular))
        return false;
    for (int i = 0; i < list->extent->rank; i++)
        n *= regular->count[i] * regular->block[i];
    if (n != list->runs->elements)
        return false;
    struct runs runs = {0};
    bool equal = regular_runs(list->extent, regular, list->runs->n, &runs) == 0 &&
                 runs_equal(&runs, list->runs);
    runs_free(&runs);
    return equal;
}

/* ---- Tall blocks ---- */

struct tall_builder {
    const struct dataspace_extent *extent;
    struct tall_list *list;
    size_t limit;
    uint64_t row;         /* the present one, counted through all planes, */
    uint64_t base;        /* and the position where it begins; UINT64_MAX: not known */
    size_t *here, *above; /* the blocks that reach into this row and into the one above */
    size_t n_here, n_above, next_above;
    size_t continued; /* intervals that stand in the row above, too */
};

static bool add_block(struct tall_builder *b, uint64_t row, uint64_t first, uint64_t end,
                      uint64_t rows)
{
    if (b->list->n == b->limit)
        return false;
    b->list->blocks[b->list->n++] = (struct tall_block){row, rows, first, end};
    return true;
}

static void begin_row(struct tall_builder *b, uint64_t row)
{
    uint64_t rows = b->extent->dims[b->extent->rank - 2];
    bool goes_on = row == b->row + 1 && row % rows != 0;
    size_t *swap = b->above;
    b->above = b->here;
    b->here = swap;
    b->n_above = goes_on ? b->n_here : 0;
    b->n_here = b->next_above = 0;
    b->row = row;
    b->base = row * b->extent->dims[b->extent->rank - 1];
}

/* Columns first to end, both included, of a row. */
static bool add_interval(struct tall_builder *b, uint64_t row, uint64_t first, uint64_t end)
{
    if (row != b->row)
        begin_row(b, row);
    struct tall_block *blocks = b->list->blocks;
    while (b->next_above < b->n_above && blocks[b->above[b->next_above]].first < first)
        b->next_above++;
    if (b->next_above < b->n_above) {
        size_t above = b->above[b->next_above];
        if (blocks[above].first == first && blocks[above].end == end) {
            blocks[above].rows++;
            b->here[b->n_here++] = above;
            b->continued++;
            return true;
        }
    }
    b->here[b->n_here++] = b->list->n;
    return add_block(b, row, first, end, 1);
}

static bool add_whole_rows(struct tall_builder *b, uint64_t row, uint64_t last)
{
    uint64_t columns = b->extent->dims[b->extent->rank - 1];
    uint64_t rows_per_plane = b->extent->dims[b->extent->rank - 2];
    while (row < last) {
        uint64_t rows = rows_per_plane - row % rows_per_plane;
        if (rows > last - row)
            rows = last - row;
        if (!add_block(b, row, 0, columns - 1, rows))
            return false;
        row += rows;
    }
    b->row = last - 1;
    b->base = UINT64_MAX;
    b->n_here = 0; /* runs are maximal: no other whole row follows */
    return true;
}

static bool add_run(struct tall_builder *b, struct run run)
{
    uint64_t columns = b->extent->dims[b->extent->rank - 1];
    /* Most runs lie in the row of the one before, which is found without dividing. */
    if (run.first >= b->base && run.last - b->base <= columns)
        return add_interval(b, b->row, run.first - b->base, run.last - b->base - 1);
    uint64_t row = run.first / columns, first = run.first % columns;
    uint64_t last_row = run.last / columns, last = run.last % columns;
    if (row == last_row)
        return add_interval(b, row, first, last - 1);
    if (first > 0 && !add_interval(b, row++, first, columns - 1))
        return false;
    if (row < last_row && !add_whole_rows(b, row, last_row))
        return false;
    return last == 0 || add_interval(b, last_row, 0, last - 1);
}

/* Scattered points have next to nothing under each other: that is plain after a part of them. */
#define LOOKED_AT_SHARE 8
#define LEAST_LOOKED_AT 1024
#define CONTINUED_SHARE 8

static bool is_hopeless(const struct tall_builder *b, size_t i, size_t n)
{
    return i == n / LOOKED_AT_SHARE && i >= LEAST_LOOKED_AT && b->continued < i / CONTINUED_SHARE;
}

int tall_blocks(const struct dataspace_extent *extent, const struct runs *runs, size_t limit,
                bool asks, struct tall_list *list)
{
    *list = (struct tall_list){0};
    if (extent->rank < 2 || limit == 0)
        return 0;
    uint64_t per_row = extent->dims[extent->rank - 1] / 2 + 1;
    size_t n = per_row < runs->n ? (size_t)per_row : runs->n;
    struct tall_builder b = {
        .extent = extent, .list = list, .limit = limit, .row = UINT64_MAX - 1, .base = UINT64_MAX};
    list->blocks = reallocarray(NULL, limit, sizeof(*list->blocks));
    b.here = reallocarray(NULL, n, sizeof(*b.here));
    b.above = reallocarray(NULL, n, sizeof(*b.above));
    int error = list->blocks && b.here && b.above ? 0 : -ENOMEM;
    bool fits = error == 0;
    for (size_t i = 0; i < runs->n && fits; i++) {
        fits = !is_hopeless(&b, i, runs->n) && add_run(&b, runs_at(runs, i));
        if (asks && fits && i % ASK_EVERY == ASK_EVERY - 1)
            fits = !(error = interrupt_check());
    }
    free(b.here);
    free(b.above);
    if (!fits)
        tall_list_free(list);
    return error;
}

void tall_list_free(struct tall_list *list)
{
    free(list->blocks);
    *list = (struct tall_list){0};
}

void tall_write(const struct dataspace_extent *extent, const struct tall_list *list,
                unsigned char *to, int width)
{
    int rank = extent->rank;
    size_t coordinates = (size_t)(rank * width);
    for (size_t i = 0; i < list->n; i++, to += 2 * coordinates) {
        const struct tall_block *block = &list->blocks[i];
        uint64_t rest = block->row;
        put_le(to + coordinates - width, block->first, width);
        put_le(to + 2 * coordinates - width, block->end, width);
        for (int axis = rank - 2; axis >= 0; axis--) {
            uint64_t start = rest % extent->dims[axis];
            uint64_t end = axis == rank - 2 ? start + block->rows - 1 : start;
            put_le(to + axis * width, start, width);
            put_le(to + coordinates + axis * width, end, width);
            rest /= extent->dims[axis];
        }
    }
}
