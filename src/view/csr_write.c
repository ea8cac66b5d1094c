/* csr/ of a sparse dataset as it is written: three arrays that mean something together only. Those
 * that were not written are what they are. All is checked before anything is changed; then frame
 * after frame gets its row, and those that hold it already stay as they are. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "view/points.h"

#define MOST_TRIES 8 /* of reading what others write to */

enum part { INDPTR, INDICES, DATA, PARTS };

#define BIT(part) (1u << (part))
#define NEVER     (~0u) /* as parts: whatever is there, more of it may be written */

struct rows {
    struct views *views;
    struct view_csr *csr;
    unsigned written;         /* parts, bits */
    const char *bytes[PARTS]; /* of each, */
    size_t size[PARTS];
    char *own[PARTS];    /* and those that are as they were */
    uint64_t n_rows, n;  /* rows, and elements of all */
    struct point *point; /* room for the longest row */
};

/* What differs, by parts of which these are. Where others may still be written it is too early to
 * refuse that. */
static int differ(struct rows *rows, unsigned parts, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int differ(struct rows *rows, unsigned parts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rows->csr->why, sizeof(rows->csr->why), format, arguments);
    va_end(arguments);
    return (rows->written & parts) == parts ? -EINVAL : -EAGAIN;
}

static size_t item_of(const struct rows *rows, enum part part)
{
    return part == INDPTR    ? CSR_INDPTR_ITEM
           : part == INDICES ? csr_index_item(rows->views)
                             : rows->views->info->type.size;
}

/* An item of an index array; UINT64_MAX: it is negative. */
static uint64_t get(const struct rows *rows, enum part part, uint64_t i)
{
    uint64_t wide;
    uint32_t narrow;
    if (item_of(rows, part) == sizeof(wide)) {
        memcpy(&wide, rows->bytes[part] + i * sizeof(wide), sizeof(wide));
        wide = le64toh(wide);
        return wide > INT64_MAX ? UINT64_MAX : wide;
    }
    memcpy(&narrow, rows->bytes[part] + i * sizeof(narrow), sizeof(narrow));
    narrow = le32toh(narrow);
    return narrow > INT32_MAX ? UINT64_MAX : narrow;
}

/* ---- What is as it was ---- */

static int size_present(struct rows *rows, const struct counts *counts, enum part part)
{
    uint64_t items = part == INDPTR ? rows->views->frames + 1 : counts->frame[counts->n].before;
    size_t item = item_of(rows, part);
    if (items > rows->csr->most_kept / item)
        return -EFBIG;
    rows->size[part] = (size_t)items * item;
    return 0;
}

static int take_present(struct rows *rows, const struct counts *counts, enum part part)
{
    struct views *views = rows->views;
    uint64_t items = rows->size[part] / item_of(rows, part);
    char *bytes = malloc(items ? rows->size[part] : 1);
    if (!bytes)
        return -ENOMEM;
    int error = part == INDPTR    ? csr_indptr(views, counts, 0, items, bytes)
                : part == INDICES ? csr_indices(views, counts, 0, items, bytes)
                                  : csr_data(views, counts, 0, items, bytes);
    if (error) {
        free(bytes);
        return error;
    }
    free(rows->own[part]);
    rows->bytes[part] = rows->own[part] = bytes;
    return 0;
}

typedef int (*present_action)(struct rows *rows, const struct counts *counts, enum part part);

/* Of each part that was not written, as one state of the dataset has it. */
static int each_present(struct rows *rows, const struct counts *counts, present_action action)
{
    int error = 0;
    for (int part = 0; part < PARTS && !error; part++)
        if (!(rows->written & BIT(part)))
            error = action(rows, counts, (enum part)part);
    return error;
}

/* ---- Whether they fit ---- */

/* A file that is too short may be written on. An empty indptr.raw is no matrix of any kind: it was
 * truncated to have all three files taken at once. */
static int check_sizes(struct rows *rows)
{
    static const char *const names[] = {"indptr.raw", "indices.raw", "data.raw"};
    const unsigned all = BIT(PARTS) - 1;
    uint64_t items[PARTS], frames = rows->views->frames;
    if (rows->size[INDPTR] == 0)
        return differ(rows, NEVER, "indptr.raw is empty");
    for (int part = 0; part < PARTS; part++) {
        size_t item = item_of(rows, (enum part)part);
        items[part] = rows->size[part] / item;
        if (rows->size[part] % item != 0)
            return differ(rows, all, "%s has %zu bytes: its items have %zu each", names[part],
                          rows->size[part], item);
    }
    rows->n_rows = items[INDPTR] ? items[INDPTR] - 1 : 0;
    rows->n = items[INDICES];
    if (items[INDPTR] == 0 || rows->n_rows < frames)
        return differ(rows, all,
                      "indptr.raw has %" PRIu64 " items: for %" PRIu64 " frames it has %" PRIu64,
                      items[INDPTR], frames, frames + 1);
    if (items[INDICES] != items[DATA])
        return differ(rows, all,
                      "indices.raw has %" PRIu64 " items of %zu bytes, data.raw %" PRIu64 " of %zu",
                      items[INDICES], item_of(rows, INDICES), items[DATA], item_of(rows, DATA));
    return 0;
}

