/* Decoding selections, which are not trusted: every number is checked before it is used, and
 * counted items must be present before memory is allocated for them. */
#include "selection/private.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cpu_limit.h"

struct decoder {
    const unsigned char *at, *end;
    struct dataspace_extent extent;
    size_t max_runs;
    struct selection *selection;
    const char *why;
};

void selection_free(struct selection *selection)
{
    runs_free(&selection->runs);
    free(selection->order);
    *selection = (struct selection){0};
}

bool extent_init(struct dataspace_extent *extent, int rank, const uint64_t *dims)
{
    extent->rank = rank;
    extent->dims = dims;
    if (!box_product(dims, rank, 1, &extent->elements))
        return false;
    uint64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        extent->stride[i] = stride;
        stride *= dims[i]; /* meaningless, as it may be, if a dimension is 0 */
    }
    return true;
}

/* ---- Fields: each names itself, for the case that it is wrong ---- */

static int bad(struct decoder *d, const char *field)
{
    d->why = field;
    return -EILSEQ;
}

static bool take(struct decoder *d, int bytes, uint64_t *value, const char *field)
{
    d->why = field;
    if (d->end - d->at < bytes)
        return false;
    *value = get_le(d->at, bytes);
    d->at += bytes;
    return true;
}

static bool expect(struct decoder *d, int bytes, uint64_t expected, const char *field)
{
    uint64_t value;
    return take(d, bytes, &value, field) && value == expected;
}

static uint64_t remaining(const struct decoder *d)
{
    return (uint64_t)(d->end - d->at);
}

/* n items of so many numbers of width bytes, and nothing else. */
static bool remains(struct decoder *d, uint64_t n, int numbers, int width, const char *field)
{
    uint64_t bytes;
    d->why = field;
    return !__builtin_mul_overflow(n, (uint64_t)(numbers * width), &bytes) && bytes == remaining(d);
}

/* ---- The extent ---- */

static int decode_extent(struct decoder *d)
{
    uint64_t size, version, flags;
    int rank = d->extent.rank;
    if (!expect(d, 1, DATASPACE_MESSAGE, "message number") ||
        !expect(d, 1, ENCODE_VERSION, "encode version") ||
        !expect(d, 1, LENGTH_BYTES, "size of lengths") || !take(d, 4, &size, "size of extent") ||
        !take(d, 1, &version, "version of extent"))
        return -EILSEQ;
    if (version != EXTENT_VERSION_1 && version != EXTENT_VERSION_2)
        return -EILSEQ;
    if (!expect(d, 1, (uint64_t)rank, "rank of extent") || !take(d, 1, &flags, "flags of extent") ||
        (flags & ~(uint64_t)HAS_MAX_DIMS) != 0 || (rank == 0 && flags != 0))
        return -EILSEQ;
    if (version == EXTENT_VERSION_1 && (!expect(d, 1, 0, "reserved bytes of extent") ||
                                        !expect(d, 4, 0, "reserved bytes of extent")))
        return -EILSEQ;
    if (version == EXTENT_VERSION_2 &&
        !expect(d, 1, rank == 0 ? EXTENT_SCALAR : EXTENT_SIMPLE, "type of extent"))
        return -EILSEQ;
    uint64_t dims_bytes = (uint64_t)rank * LENGTH_BYTES, head = version == EXTENT_VERSION_1 ? 8 : 4;
    if (size != head + dims_bytes * (flags & HAS_MAX_DIMS ? 2 : 1))
        return bad(d, "size of extent");
    for (int i = 0; i < rank; i++)
        if (!expect(d, LENGTH_BYTES, d->extent.dims[i], "dims of extent"))
            return -EILSEQ;
    if (flags & HAS_MAX_DIMS) { /* whatever they are: an application's dataspace has its own */
        if (remaining(d) < dims_bytes)
            return bad(d, "max dims of extent");
        d->at += dims_bytes;
    }
    return 0;
}

/* ---- All and none ---- */

