/* The mappings of a virtual dataset, and reading through them. */
#include "dataset/virtual.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/workers.h"
#include "dataset/sources.h"
#include "dataset/translate.h"
#include "hdf5/hdf5.h"

#define MOST_DEPTH 16 /* of virtual datasets that are sources of each other */

/* What libhdf5 keeps of the sources, where it reads them, as a share of the cache's limit. */
#define SOURCES_SHARE 8

/* Elements that lie scattered are read with what is between them, so much at once, unless that is
 * so many times as much. */
#define GATHERED_BYTES    ((size_t)4 << 20)
#define GATHERED_TIMES    16
#define GATHERED_INTERVAL 4096 /* bytes; intervals of more are read one by one */

/* Less is not worth waking threads for. */
#define SHARED_BYTES ((size_t)256 << 10)
#define SHARED_MOST  64 /* mappings */

/* Mappings, at most, whose sources are opened to say what is wrong with them. */
#define MOST_EXAMINED 64

/* A source under the names that it has after blocks were numbered. */
struct known {
    char *key; /* file, newline, dataset */
    struct source *source;
    bool is_block; /* its names were numbered */
    UT_hash_handle hh;
};

struct mapping {
    struct hdf5_slab shown, source;
    struct source *of; /* NULL: numbered */
    /* numbered: names with %b, and the axis whose blocks are numbered */
    char *file, *dataset;
    int numbered_axis;
    bool is_unlimited;           /* what is not there (yet) is the fill value */
    bool is_regular;             /* else libhdf5 reads the dataset, and knows what it is to show */
    size_t order;                /* in the file: what comes later lies above */
    uint64_t low, high, highest; /* along the axis that they are sorted by; the last: below here */
};

struct virtual
{
    struct sfs_dataset *dataset;
    struct sfs_file *file;
    struct sources *sources;
    size_t n;
    struct mapping *mapping; /* by where they begin along the axis */
    int axis;
    bool fill_missing;
    atomic_bool is_librarys; /* libhdf5 must read it, as may be found out later */
    atomic_bool is_shallow;  /* its sources are known not to lead in a circle */
    atomic_bool said_too_deep;
    pthread_mutex_t lock;
    struct known *known; /* under lock */
};

/* ---- Opening ---- */

/* A name with numbers in the place of %b, and % for %%; is_numbered: it has any. NULL: no memory.
 * The rules are those of H5Pset_virtual. */
static char *substitute(const char *name, uint64_t number, bool *is_numbered)
{
    char *made = NULL;
    size_t n;
    FILE *out = open_memstream(&made, &n);
    if (!out)
        return NULL;
    for (; *name; name++) {
        if (name[0] == '%' && name[1] == 'b') {
            fprintf(out, "%" PRIu64, number);
            *is_numbered = true;
            name++;
        } else {
            putc(*name, out);
            name += name[0] == '%' && name[1] == '%';
        }
    }
    bool failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(made);
        return NULL;
    }
    return made;
}

/* One source for each pair of names. Takes over neither. -ENOMEM. */
static int find_source(struct virtual *virtual, const char *file, const char *dataset,
                       bool is_block, struct source **out)
{
    struct known *known;
    char *key;
    if (asprintf(&key, "%s\n%s", file, dataset) < 0)
        return -ENOMEM;
    int error = 0;
    pthread_mutex_lock(&virtual->lock);
    HASH_FIND_STR(virtual->known, key, known);
    if (!known) {
        known = calloc(1, sizeof(*known));
        if (known)
            known->source = source_create(virtual->sources, virtual->file, virtual->dataset->path,
                                          &virtual->dataset->info.encoded_type, file, dataset);
        error = known && known->source ? 0 : -ENOMEM;
        if (!error) {
            known->key = key;
            known->is_block = is_block;
            HASH_ADD_KEYPTR(hh, virtual->known, known->key, strlen(known->key), known);
            error = hash_failed() ? -ENOMEM : 0;
        }
        if (error && known)
            source_destroy(known->source);
        if (error)
            free(known);
        else
            key = NULL;
    }
    pthread_mutex_unlock(&virtual->lock);
    free(key);
    if (!error)
        *out = known->source;
    return error;
}

static int unlimited_axis(const struct hdf5_slab *slab)
{
    for (int i = 0; i < slab->rank; i++)
        if (axis_size(&slab->axis[i]) == SFS_UNLIMITED)
            return i;
    return -1;
}

/* A selection of everything in so many words. */
static int spell_out(struct hdf5_slab *slab, int rank, const uint64_t *dims)
{
    slab->axis = calloc((size_t)rank, sizeof(*slab->axis));
    if (!slab->axis)
        return -ENOMEM;
    slab->rank = rank;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0)
            return -EOPNOTSUPP;
        slab->axis[i] = (struct hdf5_axis){0, dims[i], 1, dims[i]};
    }
    slab->is_all = false;
    return 0;
}

static bool simplify(struct hdf5_slab *slab, bool is_numbered)
{
    for (int i = 0; i < slab->rank; i++)
        if (!axis_simplify(&slab->axis[i], is_numbered))
            return false;
    return true;
}

/* Whether source and what is shown are of one form that is understood here. */
static bool fits(const struct mapping *mapping, bool is_numbered)
{
    int shown = unlimited_axis(&mapping->shown), source = unlimited_axis(&mapping->source);
    struct translation translation;
    if (!is_numbered && !mapping->source.is_all)
        return translation_make(&translation, &mapping->shown, &mapping->source);
    if (!is_numbered)
        return shown < 0;
    if (shown < 0 || source >= 0 || mapping->shown.axis[shown].block == SFS_UNLIMITED)
        return false;
    if (mapping->source.is_all)
        return true;
    struct hdf5_axis axes[SFS_MAX_RANK];
    struct hdf5_slab block = {.rank = mapping->shown.rank, .axis = axes};
    memcpy(axes, mapping->shown.axis, (size_t)block.rank * sizeof(*axes));
    axes[shown].count = 1;
    return translation_make(&translation, &block, &mapping->source);
}

