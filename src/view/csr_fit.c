/* Whether the files of csr/ fit each other, or wait, or are refused. Those that were not written are what they are. */
#include "view/csr_fit.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRIES 8 /* of reading what others write to */

#define BIT(part) (1u << (part))
#define NEVER     (~0u) /* as parts: whatever is there, more of it may be written */

/* What differs, by parts of which these are. Where others may still be written it is too early to
 * refuse that. */
static int differ(struct csr_rows *rows, unsigned parts, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int differ(struct csr_rows *rows, unsigned parts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rows->csr->why, sizeof(rows->csr->why), format, arguments);
    va_end(arguments);
    return (rows->written & parts) == parts ? -EINVAL : -EAGAIN;
}

size_t csr_rows_item(const struct csr_rows *rows, enum csr_part part)
{
    return part == CSR_INDPTR    ? CSR_INDPTR_ITEM
           : part == CSR_INDICES ? csr_index_item(rows->views)
                                 : rows->views->info->type.size;
}

/* An item of an index array; UINT64_MAX: it is negative. */
static uint64_t get(const struct csr_rows *rows, enum csr_part part, uint64_t i)
{
    uint64_t wide;
    uint32_t narrow;
    if (csr_rows_item(rows, part) == sizeof(wide)) {
        memcpy(&wide, rows->bytes[part] + i * sizeof(wide), sizeof(wide));
        wide = le64toh(wide);
        return wide > INT64_MAX ? UINT64_MAX : wide;
    }
    memcpy(&narrow, rows->bytes[part] + i * sizeof(narrow), sizeof(narrow));
    narrow = le32toh(narrow);
    return narrow > INT32_MAX ? UINT64_MAX : narrow;
}

/* ---- What is as it was ---- */

static int size_present(struct csr_rows *rows, const struct counts *counts, enum csr_part part)
{
    uint64_t items = part == CSR_INDPTR ? rows->views->frames + 1 : counts->frame[counts->n].before;
    size_t item = csr_rows_item(rows, part);
    if (items > rows->csr->most_kept / item)
        return -EFBIG;
    rows->size[part] = (size_t)items * item;
    return 0;
}

static int take_present(struct csr_rows *rows, const struct counts *counts, enum csr_part part)
{
    struct views *views = rows->views;
    uint64_t items = rows->size[part] / csr_rows_item(rows, part);
    char *bytes = malloc(items ? rows->size[part] : 1);
    if (!bytes)
        return -ENOMEM;
    int error = part == CSR_INDPTR    ? csr_indptr(views, counts, 0, items, bytes)
                : part == CSR_INDICES ? csr_indices(views, counts, 0, items, bytes)
                                      : csr_data(views, counts, 0, items, bytes);
    if (error) {
        free(bytes);
        return error;
    }
    free(rows->own[part]);
    rows->bytes[part] = rows->own[part] = bytes;
    return 0;
}

typedef int (*present_action)(struct csr_rows *rows, const struct counts *counts,
                              enum csr_part part);

/* Of each part that was not written, as one state of the dataset has it. */
static int each_present(struct csr_rows *rows, const struct counts *counts, present_action action)
{
    int error = 0;
    for (int part = 0; part < CSR_PARTS && !error; part++)
        if (!(rows->written & BIT(part)))
            error = action(rows, counts, (enum csr_part)part);
    return error;
}

/* ---- Whether they fit ---- */

/* A file that is too short may be written on. An empty indptr.raw is no matrix of any kind: it was
 * truncated to have all three files taken at once. */
static int check_sizes(struct csr_rows *rows)
{
    static const char *const names[] = {"indptr.raw", "indices.raw", "data.raw"};
    const unsigned all = BIT(CSR_PARTS) - 1;
    uint64_t items[CSR_PARTS], frames = rows->views->frames;
    if (rows->size[CSR_INDPTR] == 0)
        return differ(rows, NEVER, "indptr.raw is empty");
    for (int part = 0; part < CSR_PARTS; part++) {
        size_t item = csr_rows_item(rows, (enum csr_part)part);
        items[part] = rows->size[part] / item;
        if (rows->size[part] % item != 0)
            return differ(rows, all, "%s has %zu bytes: its items have %zu each", names[part],
                          rows->size[part], item);
    }
    rows->n_rows = items[CSR_INDPTR] ? items[CSR_INDPTR] - 1 : 0;
    rows->n = items[CSR_INDICES];
    if (items[CSR_INDPTR] == 0 || rows->n_rows < frames)
        return differ(rows, all,
                      "indptr.raw has %" PRIu64 " items: for %" PRIu64 " frames it has %" PRIu64,
                      items[CSR_INDPTR], frames, frames + 1);
    if (items[CSR_INDICES] != items[CSR_DATA])
        return differ(rows, all,
                      "indices.raw has %" PRIu64 " items of %zu bytes, data.raw %" PRIu64 " of %zu",
                      items[CSR_INDICES], csr_rows_item(rows, CSR_INDICES), items[CSR_DATA],
                      csr_rows_item(rows, CSR_DATA));
    return 0;
}

