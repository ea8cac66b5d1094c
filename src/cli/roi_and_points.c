/* Rectangles and points, made into sorted pieces of rows. */
#include "cli/roi_and_points.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/search.h"

void pick_free(struct pick *pick)
{
    regions_free(&pick->regions);
    free(pick->roi);
    free(pick->row);
    *pick = (struct pick){0};
}

static int add_row(struct pick *pick, const struct pick_row *row)
{
    struct pick_row *grown = room_for_one(pick->row, pick->n, &pick->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    pick->row = grown;
    pick->row[pick->n++] = *row;
    return 0;
}

/* ---- Rectangles ---- */

/* What has a ':' is a rectangle, unless it is a path with one. */
int pick_add_roi(struct pick *pick, const char *text)
{
    struct rectangle roi;
    pick->is_used = true;
    if (!strchr(text, ':') || strchr(text, '/')) {
        if (pick->regions.path)
            return refuse("import", "--roi %s: only one file of regions is read", text);
        return regions_read(&pick->regions, text);
    }
    const char *end = rectangle_take(text, &roi);
    if (!end || *end)
        return refuse("import", "--roi %s: not y0:y1,x0:x1 with y0 < y1 and x0 < x1", text);
    struct rectangle *grown = reallocarray(pick->roi, pick->n_rois + 1, sizeof(*grown));
    if (!grown)
        return fail(-ENOMEM, "--roi %s", text);
    pick->roi = grown;
    pick->roi[pick->n_rois++] = roi;
    return 0;
}

/* ---- Points ---- */

/* The numbers of a line before its comment: 0 to 3, or -1 if there is anything else. */
static int take_line(const char *line, uint64_t *numbers)
{
    int n = 0;
    for (;;) {
        line += strspn(line, " \t\r\n,");
        if (!*line || *line == '#')
            return n;
        char *end;
        errno = 0;
        uint64_t number = strtoull(line, &end, 10);
        if (n == 3 || *line < '0' || *line > '9' || errno || !strchr(" \t\r\n,#", *end))
            return -1;
        numbers[n++] = number;
        line = end;
    }
}

static int read_points(struct pick *pick, FILE *file, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    int columns = 0, code = 0;
    for (unsigned long number = 1; !code && getline(&line, &room, file) >= 0; number++) {
        uint64_t value[3];
        int n = take_line(line, value);
        if (n == 0)
            continue;
        if ((n != 2 && n != 3) || (columns && n != columns)) {
            code = fail_because("%s: line %lu: not \"y x\", or \"frame y x\" throughout", path,
                                number);
            break;
        }
        columns = n;
        uint64_t y = value[n - 2], x = value[n - 1];
        struct pick_row row = {n == 3 ? value[0] : EVERY_FRAME, y, x, x + 1};
        if (row.x1 == 0 || (n == 3 && row.frame == EVERY_FRAME))
            code = fail_because("%s: line %lu: the number is too large", path, number);
        else if (add_row(pick, &row))
            code = fail(-ENOMEM, "%s", path);
    }
    if (!code && ferror(file))
        code = fail_because("%s: %s", path, strerror(errno));
    free(line);
    return code;
}

int pick_read_points(struct pick *pick, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return fail_because("%s: %s", path, strerror(errno));
    int code = read_points(pick, file, path);
    fclose(file);
    pick->is_used = true;
    return code;
}

/* ---- Fitting ---- */

static int compare_rows(const void *a, const void *b)
{
    const struct pick_row *r = a, *s = b;
    return r->frame != s->frame ? (r->frame < s->frame ? -1 : 1)
           : r->y != s->y       ? (r->y < s->y ? -1 : 1)
                                : (r->x0 > s->x0) - (r->x0 < s->x0);
}

/* Sorts, and joins what overlaps. */
static void sort_rows(struct pick *pick)
{
    if (pick->n == 0)
        return;
    qsort(pick->row, pick->n, sizeof(*pick->row), compare_rows);
    size_t last = 0;
    for (size_t i = 1; i < pick->n; i++) {
        struct pick_row *row = &pick->row[last];
        const struct pick_row *next = &pick->row[i];
        if (row->frame == next->frame && row->y == next->y && next->x0 <= row->x1) {
            if (next->x1 > row->x1)
                row->x1 = next->x1;
        } else {
            pick->row[++last] = *next;
        }
    }
    pick->n = last + 1;
}

static int fit_roi(const struct rectangle *asked, const char *path, uint64_t height, uint64_t width,
                   struct pick *fitted)
{
    struct rectangle roi = *asked;
    if (!rectangle_fit(&roi, height, width))
        return fail_because("%s: the --roi does not lie in frames of %" PRIu64 " x %" PRIu64, path,
                            height, width);
    for (uint64_t y = roi.y0; y < roi.y1; y++) {
        if (interrupted) /* a small file may claim any height */
            return fail(-EINTR, "%s", path);
        if (add_row(fitted, &(struct pick_row){EVERY_FRAME, y, roi.x0, roi.x1}))
            return fail(-ENOMEM, "%s", path);
    }
    return 0;
}

int pick_fit(const struct pick *pick, const char *path, const struct sfs_dataset_info *info,
             struct pick *fitted)
{
    *fitted = (struct pick){.is_used = pick->is_used, .full_every = pick->full_every};
    if (!pick->is_used)
        return 0;
    if (info->rank < 2)
        return fail_because("%s: --roi and --points want a dataset of rank 2 or more", path);
    uint64_t frames = info->rank > 2 ? info->dims[0] : 1;
    uint64_t height = info->dims[info->rank - 2], width = info->dims[info->rank - 1];
    int code = regions_fit(&pick->regions, path, frames, height, width, &fitted->regions);
    for (size_t i = 0; i < pick->n_rois && !code; i++)
        code = fit_roi(&pick->roi[i], path, height, width, fitted);
    for (size_t i = 0; i < pick->n && !code; i++) {
        const struct pick_row *row = &pick->row[i];
        if (row->y >= height || row->x1 > width ||
            (row->frame != EVERY_FRAME && row->frame >= frames))
            code = fail_because("%s: the point y %" PRIu64 " x %" PRIu64 " of --points does not "
                                "lie in the dataset",
                                path, row->y, row->x0);
        else if (add_row(fitted, row))
            code = fail(-ENOMEM, "%s", path);
    }
    if (code)
        pick_free(fitted);
    else
        sort_rows(fitted);
    return code;
}

struct sought {
    const struct pick *pick;
    uint64_t frame, y;
};

static bool is_not_before(const void *context, size_t i)
{
    const struct sought *sought = context;
    const struct pick_row *row = &sought->pick->row[i];
    return row->frame > sought->frame || (row->frame == sought->frame && row->y >= sought->y);
}

const struct pick_row *pick_find(const struct pick *pick, uint64_t frame, uint64_t y, size_t *n)
{
    const struct sought sought = {pick, frame, y};
    size_t low = search_between(0, pick->n, is_not_before, &sought);
    size_t end = low;
    while (end < pick->n && pick->row[end].frame == frame && pick->row[end].y == y)
        end++;
    *n = end - low;
    return pick->row + low;
}

bool pick_is_full(const struct pick *pick, uint64_t frame)
{
    return pick->full_every > 0 && frame % pick->full_every == 0;
}