static int check_indptr(struct rows *rows, uint64_t *longest)
{
    uint64_t begin = get(rows, INDPTR, 0), most = rows->views->frame_elements;
    if (begin != 0)
        return differ(rows, BIT(INDPTR), "indptr.raw does not begin with 0");
    for (uint64_t row = 0; row < rows->n_rows; row++) {
        uint64_t end = get(rows, INDPTR, row + 1);
        if (end == UINT64_MAX || end < begin)
            return differ(rows, BIT(INDPTR), "indptr.raw falls behind item %" PRIu64, row);
        if (end - begin > most)
            return differ(rows, BIT(INDPTR),
                          "row %" PRIu64 " of indptr.raw has %" PRIu64
                          " elements, a frame %" PRIu64,
                          row, end - begin, most);
        *longest = end - begin > *longest ? end - begin : *longest;
        begin = end;
    }
    if (begin != rows->n)
        return differ(rows, BIT(PARTS) - 1,
                      "indptr.raw ends with %" PRIu64 ", and indices.raw has %" PRIu64 " items",
                      begin, rows->n);
    return 0;
}

static int check_growth(struct rows *rows)
{
    int error = rows->n_rows > rows->views->frames ? can_extend(rows->views, rows->n_rows) : 0;
    return error == -EFBIG ? differ(rows, BIT(INDPTR),
                                    "indptr.raw has %" PRIu64 " rows, the dataset %" PRIu64
                                    " frames, and it cannot grow so far",
                                    rows->n_rows, rows->views->frames)
                           : error;
}

static int check_indices(struct rows *rows)
{
    for (uint64_t i = 0; i < rows->n; i++)
        if (get(rows, INDICES, i) >= rows->views->frame_elements)
            return differ(rows, BIT(INDICES),
                          "item %" PRIu64
                          " of indices.raw is outside of a frame, which has %" PRIu64 " elements",
                          i, rows->views->frame_elements);
    return 0;
}

/* The elements of a row as they stand there; whether positions ascend. */
static bool take_row(const struct rows *rows, uint64_t row, uint64_t *n)
{
    uint64_t begin = get(rows, INDPTR, row), end = get(rows, INDPTR, row + 1);
    bool ascends = true;
    for (uint64_t i = begin; i < end; i++) {
        rows->point[i - begin] = (struct point){get(rows, INDICES, i), i};
        ascends &=
            i == begin || rows->point[i - begin - 1].position < rows->point[i - begin].position;
    }
    *n = end - begin;
    return ascends;
}

/* In another order than they are shown they are taken all three only: what is written of them next
 * would be in the order of one, and be taken for that of the other. */
static int check_rows(struct rows *rows)
{
    uint64_t n;
    for (uint64_t row = 0; row < rows->n_rows; row++) {
        if (take_row(rows, row, &n))
            continue;
        if (points_sort(rows->point, n) != 0)
            return differ(rows, BIT(INDPTR) | BIT(INDICES),
                          "indices.raw names an element of row %" PRIu64 " twice", row);
        if (rows->written != BIT(PARTS) - 1)
            return differ(rows, BIT(PARTS) - 1,
                          "indices.raw does not ascend in row %" PRIu64
                          ": then all three files are wanted",
                          row);
    }
    return 0;
}

/* What cannot be read can be written anew. */
static int take_parts(struct rows *rows, const struct counts *counts)
{
    int error = each_present(rows, counts, size_present);
    if (!error)
        error = check_sizes(rows);
    if (error)
        return error;
    error = each_present(rows, counts, take_present);
    return error == -EIO ? differ(rows, BIT(PARTS) - 1, "some of the others cannot be read")
                         : error;
}

/* Others may write while it is read: -EBUSY if they do so again and again. */
static int take_all(struct rows *rows)
{
    int error = 0;
    for (int part = 0; part < PARTS; part++) {
        rows->bytes[part] = rows->csr->part[part].bytes;
        rows->size[part] = rows->csr->part[part].n;
        rows->written |= rows->bytes[part] ? BIT(part) : 0;
    }
    if (rows->written == BIT(PARTS) - 1)
        return check_sizes(rows);
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        const struct counts *counts;
        rows->csr->why[0] = '\0';
        error = counts_get(rows->views, &counts);
        if (error)
            return error;
        error = take_parts(rows, counts);
        counts_put(rows->views, counts);
        if (error != -EAGAIN || rows->csr->why[0])
            return error;
    }
    return -EBUSY;
}

static int check(struct rows *rows)
{
    uint64_t longest = 0;
    int error = check_indptr(rows, &longest);
    if (!error)
        error = check_growth(rows);
    if (!error)
        error = check_indices(rows);
    if (!error && !(rows->point = calloc((size_t)longest + 1, sizeof(*rows->point))))
        error = -ENOMEM;
    return error ? error : check_rows(rows);
}

