/* Sets of positions as sorted intervals. Knows nothing of bytes in files. Results are built aside
 * and take their place at the end, so that an operand can be the result and an error changes
 * nothing. */
#include "selection/runs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/search.h"

void runs_free(struct runs *runs)
{
    free(runs->entries);
    runs_init(runs);
}

static int set_capacity(struct runs *runs, size_t capacity)
{
    struct sfs_interval *entries = reallocarray(runs->entries, capacity, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    if (runs->capacity == 0)
        entries[0].index = 0;
    runs->entries = entries;
    runs->capacity = capacity;
    return 0;
}

int runs_reserve(struct runs *runs, size_t n)
{
    if (n < runs->capacity)
        return 0;
    return n == SIZE_MAX ? -ENOMEM : set_capacity(runs, n + 1);
}

void runs_trim(struct runs *runs)
{
    if (runs->n == 0)
        runs_free(runs);
    else if (runs->n + 1 < runs->capacity)
        (void)set_capacity(runs, runs->n + 1); /* what cannot be given back is kept */
}

int runs_append_slowly(struct runs *runs, uint64_t first, uint64_t last)
{
    if (first >= last)
        return 0;
    assert(runs->n == 0 || runs_at(runs, runs->n - 1).last <= first);
    if (runs->n + 2 > runs->capacity) {
        int error = runs_reserve(runs, runs->n + runs->n / 2 + 8);
        if (error < 0)
            return error;
    }
    return runs_append(runs, first, last);
}

/* The first and the last run may be cut, and the first may continue what is there; those between
 * are as they are, but for what is added to every number. */
int runs_append_part(struct runs *runs, const struct runs *from, uint64_t first, uint64_t last,
                     uint64_t place)
{
    struct runs_walk walk;
    struct run run;
    runs_walk_begin(&walk, from, first, last);
    size_t begin = walk.next;
    if (!runs_walk(&walk, &run))
        return 0;
    size_t end = runs_find_from(from, begin, last - 1); /* the run in which the part ends, or n */
    size_t most = end - begin + 1;
    if (runs->n + most + 1 > runs->capacity) {
        int error = runs_reserve(runs, runs->n + most + runs->n / 2);
        if (error < 0)
            return error;
    }
    runs_append(runs, run.first - first + place, run.last - first + place);
    if (end > walk.next) {
        size_t n = end - walk.next;
        const struct sfs_interval *in = &from->entries[walk.next];
        struct sfs_interval *out = &runs->entries[runs->n];
        uint64_t move = place - first, add = runs->elements - in->index; /* both may wrap */
        for (size_t i = 0; i < n; i++)
            out[i] = (struct sfs_interval){in[i].first + move, in[i].index + add};
        runs->elements = in[n].index + add;
        runs->n += n;
        runs->entries[runs->n].index = runs->elements;
        walk.next = end;
    }
    if (runs_walk(&walk, &run))
        runs_append(runs, run.first - first + place, run.last - first + place);
    return 0;
}

/* ---- Algebra ---- */

static void replace(struct runs *result, struct runs *with)
{
    if (with->capacity - with->n > with->n / 8 + 1)
        runs_trim(with);
    runs_free(result);
    *result = *with;
}

int runs_copy(const struct runs *a, struct runs *result)
{
    struct runs out = {0};
    int error = a->n == 0 ? 0 : runs_reserve(&out, a->n);
    if (error < 0)
        return error;
    if (a->n > 0)
        memcpy(out.entries, a->entries, (a->n + 1) * sizeof(*out.entries));
    out.n = a->n;
    out.elements = a->elements;
    replace(result, &out);
    return 0;
}

static int reserve_for_both(struct runs *out, const struct runs *a, const struct runs *b)
{
    size_t n;
    return __builtin_add_overflow(a->n, b->n, &n) ? -ENOMEM : runs_reserve(out, n);
}

int runs_union(const struct runs *a, const struct runs *b, struct runs *result)
{
    struct runs out = {0};
    if (a->n == 0 || b->n == 0)
        return runs_copy(a->n == 0 ? b : a, result);
    int error = reserve_for_both(&out, a, b);
    if (error < 0)
        return error;
    size_t i = 0, j = 0;
    uint64_t end = 0; /* of what is in out */
    while (i < a->n || j < b->n) {
        bool from_a = j == b->n || (i < a->n && a->entries[i].first <= b->entries[j].first);
        struct run run = from_a ? runs_at(a, i++) : runs_at(b, j++);
        runs_append(&out, run.first > end ? run.first : end, run.last);
        if (run.last > end)
            end = run.last;
    }
    replace(result, &out);
    return 0;
}

int runs_intersection(const struct runs *a, const struct runs *b, struct runs *result)
{
    struct runs out = {0};
    int error = reserve_for_both(&out, a, b);
    if (error < 0)
        return error;
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        struct run x = runs_at(a, i), y = runs_at(b, j);
        runs_append(&out, x.first > y.first ? x.first : y.first, x.last < y.last ? x.last : y.last);
        i += x.last <= y.last;
        j += y.last <= x.last;
    }
    replace(result, &out);
    return 0;
}

