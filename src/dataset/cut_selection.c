/* Cutting selections at the borders of chunks. Axes are split in three: those before the last axis
 * that chunks cut number rows; that axis is cut into columns; those behind it lie whole in every
 * chunk, so that what is adjacent in the dataset is adjacent in a chunk:
 *
 *     dataset of rows x row elements     |<-- column -->|<-- column -->|<- rest ->|
 *
 * One row of chunks along the first axis is done at a time. */
#include "dataset/cut_selection.h"

#include <errno.h>
#include <stdlib.h>

#include "common/box.h"
#include "common/growing_array.h"
#include "common/interrupt.h"
#include "selection/sort.h"

struct cut {
    uint64_t chunk; /* its number in the grid of chunks, row-major */
    struct part_piece piece;
};

struct cutter {
    const struct layout *layout;
    int axis;                             /* the one that is cut into columns */
    uint64_t row, column;                 /* elements */
    uint64_t n_chunks[SFS_MAX_RANK];      /* per axis */
    uint64_t chunk_stride[SFS_MAX_RANK];  /* elements of a chunk */
    uint64_t number_stride[SFS_MAX_RANK]; /* chunks of the grid */
    struct cut *cuts;
    size_t n, capacity;
    uint64_t n_given; /* chunks */
};

static void cutter_init(struct cutter *cutter, const struct layout *layout)
{
    *cutter = (struct cutter){.layout = layout, .axis = layout->rank - 1, .row = 1};
    uint64_t inner = 1, stride = 1, number = 1;
    while (cutter->axis > 0 && layout->chunk_dims[cutter->axis] == layout->dims[cutter->axis])
        inner *= layout->dims[cutter->axis--];
    cutter->row = inner * layout->dims[cutter->axis];
    cutter->column = inner * layout->chunk_dims[cutter->axis];
    for (int i = layout->rank - 1; i >= 0; i--) {
        cutter->n_chunks[i] = (layout->dims[i] - 1) / layout->chunk_dims[i] + 1;
        cutter->chunk_stride[i] = stride;
        cutter->number_stride[i] = number;
        stride *= layout->chunk_dims[i];
        number *= cutter->n_chunks[i];
    }
}

