/* Reading what a mapping shows of one source: interval by interval, or with what is between. */
#include "dataset/virtual_part.h"

#include <errno.h>
#include <string.h>

#include "cache/cache.h"
#include "common/interrupt.h"

/* Scattered elements are read together with the gaps between them, so many bytes at once, unless
 * that is so many times as much. */
#define GATHERED_BYTES    ((size_t)4 << 20)
#define GATHERED_TIMES    16
#define GATHERED_INTERVAL 4096 /* bytes; intervals of more are read one by one */

/* The last axis before this one of more than one element; -1: there is none. */
static int axis_before_this(const struct hdf5_slab *slab, int axis)
{
    do {
        axis--;
    } while (axis >= 0 && axis_size(&slab->axis[axis]) == 1);
    return axis;
}

static bool are_single(int n, const uint64_t *dims)
{
    bool are = true;
    for (int i = 0; i < n && are; i++)
        are = dims[i] == 1;
    return are;
}

/* All of a source, whose elements are shown in their order from its first one on. The source may have grown since it
 * was mapped, or shrunk: if only along the first axis of more than one element, these are as many along this axis as
 * are shown. is_exact: not so. */
static void spell_all(const struct hdf5_slab *shown, int rank, const uint64_t *dims, bool is_exact,
                      struct hdf5_axis *all)
{
    for (int i = 0; i < rank; i++)
        all[i] = (struct hdf5_axis){0, dims[i] ? dims[i] : 1, 1, dims[i] ? dims[i] : 1};
    int at = axis_before_this(shown, shown->rank);
    for (int i = rank; i-- > 0 && !is_exact;) {
        uint64_t size = at < 0 ? 1 : axis_size(&shown->axis[at]);
        bool is_first = at < 0 || axis_before_this(shown, at) < 0;
        if (is_first && (dims[i] >= size || are_single(i, dims))) {
            all[i] = (struct hdf5_axis){0, size, 1, size};
            at = -1;
        } else if (dims[i] == size) {
            at = axis_before_this(shown, at);
        } else if (dims[i] != 1) {
            return; /* they do not correspond */
        }
    }
}

/* The elements that a slab selects; UINT64_MAX: too many for any source. */
static uint64_t slab_elements(const struct hdf5_slab *slab)
{
    uint64_t size[SFS_MAX_RANK], n;
    for (int i = 0; i < slab->rank; i++)
        size[i] = axis_size(&slab->axis[i]);
    return box_product(size, slab->rank, 1, &n) ? n : UINT64_MAX;
}

static uint64_t elements_there(const struct virtual_part *part)
{
    const struct layout *layout = &part->dataset->layout;
    uint64_t n;
    return box_product(layout->dims, layout->rank, 1, &n) ? n : 0;
}

/* What is shown of all of a source corresponds to its first elements, in their order: as if it had the form of what is
 * shown. So libhdf5 does it with one that has more than was mapped. */
static void correspond_in_order(struct virtual_part *part, const struct hdf5_slab *shown)
{
    for (int i = 0; i < shown->rank; i++) {
        uint64_t size = axis_size(&shown->axis[i]);
        part->all[i] = (struct hdf5_axis){0, size, 1, size};
    }
    const struct hdf5_slab form = {.rank = shown->rank, .axis = part->all};
    part->is_in_order = translation_make(&part->translation, shown, &form);
}

/* Where what is shown does not correspond axis by axis to all of a source. Of a numbered one that has more libhdf5
 * shows other elements, as it takes all for as large as that which it has opened first. A member of a series is to have
 * no more. */
static int translate_all(struct virtual_part *part, const struct hdf5_slab *shown)
{
    uint64_t n = slab_elements(shown), there = elements_there(part);
    const struct mapping *mapping = part->mapping;
    bool may_have_more = mapping->source.is_all && mapping->numbered_axis < 0 &&
                         !part->virtual->is_series;
    if (n == there)
        return -EOPNOTSUPP;
    if (n > there || !may_have_more)
        return -EIO;
    correspond_in_order(part, shown);
    return 0;
}

/* Whether elements correspond axis by axis, or in their order, now that the dims of the source are known. -EIO: they
 * do not at all. */
static int translate(struct virtual_part *part, uint64_t block)
{
    const struct mapping *mapping = part->mapping;
    const uint64_t *dims = part->dataset->layout.dims;
    int rank = part->dataset->layout.rank;
    struct hdf5_slab shown = mapping->shown, source = mapping->source;
    int axis = mapping->numbered_axis;
    part->is_in_order = false;
    if (axis >= 0) {
        memcpy(part->shown, shown.axis, (size_t)shown.rank * sizeof(*shown.axis));
        part->shown[axis].start += block * part->shown[axis].stride;
        part->shown[axis].count = 1;
        part->shown[axis].stride = part->shown[axis].block;
        shown.axis = part->shown;
    }
    if (source.is_all) {
        spell_all(&shown, rank, dims, part->virtual->is_series, part->all);
        source = (struct hdf5_slab){.rank = rank, .axis = part->all};
    }
    if (source.rank != rank)
        return -EIO;
    return translation_make(&part->translation, &shown, &source) ? 0 : translate_all(part, &shown);
}

