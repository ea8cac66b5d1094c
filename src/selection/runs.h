/* Runs: a set of element positions in memory, as sorted, disjoint, maximal intervals [first, last)
 * of row-major positions. Knows nothing of bytes in files, and of dims only where a box is
 * concerned.
 *
 * The values of a sparse chunk are packed in the order of the positions, so the index of a value is
 * the number of positions before its own. Every run therefore keeps the index of its first position
 * instead of its last one, which follows from the index of the run behind it:
 *
 *     positions  . . 2 3 4 . . 7 . 9 10     first  2  7  9
 *     indices        0 1 2     3   4  5     index  0  3  4  (6)
 *
 * Entry n is there, too, for its index.
 *
 * Invariants: first and index ascend; between two runs lies at least one position; entries[n].index
 * is elements. All counts are in elements. Positions are below UINT64_MAX. No locks: who changes
 * runs must be alone with them; reading is safe from any number of threads. */
#ifndef SPARSEFS_SELECTION_RUNS_H
#define SPARSEFS_SELECTION_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/box.h"
#include "sparsefs/sparsefs.h"

struct runs {
    struct sfs_interval *entries; /* n + 1 of them, NULL if nothing was ever appended */
    size_t n, capacity;
    uint64_t elements;
};

struct run {
    uint64_t first, last; /* positions */
    uint64_t index;       /* of the first, among all that are selected */
};

static inline void runs_init(struct runs *runs)
{
    *runs = (struct runs){0};
}

void runs_free(struct runs *runs); /* leaves it empty, as runs_init does */

/* Run i < n. */
static inline struct run runs_at(const struct runs *runs, size_t i)
{
    const struct sfs_interval *entry = &runs->entries[i];
    return (struct run){entry->first, entry->first + (entry[1].index - entry->index), entry->index};
}

static inline size_t runs_bytes(const struct runs *runs) /* allocated */
{
    return runs->capacity * sizeof(*runs->entries);
}

/* Room for n runs in all. -ENOMEM, with nothing changed. */
int runs_reserve(struct runs *runs, size_t n);

/* Gives back room that is not used; what was reserved is forgotten. Cannot fail. */
void runs_trim(struct runs *runs);

/* Adds [first, last), which must not begin before the last run ends; an empty interval adds
 * nothing. -ENOMEM, with nothing changed. */
int runs_append_slowly(struct runs *runs, uint64_t first, uint64_t last);

static inline int runs_append(struct runs *runs, uint64_t first, uint64_t last)
{
    if (runs->n + 2 > runs->capacity || first >= last)
        return runs_append_slowly(runs, first, last);
    struct sfs_interval *end = &runs->entries[runs->n];
    bool merges = runs->n > 0 && end[-1].first + (end->index - end[-1].index) == first;
    end += !merges;
    if (!merges)
        end[-1].first = first;
    runs->n += !merges;
    end->index = runs->elements += last - first;
    return 0;
}

/* Adds those of the positions [first, last) that are in `from`, moved so that first becomes
 * `place`, which must not lie before the end of the last run. -ENOMEM, with nothing changed. */
int runs_append_part(struct runs *runs, const struct runs *from, uint64_t first, uint64_t last,
                     uint64_t place);

/* ---- Algebra. The result, initialized before, is replaced; it may be one of the operands. Time is
 * linear in the runs of both, -ENOMEM leaves the result as it was. ---- */

int runs_copy(const struct runs *a, struct runs *result);
int runs_union(const struct runs *a, const struct runs *b, struct runs *result);
int runs_intersection(const struct runs *a, const struct runs *b, struct runs *result);
int runs_difference(const struct runs *a, const struct runs *b, struct runs *result);
int runs_clip(const struct runs *a, uint64_t first, uint64_t last, struct runs *result);

/* Moves every position by an offset. -EOVERFLOW, with nothing changed, if one would leave the range
 * of positions. */
int runs_shift(struct runs *runs, int64_t offset);

bool runs_equal(const struct runs *a, const struct runs *b);

struct runs_piece {
    uint64_t first, length;
};

/* The union of n disjoint intervals of positions below limit, in any order. Result and errors as in
 * the algebra. */
int runs_of_pieces(const struct runs_piece *pieces, size_t n, uint64_t limit, struct runs *result);

/* ---- Finding, in logarithmic time ---- */

/* The first run that ends after position: the one that contains it, or else the next; n if none. */
size_t runs_find(const struct runs *runs, uint64_t position);

/* The same, knowing that no run before `from` ends after position; fast if the answer is near. */
size_t runs_find_from(const struct runs *runs, size_t from, uint64_t position);

bool runs_contain(const struct runs *runs, uint64_t position);

/* The number of selected positions before this one, which need not be selected itself. */
uint64_t runs_rank(const struct runs *runs, uint64_t position);

/* ---- Walking. The runs must not change meanwhile. ---- */

struct runs_walk {
    const struct runs *runs;
    size_t next;
    uint64_t first, last;
};

/* Then runs_walk gives the pieces of runs in [first, last), one by one, until it returns false. */
void runs_walk_begin(struct runs_walk *walk, const struct runs *runs, uint64_t first,
                     uint64_t last);
bool runs_walk(struct runs_walk *walk, struct run *piece);

struct runs_box_walk {
    const struct runs *runs;
    struct box box; /* rank: of the axes that number rows */
    uint64_t index[SFS_MAX_RANK], stride[SFS_MAX_RANK];
    uint64_t row, offset,
        length; /* position of the row, offset in the box, both of its first element */
    size_t next, steps;
    bool end;
};

#define RUNS_BOX_STEPS 65536

/* Then runs_box_walk gives the pieces of runs that lie in the box of count elements per axis at
 * start in an extent of dims, row by row, and where each begins in the row-major order of the box
 * itself, until it returns false. Rows that are adjacent in the extent count as one. The box lies
 * in the extent, which has at most INT64_MAX elements. Rows without elements cost nothing. */
void runs_box_walk_begin(struct runs_box_walk *walk, const struct runs *runs, int rank,
                         const uint64_t *dims, const uint64_t *start, const uint64_t *count);
bool runs_box_walk(struct runs_box_walk *walk, struct run *piece, uint64_t *offset);

/* The same, and now and then, after RUNS_BOX_STEPS rows and runs of which nothing lies in the box, one without
 * elements: so that the caller can look whether it is to go on, of however many rows nothing does. */
bool runs_box_walk_some(struct runs_box_walk *walk, struct run *piece, uint64_t *offset);

/* The positions of such a box, or those of them that are in a. Result and errors as in the algebra.
 */
int runs_of_box(int rank, const uint64_t *dims, const uint64_t *start, const uint64_t *count,
                struct runs *result);
int runs_in_box(const struct runs *a, int rank, const uint64_t *dims, const uint64_t *start,
                const uint64_t *count, struct runs *result);

#endif
