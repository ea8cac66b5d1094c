/* Which elements of a slab are defined, as a whole: decoded from what H5Sencode gives, and made so.
 */
#include <errno.h>
#include <stdlib.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/private.h"
#include "selection/selection.h"

#define DECODED_BYTES ((size_t)1 << 30) /* the most that few bytes may claim */

static int refuse(const struct sfs_dataset *dataset, const char *why)
{
    log_error("%s: %s: what is defined is not changed: this is no encoded selection of these dims: "
              "%s; write what H5Sencode makes",
              sfs_path(dataset->file), dataset->path, why);
    return -EINVAL;
}

int sfs_decode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                       const void *encoded, size_t n, struct sfs_defined *defined)
{
    struct selection selection;
    const char *why;
    uint64_t elements;
    if (space_rank < 0 || space_rank > slab->rank)
        return -EINVAL;
    int others = slab->rank - space_rank;
    for (int i = 0; i < others; i++)
        if (slab->count[i] != 1)
            return -EINVAL;
    if (!box_product(slab->count, slab->rank, 1, &elements))
        return refuse(dataset, "too many elements");
    int error = selection_decode(&(struct sfs_encoded){encoded, n}, space_rank,
                                 slab->count + others, DECODED_BYTES, &selection, &why);
    if (error)
        return error == -EILSEQ ? refuse(dataset, why) : error;
    free(selection.order); /* it is the order of values that are not given here */
    return dataset_describe(&selection.runs, defined);
}

/* Whether intervals are what they ought to be, in a slab. */
static bool is_valid(const struct sfs_defined *defined, uint64_t elements)
{
    uint64_t end = 0, index = 0;
    for (size_t i = 0; i < defined->n; i++) {
        const struct sfs_interval *interval = &defined->interval[i];
        if (interval->index != index || interval[1].index <= index || interval->first < end ||
            (i > 0 && interval->first == end) || interval->first > elements ||
            interval[1].index - index > elements - interval->first)
            return false;
        end = interval->first + (interval[1].index - index);
        index = interval[1].index;
    }
    return index == defined->elements;
}

static struct sfs_defined as_defined(const struct runs *runs)
{
    return (struct sfs_defined){runs->n, runs->entries, runs->elements};
}

/* Gives these elements the fill value. */
static int define(struct sfs_dataset *dataset, const struct box *box, const struct runs *runs)
{
    struct sfs_defined all = as_defined(runs);
    uint64_t most = runs->elements;
    void *values = dataset_fill(dataset, &most);
    if (!values)
        return -ENOMEM;
    struct runs batch = {0};
    int error = 0;
    for (uint64_t done = 0; done < runs->elements && !error; done += batch.elements) {
        uint64_t n = runs->elements - done < most ? runs->elements - done : most;
        uint64_t last = dataset_position_of(&all, done + n - 1);
        error = runs_clip(runs, dataset_position_of(&all, done), last + 1, &batch);
        struct sfs_defined defined = as_defined(&batch);
        if (!error)
            error = dataset_write_values(dataset, box, &defined, values);
        if (!error)
            error = interrupt_check();
    }
    runs_free(&batch);
    free(values);
    return error;
}

/* From what is defined to what shall be; everything that may be wrong is known before it begins. */
static int change_to(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                     const struct box *box, const struct runs *wanted)
{
    struct runs now, gone = {0}, fresh = {0};
    int error = dataset_defined(dataset, slab, &now);
    if (!error)
        error = runs_difference(&now, wanted, &gone);
    if (!error)
        error = runs_difference(wanted, &now, &fresh);
    runs_free(&now);
    struct sfs_defined defined = as_defined(&gone), others = as_defined(&fresh);
    if (!error)
        error = dataset_prepare_some(dataset, box, &defined);
    if (!error)
        error = dataset_prepare_some(dataset, box, &others);
    INTERRUPTED_LATE();
    if (!error && gone.elements > 0)
        error = dataset_erase_some(dataset, box, &defined);
    if (!error && fresh.elements > 0)
        error = define(dataset, box, &fresh);
    runs_free(&gone);
    runs_free(&fresh);
    return error;
}

int sfs_set_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                    const struct sfs_defined *defined)
{
    WRITING(dataset->file);
    PATCHING(dataset); /* what is written between finding and defining would be lost */
    struct box box;
    uint64_t elements;
    if (!dataset_has_undefined(dataset))
        return -EOPNOTSUPP;
    if (writing.error)
        return writing.error;
    int error = dataset_range(dataset, slab, 0, 0, &box);
    if (!error)
        error = dataset_check_writable(dataset);
    if (error)
        return error;
    if (!box_product(box.count, box.rank, 1, &elements) || !is_valid(defined, elements))
        return -EINVAL;
    struct runs wanted = {
        .entries = defined->interval, .n = defined->n, .elements = defined->elements};
    return change_to(dataset, slab, &box, &wanted);
}