/* What a mapping does not find in its source is an error, or the fill value. */
static bool part_is_fill(const struct virtual_part *part)
{
    return part->mapping->is_unlimited || part->virtual->fill_missing;
}

static int translate_used(struct virtual_part *part, uint64_t block)
{
    USING(part->dataset);
    return translate(part, block);
}

/* is_ahead: if it is known. */
static int init(struct virtual_part *part, struct virtual *virtual, const struct mapping *mapping,
                uint64_t block, bool is_ahead)
{
    part->virtual = virtual;
    part->mapping = mapping;
    part->source = mapping->of;
    part->numbered = NULL;
    part->dataset = NULL;
    if (part->source)
        return 0;
    int error = is_ahead ? mapping_numbered_if_known(virtual, mapping, block, &part->numbered)
                         : mapping_numbered(virtual, mapping, block, &part->numbered);
    part->source = error ? NULL : part->numbered->source;
    return error;
}

static int open_part(struct virtual_part *part, struct virtual *virtual,
                     const struct mapping *mapping, uint64_t block, bool is_of_any_type)
{
    int error = init(part, virtual, mapping, block, false);
    if (!error)
        error = source_get(part->source, part_is_fill(part), &part->dataset);
    if (error) {
        part->dataset = NULL;
        return source_missing(error, virtual->fill_missing, part_is_fill(part));
    }
    error = is_of_any_type || source_is_of_type(part->source) ? translate_used(part, block)
                                                              : -EOPNOTSUPP;
    if (!error)
        return 0;
    if (error == -EIO)
        source_is_short(part->source);
    source_put(part->source);
    part->dataset = NULL;
    return error == -EIO && part_is_fill(part) ? 0 : error;
}

static int begin(struct virtual_part *part, struct virtual *virtual, const struct mapping *mapping,
                 uint64_t block, bool is_of_any_type)
{
    int error = open_part(part, virtual, mapping, block, is_of_any_type);
    if (error)
        mapping_let_go(virtual, part->numbered);
    return error;
}

int part_begin(struct virtual_part *part, struct virtual *virtual, const struct mapping *mapping,
               uint64_t block)
{
    return begin(part, virtual, mapping, block, false);
}

/* Where source and what is shown are both without limit libhdf5 looks where the source ends. */
static int check_once(struct virtual_part *part, const struct box *box, struct box *source)
{
    struct translation *translation = &part->translation;
    const struct mapping *mapping = part->mapping;
    struct box shown;
    USING(part->dataset);
    if (part->is_in_order || !translation_want(translation, box))
        return 0; /* libhdf5 knows what it shows */
    if (translation_clip(translation, part->dataset->layout.dims) &&
        !(mapping->is_unlimited && mapping->numbered_axis < 0)) {
        source_is_short(part->source);
        return -EIO;
    }
    if (translation_elements(translation) > 0)
        translation_boxes(translation, translation->first, translation->end, &shown, source);
    return 0;
}

int part_begin_check(struct virtual_part *part, struct virtual *virtual,
                     const struct mapping *mapping, uint64_t block, const struct box *box,
                     struct box *source)
{
    *source = (struct box){0};
    int error = begin(part, virtual, mapping, block, true);
    if (error || !part->dataset)
        return error;
    error = FOLLOWING(part->dataset->file, check_once(part, box, source));
    if (error)
        part_end(part);
    return error;
}

void part_end(struct virtual_part *part)
{
    if (part->dataset)
        source_put(part->source);
    mapping_let_go(part->virtual, part->numbered);
}

/* Closes nothing: who holds the lock of a file may be waiting for prefetches to end. */
static void give_back(struct virtual_part *part)
{
    if (part->dataset)
        source_put(part->source);
    mapping_put(part->virtual, part->numbered);
}

bool part_try_begin(struct virtual_part *part, struct virtual *virtual,
                    const struct mapping *mapping, uint64_t block, struct call *call)
{
    if (init(part, virtual, mapping, block, true) < 0)
        return false;
    part->dataset = source_get_open(part->source);
    if (!part->dataset) {
        give_back(part);
        return false;
    }
    struct sfs_file *file = part->dataset->file;
    if (use_try_begin(file->follows ? &file->use : NULL, &part->file_call)) {
        if (use_try_begin(&part->dataset->use, call)) {
            if (source_is_of_type(part->source) && translate(part, block) == 0)
                return true;
            use_end(call);
        }
        use_end(&part->file_call);
    }
    give_back(part);
    return false;
}

