/* What is defined of a selection of a dataset, as a selection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "dataset/private.h"
#include "dataset/transfer_selection.h"
#include "layout/layout.h"
#include "selection/selection.h"

/* What is defined of what is selected, as positions in the dataset. */
struct finding {
    struct sfs_dataset *dataset;
    const struct runs *selected;
    struct runs *found;
};

static int find_in_band(struct finding *finding, uint64_t first_row, uint64_t rows)
{
    const struct layout *layout = &finding->dataset->layout;
    struct sfs_slab slab = {.rank = layout->rank, .start = {first_row}, .count = {rows}};
    uint64_t in_first = 1;
    for (int i = 1; i < layout->rank; i++) {
        slab.count[i] = layout->dims[i];
        in_first *= layout->dims[i];
    }
    struct runs defined, selected = {0};
    int error = dataset_defined(finding->dataset, &slab, &defined);
    uint64_t first = first_row * in_first;
    if (!error)
        error = runs_shift(&defined, (int64_t)first);
    if (!error)
        error = runs_clip(finding->selected, first, first + rows * in_first, &selected);
    if (!error)
        error = runs_intersection(&selected, &defined, &selected);
    for (size_t i = 0; i < selected.n && !error; i++) {
        struct run run = runs_at(&selected, i);
        error = runs_append(finding->found, run.first, run.last);
    }
    runs_free(&defined);
    runs_free(&selected);
    return error;
}

/* The rows between the first and the last that are selected. */
static struct box selected_rows(const struct layout *layout, const struct runs *selected,
                                uint64_t in_first)
{
    struct box box = {.rank = layout->rank};
    memcpy(box.count, layout->dims, sizeof(box.count));
    box.start[0] = runs_at(selected, 0).first / in_first;
    box.count[0] = (runs_at(selected, selected->n - 1).last - 1) / in_first + 1 - box.start[0];
    return box;
}

/* Band by band of chunks along the first axis, those of which nothing is stored, or in which
 * nothing is selected, left out. */
static int find_defined(struct finding *finding)
{
    const struct layout *layout = &finding->dataset->layout;
    const struct runs *selected = finding->selected;
    uint64_t in_first = 1, done = 0; /* rows */
    for (int i = 1; i < layout->rank; i++)
        in_first *= layout->dims[i];
    if (selected->elements == 0)
        return 0;
    struct chunk_list list;
    struct box box = selected_rows(layout, selected, in_first);
    int error = chunk_list_fill(&list, finding->dataset, &box);
    size_t next = 0;
    for (size_t i = 0; i < list.n && !error; i++) {
        uint64_t row = list.scaled[i * (size_t)layout->rank] * layout->chunk_dims[0];
        uint64_t rows = layout->dims[0] - row;
        if (rows > layout->chunk_dims[0])
            rows = layout->chunk_dims[0];
        if (row < done)
            continue;
        done = row + rows;
        next = runs_find_from(selected, next, row * in_first);
        if (next < selected->n && runs_at(selected, next).first < done * in_first)
            error = find_in_band(finding, row, rows);
    }
    chunk_list_free(&list);
    return error;
}

static int encode_found(const struct sfs_dataset *dataset, const struct runs *found, void **encoded,
                        size_t *n)
{
    const uint64_t *dims = dataset->layout.dims, *max_dims = dataset->info.max_dims;
    int rank = dataset->info.rank;
    int error = selection_encode(rank, dims, max_dims, found, SELECTION_LIBHDF5_1_10, encoded, n);
    if (error == -EOVERFLOW) /* coordinates of more than 32 bits */
        error = selection_encode(rank, dims, max_dims, found, SELECTION_SMALLEST, encoded, n);
    return error;
}

static int get_defined_of(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                          const struct selection *selection, void **encoded, size_t *n)
{
    struct runs found = {0};
    struct finding finding = {dataset, &selection->runs, &found};
    int error = find_defined(&finding);
    *encoded = NULL;
    if (!error && space)
        error = selection_keep_points(space, dataset->info.rank, dataset->layout.dims, &found,
                                      encoded, n);
    if (!error && !*encoded)
        error = encode_found(dataset, &found, encoded, n);
    runs_free(&found);
    return error;
}

/* Of a dataset that is not sparse: what was asked for. */
static int copy_space(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                      const struct selection *selection, void **encoded, size_t *n)
{
    if (!space)
        return encode_found(dataset, &selection->runs, encoded, n);
    *n = space->n;
    *encoded = malloc(space->n);
    if (!*encoded)
        return -ENOMEM;
    memcpy(*encoded, space->bytes, space->n);
    return 0;
}

static int get_defined_once(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                            void **encoded, size_t *n)
{
    USING(dataset);
    struct selection selection;
    int error = transfer_take_space(dataset, space, &selection);
    if (error)
        return error;
    error = (dataset_has_undefined(dataset) ? get_defined_of : copy_space)(dataset, space,
                                                                           &selection, encoded, n);
    selection_free(&selection);
    return error;
}

int sfs_dataset_get_defined(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                            void **encoded, size_t *n)
{
    void *found;
    size_t found_n;
    int error = FOLLOWING(dataset->file, get_defined_once(dataset, space, &found, &found_n));
    if (error)
        return error;
    *encoded = found;
    *n = found_n;
    return 0;
}