static int check_indptr(struct csr_rows *rows, uint64_t *longest)
{
    uint64_t begin = get(rows, CSR_INDPTR, 0), most = rows->views->frame_elements;
    if (begin != 0)
        return differ(rows, BIT(CSR_INDPTR), "indptr.raw does not begin with 0");
    for (uint64_t row = 0; row < rows->n_rows; row++) {
        uint64_t end = get(rows, CSR_INDPTR, row + 1);
        if (end == UINT64_MAX || end < begin)
            return differ(rows, BIT(CSR_INDPTR), "indptr.raw falls behind item %" PRIu64, row);
        if (end - begin > most)
            return differ(rows, BIT(CSR_INDPTR),
                          "row %" PRIu64 " of indptr.raw has %" PRIu64
                          " elements, a frame %" PRIu64,
                          row, end - begin, most);
        *longest = end - begin > *longest ? end - begin : *longest;
        begin = end;
        int error = points_ask(row);
        if (error)
            return error;
    }
    if (begin != rows->n)
        return differ(rows, BIT(CSR_PARTS) - 1,
                      "indptr.raw ends with %" PRIu64 ", and indices.raw has %" PRIu64 " items",
                      begin, rows->n);
    return 0;
}

static int check_growth(struct csr_rows *rows)
{
    int error = rows->n_rows > rows->views->frames ? can_extend(rows->views, rows->n_rows) : 0;
    return error == -EFBIG ? differ(rows, BIT(CSR_INDPTR),
                                    "indptr.raw has %" PRIu64 " rows, the dataset %" PRIu64
                                    " frames, and it cannot grow so far",
                                    rows->n_rows, rows->views->frames)
                           : error;
}

static int check_indices(struct csr_rows *rows)
{
    int error = 0;
    for (uint64_t i = 0; i < rows->n && !error; i++) {
        error = points_ask(i);
        if (get(rows, CSR_INDICES, i) >= rows->views->frame_elements)
            error = differ(rows, BIT(CSR_INDICES),
                           "item %" PRIu64
                           " of indices.raw is outside of a frame, which has %" PRIu64 " elements",
                           i, rows->views->frame_elements);
    }
    return error;
}

int csr_rows_take(const struct csr_rows *rows, uint64_t row, uint64_t *n, bool *ascends)
{
    uint64_t begin = get(rows, CSR_INDPTR, row), end = get(rows, CSR_INDPTR, row + 1);
    int error = 0;
    *ascends = true;
    for (uint64_t i = begin; i < end && !error; i++) {
        rows->point[i - begin] = (struct point){get(rows, CSR_INDICES, i), i};
        *ascends &=
            i == begin || rows->point[i - begin - 1].position < rows->point[i - begin].position;
        error = points_ask(i);
    }
    *n = end - begin;
    return error;
}

/* In another order than they are shown they are taken all three only: what is written of them next
 * would be in the order of one, and be taken for that of the other. */
static int check_row(struct csr_rows *rows, uint64_t row)
{
    uint64_t n;
    bool ascends;
    int error = csr_rows_take(rows, row, &n, &ascends);
    if (error || ascends)
        return error;
    error = points_sort(rows->point, n);
    if (error == -EINVAL)
        return differ(rows, BIT(CSR_INDPTR) | BIT(CSR_INDICES),
                      "indices.raw names an element of row %" PRIu64 " twice", row);
    if (!error && rows->written != BIT(CSR_PARTS) - 1)
        return differ(
            rows, BIT(CSR_PARTS) - 1,
            "indices.raw does not ascend in row %" PRIu64 ": then all three files are wanted", row);
    return error;
}

static int check_rows(struct csr_rows *rows)
{
    int error = 0;
    for (uint64_t row = 0; row < rows->n_rows && !error; row++)
        error = check_row(rows, row);
    return error;
}

/* What cannot be read can be written anew. */
static int take_parts(struct csr_rows *rows, const struct counts *counts)
{
    int error = each_present(rows, counts, size_present);
    if (!error)
        error = check_sizes(rows);
    if (error)
        return error;
    error = each_present(rows, counts, take_present);
    return error == -EIO ? differ(rows, BIT(CSR_PARTS) - 1, "some of the others cannot be read")
                         : error;
}

/* Others may write while it is read: -EBUSY if they do so again and again. */
static int take_all(struct csr_rows *rows)
{
    int error = 0;
    for (int part = 0; part < CSR_PARTS; part++) {
        rows->bytes[part] = rows->csr->part[part].bytes;
        rows->size[part] = rows->csr->part[part].n;
        rows->written |= rows->bytes[part] ? BIT(part) : 0;
    }
    if (rows->written == BIT(CSR_PARTS) - 1)
        return check_sizes(rows);
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        const struct counts *counts;
        rows->csr->why[0] = '\0';
        error = counts_get(rows->views, &counts);
        if (error)
            return error;
        rows->changes = counts->changes;
        error = take_parts(rows, counts);
        counts_put(rows->views, counts);
        if (error != -EAGAIN || rows->csr->why[0])
            return error;
    }
    return -EBUSY;
}

static int check(struct csr_rows *rows)
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

int csr_rows_fit(struct csr_rows *rows)
{
    int error = take_all(rows);
    return error ? error : check(rows);
}

bool csr_rows_still_fit(const struct csr_rows *rows)
{
    const struct views *views = rows->views;
    return rows->extent == atomic_load(&views->extent) &&
           (rows->written == BIT(CSR_PARTS) - 1 || is_current(views, rows->changes));
}

void csr_rows_free(struct csr_rows *rows)
{
    free(rows->point);
    for (int part = 0; part < CSR_PARTS; part++)
        free(rows->own[part]);
}