static int decode_all_or_none(struct decoder *d, uint64_t version, bool all)
{
    if (version != 1)
        return bad(d, "version of selection");
    if (!expect(d, 4, 0, "reserved bytes of selection") ||
        !expect(d, 4, 0, "length of selection") || !remains(d, 0, 0, 0, "end of selection"))
        return -EILSEQ;
    struct selection *selection = d->selection;
    int error = all ? runs_append(&selection->runs, 0, d->extent.elements) : 0;
    selection->values = selection->runs.elements;
    return error;
}

/* ---- Points ---- */

/* The position of the next point. */
static bool take_point(struct decoder *d, int width, uint64_t *position)
{
    *position = 0;
    for (int i = 0; i < d->extent.rank; i++, d->at += width) {
        uint64_t coordinate = get_le(d->at, width);
        if (coordinate >= d->extent.dims[i])
            return false;
        *position += coordinate * d->extent.stride[i];
    }
    return true;
}

/* Of many points few may be left: then the room of the others goes. */
static uint64_t *fit_order(uint64_t *order, uint64_t elements)
{
    uint64_t *fit = reallocarray(order, elements ? elements : 1, sizeof(*order));
    return fit ? fit : order;
}

/* Points in their own order that are most of the elements: which of them stands at each position, the later one of
 * those that stand there again. */
static int order_most_points(struct decoder *d, uint64_t n, int width)
{
    struct selection *selection = d->selection;
    uint64_t position, elements = 0, *order = calloc(d->extent.elements, sizeof(*order));
    int error = order ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !error; i++) {
        if (!take_point(d, width, &position))
            error = bad(d, "point");
        else
            order[position] = i + 1;
        if (!error && (i + 1) % ASK_EVERY == 0)
            error = cpu_limit_check(ASK_EVERY * sizeof(*order));
    }
    for (position = 0; position < d->extent.elements && !error; position++) {
        if (order[position] == 0)
            continue;
        error = runs_append(&selection->runs, position, position + 1);
        order[elements++] = order[position] - 1;
    }
    if (!error)
        selection->order = fit_order(order, elements);
    else
        free(order);
    return error;
}

/* Points in their own order, all of them: the runs and the order in which their values stand. That takes memory
 * for each of them, also of those that stand there again: no more of them than there may be runs. */
static int order_points(struct decoder *d, uint64_t n, int width)
{
    struct selection *selection = d->selection;
    int error = -ENOMEM;
    uint64_t *order = NULL, end = 0, elements = 0;
    if (n > d->max_runs)
        return d->extent.elements / 2 < d->max_runs ? order_most_points(d, n, width) : -ENOMEM;
    struct pair *pairs = reallocarray(NULL, n, 2 * sizeof(*pairs));
    if (!pairs)
        goto out;
    for (uint64_t i = 0; i < n; i++) {
        pairs[i].value = i;
        if (!take_point(d, width, &pairs[i].key)) {
            error = bad(d, "point");
            goto out;
        }
        int ended = (i + 1) % ASK_EVERY == 0 ? cpu_limit_check(ASK_EVERY * sizeof(*pairs)) : 0;
        if (ended < 0) {
            error = ended;
            goto out;
        }
    }
    order = reallocarray(NULL, n, sizeof(*order));
    if (!order)
        goto out;
    sort_pairs(pairs, pairs + n, n, d->extent.elements);
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0 && pairs[i].key < end) { /* again: the later value counts */
            order[elements - 1] = pairs[i].value;
            continue;
        }
        if (selection->runs.n >= d->max_runs && pairs[i].key > end)
            goto out;
        end = pairs[i].key + 1;
        if (runs_append(&selection->runs, pairs[i].key, end) < 0)
            goto out;
        order[elements++] = pairs[i].value;
    }
    selection->order = fit_order(order, elements);
    order = NULL;
    error = 0;
out:
    free(order);
    free(pairs);
    return error;
}