/* Whether it can be read here. Takes over the axes. -EOPNOTSUPP: it cannot. */
static int take_slabs(struct virtual *virtual, struct mapping *mapping, struct hdf5_mapping *from,
                      bool is_numbered)
{
    const struct sfs_dataset_info *info = &virtual->dataset->info;
    int error = from->is_regular ? 0 : -EOPNOTSUPP;
    mapping->shown = from->shown;
    mapping->source = from->source;
    from->shown.axis = from->source.axis = NULL;
    if (!error && mapping->shown.is_all)
        error = spell_out(&mapping->shown, info->rank, info->dims);
    if (!error && (mapping->shown.rank != info->rank || !simplify(&mapping->shown, is_numbered) ||
                   !simplify(&mapping->source, false) || !fits(mapping, is_numbered)))
        error = -EOPNOTSUPP;
    return error;
}

/* Takes over names and axes. */
static int take_mapping(struct virtual *virtual, struct hdf5_mapping *from, size_t order)
{
    struct mapping *mapping = &virtual->mapping[virtual->n++];
    bool is_numbered = false;
    *mapping = (struct mapping){.order = order, .numbered_axis = -1};
    char *file = substitute(from->file, 0, &is_numbered);
    char *dataset = substitute(from->dataset, 0, &is_numbered);
    int error = file && dataset ? take_slabs(virtual, mapping, from, is_numbered) : -ENOMEM;
    mapping->is_regular = !error;
    if (error == -EOPNOTSUPP) {
        atomic_store(&virtual->is_librarys, true);
        error = 0;
    }
    int axis = mapping->is_regular ? unlimited_axis(&mapping->shown) : -1;
    mapping->is_unlimited = axis >= 0 || !mapping->is_regular;
    if (!error && !is_numbered) {
        error = find_source(virtual, file, dataset, false, &mapping->of);
    } else if (!error) {
        mapping->numbered_axis = axis;
        mapping->file = from->file;
        mapping->dataset = from->dataset;
        from->file = from->dataset = NULL;
    }
    free(file);
    free(dataset);
    return error;
}

/* The first and the end of what a mapping shows along an axis. */
static void bounds(const struct hdf5_axis *axis, uint64_t dim, uint64_t *low, uint64_t *high)
{
    uint64_t n = axis_before(axis, dim);
    *low = axis->start;
    *high = n ? axis_at(axis, n - 1) + 1 : axis->start;
}