int runs_difference(const struct runs *a, const struct runs *b, struct runs *result)
{
    struct runs out = {0};
    int error = reserve_for_both(&out, a, b);
    if (error < 0)
        return error;
    size_t j = 0;
    for (size_t i = 0; i < a->n; i++) {
        struct run run = runs_at(a, i);
        while (j < b->n && runs_at(b, j).last <= run.first)
            j++;
        /* A run of b that reaches into the next run of a is met again there. */
        for (; j < b->n && b->entries[j].first < run.last; j++) {
            struct run hole = runs_at(b, j);
            runs_append(&out, run.first, hole.first);
            run.first = hole.last;
            if (hole.last >= run.last)
                break;
        }
        runs_append(&out, run.first, run.last);
    }
    replace(result, &out);
    return 0;
}

int runs_clip(const struct runs *a, uint64_t first, uint64_t last, struct runs *result)
{
    struct runs out = {0};
    if (a->n > 0 && first <= a->entries[0].first && runs_at(a, a->n - 1).last <= last)
        return runs_copy(a, result);
    if (first < last) {
        size_t begin = runs_find(a, first), end = runs_find_from(a, begin, last);
        int error = runs_reserve(&out, end - begin + 1);
        if (error < 0)
            return error;
        struct runs_walk walk;
        struct run piece;
        runs_walk_begin(&walk, a, first, last);
        while (runs_walk(&walk, &piece))
            runs_append(&out, piece.first, piece.last);
    }
    replace(result, &out);
    return 0;
}

int runs_shift(struct runs *runs, int64_t offset)
{
    uint64_t moved;
    if (runs->n == 0)
        return 0;
    if (__builtin_add_overflow(runs->entries[0].first, offset, &moved) ||
        __builtin_add_overflow(runs_at(runs, runs->n - 1).last, offset, &moved))
        return -EOVERFLOW;
    for (size_t i = 0; i < runs->n; i++)
        runs->entries[i].first += (uint64_t)offset;
    return 0;
}

bool runs_equal(const struct runs *a, const struct runs *b)
{
    if (a->n != b->n || a->elements != b->elements)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->entries[i].first != b->entries[i].first ||
            a->entries[i].index != b->entries[i].index)
            return false;
    return true;
}

/* ---- Finding ---- */

struct sought {
    const struct sfs_interval *entries;
    uint64_t position;
};

static bool ends_behind(const void *context, size_t i)
{
    const struct sought *sought = context;
    const struct sfs_interval *entry = &sought->entries[i];
    return entry->first + (entry[1].index - entry->index) > sought->position;
}

size_t runs_find(const struct runs *runs, uint64_t position)
{
    const struct sought sought = {runs->entries, position};
    return search_between(0, runs->n, ends_behind, &sought);
}

size_t runs_find_from(const struct runs *runs, size_t from, uint64_t position)
{
    size_t low = from, step = 1;
    while (step < runs->n - low && runs_at(runs, low + step - 1).last <= position) {
        low += step;
        step *= 2;
    }
    const struct sought sought = {runs->entries, position};
    return search_between(low, step < runs->n - low ? low + step : runs->n, ends_behind, &sought);
}

bool runs_contain(const struct runs *runs, uint64_t position)
{
    size_t i = runs_find(runs, position);
    return i < runs->n && runs->entries[i].first <= position;
}

uint64_t runs_rank(const struct runs *runs, uint64_t position)
{
    size_t i = runs_find(runs, position);
    if (i == runs->n)
        return runs->elements;
    struct run run = runs_at(runs, i);
    return run.index + (position > run.first ? position - run.first : 0);
}

/* ---- Walking ---- */

void runs_walk_begin(struct runs_walk *walk, const struct runs *runs, uint64_t first, uint64_t last)
{
    *walk = (struct runs_walk){runs, runs_find(runs, first), first, last};
}

bool runs_walk(struct runs_walk *walk, struct run *piece)
{
    if (walk->next == walk->runs->n)
        return false;
    struct run run = runs_at(walk->runs, walk->next);
    if (run.first >= walk->last)
        return false;
    walk->next++;
    if (run.first < walk->first) {
        run.index += walk->first - run.first;
        run.first = walk->first;
    }
    if (run.last > walk->last)
        run.last = walk->last;
    *piece = run;
    return run.first < run.last;
}

