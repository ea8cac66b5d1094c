/* Erasing: elements of a sparse dataset become undefined, those of a dense one get the fill value. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/cut_selection.h"
#include "dataset/private.h"
#include "dataset/transfer_selection.h"
#include "selection/selection.h"

#define LONG_RUN    64                   /* chunks: intervals of as many elements are long */
#define MOST_FILLED ((uint64_t)64 << 30) /* bytes of a dense dataset */
#define BATCH_BYTES ((size_t)1 << 20)    /* of fill values that are written at once */

/* ---- Selections and slabs ---- */

static int erase_part(void *context, const struct part *part)
{
    struct sfs_dataset *dataset = context;
    return cache_erase(dataset->cache, part->scaled, &part->positions, part->is_whole);
}

static int prepare_part(void *context, const struct part *part)
{
    struct sfs_dataset *dataset = context;
    return part->is_whole ? 0 : cache_prepare(dataset->cache, part->scaled);
}

/* What is done with parts of chunks, and with boxes that lie in one each. */
static const struct erasing {
    part_function part;
    int (*box)(struct cache_dataset *dataset, const struct box *box);
} erasing = {erase_part, cache_erase_box}, preparing = {prepare_part, cache_prepare_box};

static int check_erasable(const struct sfs_dataset *dataset)
{
    if (!dataset_has_undefined(dataset))
        return -EOPNOTSUPP;
    return dataset_check_writable(dataset);
}

/* Takes no time for chunks that are not stored. */
static int go_through_box(struct sfs_dataset *dataset, const struct box *box,
                          const struct erasing *how)
{
    const struct layout *layout = &dataset->layout;
    struct chunk_list list;
    int error = chunk_list_fill(&list, dataset, box);
    for (size_t i = 0; i < list.n && !error; i++) {
        struct box chunk = {.rank = layout->rank}, part;
        layout_inside(layout, list.scaled + i * (size_t)layout->rank, chunk.start, chunk.count);
        if (box_intersect(&chunk, box, &part))
            error = how->box(dataset->cache, &part);
        if (!error)
            error = interrupt_check();
    }
    chunk_list_free(&list);
    return error;
}

/* If it is to be interrupted, then before the first change. */
int dataset_erase_box(struct sfs_dataset *dataset, const struct box *box)
{
    int error = interrupt_is_possible() ? go_through_box(dataset, box, &preparing) : 0;
    INTERRUPTED_LATE();
    return error ? error : go_through_box(dataset, box, &erasing);
}

/* One interval of positions in the dataset, box by box. */
static int go_through_run(struct sfs_dataset *dataset, struct run run, const struct erasing *how)
{
    struct box all = {.rank = dataset->layout.rank}, box;
    memcpy(all.count, dataset->layout.dims, sizeof(all.count));
    int error = 0;
    while (run.first < run.last && !error) {
        run.first += box_of_interval(&all, run.first, run.last - run.first, &box);
        error = go_through_box(dataset, &box, how);
    }
    return error;
}

/* Long intervals, which may be of many chunks that are not stored, are erased by what is stored;
 * the others chunk by chunk, those of one chunk together. */
static int go_through_runs(struct sfs_dataset *dataset, const struct runs *runs,
                           const struct erasing *how)
{
    struct runs others = {0};
    uint64_t most = dataset->layout.chunk_bytes / dataset->layout.element_size;
    int error = 0;
    for (size_t i = 0; i < runs->n && !error; i++) {
        struct run run = runs_at(runs, i);
        error = (run.last - run.first) / LONG_RUN >= most
                    ? go_through_run(dataset, run, how)
                    : runs_append(&others, run.first, run.last);
    }
    if (!error)
        error = parts_each(&dataset->layout, &others, how->part, dataset);
    runs_free(&others);
    return error;
}

int sfs_dataset_erase(struct sfs_dataset *dataset, const struct sfs_encoded *space)
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct selection selection;
    int error = check_erasable(dataset);
    if (!error)
        error = writing.error;
    if (!error)
        error = transfer_take_space(dataset, space, &selection);
    if (error)
        return error;
    error = go_through_runs(dataset, &selection.runs, &erasing);
    selection_free(&selection);
    return error;
}

