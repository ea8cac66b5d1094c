/* Writing slabs: all of their elements, or values at positions in them. */
#include <errno.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "dataset/private.h"
#include "dataset/references.h"
#include "dataset/transfer_selection.h"
#include "dataset/variable_by_libhdf5.h"
#include "selection/selection.h"

/* Whether elements are of variable length and libhdf5's. */
static bool has_dense_sequences(const struct sfs_dataset *dataset)
{
    const struct sfs_type *type = &dataset->info.type;
    return type->class == SFS_VARIABLE && (type->is_string || !type->base->has_pointers);
}

static int write_ordinary(struct sfs_dataset *dataset, const struct box *box, const void *buffer)
{
    return has_dense_sequences(dataset) ? dataset_write_dense_sequences(dataset, box, buffer)
                                        : ordinary_write(dataset, box, buffer);
}

int dataset_put_box(struct sfs_dataset *dataset, const struct box *box, const void *elements)
{
    if (dataset->layout.ops->write)
        return cache_write_past(dataset->cache, box, elements);
    return dataset->layout.ops->insert ? cache_write_box(dataset->cache, box, elements)
                                       : dataset_write_dense(dataset, box, elements);
}

int sfs_write(struct sfs_dataset *dataset, const struct sfs_slab *slab, const void *buffer)
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct box box;
    uint64_t n;
    bool ordinary = ordinary_is(dataset);
    int error = writing.error || ordinary ? writing.error : dataset_check_writable(dataset);
    if (!error)
        error = dataset_box(dataset, slab, &box);
    if (!error && box_product(box.count, box.rank, 1, &n))
        error = references_check_given(dataset, buffer, n);
    if (error)
        return error;
    return ordinary ? write_ordinary(dataset, &box, buffer)
                    : dataset_put_box(dataset, &box, buffer);
}

int dataset_place_runs(const struct layout *layout, const struct box *box,
                       const struct sfs_defined *defined, struct runs *runs)
{
    uint64_t all, row_length = box->count[layout->rank - 1], first;
    if (!box_product(box->count, box->rank, 1, &all))
        return -EINVAL;
    bool contiguous = box_is_contiguous(layout->rank, box->count, layout->dims, box->start, &first);
    uint64_t end = 0;
    int error = 0;
    for (size_t i = 0; i < defined->n && !error; i++) {
        uint64_t at = defined->interval[i].first;
        uint64_t left = defined->interval[i + 1].index - defined->interval[i].index;
        if (at < end || at > all || left > all - at || left == 0)
            return -EINVAL;
        end = at + left;
        while (left > 0 && !error) {
            uint64_t in_row = contiguous ? left : row_length - at % row_length;
            uint64_t n = left < in_row ? left : in_row;
            uint64_t place =
                contiguous ? first + at
                           : box_translate(layout->rank, box->count, at, layout->dims, box->start);
            error = runs_append(runs, place, place + n);
            at += n;
            left -= n;
        }
    }
    return error;
}

int dataset_write_values(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined, const void *values)
{
    struct runs runs = {0};
    bool done;
    int error = references_check_given(dataset, values, defined->elements);
    if (!error)
        error = dataset_write_pieces(dataset, box, defined, values, &done);
    if (error || done)
        return error;
    error = dataset_place_runs(&dataset->layout, box, defined, &runs);
    if (error) {
        runs_free(&runs);
        return error;
    }
    return transfer_write_runs(dataset, &runs, values);
}

int sfs_write_values(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                     const struct sfs_defined *defined, const void *values)
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct box box;
    int error = writing.error ? writing.error : dataset_check_writable(dataset);
    if (!error)
        error = dataset_box(dataset, slab, &box);
    if (!error)
        error = dataset_prepare_some(dataset, &box, defined);
    INTERRUPTED_LATE();
    return error ? error : dataset_write_values(dataset, &box, defined, values);
}