static int decode_point_list(struct decoder *d, uint64_t n, int width)
{
    if (d->extent.rank == 0)
        return bad(d, "rank of selection");
    if (!remains(d, n, d->extent.rank, width, "number of points"))
        return -EILSEQ;
    struct selection *selection = d->selection;
    const unsigned char *list = d->at;
    uint64_t end = 0;
    selection->values = n;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t position;
        int error =
            (i + 1) % ASK_EVERY == 0 ? cpu_limit_check(ASK_EVERY * sizeof(struct sfs_interval)) : 0;
        if (error < 0)
            return error;
        if (!take_point(d, width, &position))
            return bad(d, "point");
        if (position < end) {
            d->at = list;
            runs_free(&selection->runs);
            return order_points(d, n, width);
        }
        if (selection->runs.n >= d->max_runs && position > end)
            return -ENOMEM;
        end = position + 1;
        error = runs_append(&selection->runs, position, end);
        if (error < 0)
            return error;
    }
    return 0;
}

static bool is_width(struct decoder *d, uint64_t width)
{
    d->why = "width of coordinates";
    return width == 2 || width == 4 || width == 8;
}

/* What stands before the list: how many there are, and how wide their coordinates are. */
static int take_points_head(struct decoder *d, uint64_t version, uint64_t *n, uint64_t *width)
{
    uint64_t length = 0, rank = (uint64_t)d->extent.rank;
    *width = 4;
    if (version == 1) {
        if (!expect(d, 4, 0, "reserved bytes of selection") ||
            !take(d, 4, &length, "length of selection") || length != remaining(d))
            return -EILSEQ;
    } else if (version == 2) {
        if (!take(d, 1, width, "width of coordinates") || !is_width(d, *width))
            return -EILSEQ;
    } else {
        return bad(d, "version of selection");
    }
    bool is_whole =
        expect(d, 4, rank, "rank of selection") && take(d, (int)*width, n, "number of points");
    return is_whole ? 0 : -EILSEQ;
}

static int decode_points(struct decoder *d, uint64_t version)
{
    uint64_t n, width;
    int error = take_points_head(d, version, &n, &width);
    return error ? error : decode_point_list(d, n, (int)width);
}

/* ---- Hyperslabs ---- */

static int decode_regular(struct decoder *d, int width)
{
    struct regular regular;
    if (!remains(d, (uint64_t)d->extent.rank, 4, width, "length of selection"))
        return -EILSEQ;
    for (int i = 0; i < d->extent.rank; i++) {
        uint64_t *const numbers[] = {&regular.start[i], &regular.stride[i], &regular.count[i],
                                     &regular.block[i]};
        for (int j = 0; j < 4; j++, d->at += width)
            *numbers[j] = get_le(d->at, width);
    }
    if (!regular_is_valid(&d->extent, &regular))
        return bad(d, "regular hyperslab");
    return regular_runs(&d->extent, &regular, d->max_runs, &d->selection->runs);
}

static int decode_block_list(struct decoder *d, int width)
{
    uint64_t n;
    if (!take(d, width, &n, "number of blocks") ||
        !remains(d, n, 2 * d->extent.rank, width, "number of blocks"))
        return -EILSEQ;
    const struct stored_blocks blocks = {d->at, n, width};
    return block_list_runs(&d->extent, &blocks, d->max_runs, &d->selection->runs, &d->why);
}

static int decode_hyperslabs(struct decoder *d, uint64_t version)
{
    uint64_t length, flags = 0, width = version == 1 ? 4 : 8, rank = (uint64_t)d->extent.rank;
    if (version < 1 || version > 3)
        return bad(d, "version of selection");
    if (version == 1 && !expect(d, 4, 0, "reserved bytes of selection"))
        return -EILSEQ;
    if (version > 1 && (!take(d, 1, &flags, "flags of selection") || flags > IS_REGULAR ||
                        (version == 2 && flags != IS_REGULAR)))
        return -EILSEQ;
    if (version < 3 && (!take(d, 4, &length, "length of selection") || length != remaining(d)))
        return -EILSEQ;
    if (version == 3 && (!take(d, 1, &width, "width of coordinates") || !is_width(d, width)))
        return -EILSEQ;
    if (!expect(d, 4, rank, "rank of selection") || rank == 0)
        return -EILSEQ;
    int error =
        flags & IS_REGULAR ? decode_regular(d, (int)width) : decode_block_list(d, (int)width);
    d->selection->values = d->selection->runs.elements;
    return error;
}

