/* Taking the mappings of a virtual dataset out of the file, and finding those of a place. */
#include "dataset/virtual_mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cache/cache.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/object_names.h"
#include "dataset/series.h"
#include "dataset/virtual_axes.h"
#include "dataset/virtual_dataset.h"

/* What libhdf5 keeps of the sources, where it reads them, as a share of the cache's limit. */
#define SOURCES_SHARE 8

/* Of numbered blocks without users, of all virtual datasets. */
static atomic_size_t idle_bytes;

/* ---- Opening ---- */

/* A name with numbers in the place of %b, and % for %%, or as much of it as is longer than most; is_numbered: it has
 * any. NULL: no memory. The rules are those of H5Pset_virtual. */
static char *substitute(const char *name, uint64_t number, size_t most, bool *is_numbered)
{
    char *made = NULL;
    size_t n, written = 0;
    FILE *out = open_memstream(&made, &n);
    if (!out)
        return NULL;
    for (; *name && written <= most; name++) {
        if (name[0] == '%' && name[1] == 'b') {
            written += (size_t)fprintf(out, "%" PRIu64, number);
            *is_numbered = true;
            name++;
        } else {
            putc(*name, out);
            written++;
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

static void free_known(struct known *known)
{
    if (!known)
        return;
    source_destroy(known->source);
    free(known->key);
    free(known);
}

/* Of memory. Names are in the key and in the source; a series that may grow has them, too. */
static size_t bytes_of(const struct virtual *virtual, const struct source_name *name)
{
    size_t names = strlen(name->file) + strlen(name->dataset);
    size_t n = sizeof(struct known) + SOURCE_BYTES + 2 * names;
    return virtual->is_series ? n + n / 2 : n;
}

/* Takes over the key, which is in the table then. NULL: no memory. */
static struct known *add_known(struct virtual *virtual, char *key, const struct source_name *name)
{
    struct known *known = calloc(1, sizeof(*known));
    if (!known) {
        free(key);
        return NULL;
    }
    known->key = key;
    known->bytes = bytes_of(virtual, name);
    known->source = source_create(virtual->sources, virtual->file, virtual->dataset->path,
                                  &virtual->dataset->info.encoded_type, name);
    if (known->source)
        HASH_ADD_KEYPTR(hh, virtual->known, known->key, strlen(known->key), known);
    if (!known->source || hash_failed()) {
        free_known(known);
        return NULL;
    }
    return known;
}

static void add_idle(struct virtual *virtual, struct known *known)
{
    DL_APPEND(virtual->idle, known);
    atomic_fetch_add(&idle_bytes, known->bytes);
}

static void remove_idle(struct virtual *virtual, struct known *known)
{
    DL_DELETE(virtual->idle, known);
    atomic_fetch_sub(&idle_bytes, known->bytes);
}

/* Of a block: it has one more user. One that stays for other reasons goes on doing so. */
static void hold(struct virtual *virtual, struct known *known, bool is_new)
{
    if (is_new) {
        known->is_block = true;
        virtual->n_blocks++;
        virtual->block_bytes += known->bytes;
    } else if (known->is_block && known->users == 0) {
        remove_idle(virtual, known);
    }
    known->users++;
}

static void keep(struct virtual *virtual, struct known *known, bool is_new)
{
    if (known->is_block && known->users == 0)
        remove_idle(virtual, known);
    if (known->is_block) {
        virtual->n_blocks--;
        virtual->block_bytes -= known->bytes;
    }
    if (is_new || known->is_block)
        virtual->kept_bytes += known->bytes;
    known->is_block = false;
}

enum wish { TO_KEEP, BLOCK, BLOCK_IF_KNOWN };

/* One for each pair of names, group being that of all that are in this file. Takes over neither. -ENOMEM; -ENOENT: it
 * is not known, and was to be used only if it is. */
static int find_known(struct virtual *virtual, const struct source_name *name, enum wish wish,
                      struct known **out)
{
    struct known *known;
    char *key;
    if (asprintf(&key, "%s\n%s", name->file, name->dataset) < 0)
        return -ENOMEM;
    pthread_mutex_lock(&virtual->lock);
    HASH_FIND_STR(virtual->known, key, known);
    bool is_new = !known;
    if (is_new && wish != BLOCK_IF_KNOWN)
        known = add_known(virtual, key, name);
    else
        free(key);
    if (known && wish != TO_KEEP)
        hold(virtual, known, is_new);
    else if (known)
        keep(virtual, known, is_new);
    pthread_mutex_unlock(&virtual->lock);
    *out = known;
    return known ? 0 : wish == BLOCK_IF_KNOWN ? -ENOENT : -ENOMEM;
}

/* It stays as long as the virtual dataset. */
static int find_source(struct virtual *virtual, const struct source_name *name, struct source **out)
{
    struct known *known;
    int error = find_known(virtual, name, TO_KEEP, &known);
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
    slab->is_all = false;
    bool is_empty = false;
    for (int i = 0; i < rank; i++) {
        uint64_t n = dims[i] ? dims[i] : 1;
        slab->axis[i] = (struct hdf5_axis){0, n, 1, n};
        is_empty |= dims[i] == 0;
    }
    return is_empty ? -EOPNOTSUPP : 0;
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
    int error = 0;
    mapping->shown = from->shown;
    mapping->source = from->source;
    from->shown.axis = from->source.axis = NULL;
    if (mapping->shown.is_all)
        error = spell_out(&mapping->shown, info->rank, info->dims);
    if (!error && (!from->is_regular || mapping->shown.rank != info->rank ||
                   !simplify(&mapping->shown, is_numbered) || !simplify(&mapping->source, false) ||
                   !fits(mapping, is_numbered)))
        error = -EOPNOTSUPP;
    return error;
}

/* Of one that libhdf5 reads it is only known in which box it lies. */
static int take_bounds(struct virtual *virtual, struct mapping *mapping)
{
    const struct sfs_dataset_info *info = &virtual->dataset->info;
    struct hdf5_slab *shown = &mapping->shown;
    mapping->is_unlimited = unlimited_axis(shown) >= 0;
    atomic_store(&virtual->is_librarys, true);
    if (shown->rank != info->rank) {
        free(shown->axis);
        int error = spell_out(shown, info->rank, info->dims);
        return error == -EOPNOTSUPP ? 0 : error;
    }
    for (int i = 0; i < shown->rank; i++) {
        uint64_t low, high;
        mapping_bounds(&shown->axis[i], info->dims[i], &low, &high);
        uint64_t n = high > low ? high - low : 1;
        shown->axis[i] = (struct hdf5_axis){low, n, 1, n};
    }
    return 0;
}

/* Takes over names and axes. */
static int take_mapping(struct virtual *virtual, struct hdf5_mapping *from, size_t order)
{
    struct mapping *mapping = &virtual->mapping[virtual->n++];
    bool is_numbered = false;
    *mapping = (struct mapping){.order = order, .numbered_axis = -1};
    char *file = substitute(from->file, 0, SIZE_MAX, &is_numbered);
    char *dataset = substitute(from->dataset, 0, SIZE_MAX, &is_numbered);
    int error = file && dataset ? take_slabs(virtual, mapping, from, is_numbered) : -ENOMEM;
    mapping->is_regular = !error;
    int axis = mapping->is_regular ? unlimited_axis(&mapping->shown) : -1;
    mapping->is_unlimited = axis >= 0;
    if (error == -EOPNOTSUPP)
        error = take_bounds(virtual, mapping);
    if (!error && !is_numbered) {
        const struct source_name name = {file, dataset, sfs_root(virtual->file)};
        error = find_source(virtual, &name, &mapping->of);
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
void mapping_bounds(const struct hdf5_axis *axis, uint64_t dim, uint64_t *low, uint64_t *high)
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
            mapping_bounds(&virtual->mapping[k].shown.axis[i], info->dims[i], &low, &high);
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
        mapping_bounds(&mapping->shown.axis[virtual->axis], dim, &mapping->low, &mapping->high);
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
    for (size_t i = 0; i < mappings.n && !error; i++) {
        error = interrupt_check();
        if (!error)
            error = take_mapping(virtual, &mappings.mapping[i], i);
    }
    hdf5_mappings_free(&mappings);
    if (!error)
        sort(virtual);
    return error;
}

/* ---- Series ---- */

/* All of the frames. */
static struct hdf5_axis *spell_part(const struct sfs_dataset_info *info, uint64_t first, uint64_t n)
{
    struct hdf5_axis *axis = calloc((size_t)info->rank, sizeof(*axis));
    for (int i = 0; axis && i < info->rank; i++)
        axis[i] = i == 0 ? (struct hdf5_axis){first, n, 1, n}
                         : (struct hdf5_axis){0, info->dims[i], 1, info->dims[i]};
    return axis;
}

/* Of a member that is missing nothing is known: it must have what is to be shown of it, and no
 * more. */
static int take_part(struct virtual *virtual, const struct series *series, size_t i)
{
    const struct sfs_dataset_info *info = &virtual->dataset->info;
    const struct series_part *part = &series->parts.part[i];
    char name[SERIES_NAME_BYTES];
    struct series_source source = series_source_of(series, part, name);
    struct mapping *mapping = &virtual->mapping[virtual->n++];
    *mapping = (struct mapping){.order = i, .numbered_axis = -1, .is_regular = true};
    mapping->shown =
        (struct hdf5_slab){.rank = info->rank, .axis = spell_part(info, part->first, part->n)};
    mapping->source = (struct hdf5_slab){.is_all = part->is_missing};
    if (!part->is_missing)
        mapping->source =
            (struct hdf5_slab){.rank = info->rank, .axis = spell_part(info, 0, part->n)};
    if (!mapping->shown.axis || (!part->is_missing && !mapping->source.axis))
        return -ENOMEM;
    const struct source_name named = {source.file, source.dataset, source.group};
    return find_source(virtual, &named, &mapping->of);
}

/* All members are sources, also those of which nothing is shown. */
static int take_series(struct virtual *virtual, const struct series *series)
{
    struct source *known;
    int error = 0;
    virtual->is_series = true;
    virtual->mapping = calloc(series->parts.n + 1, sizeof(*virtual->mapping));
    if (!virtual->mapping)
        return -ENOMEM;
    for (size_t i = 0; i < series->n && !error; i++) {
        const struct series_source *source = &series->source[i];
        const struct source_name name = {source->file, source->dataset, source->group};
        error = find_source(virtual, &name, &known);
    }
    for (size_t i = 0; i<series->parts.n &&virtual->dataset->info.elements> 0 && !error; i++)
        error = take_part(virtual, series, i);
    if (!error)
        sort(virtual);
    return error;
}

/* Where libhdf5 reads it. */
int virtual_cache_sources(struct virtual *virtual)
{
    return hdf5_cache_sources(virtual->file->hdf5, virtual->dataset->address,
                              virtual->dataset->path,
                              cache_limit(virtual->file->cache) / SOURCES_SHARE);
}

int virtual_open(struct sfs_dataset *dataset, const struct series *series, struct virtual **out)
{
    struct sfs_file *file = dataset->file;
    *out = NULL;
    if (!series && (file->follows || dataset->info.rank < 1))
        return 0;
    int error = file_make_sources(file);
    if (error)
        return error;
    struct virtual *virtual = calloc(1, sizeof(*virtual));
    if (!virtual)
        return -ENOMEM;
    virtual->dataset = dataset;
    virtual->file = file;
    virtual->sources = file->sources;
    virtual->fill_missing = file->fill_missing;
    atomic_store(&virtual->is_librarys, dataset->info.type.has_pointers);
    pthread_mutex_init(&virtual->lock, NULL);
    error = series ? take_series(virtual, series) : take_mappings(virtual);
    if (!error && atomic_load(&virtual->is_librarys))
        error = virtual_cache_sources(virtual);
    if (error)
        virtual_close(virtual); /* none of its sources is open */
    else
        *out = virtual;
    return error;
}

static void free_mappings(size_t n, struct mapping *mappings)
{
    for (size_t i = 0; i < n; i++) {
        struct mapping *mapping = &mappings[i];
        free(mapping->shown.axis);
        free(mapping->source.axis);
        free(mapping->file);
        free(mapping->dataset);
    }
    free(mappings);
}

/* Sources stay, as something may be lent of them. */
int virtual_show(struct virtual *virtual, const struct series *series)
{
    size_t n = virtual->n;
    struct mapping *mapping = virtual->mapping;
    int axis = virtual->axis;
    virtual->n = 0;
    virtual->mapping = NULL;
    int error = take_series(virtual, series);
    if (error) {
        free_mappings(virtual->n, virtual->mapping);
        virtual->n = n;
        virtual->mapping = mapping;
        virtual->axis = axis;
    } else {
        free_mappings(n, mapping);
    }
    return error;
}

void virtual_close(struct virtual *virtual)
{
    struct known *known, *next;
    if (!virtual)
        return;
    HASH_ITER (hh, virtual->known, known, next) {
        if (known->is_block && known->users == 0)
            remove_idle(virtual, known);
        HASH_DEL(virtual->known, known);
        free_known(known);
    }
    free_mappings(virtual->n, virtual->mapping);
    pthread_mutex_destroy(&virtual->lock);
    free(virtual);
}

/* ---- Which mappings a box touches ---- */

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

bool mapping_touches(const struct mapping *mapping, const struct box *box)
{
    for (int i = 0; i < box->rank; i++) {
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
        if (!error && mapping->high > low && mapping_touches(mapping, box))
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

void touched_free(struct touched *touched)
{
    if (touched->mapping != touched->few)
        free((void *)touched->mapping);
}

/* In the order of the file. touched_free also after an error. */
int touched_find(const struct virtual *virtual, const struct box *box, struct touched *touched)
{
    touched->mapping = touched->few;
    touched->n = 0;
    touched->capacity = sizeof(touched->few) / sizeof(*touched->few);
    int error = touch_in(virtual, 0, virtual->n, box, touched);
    if (!error && touched->n > 1)
        qsort((void *)touched->mapping, touched->n, sizeof(*touched->mapping), by_order);
    return error ? error : interrupt_check();
}

/* Whether a mapping shows all of a box, and so nothing below it matters. */
bool mapping_covers(const struct mapping *mapping, const struct box *box)
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

/* ---- Numbered blocks ---- */

uint64_t mapping_blocks_begin(const struct mapping *mapping, const struct box *box)
{
    const struct hdf5_axis *axis =
        mapping->numbered_axis < 0 ? NULL : &mapping->shown.axis[mapping->numbered_axis];
    return axis ? axis_before(axis, box->start[mapping->numbered_axis]) / axis->block : 0;
}

/* Behind the last that the box, which the mapping touches, has a part of. */
uint64_t mapping_blocks_end(const struct mapping *mapping, const struct box *box)
{
    int i = mapping->numbered_axis;
    const struct hdf5_axis *axis = i < 0 ? NULL : &mapping->shown.axis[i];
    return axis ? (axis_before(axis, box->start[i] + box->count[i]) - 1) / axis->block + 1 : 1;
}

static int refuse_names(struct virtual *virtual)
{
    if (!atomic_exchange(&virtual->said_too_long, true))
        log_error("%s: %s: the names of its numbered sources are too long", sfs_path(virtual->file),
                  virtual->dataset->path);
    return -EIO;
}

static int find_block(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                      enum wish wish, struct known **known)
{
    bool is_numbered;
    char *file = substitute(mapping->file, block, MAPPING_MOST_FILE, &is_numbered);
    char *dataset = substitute(mapping->dataset, block, OBJECT_NAMES_MOST_PATH, &is_numbered);
    uint64_t root = sfs_root(virtual->file);
    const struct source_name name = {file, dataset, root};
    int error = file && dataset ? 0 : -ENOMEM;
    if (!error && (strlen(file) > MAPPING_MOST_FILE || strlen(dataset) > OBJECT_NAMES_MOST_PATH))
        error = refuse_names(virtual);
    if (!error)
        error = find_known(virtual, &name, wish, known);
    free(file);
    free(dataset);
    return error;
}

int mapping_numbered(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                     struct known **known)
{
    return find_block(virtual, mapping, block, BLOCK, known);
}

int mapping_numbered_if_known(struct virtual *virtual, const struct mapping *mapping,
                              uint64_t block, struct known **known)
{
    return find_block(virtual, mapping, block, BLOCK_IF_KNOWN, known);
}

static bool are_too_many(const struct virtual *virtual)
{
    return virtual->n_blocks > MAPPING_MOST_BLOCKS || virtual->block_bytes > MAPPING_MOST_BYTES ||
           atomic_load(&idle_bytes) > MAPPING_MOST_IDLE_BYTES;
}

/* With the lock held. */
static void end_use(struct virtual *virtual, struct known *known)
{
    if (--known->users == 0 && known->is_block)
        add_idle(virtual, known);
}

void mapping_put(struct virtual *virtual, struct known *known)
{
    if (!known)
        return;
    pthread_mutex_lock(&virtual->lock);
    end_use(virtual, known);
    pthread_mutex_unlock(&virtual->lock);
}

void mapping_let_go(struct virtual *virtual, struct known *known)
{
    struct known *gone = NULL, *victim, *next;
    if (!known)
        return;
    pthread_mutex_lock(&virtual->lock);
    end_use(virtual, known);
    while ((victim = virtual->idle) && are_too_many(virtual)) {
        remove_idle(virtual, victim);
        HASH_DEL(virtual->known, victim);
        virtual->n_blocks--;
        virtual->block_bytes -= victim->bytes;
        LL_PREPEND(gone, victim);
    }
    pthread_mutex_unlock(&virtual->lock);
    LL_FOREACH_SAFE(gone, victim, next)
    {
        free_known(victim);
    }
}

size_t virtual_bytes(struct virtual *virtual)
{
    pthread_mutex_lock(&virtual->lock);
    size_t n = virtual->kept_bytes + virtual->block_bytes;
    pthread_mutex_unlock(&virtual->lock);
    n += virtual->n * sizeof(*virtual->mapping);
    for (size_t i = 0; i < virtual->n; i++) {
        const struct mapping *mapping = &virtual->mapping[i];
        n += (size_t)(mapping->shown.axis ? mapping->shown.rank : 0) * sizeof(*mapping->shown.axis);
        n += (size_t)(mapping->source.axis ? mapping->source.rank : 0) *
             sizeof(*mapping->source.axis);
        n += mapping->file ? strlen(mapping->file) : 0;
        n += mapping->dataset ? strlen(mapping->dataset) : 0;
    }
    return n;
}
