/* Encoding selections as H5Sencode does: the dataspace's extent, then what is selected in it. Which
 * form is the smallest is known from the number of blocks and the largest number alone. */
#include "selection/runs_to_blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "common/size.h"

/* A list of points of version 1. */
#define POINTS_HEAD_BYTES 24
#define POINT_WIDTH       4 /* bytes of a coordinate */

/* Tall blocks that are looked for where memory is limited: it is taken before it is known whether they are worth it. */
#define MOST_TALL ((size_t)1 << 23)

/* How a selection is written. */
struct encoding {
    uint64_t version;
    bool regular;
    uint64_t width; /* bytes of a number */
};

struct encoder {
    const struct dataspace_extent *extent;
    struct block_list list;
    struct tall_list tall;
    uint64_t blocks;          /* in the list that is written */
    struct encoding encoding; /* the smallest so far */
    uint64_t size;            /* bytes of the selection in it */
    bool points;
    /* Whether so many bytes may be taken; NULL: any number, and this is not ended early either. */
    bool (*take)(size_t bytes);
};

static size_t extent_bytes(int rank)
{
    return 8 + (size_t)rank * 2 * LENGTH_BYTES;
}

static unsigned char *put_extent(unsigned char *p, int rank, const uint64_t *dims,
                                 const uint64_t *max_dims)
{
    p = put_le(p, DATASPACE_MESSAGE, 1);
    p = put_le(p, ENCODE_VERSION, 1);
    p = put_le(p, LENGTH_BYTES, 1);
    p = put_le(p, extent_bytes(rank), 4);

    p = put_le(p, EXTENT_VERSION_1, 1);
    p = put_le(p, (uint64_t)rank, 1);
    p = put_le(p, rank > 0 ? HAS_MAX_DIMS : 0, 1);
    p = put_le(p, 0, 5);
    for (int i = 0; i < rank; i++)
        p = put_le(p, dims[i], LENGTH_BYTES);
    for (int i = 0; i < rank; i++)
        p = put_le(p, max_dims ? max_dims[i] : dims[i], LENGTH_BYTES);
    return p;
}

static int encode_simple(int rank, const uint64_t *dims, const uint64_t *max_dims, int kind,
                         void **encoded, size_t *n)
{
    size_t size = PREFIX_BYTES + extent_bytes(rank) + SIMPLE_BYTES;
    unsigned char *p = malloc(size);
    if (!p)
        return -ENOMEM;
    *encoded = p;
    *n = size;
    p = put_extent(p, rank, dims, max_dims);
    p = put_le(p, (uint64_t)kind, 4);
    p = put_le(p, 1, 4);
    put_le(p, 0, 8);
    return 0;
}

int selection_encode_all(int rank, const uint64_t *dims, void **encoded, size_t *n)
{
    return encode_simple(rank, dims, NULL, SELECT_ALL, encoded, n);
}

/* ---- Choosing ---- */