static int decode(struct decoder *d)
{
    uint64_t kind, version;
    int error = decode_extent(d);
    if (error < 0)
        return error;
    if (!take(d, 4, &kind, "kind of selection") || !take(d, 4, &version, "version of selection"))
        return -EILSEQ;
    switch (kind) {
    case SELECT_NONE:
        return decode_all_or_none(d, version, false);
    case SELECT_ALL:
        return decode_all_or_none(d, version, true);
    case SELECT_POINTS:
        return decode_points(d, version);
    case SELECT_HYPERSLABS:
        return decode_hyperslabs(d, version);
    default:
        return bad(d, "kind of selection");
    }
}

int selection_decode(const struct sfs_encoded *space, int rank, const uint64_t *dims,
                     size_t max_bytes, struct selection *selection, const char **why)
{
    struct decoder d = {
        .at = space->bytes,
        .end = (const unsigned char *)space->bytes + space->n,
        .max_runs = max_bytes / sizeof(struct sfs_interval),
        .selection = selection,
    };
    *selection = (struct selection){0};
    int error = extent_init(&d.extent, rank, dims) ? decode(&d) : bad(&d, "dims of extent");
    if (error < 0) {
        selection_free(selection);
        *why = error == -EILSEQ ? d.why : "memory";
    }
    return error;
}

/* Copies the points of a list at positions in runs; how many. */
static uint64_t keep_points(struct decoder *d, uint64_t n, int width, const struct runs *runs,
                            unsigned char *to)
{
    size_t bytes = (size_t)d->extent.rank * (size_t)width;
    uint64_t kept = 0, position;
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char *point = d->at;
        if (take_point(d, width, &position) && runs_contain(runs, position))
            memcpy(to + kept++ * bytes, point, bytes);
    }
    return kept;
}

int selection_keep_points(const struct sfs_encoded *space, int rank, const uint64_t *dims,
                          const struct runs *runs, void **kept, size_t *n_kept)
{
    struct decoder d = {.at = space->bytes, .end = (const unsigned char *)space->bytes + space->n};
    uint64_t kind, version, points, width;
    *kept = NULL;
    *n_kept = 0;
    if (!extent_init(&d.extent, rank, dims) || decode_extent(&d) || !take(&d, 4, &kind, "") ||
        !take(&d, 4, &version, "") || kind != SELECT_POINTS ||
        take_points_head(&d, version, &points, &width))
        return 0;
    size_t head = space->n - (size_t)remaining(&d);
    unsigned char *bytes = malloc(space->n);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, space->bytes, head);
    points = keep_points(&d, points, (int)width, runs, bytes + head);
    if (points == 0) {
        free(bytes);
        return 0;
    }
    uint64_t list = points * (uint64_t)rank * width;
    put_le(bytes + head - width, points, (int)width);
    if (version == 1)
        put_le(bytes + head - POINTS_REST_BYTES - 4, POINTS_REST_BYTES + list, 4);
    *kept = bytes;
    *n_kept = head + (size_t)list;
    return 0;
}

int selection_extent(const struct sfs_encoded *space, int *rank, uint64_t dims[SFS_MAX_RANK],
                     const char **why)
{
    const unsigned char *bytes = space->bytes;
    const size_t n = space->n;
    *why = "rank of extent";
    if (n < PREFIX_BYTES + 2 || bytes[PREFIX_BYTES + 1] > SFS_MAX_RANK)
        return -EILSEQ;
    int found = bytes[PREFIX_BYTES + 1];
    size_t head = PREFIX_BYTES + (bytes[PREFIX_BYTES] == EXTENT_VERSION_1 ? 8 : 4);
    if (n < head + (size_t)found * LENGTH_BYTES)
        return -EILSEQ;
    for (int i = 0; i < found; i++)
        dims[i] = get_le(bytes + head + (size_t)i * LENGTH_BYTES, LENGTH_BYTES);
    struct decoder d = {.at = bytes, .end = bytes + n, .extent = {.rank = found, .dims = dims}};
    int error = decode_extent(&d);
    *why = d.why;
    if (!error)
        *rank = found;
    return error;
}
