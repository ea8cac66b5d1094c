/* Walking n-dimensional rectangles row by row. Trailing axes that both arrays cover whole are
 * merged first, so that the common cases (whole frames, whole rows) are a single memcpy. */
#include "common/box.h"

#include <string.h>

bool box_product(const uint64_t *factors, int n, uint64_t unit, uint64_t *product)
{
    uint64_t result = unit;
    for (int i = 0; i < n; i++)
        if (factors[i] == 0)
            result = 0; /* whatever the others are */
    if (result > INT64_MAX)
        return false;
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(result, factors[i], &result) || result > INT64_MAX)
            return false;
    *product = result;
    return true;
}

uint64_t box_elements(const struct box *box)
{
    uint64_t n = 1;
    for (int i = 0; i < box->rank; i++)
        n *= box->count[i];
    return n;
}

bool box_intersect(const struct box *a, const struct box *b, struct box *common)
{
    common->rank = a->rank;
    for (int i = 0; i < a->rank; i++) {
        uint64_t start = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
        uint64_t end_a = a->start[i] + a->count[i];
        uint64_t end_b = b->start[i] + b->count[i];
        uint64_t end = end_a < end_b ? end_a : end_b;
        if (start >= end)
            return false;
        common->start[i] = start;
        common->count[i] = end - start;
    }
    return true;
}

uint64_t box_of_interval(const struct box *slab, uint64_t first, uint64_t n, struct box *piece)
{
    uint64_t coordinate[SFS_MAX_RANK] = {0};
    uint64_t rest = first;
    for (int i = slab->rank - 1; i >= 0; i--) {
        coordinate[i] = rest % slab->count[i];
        rest /= slab->count[i];
    }

    /* The outermost axis along which whole sub-slabs of at most n positions can be taken. */
    int axis = slab->rank - 1;
    uint64_t stride = 1;
    while (axis > 0 && coordinate[axis] == 0 && stride * slab->count[axis] <= n)
        stride *= slab->count[axis--];

    uint64_t along = n / stride;
    if (along > slab->count[axis] - coordinate[axis])
        along = slab->count[axis] - coordinate[axis];

    piece->rank = slab->rank;
    for (int i = 0; i < slab->rank; i++) {
        piece->start[i] = slab->start[i] + coordinate[i];
        piece->count[i] = i < axis ? 1 : i == axis ? along : slab->count[i];
    }
    return along * stride;
}

void box_around_interval(const struct box *slab, uint64_t first, uint64_t n, struct box *around,
                         uint64_t *skipped)
{
    /* From the innermost axis outwards until both ends lie in the same slice. */
    uint64_t low = first, high = first + n - 1;
    uint64_t stride = 1;
    int axis = slab->rank - 1;
    while (axis > 0 && low / slab->count[axis] != high / slab->count[axis]) {
        low /= slab->count[axis];
        high /= slab->count[axis];
        stride *= slab->count[axis--];
    }
    around->rank = slab->rank;
    *skipped = first - low * stride;
    for (int i = slab->rank - 1; i > axis; i--) {
        around->start[i] = slab->start[i];
        around->count[i] = slab->count[i];
    }
    uint64_t along = high - low + 1;
    for (int i = axis; i >= 0; i--) {
        around->start[i] = slab->start[i] + low % slab->count[i];
        around->count[i] = i == axis ? along : 1;
        low /= slab->count[i];
    }
}

bool box_is_contiguous(int rank, const uint64_t *count, const uint64_t *dims, const uint64_t *start,
                       uint64_t *position)
{
    /* Behind the first axis with more than one element every axis must be covered whole. */
    uint64_t p = 0;
    bool inside = false;
    for (int i = 0; i < rank; i++) {
        if (inside && count[i] != dims[i])
            return false;
        inside |= count[i] > 1;
        p = p * dims[i] + (start ? start[i] : 0);
    }
    *position = p;
    return true;
}

/* One array's side of a walk: the byte strides of the axes and the byte offset of the start. */
struct side {
    size_t stride[SFS_MAX_RANK];
    size_t offset;
};

static void side_init(struct side *side, const struct box_shape *shape, struct box_place place)
{
    size_t stride = shape->element_size;
    side->offset = 0;
    for (int i = shape->rank - 1; i >= 0; i--) {
        side->stride[i] = stride;
        side->offset += place.start ? (size_t)place.start[i] * stride : 0;
        stride *= (size_t)place.dims[i];
    }
}