int sfs_erase(struct sfs_dataset *dataset, const struct sfs_slab *slab)
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct box box;
    int error = check_erasable(dataset);
    if (!error)
        error = writing.error;
    if (!error)
        error = dataset_box(dataset, slab, &box);
    return error ? error : dataset_erase_box(dataset, &box);
}

static int go_through_some(struct sfs_dataset *dataset, const struct box *box,
                           const struct sfs_defined *defined, const struct erasing *how)
{
    struct runs runs = {0};
    int error = dataset_place_runs(&dataset->layout, box, defined, &runs);
    if (!error)
        error = go_through_runs(dataset, &runs, how);
    runs_free(&runs);
    return error;
}

int dataset_erase_some(struct sfs_dataset *dataset, const struct box *box,
                       const struct sfs_defined *defined)
{
    return go_through_some(dataset, box, defined, &erasing);
}

int dataset_prepare_some(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined)
{
    return dataset->sparse && interrupt_is_possible() && defined->elements > 0
               ? go_through_some(dataset, box, defined, &preparing)
               : 0;
}

/* ---- Ranges of the elements of a slab ---- */

void *dataset_fill(const struct sfs_dataset *dataset, uint64_t *n)
{
    size_t size = dataset->info.type.size;
    uint64_t most = size < BATCH_BYTES ? BATCH_BYTES / size : 1;
    *n = *n < most ? *n : most;
    char *values = malloc((size_t)*n * size);
    if (values)
        fill_elements(values, *n, size, dataset->info.fill);
    return values;
}

/* A dense dataset has no undefined elements: they get the fill value. */
static int write_fill(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                      uint64_t n)
{
    uint64_t most = n;
    void *values = dataset_fill(dataset, &most);
    if (!values)
        return -ENOMEM;
    int error = 0;
    while (n > 0 && !error) {
        uint64_t here = n < most ? n : most;
        error = dataset_each_box(dataset, box, first, here, values, dataset_put_box);
        first += here;
        n -= here;
        if (!error)
            error = interrupt_check();
    }
    free(values);
    return error;
}

static int erase_box(struct sfs_dataset *dataset, const struct box *box, const void *nothing)
{
    (void)nothing;
    return go_through_box(dataset, box, &erasing);
}

static int prepare_box(struct sfs_dataset *dataset, const struct box *box, const void *nothing)
{
    (void)nothing;
    return go_through_box(dataset, box, &preparing);
}

/* Limits how many elements of a dense dataset are filled, as all of them are written: a header of
 * some bytes can claim 2^62. */
static int check_filled(const struct sfs_dataset *dataset, uint64_t n)
{
    uint64_t bytes;
    if (dataset->sparse || (!__builtin_mul_overflow(n, (uint64_t)dataset->info.type.size, &bytes) &&
                            bytes <= MOST_FILLED))
        return 0;
    log_error("%s: %s: %" PRIu64 " elements are more than are filled at once (64 GiB): write the "
              "fill value to parts of them",
              sfs_path(dataset->file), dataset->path, n);
    return -EFBIG;
}

int sfs_erase_range(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t first,
                    uint64_t n)
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct box box;
    uint64_t elements;
    if (writing.error)
        return writing.error;
    int error = dataset_range(dataset, slab, 0, 0, &box);
    if (!error && (!box_product(box.count, box.rank, 1, &elements) || first > elements ||
                   n > elements - first))
        error = -EINVAL;
    if (!error)
        error = check_filled(dataset, n);
    if (!error && n > 0)
        error = dataset_check_writable(dataset);
    if (!error && n > 0)
        error = dataset_check_box(dataset, &box);
    if (error || n == 0)
        return error;
    if (dataset->sparse && interrupt_is_possible())
        error = dataset_each_box(dataset, &box, first, n, NULL, prepare_box);
    if (error)
        return error;
    if (!dataset->sparse)
        return write_fill(dataset, &box, first, n);
    INTERRUPTED_LATE();
    return dataset_each_box(dataset, &box, first, n, NULL, erase_box);
}
