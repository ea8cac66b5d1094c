/* Writing byte ranges of the dense view of a slab: ranges that cut elements, and elements that are left
 * undefined because they equal the fill value (sparsify). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "dataset/private.h"

#define PATTERN_BYTES 4096 /* of fill values that are compared at once */

static struct sfs_slab slab_of(const struct box *box)
{
    struct sfs_slab slab = {.rank = box->rank};
    memcpy(slab.start, box->start, sizeof(slab.start));
    memcpy(slab.count, box->count, sizeof(slab.count));
    return slab;
}

int dataset_each_box(struct sfs_dataset *dataset, const struct box *box, uint64_t first, uint64_t n,
                     const char *elements,
                     int (*action)(struct sfs_dataset *dataset, const struct box *piece,
                                   const void *elements))
{
    int error = 0;
    while (n > 0 && !error) {
        struct box piece;
        uint64_t length = box_of_interval(box, first, n, &piece);
        error = action(dataset, &piece, elements);
        first += length;
        n -= length;
        if (elements)
            elements += length * dataset->info.type.size;
    }
    return error;
}

/* ---- Leaving out what is the fill value ---- */

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

static int write_sparsely(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
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

/* ---- Bytes ---- */

struct bytes {
    struct sfs_dataset *dataset;
    const struct sfs_slab *slab;
    struct box box; /* the same */
    bool sparsify;
};

static int write_elements(const struct bytes *bytes, uint64_t first, uint64_t n,
                          const char *elements)
{
    return bytes->sparsify
               ? write_sparsely(bytes->dataset, &bytes->box, first, n, elements)
               : dataset_each_box(bytes->dataset, &bytes->box, first, n, elements, dataset_put_box);
}

/* Writes the bytes [skip, skip + n) of one element; the caller excludes other changes of it. */
static int write_part(const struct bytes *bytes, uint64_t position, size_t skip, const char *from,
                      size_t n)
{
    struct sfs_dataset *dataset = bytes->dataset;
    char small[64];
    size_t size = dataset->info.type.size;
    char *element = size <= sizeof(small) ? small : malloc(size);
    if (!element)
        return -ENOMEM;
    int error = dataset_read_elements(dataset, &bytes->box, position, 1, element);
    if (!error) {
        memcpy(element + skip, from, n);
        error = write_elements(bytes, position, 1, element);
    }
    if (element != small)
        free(element);
    return error;
}

/* A part of an element at the start, whole elements, a part at the end. */
static int write_bytes(const struct bytes *bytes, uint64_t offset, const char *from, size_t n)
{
    size_t size = bytes->dataset->info.type.size, skip = (size_t)(offset % size);
    uint64_t position = offset / size;
    int error = 0;
    if (skip > 0) {
        size_t part = size - skip < n ? size - skip : n;
        error = write_part(bytes, position++, skip, from, part);
        from += part;
        n -= part;
    }
    if (!error && n >= size) {
        error = write_elements(bytes, position, n / size, from);
        position += n / size;
        from += n / size * size;
        n %= size;
    }
    return !error && n > 0 ? write_part(bytes, position, 0, from, n) : error;
}

static int write_checked(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    struct sfs_dataset *dataset = bytes->dataset;
    int error = dataset_range(dataset, bytes->slab, offset, n, &bytes->box);
    if (!error)
        error = interrupt_check(); /* one of many calls */
    if (!error && n > 0)
        error = dataset_check_writable(dataset);
    return error || n == 0 ? error : write_bytes(bytes, offset, from, n);
}

static int write_whole(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    CHANGING(bytes->dataset);
    return write_checked(bytes, offset, from, n);
}

static int write_cut(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    PATCHING(bytes->dataset);
    return write_checked(bytes, offset, from, n);
}

int sfs_write_bytes(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                    const void *from, size_t n, bool sparsify)
{
    struct bytes bytes = {dataset, slab, .sparsify = sparsify && dataset->sparse};
    size_t size = dataset->info.type.size;
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    return offset % size || n % size ? write_cut(&bytes, offset, from, n)
                                     : write_whole(&bytes, offset, from, n);
}