/* The axis along which mappings lie apart the most. */
static int best_axis(const struct virtual *virtual)
{
    const struct sfs_dataset_info *info = &virtual->dataset->info;
    double least = 0;
    int best = 0;
    for (int i = 0; i < info->rank; i++) {
        double sum = 0;
        for (size_t k = 0; k < virtual->n; k++) {
            uint64_t low, high;
            if (!virtual->mapping[k].is_regular)
                continue;
            bounds(&virtual->mapping[k].shown.axis[i], info->dims[i], &low, &high);
            sum += (double)(high - low) / (info->dims[i] ? (double)info->dims[i] : 1);
        }
        if (i == 0 || sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}

static int by_low(const void *a, const void *b)
{
    const struct mapping *left = a, *right = b;
    if (left->low != right->low)
        return left->low < right->low ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* The mappings [first, end), sorted, are a tree whose root is in the middle; every root knows where
 * the last of its tree ends. */
static uint64_t find_highest(struct mapping *mapping, size_t first, size_t end)
{
    if (first == end)
        return 0;
    size_t middle = first + (end - first) / 2;
    uint64_t left = find_highest(mapping, first, middle);
    uint64_t right = find_highest(mapping, middle + 1, end);
    uint64_t highest = mapping[middle].high;
    highest = left > highest ? left : highest;
    return mapping[middle].highest = right > highest ? right : highest;
}

static void sort(struct virtual *virtual)
{
    virtual->axis = best_axis(virtual);
    uint64_t dim = virtual->dataset->info.dims[virtual->axis];
    for (size_t i = 0; i < virtual->n; i++) {
        struct mapping *mapping = &virtual->mapping[i];
        if (mapping->is_regular)
            bounds(&mapping->shown.axis[virtual->axis], dim, &mapping->low, &mapping->high);
        else
            mapping->high = UINT64_MAX; /* it may be anywhere */
    }
    qsort(virtual->mapping, virtual->n, sizeof(*virtual->mapping), by_low);
    find_highest(virtual->mapping, 0, virtual->n);
}

static int take_mappings(struct virtual *virtual)
{
    struct hdf5_mappings mappings;
    struct sfs_dataset *dataset = virtual->dataset;
    int error = hdf5_mappings(virtual->file->hdf5, dataset->address, &mappings);
    if (error)
        return error;
    virtual->mapping = calloc(mappings.n ? mappings.n : 1, sizeof(*virtual->mapping));
    if (!virtual->mapping)
        error = -ENOMEM;
    for (size_t i = 0; i < mappings.n && !error; i++)
        error = take_mapping(virtual, &mappings.mapping[i], i);
    hdf5_mappings_free(&mappings);
    if (!error)
        sort(virtual);
    return error;
}

/* Where libhdf5 reads it. */
static int cache_sources(struct virtual *virtual)
{
    return hdf5_cache_sources(virtual->file->hdf5, virtual->dataset->address,
                              virtual->dataset->path,
                              cache_limit(virtual->file->cache) / SOURCES_SHARE);
}

int virtual_open(struct sfs_dataset *dataset, struct virtual **out)
{
    struct sfs_file *file = dataset->file;
    *out = NULL;
    if (file->follows || dataset->info.rank < 1 || dataset->info.type.has_pointers)
        return 0;
    if (!file->sources) {
        int error = sources_create(file, &file->sources);
        if (error)
            return error;
        file->owns_sources = true;
    }
    struct virtual *virtual = calloc(1, sizeof(*virtual));
    if (!virtual)
        return -ENOMEM;
    virtual->dataset = dataset;
    virtual->file = file;
    virtual->sources = file->sources;
    virtual->fill_missing = file->fill_missing;
    pthread_mutex_init(&virtual->lock, NULL);
    int error = take_mappings(virtual);
    if (!error && atomic_load(&virtual->is_librarys))
        error = cache_sources(virtual);
    if (error)
        virtual_close(virtual); /* none of its sources is open */
    else
        *out = virtual;
    return error;
}

void virtual_close(struct virtual *virtual)
{
    struct known *known, *next;
    if (!virtual)
        return;
    HASH_ITER (hh, virtual->known, known, next) {
        HASH_DEL(virtual->known, known);
        source_destroy(known->source);
        free(known->key);
        free(known);
    }
    for (size_t i = 0; i < virtual->n; i++) {
        struct mapping *mapping = &virtual->mapping[i];
        free(mapping->shown.axis);
        free(mapping->source.axis);
        free(mapping->file);
        free(mapping->dataset);
    }
    free(virtual->mapping);
    pthread_mutex_destroy(&virtual->lock);
    free(virtual);
}

/* ---- Which mappings a box touches ---- */

struct touched {
    const struct mapping *few[16];
    const struct mapping **mapping; /* few, or allocated */
    size_t n, capacity;
};

static int touch(struct touched *touched, const struct mapping *mapping)
{
    if (touched->n == touched->capacity) {
        size_t capacity = touched->capacity * 4;
        bool is_few = touched->mapping == touched->few;
        const struct mapping **grown =
            reallocarray(is_few ? NULL : (void *)touched->mapping, capacity, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        if (is_few)
            memcpy((void *)grown, (const void *)touched->few, sizeof(touched->few));
        touched->mapping = grown;
        touched->capacity = capacity;
    }
    touched->mapping[touched->n++] = mapping;
    return 0;
}

static bool touches(const struct mapping *mapping, const struct box *box)
{
    for (int i = 0; mapping->is_regular && i < box->rank; i++) {
        const struct hdf5_axis *axis = &mapping->shown.axis[i];
        if (axis_before(axis, box->start[i]) >= axis_before(axis, box->start[i] + box->count[i]))
            return false;
    }
    return true;
}

/* Of the tree [first, end). */
static int touch_in(const struct virtual *virtual, size_t first, size_t end, const struct box *box,
                    struct touched *touched)
{
    uint64_t low = box->start[virtual->axis], high = low + box->count[virtual->axis];
    int error = 0;
    while (first < end && !error) {
        size_t middle = first + (end - first) / 2;
        const struct mapping *mapping = &virtual->mapping[middle];
        if (mapping->highest <= low)
            return 0;
        error = touch_in(virtual, first, middle, box, touched);
        if (mapping->low >= high)
            return error;
        if (!error && mapping->high > low && touches(mapping, box))
            error = touch(touched, mapping);
        first = middle + 1;
    }
    return error;
}

static int by_order(const void *a, const void *b)
{
    const struct mapping *left = *(const struct mapping *const *)a;
    const struct mapping *right = *(const struct mapping *const *)b;
    return left->order < right->order ? -1 : left->order > right->order;
}

static void touched_free(struct touched *touched)
{
    if (touched->mapping != touched->few)
        free((void *)touched->mapping);
}

/* In the order of the file. touched_free also after an error. */
static int find_touched(const struct virtual *virtual, const struct box *box,
                        struct touched *touched)
{
    touched->mapping = touched->few;
    touched->n = 0;
    touched->capacity = sizeof(touched->few) / sizeof(*touched->few);
    int error = touch_in(virtual, 0, virtual->n, box, touched);
    if (!error && touched->n > 1)
        qsort((void *)touched->mapping, touched->n, sizeof(*touched->mapping), by_order);
    return error ? error : interrupt_check();
}

/* ---- One source of a mapping ---- */

/* A part of a mapping that is of one source, opened. */
struct part {
    struct virtual *virtual;
    const struct mapping *mapping;
    struct source *source;
    struct sfs_dataset *dataset; /* NULL: it is missing, and reads as the fill value */
    struct translation translation;
    struct hdf5_axis shown[SFS_MAX_RANK], all[SFS_MAX_RANK]; /* where they are not the mapping's */
};

static uint64_t blocks_begin(const struct mapping *mapping, const struct box *box)
{
    const struct hdf5_axis *axis =
        mapping->numbered_axis < 0 ? NULL : &mapping->shown.axis[mapping->numbered_axis];
    return axis ? axis_before(axis, box->start[mapping->numbered_axis]) / axis->block : 0;
}

/* Behind the last that the box, which the mapping touches, has a part of. */
static uint64_t blocks_end(const struct mapping *mapping, const struct box *box)
{
    int i = mapping->numbered_axis;
    const struct hdf5_axis *axis = i < 0 ? NULL : &mapping->shown.axis[i];
    return axis ? (axis_before(axis, box->start[i] + box->count[i]) - 1) / axis->block + 1 : 1;
}

static int find_numbered(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                         struct source **source)
{
    bool is_numbered;
    char *file = substitute(mapping->file, block, &is_numbered);
    char *dataset = substitute(mapping->dataset, block, &is_numbered);
    int error = file && dataset ? find_source(virtual, file, dataset, true, source) : -ENOMEM;
    free(file);
    free(dataset);
    return error;
}

/* Whether elements correspond axis by axis, now that the dims of the source are known. -EIO: they
 * do not at all. */
static int translate(struct part *part, uint64_t block)
{
    USING(part->dataset);
    const struct mapping *mapping = part->mapping;
    const uint64_t *dims = part->dataset->layout.dims;
    int rank = part->dataset->layout.rank;
    struct hdf5_slab shown = mapping->shown, source = mapping->source;
    int axis = mapping->numbered_axis;
    if (axis >= 0) {
        memcpy(part->shown, shown.axis, (size_t)shown.rank * sizeof(*shown.axis));
        part->shown[axis].start += block * part->shown[axis].stride;
        part->shown[axis].count = 1;
        part->shown[axis].stride = part->shown[axis].block;
        shown.axis = part->shown;
    }
    for (int i = 0; source.is_all && i < rank; i++)
        part->all[i] = (struct hdf5_axis){0, dims[i] ? dims[i] : 1, 1, dims[i] ? dims[i] : 1};
    if (source.is_all)
        source = (struct hdf5_slab){.rank = rank, .axis = part->all};
    if (source.rank != rank)
        return -EIO;
    if (translation_make(&part->translation, &shown, &source))
        return 0;
    uint64_t n = 1, there = 1;
    for (int i = 0; i < shown.rank; i++)
        n *= axis_size(&shown.axis[i]);
    for (int i = 0; i < rank; i++)
        there *= dims[i];
    return n == there ? -EOPNOTSUPP : -EIO;
}

/* What the mapping does not find there is an error, or the fill value. */
static bool is_fill(const struct part *part)
{
    return part->mapping->is_unlimited || part->virtual->fill_missing;
}

/* Ended by part_end, unless it fails. -EOPNOTSUPP: libhdf5 must read it. */
static int part_begin(struct part *part, struct virtual *virtual, const struct mapping *mapping,
                      uint64_t block)
{
    int error = 0;
    part->virtual = virtual;
    part->mapping = mapping;
    part->source = mapping->of;
    part->dataset = NULL;
    if (!part->source)
        error = find_numbered(virtual, mapping, block, &part->source);
    if (!error)
        error = source_get(part->source, is_fill(part), &part->dataset);
    if (error == -ENOENT || error == -EINVAL) {
        part->dataset = NULL;
        return virtual->fill_missing || (error == -ENOENT && is_fill(part)) ? 0 : -EIO;
    }
    if (error)
        return error;
    error = source_is_of_type(part->source) ? translate(part, block) : -EOPNOTSUPP;
    if (!error)
        return 0;
    if (error == -EIO)
        source_is_short(part->source);
    source_put(part->source);
    part->dataset = NULL;
    return error == -EIO && is_fill(part) ? 0 : error;
}

static void part_end(struct part *part)
{
    if (part->dataset)
        source_put(part->source);
}

/* ---- Reading ---- */

/* A box of the virtual dataset that is wanted, and where it is to go. */
struct wanted {
    struct part *part;
    const struct box *box;
    const struct place *place;
    int depth;
};

static struct sfs_dataset *source_of(const struct wanted *wanted)
{
    return wanted->part->dataset;
}

static size_t element_size(const struct wanted *wanted)
{
    return wanted->part->virtual->dataset->layout.element_size;
}

/* Where a box of the virtual dataset goes. */
static void find_place(const struct wanted *wanted, const struct box *shown, uint64_t *start)
{
    for (int i = 0; i < shown->rank; i++)
        start[i] = wanted->place->start[i] + (shown->start[i] - wanted->box->start[i]);
}

/* A box whose elements come one after the other. */
static int read_packed(const struct wanted *wanted, const struct box *source, char *elements)
{
    static const uint64_t origin[SFS_MAX_RANK];
    struct place place = {elements, source->count, origin};
    return dataset_read_box(source_of(wanted), source, &place, wanted->depth + 1);
}

/* Whether each axis of the source is that of the virtual dataset with the same number. */
static bool is_alike(const struct translation *translation)
{
    bool alike = translation->rank == translation->source_rank;
    for (int i = 0; i < translation->rank && alike; i++)
        alike = translation->source_of[i] < 0 || translation->source_of[i] == i;
    return alike;
}

/* Cuts a box of the source as one of the virtual dataset was cut. */
static void cut_source(const struct translation *translation, const struct box *shown,
                       const struct box *cut, struct box *source)
{
    for (int i = 0; i < source->rank; i++) {
        int k = translation->pair[i];
        if (k < 0)
            continue;
        source->start[i] += cut->start[k] - shown->start[k];
        source->count[i] = cut->count[k];
    }
}

/* Through memory, as much as that is to be at once. */
static int read_box_by_copying(const struct wanted *wanted, const struct box *shown,
                               const struct box *source)
{
    size_t size = element_size(wanted);
    uint64_t all = box_elements(shown), most = GATHERED_BYTES / size ? GATHERED_BYTES / size : 1;
    struct cache *cache = wanted->part->virtual->file->cache;
    size_t bytes = (size_t)(all < most ? all : most) * size;
    void *memory;
    int error = cache_scratch(cache, bytes, &memory);
    if (error)
        return error;
    for (uint64_t at = 0; at < all && !error;) {
        uint64_t start[SFS_MAX_RANK];
        struct box cut, of_source = *source;
        at += box_of_interval(shown, at, all - at < most ? all - at : most, &cut);
        cut_source(&wanted->part->translation, shown, &cut, &of_source);
        error = read_packed(wanted, &of_source, memory);
        find_place(wanted, &cut, start);
        if (!error)
            box_copy(cut.rank, cut.count, size, wanted->place->elements, wanted->place->dims, start,
                     memory, cut.count, NULL);
        if (!error)
            error = interrupt_check();
    }
    cache_scratch_return(cache, memory, bytes);
    return error;
}

/* Elements that lie without a gap on both sides. */
static int read_one(const struct wanted *wanted, const uint64_t *first, const uint64_t *end)
{
    const struct place *place = wanted->place;
    struct box shown, source;
    uint64_t start[SFS_MAX_RANK], position;
    translation_boxes(&wanted->part->translation, first, end, &shown, &source);
    find_place(wanted, &shown, start);
    if (is_alike(&wanted->part->translation)) {
        struct place there = {place->elements, place->dims, start};
        return dataset_read_box(source_of(wanted), &source, &there, wanted->depth + 1);
    }
    if (box_is_contiguous(shown.rank, shown.count, place->dims, start, &position))
        return read_packed(wanted, &source, place->elements + position * element_size(wanted));
    return read_box_by_copying(wanted, &shown, &source);
}

/* Copies elements, interval by interval along the axes from this one on, out of the smallest box
 * of the source that has them. */
struct gathered {
    const struct wanted *wanted;
    const char *memory;
    struct box source;
    uint64_t first[SFS_MAX_RANK], end[SFS_MAX_RANK];
};

static void scatter(struct gathered *gathered, int axis)
{
    const struct wanted *wanted = gathered->wanted;
    const struct translation *translation = &wanted->part->translation;
    if (axis == translation->rank) {
        uint64_t to[SFS_MAX_RANK], position = 0;
        struct box shown, source;
        translation_boxes(translation, gathered->first, gathered->end, &shown, &source);
        find_place(wanted, &shown, to);
        for (int i = 0; i < source.rank; i++)
            position = position * gathered->source.count[i] +
                       (source.start[i] - gathered->source.start[i]);
        /* Both have the axes of more than one element in common: in those of the virtual dataset
         * the array that was read has these dims. */
        uint64_t dims[SFS_MAX_RANK];
        for (int i = 0; i < shown.rank; i++) {
            int k = translation->source_of[i];
            dims[i] = k < 0 ? 1 : gathered->source.count[k];
        }
        box_copy(shown.rank, shown.count, element_size(wanted), wanted->place->elements,
                 wanted->place->dims, to, gathered->memory + position * element_size(wanted), dims,
                 NULL);
        return;
    }
    uint64_t first = gathered->first[axis], end = gathered->end[axis];
    for (uint64_t i = first; i < end;) {
        uint64_t n = translation_adjacent(translation, axis, i);
        n = n < end - i ? n : end - i;
        gathered->first[axis] = i;
        gathered->end[axis] = i += n;
        scatter(gathered, axis + 1);
    }
    gathered->first[axis] = first;
    gathered->end[axis] = end;
}

static int gather(const struct wanted *wanted, const uint64_t *first, const uint64_t *end,
                  const struct box *source, size_t bytes)
{
    struct cache *cache = wanted->part->virtual->file->cache;
    void *memory;
    int error = cache_scratch(cache, bytes, &memory);
    if (error)
        return error;
    error = read_packed(wanted, source, memory);
    if (!error) {
        struct gathered gathered = {.wanted = wanted, .memory = memory, .source = *source};
        memcpy(gathered.first, first, sizeof(gathered.first));
        memcpy(gathered.end, end, sizeof(gathered.end));
        scatter(&gathered, 0);
    }
    cache_scratch_return(cache, memory, bytes);
    return error;
}

/* Whether there may be whole chunks between the intervals along this or a later axis. */
static bool skips_chunks(const struct wanted *wanted, int axis, const uint64_t *first,
                         const uint64_t *end)
{
    const struct translation *translation = &wanted->part->translation;
    for (int i = axis; i < translation->rank; i++) {
        int k = translation->source_of[i];
        if (k < 0 || axis_adjacent(&translation->source[k], first[i]) >= end[i] - first[i])
            continue;
        const struct hdf5_axis *source = &translation->source[k];
        uint64_t chunk = source_of(wanted)->virtual ? 1 : source_of(wanted)->layout.chunk_dims[k];
        if (source->stride - source->block >= chunk)
            return true;
    }
    return false;
}

/* Whether elements, which lie in more than one interval along this or a later axis, are to be read
 * with all that is between them: where the intervals are short. */
static bool is_to_gather(const struct wanted *wanted, int axis, const uint64_t *first,
                         const uint64_t *end, struct box *source, uint64_t *bytes)
{
    const struct translation *translation = &wanted->part->translation;
    struct box shown;
    uint64_t elements, n = 1, adjacent = element_size(wanted);
    bool is_one = true;
    for (int i = 0; i < translation->rank; i++) {
        uint64_t together = translation_adjacent(translation, i, first[i]);
        uint64_t left = end[i] - first[i];
        is_one &= i < axis || together >= left;
        adjacent *= together < left ? together : left;
        n *= left;
    }
    if (is_one || adjacent >= GATHERED_INTERVAL || skips_chunks(wanted, axis, first, end))
        return false;
    translation_boxes(translation, first, end, &shown, source);
    return box_product(source->count, source->rank, 1, &elements) &&
           elements / GATHERED_TIMES <= n &&
           box_product(source->count, source->rank, element_size(wanted), bytes) &&
           *bytes <= GATHERED_BYTES;
}

/* Reads what is wanted along the axes from this one on; of those before it one interval. */
static int read_from(const struct wanted *wanted, int axis, uint64_t *first, uint64_t *end)
{
    const struct translation *translation = &wanted->part->translation;
    struct box source;
    uint64_t bytes;
    if (axis == translation->rank)
        return read_one(wanted, first, end);
    if (is_to_gather(wanted, axis, first, end, &source, &bytes))
        return gather(wanted, first, end, &source, (size_t)bytes);
    uint64_t all_first = first[axis], all_end = end[axis];
    int error = 0;
    for (uint64_t i = all_first; i < all_end && !error;) {
        first[axis] = i;
        i += translation_adjacent(translation, axis, i);
        end[axis] = i < all_end ? i : all_end;
        error = read_from(wanted, axis + 1, first, end);
        if (!error)
            error = interrupt_check();
    }
    first[axis] = all_first;
    end[axis] = all_end;
    return error;
}

/* What of a box a part of a mapping shows. */
static int read_part(struct part *part, const struct box *box, const struct place *place, int depth)
{
    struct translation *translation = &part->translation;
    if (!part->dataset || !translation_want(translation, box))
        return 0;
    USING(part->dataset);
    if (translation_clip(translation, part->dataset->layout.dims)) {
        if (!part->mapping->is_unlimited)
            source_is_short(part->source);
        if (!is_fill(part))
            return -EIO;
        if (translation_elements(translation) == 0)
            return 0;
    }
    struct wanted wanted = {part, box, place, depth};
    uint64_t first[SFS_MAX_RANK], end[SFS_MAX_RANK];
    memcpy(first, translation->first, sizeof(first));
    memcpy(end, translation->end, sizeof(end));
    return read_from(&wanted, 0, first, end);
}

/* is_left: NULL, or sources that are virtual are not read, and it is set. */
static int read_mapping(struct virtual *virtual, const struct mapping *mapping,
                        const struct box *box, const struct place *place, int depth, bool *is_left)
{
    uint64_t end = blocks_end(mapping, box);
    int error = 0;
    for (uint64_t block = blocks_begin(mapping, box); block < end && !error; block++) {
        struct part part;
        error = part_begin(&part, virtual, mapping, block);
        if (error)
            break;
        if (is_left && part.dataset && part.dataset->virtual)
            *is_left = true;
        else
            error = read_part(&part, box, place, depth);
        part_end(&part);
        if (!error)
            error = interrupt_check();
    }
    return error;
}

/* Whether a mapping shows all of a box, and so nothing below it matters. */
static bool covers(const struct mapping *mapping, const struct box *box)
{
    for (int i = 0; i < box->rank; i++) {
        const struct hdf5_axis *axis = &mapping->shown.axis[i];
        uint64_t n =
            axis_before(axis, box->start[i] + box->count[i]) - axis_before(axis, box->start[i]);
        if (n != box->count[i])
            return false;
    }
    return true;
}

/* Mappings that are read by several threads. Only the one that was called knows whether it is to
 * end early: what may take long is left to it. */
struct shared {
    struct virtual *virtual;
    const struct mapping *const *mapping;
    const struct box *box;
    const struct place *place;
    bool is_left[SHARED_MOST];
};

static int read_shared(void *context, size_t i)
{
    struct shared *shared = context;
    return read_mapping(shared->virtual, shared->mapping[i], shared->box, shared->place, 0,
                        &shared->is_left[i]);
}

static bool lie_apart(const struct mapping *a, const struct mapping *b, const struct box *box)
{
    for (int i = 0; i < box->rank; i++) {
        uint64_t low_a, high_a, low_b, high_b, dim = box->start[i] + box->count[i];
        bounds(&a->shown.axis[i], dim, &low_a, &high_a);
        bounds(&b->shown.axis[i], dim, &low_b, &high_b);
        if (high_a <= low_b || high_b <= low_a)
            return true;
    }
    return false;
}

/* Whether threads may take a mapping each: none lies over another, and this one holds no other
 * dataset that somebody may wait to change. */
static bool can_be_shared(const struct virtual *virtual, const struct touched *touched,
                          size_t first, const struct box *box, int depth)
{
    if (depth > 0 || touched->n - first < 2 || touched->n - first > SHARED_MOST ||
        box_elements(box) * virtual->dataset->layout.element_size < SHARED_BYTES ||
        !use_is_only(&virtual->dataset->use))
        return false;
    for (size_t i = first; i < touched->n; i++)
        for (size_t k = first; k < i; k++)
            if (!lie_apart(touched->mapping[i], touched->mapping[k], box))
                return false;
    return true;
}

static int read_touched(struct virtual *virtual, const struct touched *touched,
                        const struct box *box, const struct place *place, int depth)
{
    size_t first = touched->n;
    while (first > 0 && !covers(touched->mapping[first - 1], box))
        first--;
    /* What an unlimited one does not find is left as it is. */
    bool is_covered = first > 0 && !touched->mapping[first - 1]->is_unlimited &&
                      !virtual->fill_missing;
    if (is_covered)
        first--;
    else
        first = 0;
    const struct layout *layout = &virtual->dataset->layout;
    if (!is_covered)
        box_fill(box->rank, box->count, layout->element_size, place->elements, place->dims,
                 place->start, layout->info->fill);
    struct shared shared = {virtual, touched->mapping + first, box, place, {false}};
    bool is_shared = can_be_shared(virtual, touched, first, box, depth);
    int error = is_shared ? workers_each(cache_workers(virtual->file->cache), touched->n - first,
                                         read_shared, &shared)
                          : 0;
    for (size_t i = first; i < touched->n && !error; i++)
        if (!is_shared || shared.is_left[i - first])
            error = read_mapping(virtual, touched->mapping[i], box, place, depth, NULL);
    return error;
}

/* ---- What is left to libhdf5 ----
 *
 * It follows sources without an end, and shows the fill value for what is missing: before it is
 * asked, they are looked at. */

static int too_deep(struct virtual *virtual)
{
    if (!atomic_exchange(&virtual->said_too_deep, true))
        log_error("%s: %s: sources of sources lead through more than %d virtual datasets, or in a "
                  "circle",
                  sfs_path(virtual->file), virtual->dataset->path, MOST_DEPTH);
    return -EIO;
}

static int check_sources(struct virtual *virtual, int depth);

/* What is not there matters only where it is wanted, and is no fill value. */
enum want { NOT_WANTED, WANTED_IF_THERE, WANTED };

static int check_source(struct virtual *virtual, struct source *source, enum want want, int depth)
{
    struct sfs_dataset *dataset;
    int error = source_get(source, want != WANTED, &dataset);
    if (error == -ENOENT || error == -EINVAL)
        return want == NOT_WANTED || (error == -ENOENT && want == WANTED_IF_THERE) ||
                       virtual->fill_missing
                   ? 0
                   : -EIO;
    if (error)
        return error;
    if (dataset->virtual)
        error = check_sources(dataset->virtual, depth + 1);
    source_put(source);
    return error ? error : interrupt_check();
}

/* The sources that a mapping has in a box. */
static int check_mapping(struct virtual *virtual, const struct mapping *mapping,
                         const struct box *box, enum want want, int depth)
{
    if (mapping->of)
        return check_source(virtual, mapping->of, want, depth);
    int error = 0;
    uint64_t end = mapping->numbered_axis < 0 ? 0 : blocks_end(mapping, box);
    for (uint64_t block = blocks_begin(mapping, box); block < end && !error; block++) {
        struct source *source;
        error = find_numbered(virtual, mapping, block, &source);
        if (!error)
            error = check_source(virtual, source, want, depth);
    }
    return error;
}

/* All sources of a virtual dataset that is a source, once. What is wrong with them otherwise is
 * found out when they are read. */
static int check_sources(struct virtual *virtual, int depth)
{
    const struct layout *layout = &virtual->dataset->layout;
    struct box all = {.rank = layout->rank};
    memcpy(all.count, layout->dims, sizeof(all.count));
    int error = depth >= MOST_DEPTH ? too_deep(virtual) : 0;
    if (error || atomic_load(&virtual->is_shallow))
        return error;
    for (size_t i = 0; i < virtual->n && !error; i++)
        if (touches(&virtual->mapping[i], &all))
            error = check_mapping(virtual, &virtual->mapping[i], &all, NOT_WANTED, depth);
    if (!error)
        atomic_store(&virtual->is_shallow, true);
    return error;
}

/* The pieces that libhdf5 reads of a box. */
static void pieces_around(const struct layout *layout, const struct box *box, struct box *pieces)
{
    *pieces = *box;
    for (int i = 0; i < box->rank; i++) {
        uint64_t piece = layout->chunk_dims[i], end = box->start[i] + box->count[i];
        pieces->start[i] -= box->start[i] % piece;
        uint64_t left = layout->dims[i] - pieces->start[i];
        uint64_t count = ((end - pieces->start[i] - 1) / piece + 1) * piece;
        pieces->count[i] = count < left ? count : left;
    }
}

static int check_box(struct virtual *virtual, const struct box *box, int depth)
{
    struct touched touched;
    struct box pieces;
    pieces_around(&virtual->dataset->layout, box, &pieces);
    int error = find_touched(virtual, &pieces, &touched);
    for (size_t i = 0; i < touched.n && !error; i++) {
        const struct mapping *mapping = touched.mapping[i];
        enum want want = !touches(mapping, box)  ? NOT_WANTED
                         : mapping->is_unlimited ? WANTED_IF_THERE
                                                 : WANTED;
        error = check_mapping(virtual, mapping, &pieces, want, depth);
    }
    touched_free(&touched);
    return error;
}

static int read_by_library(struct virtual *virtual, const struct box *box,
                           const struct place *place, int depth)
{
    int error = check_box(virtual, box, depth);
    return error ? error
                 : cache_read_placed(virtual->dataset->cache, box, place->elements, place->dims,
                                     place->start);
}

int virtual_read(struct virtual *virtual, const struct box *box, const struct place *place,
                 int depth)
{
    struct touched touched;
    if (depth >= MOST_DEPTH)
        return too_deep(virtual);
    if (box_elements(box) == 0)
        return 0;
    if (atomic_load(&virtual->is_librarys))
        return read_by_library(virtual, box, place, depth);
    int error = find_touched(virtual, box, &touched);
    if (!error)
        error = read_touched(virtual, &touched, box, place, depth);
    touched_free(&touched);
    if (error != -EOPNOTSUPP)
        return error;
    error = atomic_exchange(&virtual->is_librarys, true) ? 0 : cache_sources(virtual);
    return error ? error : read_by_library(virtual, box, place, depth);
}

/* ---- Lending ---- */

struct loan {
    struct source *source; /* NULL: libhdf5 has read it, */
    struct chunk *chunk;   /* a piece of the virtual dataset */
    struct sfs_dataset *dataset;
    void *holder; /* of what the dataset has lent */
};

static int lend_by_library(struct virtual *virtual, const struct box *box, const void **bytes,
                           void **holder, int depth)
{
    int error = check_box(virtual, box, depth);
    struct loan *loan = error ? NULL : calloc(1, sizeof(*loan));
    if (!loan)
        return error ? error : -ENOMEM;
    int lent = cache_lend(virtual->dataset->cache, box, bytes, &loan->chunk);
    if (lent > 0)
        *holder = loan;
    else
        free(loan);
    return lent;
}

/* Where a part shows all of a box without a gap, what it is in the source. */
static bool is_box_of_source(struct part *part, const struct box *box, struct box *source)
{
    struct translation *translation = &part->translation;
    struct box shown;
    if (!part->dataset || !translation_want(translation, box) ||
        translation_elements(translation) != box_elements(box) ||
        translation_clip(translation, part->dataset->layout.dims))
        return false;
    for (int i = 0; i < translation->rank; i++)
        if (translation_adjacent(translation, i, translation->first[i]) <
            translation->end[i] - translation->first[i])
            return false;
    translation_boxes(translation, translation->first, translation->end, &shown, source);
    return true;
}

static int lend_part(struct part *part, const struct box *box, const void **bytes, void **holder,
                     int depth)
{
    struct box source;
    if (!part->dataset)
        return 0;
    USING(part->dataset);
    if (!is_box_of_source(part, box, &source))
        return 0;
    struct loan *loan = malloc(sizeof(*loan));
    if (!loan)
        return -ENOMEM;
    loan->source = part->source;
    loan->dataset = part->dataset;
    int lent = dataset_lend_box(part->dataset, &source, bytes, &loan->holder, depth + 1);
    if (lent > 0)
        *holder = loan;
    else
        free(loan);
    return lent;
}

int virtual_lend(struct virtual *virtual, const struct box *box, const void **bytes, void **holder,
                 int depth)
{
    struct touched touched;
    if (depth >= MOST_DEPTH || box_elements(box) == 0)
        return 0;
    if (atomic_load(&virtual->is_librarys))
        return lend_by_library(virtual, box, bytes, holder, depth);
    int error = find_touched(virtual, box, &touched);
    const struct mapping *mapping = touched.n > 0 ? touched.mapping[touched.n - 1] : NULL;
    touched_free(&touched);
    if (error || !mapping)
        return error;
    uint64_t block = blocks_begin(mapping, box);
    if (blocks_end(mapping, box) != block + 1)
        return 0;
    struct part part;
    error = part_begin(&part, virtual, mapping, block);
    if (error)
        return error == -EOPNOTSUPP ? 0 : error;
    int lent = lend_part(&part, box, bytes, holder, depth);
    if (lent <= 0)
        part_end(&part); /* else when it is given back */
    return lent;
}

void virtual_return(void *holder)
{
    struct loan *loan = holder;
    if (loan->source) {
        dataset_return(loan->dataset, loan->holder);
        source_put(loan->source);
    } else {
        cache_return(loan->chunk);
    }
    free(loan);
}

/* ---- What its sources are ---- */

static int add_source(struct sfs_sources *sources, const char *file, const char *dataset,
                      enum sfs_source_state state)
{
    struct sfs_source *source = &sources->source[sources->n++];
    *source = (struct sfs_source){strdup(file), strdup(dataset), state};
    return source->file && source->dataset ? interrupt_check() : -ENOMEM;
}

static int add_known(struct virtual *virtual, size_t most, struct sfs_sources *sources)
{
    struct known *known, *next;
    int error = 0;
    pthread_mutex_lock(&virtual->lock);
    HASH_ITER (hh, virtual->known, known, next) {
        if (known->is_block)
            continue;
        if (sources->total++ < most && !error)
            error = add_source(sources, source_file_name(known->source),
                               source_dataset_name(known->source), source_state(known->source));
    }
    pthread_mutex_unlock(&virtual->lock);
    return error;
}

/* Opens a source and looks whether it has all that this mapping shows of it; what is found out is
 * kept with it. */
static int examine(struct virtual *virtual, const struct mapping *mapping)
{
    struct part part;
    if (mapping->is_unlimited)
        return 0;
    int error = part_begin(&part, virtual, mapping, 0);
    if (!error && part.dataset) {
        USING(part.dataset);
        for (int i = 0; i < part.translation.rank; i++) {
            part.translation.first[i] = 0;
            part.translation.end[i] = axis_size(&mapping->shown.axis[i]);
        }
        if (translation_clip(&part.translation, part.dataset->layout.dims))
            source_is_short(part.source);
    }
    if (!error)
        part_end(&part);
    if (!error)
        error = interrupt_check();
    return error == -ENOMEM || error == -EINTR ? error : 0;
}

int virtual_sources(struct virtual *virtual, size_t most, struct sfs_sources *sources)
{
    size_t all = virtual->n < most ? virtual->n : most;
    *sources = (struct sfs_sources){0};
    sources->source = calloc(all ? all : 1, sizeof(*sources->source));
    int error = sources->source ? 0 : -ENOMEM;
    for (size_t i = 0; virtual->n <= MOST_EXAMINED && i < virtual->n && !error; i++)
        error = examine(virtual, &virtual->mapping[i]);
    if (!error)
        error = add_known(virtual, most, sources);
    for (size_t i = 0; i < virtual->n && !error; i++) {
        const struct mapping *mapping = &virtual->mapping[i];
        if (!mapping->of && sources->total++ < most)
            error = add_source(sources, mapping->file, mapping->dataset, SFS_SOURCE_NUMBERED);
    }
    if (error)
        sfs_sources_free(sources);
    return error;
}