void part_try_end(struct virtual_part *part, struct call *call)
{
    use_end(call);
    use_end(&part->file_call);
    give_back(part);
}

/* ---- Reading ---- */

/* A box of the virtual dataset that is wanted, and where it is to go. */
struct wanted {
    struct virtual_part *part;
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

/* An interval of the elements of a source that correspond in their order, to where it is wanted. */
static int read_interval(void *context, size_t to, size_t from, size_t bytes)
{
    static const uint64_t origin[SFS_MAX_RANK];
    const struct wanted *wanted = context;
    const struct layout *layout = &source_of(wanted)->layout;
    size_t size = element_size(wanted);
    uint64_t first = from / size, n = bytes / size, covered;
    char *elements = wanted->place->elements + to;
    struct box all = {.rank = layout->rank}, source;
    memcpy(all.count, layout->dims, sizeof(all.count));
    int error = 0;
    for (; n > 0 && !error; n -= covered, first += covered, elements += covered * size) {
        covered = box_of_interval(&all, first, n, &source);
        struct place place = {elements, source.count, origin};
        error = dataset_read_box(source_of(wanted), &source, &place, wanted->depth + 1);
        if (!error)
            error = interrupt_check();
    }
    return error;
}

/* A box of the source, or, if elements correspond in their order, one of the form of what is shown. */
static int read_source(const struct wanted *wanted, const struct box *source,
                       const struct place *place)
{
    if (!wanted->part->is_in_order)
        return dataset_read_box(source_of(wanted), source, place, wanted->depth + 1);
    struct wanted there = *wanted;
    uint64_t dims[SFS_MAX_RANK], bytes;
    there.place = place;
    for (int i = 0; i < source->rank; i++)
        dims[i] = axis_size(&wanted->part->translation.source[i]);
    if (!box_product(dims, source->rank, element_size(wanted), &bytes) || bytes > SIZE_MAX)
        return -EFBIG;
    return box_each_row(&(struct box_shape){source->rank, source->count, element_size(wanted)},
                        (struct box_place){place->dims, place->start},
                        (struct box_place){dims, source->start}, read_interval, &there);
}

/* A box whose elements come one after the other. */
static int read_packed(const struct wanted *wanted, const struct box *source, char *elements)
{
    static const uint64_t origin[SFS_MAX_RANK];
    struct place place = {elements, source->count, origin};
    return read_source(wanted, source, &place);
}

/* Whether each axis of the source is that of the virtual dataset with the same number. */
static bool is_alike(const struct translation *translation)
{
    bool alike = translation->rank == translation->source_rank;
    for (int i = 0; i < translation->rank && alike; i++)
        alike = translation->source_of[i] < 0 || translation->source_of[i] == i;
    return alike;
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
        translation_cut(wanted->part->translation.pair, shown, &cut, &of_source);
        error = read_packed(wanted, &of_source, memory);
        find_place(wanted, &cut, start);
        if (!error)
            box_copy(&(struct box_shape){cut.rank, cut.count, size}, wanted->place->elements,
                     (struct box_place){wanted->place->dims, start}, memory,
                     (struct box_place){cut.count, NULL});
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
        return read_source(wanted, &source, &there);
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
        box_copy(&(struct box_shape){shown.rank, shown.count, element_size(wanted)},
                 wanted->place->elements, (struct box_place){wanted->place->dims, to},
                 gathered->memory + position * element_size(wanted),
                 (struct box_place){dims, NULL});
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

/* Wants no more than there is; whether that is less. */
static bool clip(struct virtual_part *part)
{
    struct translation *translation = &part->translation;
    if (!part->is_in_order)
        return translation_clip(translation, part->dataset->layout.dims);
    const struct hdf5_slab form = {.rank = translation->rank, .axis = part->all};
    bool is_less = slab_elements(&form) > elements_there(part);
    if (is_less)
        memcpy(translation->end, translation->first, sizeof(translation->end));
    return is_less;
}

/* What of a box a part of a mapping shows. */
static int read_once(struct virtual_part *part, const struct box *box, const struct place *place,
                     int depth)
{
    struct translation *translation = &part->translation;
    USING(part->dataset);
    if (!translation_want(translation, box))
        return 0;
    if (clip(part)) {
        if (!part->mapping->is_unlimited)
            source_is_short(part->source);
        if (!part_is_fill(part))
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

/* A source that is followed may move while the file of the virtual dataset does not. */
int part_read(struct virtual_part *part, const struct box *box, const struct place *place,
              int depth)
{
    if (!part->dataset)
        return 0;
    return FOLLOWING(part->dataset->file, read_once(part, box, place, depth));
}