/* The number of leading axes left after the trailing ones that lie without gaps in both arrays are
 * merged into one row, whose length in bytes is put in *row. */
static int merge_axes(const struct box_shape *shape, const struct side *a, const struct side *b,
                      size_t *row)
{
    const uint64_t *count = shape->count;
    int rank = shape->rank;
    *row = shape->element_size;
    while (rank > 0 && (count[rank - 1] == 1 ||
                        (a->stride[rank - 1] == *row && (!b || b->stride[rank - 1] == *row)))) {
        *row *= (size_t)count[rank - 1];
        rank--;
    }
    return rank;
}

/* Advances the counters of the leading axes; false after the last combination. */
static bool next_row(int axes, const uint64_t *count, uint64_t *counter, struct side *a,
                     struct side *b)
{
    for (int i = axes - 1; i >= 0; i--) {
        a->offset += a->stride[i];
        if (b)
            b->offset += b->stride[i];
        if (++counter[i] < count[i])
            return true;
        a->offset -= a->stride[i] * (size_t)count[i];
        if (b)
            b->offset -= b->stride[i] * (size_t)count[i];
        counter[i] = 0;
    }
    return false;
}

static bool is_empty(const struct box_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->count[i] == 0)
            return true;
    return false;
}

void box_copy(const struct box_shape *shape, void *dst, struct box_place to, const void *src,
              struct box_place from)
{
    if (is_empty(shape))
        return;
    struct side d, s;
    side_init(&d, shape, to);
    side_init(&s, shape, from);
    size_t row;
    int axes = merge_axes(shape, &d, &s, &row);
    uint64_t counter[SFS_MAX_RANK] = {0};
    do
        memcpy((char *)dst + d.offset, (const char *)src + s.offset, row);
    while (next_row(axes, shape->count, counter, &d, &s));
}

int box_each_row(const struct box_shape *shape, struct box_place a_place, struct box_place b_place,
                 int (*row)(void *context, size_t a_offset, size_t b_offset, size_t bytes),
                 void *context)
{
    if (is_empty(shape))
        return 0;
    struct side a, b;
    side_init(&a, shape, a_place);
    side_init(&b, shape, b_place);
    size_t bytes;
    int axes = merge_axes(shape, &a, &b, &bytes);
    uint64_t counter[SFS_MAX_RANK] = {0};
    do {
        int error = row(context, a.offset, b.offset, bytes);
        if (error)
            return error;
    } while (next_row(axes, shape->count, counter, &a, &b));
    return 0;
}

void fill_elements(void *dst, uint64_t n, size_t element_size, const void *fill)
{
    const unsigned char *value = fill;
    size_t bytes = (size_t)n * element_size;
    if (bytes == 0)
        return;
    bool one_byte = true;
    for (size_t i = 1; i < element_size && one_byte; i++)
        one_byte = value[i] == value[0];
    if (one_byte) {
        memset(dst, value[0], bytes);
        return;
    }
    /* Doubling what is there already fills any element size at memcpy's speed. */
    memcpy(dst, fill, element_size);
    for (size_t done = element_size; done < bytes;) {
        size_t step = done < bytes - done ? done : bytes - done;
        memcpy((char *)dst + done, dst, step);
        done += step;
    }
}

void box_fill(const struct box_shape *shape, void *dst, struct box_place to, const void *fill)
{
    if (is_empty(shape))
        return;
    struct side d;
    side_init(&d, shape, to);
    size_t row;
    int axes = merge_axes(shape, &d, NULL, &row);
    uint64_t counter[SFS_MAX_RANK] = {0};
    do
        fill_elements((char *)dst + d.offset, row / shape->element_size, shape->element_size, fill);
    while (next_row(axes, shape->count, counter, &d, NULL));
}

uint64_t box_translate(int rank, const uint64_t *count, uint64_t position, const uint64_t *dims,
                       const uint64_t *start)
{
    uint64_t result = 0, stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        result += (position % count[i] + (start ? start[i] : 0)) * stride;
        position /= count[i];
        stride *= dims[i];
    }
    return result;
}