/* ---- Changing frames ---- */

/* What a frame held. */
struct kept_row {
    struct kept_row *next;
    uint64_t frame;
    struct points points;
};

struct change_rows {
    struct rows *rows;
    struct kept_row *kept; /* the last one first */
    size_t bytes;          /* of all */
    bool is_incomplete;    /* of a frame that was changed it is not known */
};

static size_t bytes_of(const struct views *views, const struct points *points)
{
    return sizeof(struct kept_row) + (points->defined.n + 1) * sizeof(struct sfs_interval) +
           (size_t)points->defined.elements * views->info->type.size;
}

static int read_row(struct views *views, uint64_t frame, struct points *points)
{
    struct sfs_slab slab = view_frame_slab(views, frame);
    *points = (struct points){0};
    int error = sfs_get_defined(views->dataset, &slab, &points->defined);
    if (error)
        return error;
    uint64_t n = points->defined.elements;
    points->values = malloc(n ? (size_t)n * views->info->type.size : 1);
    error = !points->values ? -ENOMEM
            : n > 0 ? sfs_read_values(views->dataset, &slab, &points->defined, 0, n, points->values)
                    : 0;
    if (error)
        points_free(points);
    return error;
}

static bool is_same(const struct views *views, const struct points *a, const struct points *b)
{
    const struct sfs_defined *x = &a->defined, *y = &b->defined;
    if (x->n != y->n || x->elements != y->elements)
        return false;
    for (size_t i = 0; i < x->n; i++)
        if (x->interval[i].first != y->interval[i].first ||
            x->interval[i].index != y->interval[i].index)
            return false;
    return memcmp(a->values, b->values, (size_t)x->elements * views->info->type.size) == 0;
}

/* Of a frame that cannot be read nothing can be kept. */
static void keep_row(struct change_rows *change, uint64_t frame, struct points *points)
{
    const struct rows *rows = change->rows;
    struct kept_row *kept = points->values ? calloc(1, sizeof(*kept)) : NULL;
    size_t n = kept ? bytes_of(rows->views, points) : 0;
    if (!kept || n > rows->csr->most_kept - change->bytes) {
        change->is_incomplete = true;
        free(kept);
        points_free(points);
        return;
    }
    *kept = (struct kept_row){change->kept, frame, *points};
    change->kept = kept;
    change->bytes += n;
}

static int change_row(struct change_rows *change, uint64_t row)
{
    struct rows *rows = change->rows;
    struct views *views = rows->views;
    struct points now = {0}, points;
    uint64_t n;
    if (!take_row(rows, row, &n))
        (void)points_sort(rows->point, n); /* which was done before */
    int error = points_make(rows->point, n, rows->bytes[DATA], item_of(rows, DATA), &points);
    if (error)
        return error;
    bool is_there = row < views->frames, is_read = is_there && read_row(views, row, &now) == 0;
    if (is_read ? is_same(views, &points, &now) : !is_there && n == 0) {
        points_free(&now);
    } else {
        if (is_there)
            keep_row(change, row, &now);
        error = view_place_points(views, row, &points.defined, points.values);
    }
    points_free(&points);
    return error;
}

static void undo(const struct change_rows *change)
{
    const struct rows *rows = change->rows;
    struct views *views = rows->views;
    bool is_undone = !change->is_incomplete;
    for (const struct kept_row *kept = change->kept; kept; kept = kept->next)
        is_undone &=
            view_place_points(views, kept->frame, &kept->points.defined, kept->points.values) == 0;
    if (!is_undone)
        log_error("%s: %s: what was written to csr is there in part", sfs_path(views->file),
                  views->path);
}

static int change_rows(void *context)
{
    struct change_rows *change = context;
    int error = 0;
    for (uint64_t row = 0; row < change->rows->n_rows && !error; row++)
        error = change_row(change, row);
    if (error && error != -EROFS && error != -EBUSY)
        undo(change);
    return error;
}

static int apply(struct rows *rows)
{
    struct change_rows change = {.rows = rows};
    int error = rows->n_rows == 0 ? 0
                                  : change_frame(rows->views, VIEW_CSR_DATA, rows->n_rows - 1,
                                                 change_rows, &change);
    for (struct kept_row *kept = change.kept, *next; kept; kept = next) {
        next = kept->next;
        points_free(&kept->points);
        free(kept);
    }
    return error;
}

int view_put_csr(struct views *views, struct view_csr *csr)
{
    LOOKING_AT(views);
    struct rows rows = {.views = views, .csr = csr};
    csr->why[0] = '\0';
    if (!is_writable(views, VIEW_CSR_DATA))
        return cannot_write(views);
    int error = take_all(&rows);
    if (!error)
        error = check(&rows);
    if (!error)
        error = apply(&rows);
    free(rows.point);
    for (int part = 0; part < PARTS; part++)
        free(rows.own[part]);
    return error;
}
