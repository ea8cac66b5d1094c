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

static int check_erasable(const struct sfs_dataset *dataset)
{
    if (!dataset_has_undefined(dataset))
        return -EOPNOTSUPP;
    return dataset_check_writable(dataset);
}

/* Takes no time for chunks that are not stored. */
int dataset_erase_box(struct sfs_dataset *dataset, const struct box *box)
{
    const struct layout *layout = &dataset->layout;
    struct chunk_list list;
    int error = chunk_list_fill(&list, dataset, box);
    for (size_t i = 0; i < list.n && !error; i++) {
        struct box chunk = {.rank = layout->rank}, part;
        layout_inside(layout, list.scaled + i * (size_t)layout->rank, chunk.start, chunk.count);
        if (box_intersect(&chunk, box, &part))
            error = cache_erase_box(dataset->cache, &part);
        if (!error)
            error = interrupt_check();
    }
    free(list.scaled);
    return error;
}

/* Erases one interval of positions in the dataset, box by box. */
static int erase_run(struct sfs_dataset *dataset, struct run run)
{
    struct box all = {.rank = dataset->layout.rank}, box;
    memcpy(all.count, dataset->layout.dims, sizeof(all.count));
    int error = 0;
    while (run.first < run.last && !error) {
        run.first += box_of_interval(&all, run.first, run.last - run.first, &box);
        error = dataset_erase_box(dataset, &box);
    }
    return error;
}

/* Long intervals, which may be of many chunks that are not stored, are erased by what is stored;
 * the others chunk by chunk, those of one chunk together. */
static int erase_runs(struct sfs_dataset *dataset, const struct runs *runs)
{
    struct runs others = {0};
    uint64_t most = dataset->layout.chunk_bytes / dataset->layout.element_size;
    int error = 0;
    for (size_t i = 0; i < runs->n && !error; i++) {
        struct run run = runs_at(runs, i);
        error = (run.last - run.first) / LONG_RUN >= most
                    ? erase_run(dataset, run)
                    : runs_append(&others, run.first, run.last);
    }
    if (!error)
        error = parts_each(&dataset->layout, &others, erase_part, dataset);
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
    error = erase_runs(dataset, &selection.runs);
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

int dataset_erase_some(struct sfs_dataset *dataset, const struct box *box,
                       const struct sfs_defined *defined)
{
    struct runs runs = {0};
    int error = dataset_place_runs(&dataset->layout, box, defined, &runs);
    if (!error)
        error = erase_runs(dataset, &runs);
    runs_free(&runs);
    return error;
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
    return dataset_erase_box(dataset, box);
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
    return dataset->sparse ? dataset_each_box(dataset, &box, first, n, NULL, erase_box)
                           : write_fill(dataset, &box, first, n);
}
