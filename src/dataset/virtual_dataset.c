/* Reading virtual datasets: mapping by mapping, or by libhdf5. */
#include "dataset/virtual_dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/thread_pool.h"
#include "dataset/virtual_part.h"
#include "store/store.h"

/* Smaller reads are not worth waking threads. */
#define SHARED_BYTES ((size_t)256 << 10)
#define SHARED_MOST  64 /* mappings */

/* Mappings, at most, whose sources are opened to say what is wrong with them. */
#define MOST_EXAMINED 64

/* is_left: NULL, or sources that are virtual are not read, and it is set. */
static int read_mapping(struct virtual *virtual, const struct mapping *mapping,
                        const struct box *box, const struct place *place, int depth, bool *is_left)
{
    uint64_t end = mapping_blocks_end(mapping, box);
    int error = 0;
    for (uint64_t block = mapping_blocks_begin(mapping, box); block < end && !error; block++) {
        struct virtual_part part;
        error = part_begin(&part, virtual, mapping, block);
        if (error)
            break;
        if (is_left && part.dataset && part.dataset->virtual)
            *is_left = true;
        else
            error = part_read(&part, box, place, depth);
        part_end(&part);
        if (!error)
            error = interrupt_check();
    }
    return error;
}

/* Mappings that are read by several threads. Only the calling thread can be interrupted: mappings
 * that may take long are left to it. */
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
        mapping_bounds(&a->shown.axis[i], dim, &low_a, &high_a);
        mapping_bounds(&b->shown.axis[i], dim, &low_b, &high_b);
        if (high_a <= low_b || high_b <= low_a)
            return true;
    }
    return false;
}

/* Whether mappings can be read in parallel: none overlaps another, and this thread holds no other
 * dataset that another thread may wait to change. */
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
    while (first > 0 && !mapping_covers(touched->mapping[first - 1], box))
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
        box_fill(&(struct box_shape){box->rank, box->count, layout->element_size}, place->elements,
                 (struct box_place){place->dims, place->start}, layout->info->fill);
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
                  sfs_path(virtual->file), virtual->dataset->path, VIRTUAL_DEPTH);
    return -EIO;
}

static int check_sources(struct virtual *virtual, int depth);

/* A missing source matters only where it is read, unless the fill value stands for it. */
enum want { NOT_WANTED, WANTED_IF_THERE, WANTED };

