/* Regular selections, axis by axis. */
#include "dataset/virtual_axes.h"

bool axis_simplify(struct hdf5_axis *axis, bool is_numbered)
{
    if (axis->count == SFS_UNLIMITED && axis->block == axis->stride && !is_numbered) {
        axis->count = 1;
        axis->block = SFS_UNLIMITED;
    } else if (axis->count != SFS_UNLIMITED && axis->block == axis->stride && axis->count > 1) {
        if (__builtin_mul_overflow(axis->count, axis->block, &axis->block))
            return false;
        axis->count = 1;
    }
    if (axis->count == 1)
        axis->stride = axis->block;
    uint64_t n;
    return axis->count == SFS_UNLIMITED || axis->block == SFS_UNLIMITED ||
           !__builtin_mul_overflow(axis->count, axis->block, &n);
}

uint64_t axis_size(const struct hdf5_axis *axis)
{
    bool is_unlimited = axis->count == SFS_UNLIMITED || axis->block == SFS_UNLIMITED;
    return is_unlimited ? SFS_UNLIMITED : axis->count * axis->block;
}

uint64_t axis_before(const struct hdf5_axis *axis, uint64_t x)
{
    if (x <= axis->start)
        return 0;
    uint64_t behind = x - axis->start, block = behind / axis->stride, rest = behind % axis->stride;
    if (block >= axis->count)
        return axis_size(axis);
    return block * axis->block + (rest < axis->block ? rest : axis->block);
}

uint64_t axis_at(const struct hdf5_axis *axis, uint64_t i)
{
    uint64_t at;
    if (__builtin_mul_overflow(i / axis->block, axis->stride, &at) ||
        __builtin_add_overflow(at, i % axis->block, &at) ||
        __builtin_add_overflow(at, axis->start, &at))
        return UINT64_MAX;
    return at;
}

uint64_t axis_adjacent(const struct hdf5_axis *axis, uint64_t i)
{
    return axis->block == SFS_UNLIMITED ? SFS_UNLIMITED : axis->block - i % axis->block;
}

bool translation_make(struct translation *translation, const struct hdf5_slab *shown,
                      const struct hdf5_slab *source)
{
    *translation = (struct translation){.rank = shown->rank,
                                        .source_rank = source->rank,
                                        .shown = shown->axis,
                                        .source = source->axis};
    for (int i = 0; i < shown->rank; i++)
        translation->source_of[i] = -1;
    int at = 0;
    for (int i = 0; i < source->rank; i++) {
        uint64_t size = axis_size(&source->axis[i]);
        translation->pair[i] = -1;
        if (size == 1)
            continue;
        while (at < shown->rank && axis_size(&shown->axis[at]) == 1)
            at++;
        if (at == shown->rank || axis_size(&shown->axis[at]) != size)
            return false;
        translation->source_of[at] = i;
        translation->pair[i] = at++;
    }
    while (at < shown->rank && axis_size(&shown->axis[at]) == 1)
        at++;
    return at == shown->rank;
}

bool translation_want(struct translation *translation, const struct box *box)
{
    for (int i = 0; i < translation->rank; i++) {
        const struct hdf5_axis *axis = &translation->shown[i];
        translation->first[i] = axis_before(axis, box->start[i]);
        translation->end[i] = axis_before(axis, box->start[i] + box->count[i]);
        if (translation->first[i] >= translation->end[i])
            return false;
    }
    return true;
}

bool translation_clip(struct translation *translation, const uint64_t *source_dims)
{
    bool is_less = false;
    for (int i = 0; i < translation->source_rank; i++) {
        const struct hdf5_axis *axis = &translation->source[i];
        int shown = translation->pair[i];
        uint64_t most = axis_before(axis, source_dims[i]);
        if (shown < 0 && most == 0) {
            is_less = true;
            for (int k = 0; k < translation->rank; k++)
                translation->end[k] = translation->first[k];
        } else if (shown >= 0 && translation->end[shown] > most) {
            is_less = true;
            translation->end[shown] =
                most > translation->first[shown] ? most : translation->first[shown];
        }
    }
    return is_less;
}

uint64_t translation_elements(const struct translation *translation)
{
    uint64_t n = 1;
    for (int i = 0; i < translation->rank; i++)
        n *= translation->end[i] - translation->first[i];
    return n;
}

uint64_t translation_adjacent(const struct translation *translation, int axis, uint64_t i)
{
    uint64_t n = translation->end[axis] - i;
    uint64_t shown = axis_adjacent(&translation->shown[axis], i);
    n = shown < n ? shown : n;
    int source = translation->source_of[axis];
    if (source >= 0) {
        uint64_t there = axis_adjacent(&translation->source[source], i);
        n = there < n ? there : n;
    }
    return n;
}

/* From the first to the last element. */
static void interval(const struct hdf5_axis *axis, uint64_t first, uint64_t end, uint64_t *start,
                     uint64_t *count)
{
    *start = axis_at(axis, first);
    *count = axis_at(axis, end - 1) - *start + 1;
}

void translation_boxes(const struct translation *translation, const uint64_t *first,
                       const uint64_t *end, struct box *shown, struct box *source)
{
    shown->rank = translation->rank;
    source->rank = translation->source_rank;
    for (int i = 0; i < shown->rank; i++)
        interval(&translation->shown[i], first[i], end[i], &shown->start[i], &shown->count[i]);
    for (int i = 0; i < source->rank; i++) {
        int k = translation->pair[i];
        interval(&translation->source[i], k < 0 ? 0 : first[k], k < 0 ? 1 : end[k],
                 &source->start[i], &source->count[i]);
    }
}

void translation_cut(const int *pair, const struct box *shown, const struct box *cut,
                     struct box *source)
{
    for (int i = 0; i < source->rank; i++) {
        int k = pair[i];
        if (k < 0)
            continue;
        source->start[i] += cut->start[k] - shown->start[k];
        source->count[i] = cut->count[k];
    }
}
