/* Selections of region references: those of dataspaces, but for the extent, which is that of the
 * dataset that a reference leads to. They are not trusted. */
#include "selection/private.h"

#include <errno.h>
#include <stdlib.h>

/* Fields that are left; each says what it is, for the case that it is wrong. */
struct reader {
    const unsigned char *at, *end;
    const char *why;
};

/* What stands before the numbers of a list or a regular selection. */
struct head {
    uint64_t kind, version, flags, width;
};

static int bad(struct reader *reader, const char *field)
{
    reader->why = field;
    return -EILSEQ;
}

static bool take(struct reader *reader, uint64_t bytes, uint64_t *value, const char *field)
{
    reader->why = field;
    if ((uint64_t)(reader->end - reader->at) < bytes)
        return false;
    *value = get_le(reader->at, (int)bytes);
    reader->at += bytes;
    return true;
}

static bool remains(struct reader *reader, uint64_t n, uint64_t bytes)
{
    reader->why = "length of selection";
    return !__builtin_mul_overflow(n, bytes, &n) && n == (uint64_t)(reader->end - reader->at);
}

static bool take_zero(struct reader *reader)
{
    uint64_t value;
    return take(reader, 4, &value, "reserved bytes of selection") && value == 0;
}

/* How many bytes follow it. */
static bool take_length(struct reader *reader)
{
    uint64_t length;
    return take(reader, 4, &length, "length of selection") && remains(reader, length, 1);
}

static bool take_width(struct reader *reader, struct head *head)
{
    return take(reader, 1, &head->width, "width of coordinates") &&
           (head->width == 2 || head->width == 4 || head->width == 8);
}

/* Between the version and the rank. */
static bool take_head(struct reader *reader, struct head *head)
{
    bool of_points = head->kind == SELECT_POINTS;
    head->width = 4;
    head->flags = 0;
    if (head->version == 1)
        return take_zero(reader) && take_length(reader);
    if (of_points)
        return take_width(reader, head);
    if (!take(reader, 1, &head->flags, "flags of selection") || head->flags > IS_REGULAR)
        return false;
    if (head->version == 3)
        return take_width(reader, head);
    head->width = 8;
    return head->flags == IS_REGULAR && take_length(reader);
}

/* Its least and its greatest coordinate on an axis. */
static void widen(struct selection_region *region, int axis, uint64_t first, uint64_t last)
{
    region->first[axis] = first < region->first[axis] ? first : region->first[axis];
    region->last[axis] = last > region->last[axis] ? last : region->last[axis];
}

static int take_regular(struct reader *reader, int width, struct selection_region *region)
{
    if (!remains(reader, (uint64_t)region->rank * 4, (uint64_t)width))
        return -EILSEQ;
    for (int i = 0; i < region->rank; i++) {
        uint64_t number[4], last; /* start, stride, count, block */
        for (int k = 0; k < 4; k++, reader->at += width)
            number[k] = get_le(reader->at, width);
        if (number[2] == 0 || number[3] == 0 || (number[2] > 1 && number[1] < number[3]) ||
            __builtin_mul_overflow(number[2] - 1, number[1], &last) ||
            __builtin_add_overflow(last, number[3] - 1, &last) ||
            __builtin_add_overflow(last, number[0], &last) || last > INT64_MAX)
            return bad(reader, "regular hyperslab");
        widen(region, i, number[0], last);
    }
    return 0;
}

/* Points, or the corners of blocks. */
static int take_list(struct reader *reader, const struct head *head,
                     struct selection_region *region)
{
    uint64_t n, corners = head->kind == SELECT_POINTS ? 1 : 2, rank = (uint64_t)region->rank;
    int width = (int)head->width;
    if (!take(reader, head->width, &n, "number of points or blocks") ||
        !remains(reader, n, corners * rank * head->width))
        return -EILSEQ;
    region->is_empty = n == 0;
    for (; n > 0; n--) {
        const unsigned char *to = reader->at + (corners - 1) * rank * head->width;
        for (int i = 0; i < region->rank; i++) {
            uint64_t first = get_le(reader->at + i * width, width),
                     last = get_le(to + i * width, width);
            if (first > last || last > INT64_MAX)
                return bad(reader, "point or block");
            widen(region, i, first, last);
        }
        reader->at += corners * rank * head->width;
    }
    return 0;
}

static int take_bounds(struct reader *reader, struct selection_region *region)
{
    struct head head;
    uint64_t rank;
    if (!take(reader, 4, &head.kind, "kind of selection") ||
        !take(reader, 4, &head.version, "version of selection"))
        return -EILSEQ;
    bool is_simple = head.kind == SELECT_NONE || head.kind == SELECT_ALL;
    if (head.kind > SELECT_ALL)
        return bad(reader, "kind of selection");
    if (head.version < 1 || head.version > (is_simple ? 1 : head.kind == SELECT_POINTS ? 2 : 3))
        return bad(reader, "version of selection");
    region->is_empty = head.kind == SELECT_NONE;
    if (is_simple)
        return take_zero(reader) && take_length(reader) && remains(reader, 0, 0) ? 0 : -EILSEQ;
    if (!take_head(reader, &head) || !take(reader, 4, &rank, "rank of selection"))
        return -EILSEQ;
    if (rank < 1 || rank > SFS_MAX_RANK)
        return bad(reader, "rank of selection");
    region->rank = (int)rank;
    memset(region->first, 0xff, sizeof(region->first));
    return head.flags & IS_REGULAR ? take_regular(reader, (int)head.width, region)
                                   : take_list(reader, &head, region);
}

int selection_region_bounds(const void *encoded, size_t n, struct selection_region *region,
                            const char **why)
{
    struct reader reader = {.at = encoded, .end = (const unsigned char *)encoded + n};
    *region = (struct selection_region){0};
    int error = take_bounds(&reader, region);
    *why = reader.why;
    return error;
}

int selection_region_decode(const void *encoded, size_t n, int rank, const uint64_t *dims,
                            size_t max_bytes, void **space, size_t *space_n, const char **why)
{
    struct selection selection;
    struct selection_region region;
    void *all;
    size_t head;
    int error = selection_region_bounds(encoded, n, &region, why);
    if (!error)
        error = selection_encode_all(rank, dims, &all, &head);
    if (error)
        return error;
    head -= SIMPLE_BYTES;
    char *made = realloc(all, head + n);
    if (!made) {
        free(all);
        return -ENOMEM;
    }
    memcpy(made + head, encoded, n);
    error = selection_decode(&(struct sfs_encoded){made, head + n}, rank, dims, max_bytes,
                             &selection, why);
    if (error) {
        free(made);
        return error;
    }
    selection_free(&selection);
    *space = made;
    *space_n = head + n;
    return 0;
}

int selection_region_encode(const struct sfs_encoded *space, size_t max_bytes, void **region,
                            size_t *n, const char **why)
{
    struct selection selection;
    uint64_t dims[SFS_MAX_RANK];
    int rank;
    int error = selection_extent(space, &rank, dims, why);
    if (!error)
        error = selection_decode(space, rank, dims, max_bytes, &selection, why);
    if (error)
        return error;
    selection_free(&selection);
    size_t head = PREFIX_BYTES + (size_t)get_le((const unsigned char *)space->bytes + 3, 4);
    *region = malloc(space->n - head);
    if (!*region)
        return -ENOMEM;
    memcpy(*region, (const char *)space->bytes + head, space->n - head);
    *n = space->n - head;
    return 0;
}