static int check_source(struct virtual *virtual, struct source *source, enum want want, int depth)
{
    struct sfs_dataset *dataset;
    int error = source_get(source, want != WANTED || virtual->fill_missing, &dataset);
    if (error) { /* there may be very many that are missing */
        error = source_missing(error, virtual->fill_missing || want == NOT_WANTED,
                               want == WANTED_IF_THERE);
        return error ? error : interrupt_check();
    }
    error = dataset->virtual ? check_sources(dataset->virtual, depth + 1)
                             : source_check_left(source, dataset);
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
    uint64_t end = mapping->numbered_axis < 0 ? 0 : mapping_blocks_end(mapping, box);
    for (uint64_t block = mapping_blocks_begin(mapping, box); block < end && !error; block++) {
        struct known *known;
        error = mapping_numbered(virtual, mapping, block, &known);
        if (error)
            break;
        error = check_source(virtual, known->source, want, depth);
        mapping_let_go(virtual, known);
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
    int error = depth >= VIRTUAL_DEPTH ? too_deep(virtual) : 0;
    if (error || atomic_load(&virtual->is_shallow))
        return error;
    for (size_t i = 0; i < virtual->n && !error; i++)
        if (mapping_touches(&virtual->mapping[i], &all))
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

static int check_box(struct virtual *virtual, const struct box *box, int depth);

static int check_blocks(struct virtual *virtual, const struct mapping *mapping,
                        const struct box *box, int depth)
{
    uint64_t end = mapping_blocks_end(mapping, box);
    int error = 0;
    for (uint64_t block = mapping_blocks_begin(mapping, box); block < end && !error; block++) {
        struct virtual_part part;
        struct box source;
        error = part_begin_check(&part, virtual, mapping, block, box, &source);
        if (error)
            break;
        if (source.rank > 0 && part.dataset->virtual)
            error = check_box(part.dataset->virtual, &source, depth + 1);
        part_end(&part);
        if (!error)
            error = interrupt_check();
    }
    return error == -EOPNOTSUPP ? 0 : error; /* libhdf5 knows what it shows */
}

/* The box of a source in which a mapping that libhdf5 reads selects; -EIO: the source is shorter:
 * what libhdf5 would read behind its end is undefined. */
static int find_bounds(const struct mapping *mapping, struct sfs_dataset *dataset,
                       struct box *bounds)
{
    USING(dataset);
    const struct hdf5_slab *slab = &mapping->source;
    const struct layout *layout = &dataset->layout;
    *bounds = (struct box){.rank = layout->rank};
    memcpy(bounds->count, layout->dims, sizeof(bounds->count));
    if (!slab->is_all && slab->rank != layout->rank)
        return -EIO;
    for (int i = 0; i < slab->rank; i++) {
        uint64_t size = axis_size(&slab->axis[i]);
        if (size == SFS_UNLIMITED)
            continue;
        uint64_t last = axis_at(&slab->axis[i], size - 1);
        if (last >= layout->dims[i])
            return -EIO;
        bounds->start[i] = slab->axis[i].start;
        bounds->count[i] = last + 1 - bounds->start[i];
    }
    return 0;
}

/* Of one whose source is there, or need not be. */
static int check_bounds(const struct mapping *mapping, int depth)
{
    struct sfs_dataset *dataset;
    struct box bounds;
    int error = mapping->of ? source_get(mapping->of, true, &dataset) : -ENOENT;
    if (error)
        return error == -ENOENT || error == -EINVAL ? 0 : error;
    error = FOLLOWING(dataset->file, find_bounds(mapping, dataset, &bounds));
    if (error == -EIO)
        source_is_short(mapping->of);
    if (!error && dataset->virtual)
        error = check_box(dataset->virtual, &bounds, depth + 1);
    source_put(mapping->of);
    return error;
}

/* Elements with pointers are not read in pieces. */
static int check_box(struct virtual *virtual, const struct box *box, int depth)
{
    struct touched touched;
    struct box pieces = *box;
    if (virtual->dataset->layout.ops)
        pieces_around(&virtual->dataset->layout, box, &pieces);
    int error = touched_find(virtual, &pieces, &touched);
    for (size_t i = 0; i < touched.n && !error; i++) {
        const struct mapping *mapping = touched.mapping[i];
        enum want want = !mapping_touches(mapping, box) ? NOT_WANTED
                         : mapping->is_unlimited        ? WANTED_IF_THERE
                                                        : WANTED;
        error = check_mapping(virtual, mapping, &pieces, want, depth);
        if (!error && want != NOT_WANTED)
            error = mapping->is_regular ? check_blocks(virtual, mapping, box, depth)
                                        : check_bounds(mapping, depth);
    }
    touched_free(&touched);
    return error;
}

int virtual_check(struct virtual *virtual, const struct box *box)
{
    return check_box(virtual, box, 0);
}

static int read_by_library(struct virtual *virtual, const struct box *box,
                           const struct place *place, int depth)
{
    int error = check_box(virtual, box, depth);
    return error ? error
                 : cache_read_placed(virtual->dataset->cache, box, place->elements, place->dims,
                                     place->start);
}

/* A member of a series has changed since it was looked at. */
static int not_alike(struct virtual *virtual)
{
    if (!atomic_exchange(&virtual->said_not_alike, true))
        log_error("%s: %s: a member has another datatype, or other dims, than it had",
                  sfs_path(virtual->file), virtual->dataset->path);
    return -EIO;
}

int virtual_read(struct virtual *virtual, const struct box *box, const struct place *place,
                 int depth)
{
    struct touched touched;
    if (depth >= VIRTUAL_DEPTH)
        return too_deep(virtual);
    if (box_elements(box) == 0)
        return 0;
    if (atomic_load(&virtual->is_librarys))
        return read_by_library(virtual, box, place, depth);
    int error = touched_find(virtual, box, &touched);
    if (!error)
        error = read_touched(virtual, &touched, box, place, depth);
    touched_free(&touched);
    if (error != -EOPNOTSUPP)
        return error;
    if (virtual->is_series)
        return not_alike(virtual);
    error = atomic_exchange(&virtual->is_librarys, true) ? 0 : virtual_cache_sources(virtual);
    return error ? error : read_by_library(virtual, box, place, depth);
}

/* ---- Lending ---- */

struct loan {
    struct source *source;   /* NULL: libhdf5 has read it, */
    struct chunk *chunk;     /* a piece of the virtual dataset */
    struct virtual *virtual; /* of the source, */
    struct known *numbered;  /* if that is a block's */
    struct sfs_dataset *dataset;
    void *holder; /* of what the dataset has lent, or holds */
    /* Held, not lent: the source stays in one state and has the same dims until the return. The
     * boxes correspond. */
    bool is_held;
    struct call file_call, call;
    struct box shown, of_source;
    int pair[SFS_MAX_RANK];
};

static int lend_by_library(struct virtual *virtual, const struct box *box, const void **bytes,
                           void **holder, int depth)
{
    int error = check_box(virtual, box, depth);
    struct loan *loan = error ? NULL : calloc(1, sizeof(*loan));
    if (!loan)
        return error ? error : -ENOMEM;
    int lent = cache_lend(virtual->dataset->cache, box, bytes, &loan->chunk);
    if (lent > 0 || (lent == 0 && loan->chunk))
        *holder = loan;
    else
        free(loan);
    return lent;
}

/* Where a part shows all of a box without a gap, what it is in the source. */
static bool is_box_of_source(struct virtual_part *part, const struct box *box, struct box *source)
{
    struct translation *translation = &part->translation;
    struct box shown;
    if (!part->dataset || part->is_in_order || !translation_want(translation, box) ||
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

static void begin_calls(struct loan *loan)
{
    struct sfs_file *file = loan->dataset->file;
    use_begin(file->follows ? &file->use : NULL, &loan->file_call);
    use_begin(&loan->dataset->use, &loan->call);
}

static void end_calls(struct loan *loan)
{
    use_end(&loan->call);
    use_end(&loan->file_call);
}

/* The calls go on if something is held. */
static int lend_used(struct loan *loan, struct virtual_part *part, const struct box *box,
                     const void **bytes, int depth)
{
    if (!is_box_of_source(part, box, &loan->of_source))
        return 0;
    int lent = dataset_lend_box(part->dataset, &loan->of_source, bytes, &loan->holder, depth + 1);
    loan->is_held = lent == 0 && loan->holder;
    if (loan->is_held) {
        loan->shown = *box;
        memcpy(loan->pair, part->translation.pair, sizeof(loan->pair));
    }
    return lent == STORE_MOVED ? 0 : lent; /* reading it takes the source's last state */
}

static int lend_part(struct virtual_part *part, const struct box *box, const void **bytes,
                     void **holder, int depth)
{
    if (!part->dataset)
        return 0;
    struct loan *loan = malloc(sizeof(*loan)); /* large: not set to zeros */
    if (!loan)
        return -ENOMEM;
    loan->source = part->source;
    loan->virtual = part->virtual;
    loan->numbered = part->numbered;
    loan->dataset = part->dataset;
    loan->is_held = false;
    begin_calls(loan);
    int lent = lend_used(loan, part, box, bytes, depth);
    if (!loan->is_held)
        end_calls(loan);
    if (lent > 0 || loan->is_held)
        *holder = loan;
    else
        free(loan);
    return lent;
}

int virtual_lend(struct virtual *virtual, const struct box *box, const void **bytes, void **holder,
                 int depth)
{
    struct touched touched;
    if (depth >= VIRTUAL_DEPTH || box_elements(box) == 0)
        return 0;
    if (atomic_load(&virtual->is_librarys))
        return lend_by_library(virtual, box, bytes, holder, depth);
    int error = touched_find(virtual, box, &touched);
    const struct mapping *mapping = touched.n > 0 ? touched.mapping[touched.n - 1] : NULL;
    touched_free(&touched);
    if (error || !mapping)
        return error;
    uint64_t block = mapping_blocks_begin(mapping, box);
    if (mapping_blocks_end(mapping, box) != block + 1)
        return 0;
    struct virtual_part part;
    error = part_begin(&part, virtual, mapping, block);
    if (error)
        return error == -EOPNOTSUPP ? 0 : error;
    int lent = lend_part(&part, box, bytes, holder, depth);
    if (!*holder)
        part_end(&part); /* else when it is given back */
    return lent;
}

/* Another state of the source is taken by reading it anew. */
int virtual_read_held(void *holder, const struct box *box, void *buffer)
{
    const struct loan *loan = holder;
    if (!loan->source)
        return cache_read_held(loan->chunk, box, buffer);
    struct box of_source = loan->of_source;
    translation_cut(loan->pair, &loan->shown, box, &of_source);
    int error = dataset_read_held(loan->dataset, loan->holder, &of_source, buffer);
    return error == STORE_MOVED ? -EAGAIN : error;
}

void virtual_return(void *holder)
{
    struct loan *loan = holder;
    if (loan->source) {
        dataset_return(loan->dataset, loan->holder);
        if (loan->is_held)
            end_calls(loan);
        source_put(loan->source);
        mapping_let_go(loan->virtual, loan->numbered);
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
    struct virtual_part part;
    if (mapping->is_unlimited)
        return 0;
    int error =
        mapping->is_regular ? part_begin(&part, virtual, mapping, 0) : check_bounds(mapping, 0);
    if (!error && mapping->is_regular && part.dataset && !part.is_in_order) {
        USING(part.dataset);
        for (int i = 0; i < part.translation.rank; i++) {
            part.translation.first[i] = 0;
            part.translation.end[i] = axis_size(&mapping->shown.axis[i]);
        }
        if (translation_clip(&part.translation, part.dataset->layout.dims))
            source_is_short(part.source);
    }
    if (!error && mapping->is_regular)
        part_end(&part);
    if (!error)
        error = interrupt_check();
    return error == -ENOMEM || error == -EINTR ? error : 0;
}

int virtual_sources(struct virtual *virtual, size_t most, struct sfs_sources *sources)
{
    pthread_mutex_lock(&virtual->lock);
    size_t all = virtual->n + HASH_COUNT(virtual->known); /* no more, and mostly half of it */
    pthread_mutex_unlock(&virtual->lock);
    all = all < most ? all : most;
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
