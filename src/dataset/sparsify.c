/* Writing elements that are left undefined where they equal the fill value (sparsify). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "dataset/private.h"
#include "selection/selection.h"

#define PATTERN_BYTES 4096 /* of fill values that are compared at once */

static struct sfs_slab slab_of(const struct box *box)
{
    struct sfs_slab slab = {.rank = box->rank};
    memcpy(slab.start, box->start, sizeof(slab.start));
    memcpy(slab.count, box->count, sizeof(slab.count));
    return slab;
}

struct filler {
    size_t size;         /* bytes of an element */
    const char *fill;    /* one of them */
    const char *pattern; /* many copies of it, */
    size_t n;            /* so many */
};

static inline bool is_fill(const struct filler *filler, const char *element)
{
    switch (filler->size) {
    case 1:
        return *element == *filler->fill;
    case 2:
        return memcmp(element, filler->fill, 2) == 0;
    case 4:
        return memcmp(element, filler->fill, 4) == 0;
    case 8:
        return memcmp(element, filler->fill, 8) == 0;
    default:
        return memcmp(element, filler->fill, filler->size) == 0;
    }
}

/* The length of the run of fill values at the beginning of n elements. */
static uint64_t count_fill(const struct filler *filler, const char *elements, uint64_t n)
{
    uint64_t i = 0;
    while (n - i >= filler->n &&
           memcmp(elements + i * filler->size, filler->pattern, filler->n * filler->size) == 0)
        i += filler->n;
    while (i < n && is_fill(filler, elements + i * filler->size))
        i++;
    return i;
}

/* The length of the run of other values. */
static uint64_t count_other(const struct filler *filler, const char *elements, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && !is_fill(filler, elements + i * filler->size))
        i++;
    return i;
}

/* The positions, from first on, of those of n elements that are not the fill value. */
static int find_others(const struct sfs_dataset *dataset, uint64_t first, uint64_t n,
                       const char *elements, struct runs *others)
{
    char pattern[PATTERN_BYTES];
    size_t size = dataset->info.type.size;
    struct filler filler = {size, dataset->info.fill, dataset->info.fill, 1};
    if (size <= PATTERN_BYTES) {
        filler.pattern = pattern;
        filler.n = PATTERN_BYTES / size;
        fill_elements(pattern, filler.n, size, dataset->info.fill);
    }
    int error = 0;
    for (uint64_t i = 0; i < n && !error;) {
        i += count_fill(&filler, elements + i * size, n - i);
        uint64_t run = count_other(&filler, elements + i * size, n - i);
        error = runs_append(others, first + i, first + i + run);
        i += run;
    }
    return error;
}

/* The positions of defined elements among n from first on. */
static int find_defined(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                        uint64_t n, struct runs *defined)
{
    int error = 0;
    while (n > 0 && !error) {
        struct box piece;
        struct runs runs;
        uint64_t length = box_of_interval(box, first, n, &piece);
        struct sfs_slab slab = slab_of(&piece);
        error = dataset_defined(dataset, &slab, &runs);
        for (size_t i = 0; i < runs.n && !error; i++) {
            struct run run = runs_at(&runs, i);
            error = runs_append(defined, first + run.first, first + run.last);
        }
        runs_free(&runs);
        first += length;
        n -= length;
    }
    return error;
}

/* Writes the elements at these positions out of an array that begins at position `first`. */
static int write_others(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                        const char *elements, const struct runs *others)
{
    size_t size = dataset->info.type.size;
    if (others->elements == 0)
        return 0;
    if (others->n == 1) {
        struct run run = runs_at(others, 0);
        return dataset_each_box(dataset, box, run.first, run.last - run.first,
                                elements + (run.first - first) * size, dataset_put_box);
    }
    char *packed = malloc((size_t)others->elements * size);
    if (!packed)
        return -ENOMEM;
    for (size_t i = 0; i < others->n; i++) {
        struct run run = runs_at(others, i);
        memcpy(packed + run.index * size, elements + (run.first - first) * size,
               (size_t)(run.last - run.first) * size);
    }
    struct sfs_defined defined = {others->n, others->entries, others->elements};
    int error = dataset_write_values(dataset, box, &defined, packed);
    free(packed);
    return error;
}

int dataset_write_sparsely(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                           uint64_t n, const char *elements)
{
    struct runs others = {0}, gone = {0};
    int error = find_others(dataset, first, n, elements, &others);
    if (!error && others.elements < n)
        error = find_defined(dataset, box, first, n, &gone);
    if (!error && gone.elements > 0)
        error = runs_difference(&gone, &others, &gone);
    if (!error && gone.elements > 0)
        error = dataset_erase_some(dataset, box,
                                   &(struct sfs_defined){gone.n, gone.entries, gone.elements});
    if (!error)
        error = write_others(dataset, box, first, elements, &others);
    runs_free(&gone);
    runs_free(&others);
    return error;
}