void runs_box_walk_begin(struct runs_box_walk *walk, const struct runs *runs, int rank,
                         const uint64_t *dims, const uint64_t *start, const uint64_t *count)
{
    walk->runs = runs;
    walk->end = false;
    uint64_t stride = 1, first = 0;
    for (int i = rank - 1; i >= 0; i--) {
        walk->stride[i] = stride;
        walk->box.start[i] = start[i];
        walk->box.count[i] = count[i];
        walk->index[i] = 0;
        walk->end |= count[i] == 0;
        first += start[i] * stride;
        stride *= dims[i];
    }
    int axis = rank - 1; /* a row extends along this one and all of those behind it */
    while (axis > 0 && count[axis] == dims[axis])
        axis--;
    walk->box.rank = axis < 0 ? 0 : axis;
    walk->length = axis < 0 ? 1 : count[axis] * walk->stride[axis];
    walk->row = first;
    walk->offset = 0;
    walk->steps = 0;
    walk->next = walk->end ? 0 : runs_find(runs, first);
}

/* The next row, by counting up the index from an axis on; those behind it begin again. */
static void next_row(struct runs_box_walk *walk, int axis)
{
    for (int i = walk->box.rank - 1; i > axis; i--)
        walk->index[i] = 0;
    while (axis >= 0 && ++walk->index[axis] == walk->box.count[axis])
        walk->index[axis--] = 0;
    walk->end = axis < 0;
}

/* The first row that ends after a position which lies behind the present row. */
static void seek_row(struct runs_box_walk *walk, uint64_t position)
{
    const struct box *box = &walk->box;
    uint64_t rest = position;
    for (int i = 0; i < box->rank; i++) {
        uint64_t coordinate = rest / walk->stride[i];
        rest %= walk->stride[i];
        if (coordinate < box->start[i]) {
            for (; i < box->rank; i++)
                walk->index[i] = 0;
            return;
        }
        if (coordinate - box->start[i] >= box->count[i]) {
            next_row(walk, i - 1);
            return;
        }
        walk->index[i] = coordinate - box->start[i];
    }
    if (rest >= box->start[box->rank] * walk->stride[box->rank] + walk->length)
        next_row(walk, box->rank - 1);
}

static void place_row(struct runs_box_walk *walk)
{
    const struct box *box = &walk->box;
    uint64_t row = box->start[box->rank] * walk->stride[box->rank], number = 0;
    for (int i = 0; i < box->rank; i++) {
        row += (box->start[i] + walk->index[i]) * walk->stride[i];
        number = number * box->count[i] + walk->index[i];
    }
    walk->row = row;
    walk->offset = number * walk->length;
}

bool runs_box_walk_some(struct runs_box_walk *walk, struct run *piece, uint64_t *offset)
{
    while (!walk->end && walk->next < walk->runs->n) {
        struct run run = runs_at(walk->runs, walk->next);
        uint64_t row_end = walk->row + walk->length;
        if (run.first >= row_end) { /* the row is done */
            if (walk->box.rank == 0)
                break;
            seek_row(walk, run.first);
            place_row(walk);
        } else if (run.last <= walk->row) {
            walk->next = runs_find_from(walk->runs, walk->next, walk->row);
        } else {
            uint64_t first = run.first > walk->row ? run.first : walk->row;
            *piece = (struct run){first, run.last < row_end ? run.last : row_end,
                                  run.index + (first - run.first)};
            *offset = walk->offset + (first - walk->row);
            if (run.last <= row_end) {
                walk->next++;
            } else if (walk->box.rank == 0) {
                walk->end = true;
            } else {
                next_row(walk, walk->box.rank - 1);
                place_row(walk);
            }
            return true;
        }
        if (++walk->steps == RUNS_BOX_STEPS) {
            walk->steps = 0;
            *piece = (struct run){0};
            *offset = walk->offset;
            return true;
        }
    }
    return false;
}

bool runs_box_walk(struct runs_box_walk *walk, struct run *piece, uint64_t *offset)
{
    bool is_piece;
    do
        is_piece = runs_box_walk_some(walk, piece, offset);
    while (is_piece && piece->first == piece->last);
    return is_piece;
}

int runs_in_box(const struct runs *a, int rank, const uint64_t *dims, const uint64_t *start,
                const uint64_t *count, struct runs *result)
{
    struct runs out = {0};
    struct runs_box_walk walk;
    struct run piece;
    uint64_t offset;
    runs_box_walk_begin(&walk, a, rank, dims, start, count);
    while (runs_box_walk(&walk, &piece, &offset)) {
        int error = runs_append(&out, piece.first, piece.last);
        if (error < 0) {
            runs_free(&out);
            return error;
        }
    }
    replace(result, &out);
    return 0;
}

int runs_of_box(int rank, const uint64_t *dims, const uint64_t *start, const uint64_t *count,
                struct runs *result)
{
    uint64_t elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= dims[i];
    struct runs all = {0};
    int error = runs_append(&all, 0, elements);
    if (error == 0)
        error = runs_in_box(&all, rank, dims, start, count, result);
    runs_free(&all);
    return error;
}
