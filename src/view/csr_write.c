/* csr/ of a sparse dataset as it is written: three arrays that mean something together only (csr_fit.c). All is checked
 * before anything is changed; then frame after frame gets its row, and those that hold it already stay as they are. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "view/csr_fit.h"

#define MOST_TRIES 8 /* while others change what they were checked for */

/* What a frame held. */
struct kept_row {
    struct kept_row *next;
    uint64_t frame;
    struct points points;
};

struct change_rows {
    struct csr_rows *rows;
    struct kept_row *kept; /* the last one first */
    size_t bytes;          /* of all */
    bool is_incomplete;    /* of a frame that was changed it is not known */
};

static size_t bytes_of(const struct views *views, const struct points *points)
{
    return sizeof(struct kept_row) + points_bytes(points, views->info->type.size);
}

/* Of a frame that cannot be read nothing can be kept. */
static void keep_row(struct change_rows *change, uint64_t frame, struct points *points)
{
    const struct csr_rows *rows = change->rows;
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

/* The last one that was kept, if it is of this row, has not changed. */
static void forget_row(struct change_rows *change, uint64_t row)
{
    struct kept_row *kept = change->kept;
    if (!kept || kept->frame != row)
        return;
    change->kept = kept->next;
    points_free(&kept->points);
    free(kept);
}

static int change_row(struct change_rows *change, uint64_t row)
{
    struct csr_rows *rows = change->rows;
    struct views *views = rows->views;
    struct points now = {0}, points;
    uint64_t n;
    bool ascends;
    int error = csr_rows_take(rows, row, &n, &ascends);
    if (!error && !ascends)
        error = points_sort(rows->point, n); /* which was done before */
    if (!error)
        error = points_make(rows->point, n, rows->bytes[CSR_DATA], csr_rows_item(rows, CSR_DATA),
                            &points);
    if (error)
        return error;
    bool is_there = row < views->frames;
    int unread = is_there ? points_read(views, row, rows->csr->most_kept, &now) : 0;
    bool is_read = is_there && !unread;
    uint64_t room = bytes_of(views, &points) + (is_read ? bytes_of(views, &now) : 0);
    if (unread == -EINTR)
        error = unread;
    else if (is_read ? points_are_same(views, &points, &now) : !is_there && n == 0) {
        points_free(&now);
    } else {
        if (is_there)
            keep_row(change, row, &now);
        error = sfs_make_room(views->dataset, room);
        rows->csr->has_begun |= !error;
        if (!error)
            error = view_place_points(views, row, &points.defined, points.values);
        if (error == -EINTR && !interrupt_was_late())
            forget_row(change, row);
    }
    points_free(&points);
    return error;
}

static bool is_as_before(struct views *views, const struct kept_row *kept)
{
    struct points now;
    if (points_read(views, kept->frame, SIZE_MAX, &now) != 0)
        return false;
    bool is_before = points_are_same(views, &now, &kept->points);
    points_free(&now);
    return is_before;
}

/* Without room in the cache what has taken it goes first. */
static bool restore_row(struct views *views, const struct kept_row *kept)
{
    const struct points *points = &kept->points;
    const struct sfs_slab slab = view_frame_slab(views, kept->frame);
    if (view_place_points(views, kept->frame, &points->defined, points->values) == 0 ||
        is_as_before(views, kept))
        return true;
    (void)sfs_erase(views->dataset, &slab);
    return view_place_points(views, kept->frame, &points->defined, points->values) == 0;
}

static void undo(const struct change_rows *change)
{
    const struct csr_rows *rows = change->rows;
    struct views *views = rows->views;
    UNINTERRUPTED();
    bool is_undone = !change->is_incomplete;
    for (const struct kept_row *kept = change->kept; kept; kept = kept->next)
        is_undone &= restore_row(views, kept);
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
    return error;
}

static int apply(struct csr_rows *rows)
{
    struct change_rows change = {.rows = rows};
    int error = rows->n_rows == 0 ? 0
                                  : change_frame(rows->views, VIEW_CSR_DATA, rows->n_rows - 1,
                                                 change_rows, &change);
    if (error) /* new frames are gone, and what they took of the cache */
        undo(&change);
    for (struct kept_row *kept = change.kept, *next; kept; kept = next) {
        next = kept->next;
        points_free(&kept->points);
        free(kept);
    }
    return error;
}

/* -EAGAIN: what they were checked for has changed. */
static int apply_checked(void *context)
{
    struct csr_rows *rows = context;
    struct views *views = rows->views;
    LOOKING_AT(views);
    return csr_rows_still_fit(rows) ? apply(rows) : -EAGAIN;
}

static int check(struct csr_rows *rows)
{
    struct views *views = rows->views;
    LOOKING_AT(views);
    rows->csr->why[0] = '\0';
    rows->extent = atomic_load(&views->extent);
    return is_writable(views, VIEW_CSR_DATA) ? csr_rows_fit(rows) : cannot_write(views);
}

/* While nobody else writes. */
static int check_and_apply(void *context)
{
    struct csr_rows *rows = context;
    int error = check(rows);
    return error ? error : apply_checked(rows);
}

/* *again: what they are checked for has changed. Then they are checked while others wait. */
static int try_to_put(struct views *views, struct view_csr *csr, bool *again)
{
    const struct view_frames all = {0, UINT64_MAX};
    struct csr_rows rows = {.views = views, .csr = csr};
    bool is_second = *again;
    *again = false;
    int error = is_second ? 0 : check(&rows);
    if (error) {
        *again = error == -EBUSY;
    } else {
        error =
            change_held(views, csr->hold, all, is_second ? check_and_apply : apply_checked, &rows);
        *again = error == -EAGAIN && !csr->why[0];
    }
    csr_rows_free(&rows);
    return error;
}

int view_put_csr(struct views *views, struct view_csr *csr)
{
    bool again = false;
    csr->has_begun = false;
    int error = try_to_put(views, csr, &again);
    for (int tries = 1; tries < MOST_TRIES && again; tries++)
        error = try_to_put(views, csr, &again);
    return again ? -EBUSY : error;
}