static uint64_t width_for(uint64_t highest)
{
    return highest <= UINT16_MAX ? 2 : highest <= UINT32_MAX ? 4 : 8;
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Takes a form if it is smaller than what was found before. */
static void consider(struct encoder *e, struct encoding encoding, uint64_t head, uint64_t per_item,
                     uint64_t items)
{
    uint64_t size;
    if (__builtin_mul_overflow(per_item, items, &size) ||
        __builtin_add_overflow(size, head, &size) || size > SIZE_MAX / 2 || size >= e->size)
        return;
    e->encoding = encoding;
    e->size = size;
}

static void consider_version_1(struct encoder *e)
{
    uint64_t length;
    uint64_t rank = (uint64_t)e->extent->rank;
    if (max(e->list.highest, e->list.n) <= UINT32_MAX &&
        !__builtin_mul_overflow(e->list.n, rank * 8, &length) && length <= UINT32_MAX - 8)
        consider(e, (struct encoding){1, false, 4}, 24, rank * 8, e->list.n);
}

/* In a list of version 1, the length of which has 32 bits. */
static uint64_t most_points(int rank)
{
    return (UINT32_MAX - POINTS_REST_BYTES) / (POINT_WIDTH * (uint64_t)rank);
}

static void consider_points(struct encoder *e)
{
    uint64_t rank = (uint64_t)e->extent->rank, n = e->list.runs->elements, size = e->size;
    if (max(e->list.highest, n) <= UINT32_MAX && n <= most_points(e->extent->rank))
        consider(e, (struct encoding){1, false, POINT_WIDTH}, POINTS_HEAD_BYTES, rank * POINT_WIDTH,
                 n);
    e->points = e->size < size;
}

static void consider_regular(struct encoder *e, uint64_t version)
{
    const struct regular *regular = &e->list.regular;
    uint64_t highest = 0, rank = (uint64_t)e->extent->rank;
    for (int i = 0; i < e->extent->rank; i++) {
        highest = max(highest, max(regular->start[i], regular->stride[i]));
        highest = max(highest, max(regular->count[i], regular->block[i]) + 1); /* ~0: unlimited */
    }
    if (version == 2)
        consider(e, (struct encoding){2, true, 8}, 17, 32, rank);
    else
        consider(e, (struct encoding){3, true, width_for(highest)}, 14, 4 * width_for(highest),
                 rank);
}

static void consider_list(struct encoder *e)
{
    uint64_t width = width_for(max(e->list.highest, e->blocks)), rank = (uint64_t)e->extent->rank;
    consider(e, (struct encoding){3, false, width}, 14 + width, 2 * rank * width, e->blocks);
}

/* Out of order they are slower to decode, so it must be worth it: a quarter less. */
static int find_tall(struct encoder *e)
{
    size_t limit = (size_t)(e->list.n * 3 / 4);
    if (e->take && limit > MOST_TALL)
        limit = MOST_TALL;
    return tall_blocks(e->extent, e->list.runs, limit, e->take != NULL, &e->tall);
}

/* -EOVERFLOW if there is none. */
static int choose(struct encoder *e, enum selection_form form)
{
    e->size = UINT64_MAX;
    e->blocks = e->list.n;
    if (form != SELECTION_SMALLEST)
        consider_version_1(e);
    if (form == SELECTION_VERSION_1)
        return e->size == UINT64_MAX ? -EOVERFLOW : 0;

    uint64_t version = form == SELECTION_SMALLEST ? 3 : 2;
    if (e->list.n > 1 && blocks_are_regular(&e->list)) {
        consider_regular(e, version);
    } else if (form == SELECTION_SMALLEST) {
        int error = e->list.n > SIZE_MAX / 4 ? -EOVERFLOW : find_tall(e);
        if (error < 0)
            return error;
        if (e->tall.blocks)
            e->blocks = e->tall.n;
    } else if (e->list.n == 1) {
        consider_regular(e, version);
    }
    if (form == SELECTION_SMALLEST)
        consider_list(e);
    if (form == SELECTION_LIBHDF5_1_10_POINTS)
        consider_points(e);
    return e->size == UINT64_MAX ? -EOVERFLOW : 0;
}

/* ---- Writing ---- */

/* The coordinates of the first element of a row, given its position. */
static void begin_row(const struct dataspace_extent *extent, uint64_t position,
                      uint32_t *coordinates)
{
    for (int i = extent->rank - 1; i >= 0; i--) {
        coordinates[i] = (uint32_t)(position % extent->dims[i]);
        position /= extent->dims[i];
    }
}

/* Of a list of n points, version 1. */
static unsigned char *put_points_head(unsigned char *p, int rank, uint64_t n)
{
    p = put_le(p, SELECT_POINTS, 4);
    p = put_le(p, 1, 4);
    p = put_le(p, 0, 4);
    p = put_le(p, POINTS_REST_BYTES + n * (uint64_t)rank * POINT_WIDTH, 4);
    p = put_le(p, (uint64_t)rank, 4);
    return put_le(p, n, 4);
}

/* In two dims, as frames have, both coordinates at once. Positions count from the beginning of row
 * first_row. */
static int put_plane_points(const struct runs *runs, uint64_t row, uint64_t first_row, bool asks,
                            unsigned char *p)
{
    uint64_t first_of_row = 0, next_row = 0, number = 0;
    for (size_t i = 0; i < runs->n; i++) {
        int error = asks && i % ASK_EVERY == ASK_EVERY - 1 ? interrupt_check() : 0;
        if (error)
            return error;
        struct run run = runs_at(runs, i);
        for (uint64_t position = run.first; position < run.last; position++) {
            if (position >= next_row) {
                number = position / row;
                first_of_row = number * row;
                next_row = first_of_row + row;
                number += first_row;
            }
            p = put_le(p, (position - first_of_row) << 32 | number, 2 * POINT_WIDTH);
        }
    }
    return 0;
}

static int put_points(struct encoder *e, unsigned char *p)
{
    const struct dataspace_extent *extent = e->extent;
    const struct runs *runs = e->list.runs;
    int rank = extent->rank;
    uint64_t row = extent->dims[rank - 1], row_first = 0;
    uint32_t coordinates[SFS_MAX_RANK] = {0};
    p = put_points_head(p, rank, runs->elements);
    if (rank == 2)
        return put_plane_points(runs, row, 0, e->take != NULL, p);
    for (size_t i = 0; i < runs->n; i++) {
        int error = e->take && i % ASK_EVERY == ASK_EVERY - 1 ? interrupt_check() : 0;
        if (error)
            return error;
        struct run run = runs_at(runs, i);
        for (uint64_t position = run.first; position < run.last; position++) {
            if (position - row_first >= row) {
                row_first = position - position % row;
                begin_row(extent, row_first, coordinates);
            }
            for (int k = 0; k < rank - 1; k++)
                p = put_le(p, coordinates[k], 4);
            p = put_le(p, position - row_first, 4);
        }
    }
    return 0;
}

static int put_hyperslabs(struct encoder *e, unsigned char *p)
{
    int rank = e->extent->rank, width = (int)e->encoding.width;
    p = put_le(p, SELECT_HYPERSLABS, 4);
    p = put_le(p, e->encoding.version, 4);
    if (e->encoding.version == 1)
        p = put_le(p, 0, 4);
    else
        p = put_le(p, e->encoding.regular ? IS_REGULAR : 0, 1);
    if (e->encoding.version == 3)
        p = put_le(p, e->encoding.width, 1);
    else /* of what follows */
        p = put_le(p, e->size - (e->encoding.version == 1 ? 16 : 13), 4);
    p = put_le(p, (uint64_t)rank, 4);
    if (e->encoding.regular) {
        const struct regular *regular = &e->list.regular;
        for (int i = 0; i < rank; i++) {
            p = put_le(p, regular->start[i], width);
            p = put_le(p, regular->stride[i], width);
            p = put_le(p, regular->count[i], width);
            p = put_le(p, regular->block[i], width);
        }
        return 0;
    }
    p = put_le(p, e->blocks, width);
    if (!e->tall.blocks)
        return blocks_write(&e->list, p, width);
    tall_write(e->extent, &e->tall, p, width);
    return 0;
}

/* In the form that was chosen. */
static int put(struct encoder *e, const uint64_t *max_dims, void **encoded, size_t *n)
{
    int rank = e->extent->rank;
    size_t bytes = PREFIX_BYTES + extent_bytes(rank) + (size_t)e->size;
    size_t besides = e->tall.n * sizeof(struct tall_block);
    bool may = !e->take || e->take(size_sum(bytes, besides));
    unsigned char *to = may ? malloc(bytes) : NULL;
    if (!to)
        return -ENOMEM;
    unsigned char *p = put_extent(to, rank, e->extent->dims, max_dims);
    int error = e->points ? put_points(e, p) : put_hyperslabs(e, p);
    if (error) {
        free(to);
        return error;
    }
    *encoded = to;
    *n = bytes;
    return 0;
}

static int encode(const struct dataspace_extent *extent, const uint64_t *max_dims,
                  const struct runs *runs, const struct selection_wanted *wanted, void **encoded,
                  size_t *n)
{
    if (runs->elements == extent->elements)
        return encode_simple(extent->rank, extent->dims, max_dims, SELECT_ALL, encoded, n);
    if (runs->n == 0)
        return encode_simple(extent->rank, extent->dims, max_dims, SELECT_NONE, encoded, n);

    struct encoder e = {.extent = extent, .take = wanted->take};
    int error = blocks_count(&e.list, extent, runs, wanted->take != NULL);
    if (!error)
        error = choose(&e, wanted->form);
    if (!error)
        error = put(&e, max_dims, encoded, n);
    tall_list_free(&e.tall);
    return error;
}

int selection_encode(int rank, const uint64_t *dims, const uint64_t *max_dims,
                     const struct runs *runs, enum selection_form form, void **encoded, size_t *n)
{
    const struct selection_wanted wanted = {.form = form};
    struct dataspace_extent extent;
    return extent_init(&extent, rank, dims) ? encode(&extent, max_dims, runs, &wanted, encoded, n)
                                            : -EOVERFLOW;
}

int selection_encode_if(int rank, const uint64_t *dims, const struct runs *runs,
                        const struct selection_wanted *wanted, void **encoded, size_t *n)
{
    struct dataspace_extent extent;
    return extent_init(&extent, rank, dims) ? encode(&extent, NULL, runs, wanted, encoded, n)
                                            : -EOVERFLOW;
}

/* ---- Points, part by part ---- */

int selection_points_begin(const uint64_t dims[2], uint64_t elements, bool (*take)(size_t),
                           void **encoded, size_t *n)
{
    if (max(dims[0], dims[1]) > UINT32_MAX || elements > most_points(2) || elements == 0)
        return -EOVERFLOW;
    size_t bytes =
        PREFIX_BYTES + extent_bytes(2) + POINTS_HEAD_BYTES + (size_t)elements * 2 * POINT_WIDTH;
    if (take && !take(bytes))
        return -EOVERFLOW;
    unsigned char *p = malloc(bytes);
    if (!p)
        return -ENOMEM;
    *encoded = p;
    *n = bytes;
    put_points_head(put_extent(p, 2, dims, NULL), 2, elements);
    return 0;
}

bool selection_points_put(void *encoded, const uint64_t dims[2], uint64_t first_row, uint64_t rows,
                          const struct runs *runs, uint64_t index)
{
    const uint64_t part_dims[2] = {rows, dims[1]};
    struct dataspace_extent extent;
    struct block_list list;
    if (runs->n == 0)
        return true;
    if (!extent_init(&extent, 2, part_dims))
        return false;
    (void)blocks_count(&list, &extent, runs, false);
    /* Those of the first row may be one with blocks of the band before. */
    uint64_t joined = runs_find(runs, dims[1]) + 1;
    if (list.n <= joined || 2 * (list.n - joined) <= runs->elements || blocks_are_regular(&list))
        return false;
    size_t head = PREFIX_BYTES + extent_bytes(2) + POINTS_HEAD_BYTES;
    return put_plane_points(runs, dims[1], first_row, false,
                            (unsigned char *)encoded + head + (size_t)index * 2 * POINT_WIDTH) == 0;
}