static int add_cut(struct cutter *cutter, uint64_t chunk, uint64_t position, uint64_t length,
                   uint64_t index)
{
    struct cut *grown = room_for_one(cutter->cuts, cutter->n, &cutter->capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    cutter->cuts = grown;
    cutter->cuts[cutter->n++] = (struct cut){chunk, {position, length, index}};
    return 0;
}

/* Cuts one interval of positions. */
static int cut_run(struct cutter *cutter, struct run run)
{
    const struct layout *layout = cutter->layout;
    while (run.first < run.last) {
        uint64_t row = run.first / cutter->row, in_row = run.first % cutter->row;
        uint64_t column = in_row / cutter->column, in_column = in_row % cutter->column;
        uint64_t chunk = column * cutter->number_stride[cutter->axis], position = in_column;
        for (int i = cutter->axis - 1; i >= 0; i--) {
            uint64_t at = row % layout->dims[i];
            row /= layout->dims[i];
            chunk += at / layout->chunk_dims[i] * cutter->number_stride[i];
            position += at % layout->chunk_dims[i] * cutter->chunk_stride[i];
        }
        uint64_t left = cutter->column - in_column;
        if (left > cutter->row - in_row)
            left = cutter->row - in_row;
        if (left > run.last - run.first)
            left = run.last - run.first;
        int error = add_cut(cutter, chunk, position, left, run.index);
        if (error)
            return error;
        run.first += left;
        run.index += left;
    }
    return 0;
}

/* Sorts the cuts of a row of chunks by chunk, stably. */
static int sort_cuts(struct cutter *cutter)
{
    uint64_t lowest = UINT64_MAX, highest = 0;
    for (size_t i = 0; i < cutter->n; i++) {
        uint64_t chunk = cutter->cuts[i].chunk;
        lowest = chunk < lowest ? chunk : lowest;
        highest = chunk > highest ? chunk : highest;
    }
    if (lowest >= highest)
        return 0;
    struct pair *pairs = reallocarray(NULL, cutter->n, 2 * sizeof(*pairs));
    struct cut *sorted = reallocarray(NULL, cutter->capacity, sizeof(*sorted));
    int error = pairs && sorted ? 0 : -ENOMEM;
    if (!error) {
        for (size_t i = 0; i < cutter->n; i++)
            pairs[i] = (struct pair){cutter->cuts[i].chunk - lowest, i};
        sort_pairs(pairs, pairs + cutter->n, cutter->n, highest - lowest + 1);
        for (size_t i = 0; i < cutter->n; i++)
            sorted[i] = cutter->cuts[pairs[i].value];
        struct cut *swap = cutter->cuts;
        cutter->cuts = sorted;
        sorted = swap;
    }
    free(pairs);
    free(sorted);
    return error;
}

uint64_t parts_inside(const struct layout *layout, const uint64_t *scaled)
{
    uint64_t n = 1;
    for (int i = 0; i < layout->rank; i++) {
        uint64_t left = layout->dims[i] - scaled[i] * layout->chunk_dims[i];
        n *= left < layout->chunk_dims[i] ? left : layout->chunk_dims[i];
    }
    return n;
}

/* Passes n cuts of one chunk on. */
static int give_part(struct cutter *cutter, size_t first, size_t n, struct part_piece *pieces,
                     part_function each, void *context)
{
    const struct layout *layout = cutter->layout;
    struct part part = {.pieces = pieces, .n_pieces = n};
    uint64_t number = cutter->cuts[first].chunk;
    for (int i = 0; i < layout->rank; i++) {
        part.scaled[i] = number / cutter->number_stride[i];
        number %= cutter->number_stride[i];
    }
    int error = 0;
    for (size_t i = 0; i < n && !error; i++) {
        pieces[i] = cutter->cuts[first + i].piece;
        error =
            runs_append(&part.positions, pieces[i].position, pieces[i].position + pieces[i].length);
    }
    if (!error) {
        part.is_whole = part.positions.elements == parts_inside(layout, part.scaled);
        error = each(context, &part);
    }
    runs_free(&part.positions);
    return error;
}

static int give_row(struct cutter *cutter, part_function each, void *context)
{
    int error = sort_cuts(cutter);
    struct part_piece *pieces = reallocarray(NULL, cutter->n ? cutter->n : 1, sizeof(*pieces));
    if (!pieces)
        error = -ENOMEM;
    for (size_t first = 0; first < cutter->n && !error;) {
        size_t end = first + 1;
        while (end < cutter->n && cutter->cuts[end].chunk == cutter->cuts[first].chunk)
            end++;
        error = give_part(cutter, first, end - first, pieces, each, context);
        if (!error && ++cutter->n_given % ASK_EVERY_CHUNKS == 0)
            error = interrupt_check();
        first = end;
    }
    free(pieces);
    return error;
}

int parts_each(const struct layout *layout, const struct runs *runs, part_function each,
               void *context)
{
    if (runs->elements == 0)
        return 0;
    struct cutter cutter;
    cutter_init(&cutter, layout);
    uint64_t in_first = 1; /* elements of one index of the first axis */
    for (int i = 1; i < layout->rank; i++)
        in_first *= layout->dims[i];
    uint64_t band = in_first * layout->chunk_dims[0];
    if (layout->chunk_dims[0] > layout->dims[0])
        band = in_first * layout->dims[0];

    int error = 0;
    size_t next = 0;
    for (uint64_t at = runs_at(runs, 0).first; !error;) {
        uint64_t first = at / band * band, last = first + band;
        struct runs_walk walk;
        struct run run;
        cutter.n = 0;
        runs_walk_begin(&walk, runs, first, last);
        while (!error && runs_walk(&walk, &run))
            error = cut_run(&cutter, run);
        if (!error)
            error = give_row(&cutter, each, context);
        next = runs_find_from(runs, next, last);
        if (next == runs->n)
            break;
        at = runs_at(runs, next).first > last ? runs_at(runs, next).first : last;
    }
    free(cutter.cuts);
    return error;
}
