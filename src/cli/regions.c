/* Reading a file of rectangles, and finding those of a frame. */
#include "cli/regions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/search.h"

#define BLANKS " \t\r\n"

void regions_free(struct regions *regions)
{
    free(regions->path);
    free(regions->region);
    free(regions->rectangle);
    *regions = (struct regions){0};
}

/* ---- Words ---- */

static bool take_number(const char **text, uint64_t *number)
{
    char *behind;
    errno = 0;
    *number = strtoull(*text, &behind, 10);
    *text = behind;
    return errno == 0 && *number < TO_THE_END;
}

/* "first:end", either of which may be missing, at *text, which is moved behind it. */
static bool take_range(const char **text, uint64_t *first, uint64_t *end)
{
    *first = 0;
    *end = TO_THE_END;
    if (**text >= '0' && **text <= '9' && !take_number(text, first))
        return false;
    if (*(*text)++ != ':')
        return false;
    if (**text >= '0' && **text <= '9' && !take_number(text, end))
        return false;
    return *first < *end;
}

const char *rectangle_take(const char *text, struct rectangle *rectangle)
{
    bool is_one = take_range(&text, &rectangle->y0, &rectangle->y1) && *text++ == ',' &&
                  take_range(&text, &rectangle->x0, &rectangle->x1);
    return is_one && (!*text || strchr(BLANKS "#", *text)) ? text : NULL;
}

bool rectangle_fit(struct rectangle *rectangle, uint64_t height, uint64_t width)
{
    if (rectangle->y1 == TO_THE_END)
        rectangle->y1 = height;
    if (rectangle->x1 == TO_THE_END)
        rectangle->x1 = width;
    return rectangle->y1 <= height && rectangle->x1 <= width && rectangle->y0 < rectangle->y1 &&
           rectangle->x0 < rectangle->x1;
}

/* "first:end" or one number, before white space. */
static const char *take_frames(const char *text, struct region *region)
{
    const char *at = text;
    size_t digits = strspn(text, "0123456789");
    bool is_range = text[digits] == ':';
    if (is_range ? !take_range(&at, &region->first, &region->end)
                 : digits == 0 || !take_number(&at, &region->first))
        return NULL;
    if (!is_range)
        region->end = region->first + 1;
    return *at && strchr(BLANKS, *at) ? at : NULL;
}

/* ---- Lines ---- */

static int add_rectangle(struct regions *regions, const struct rectangle *rectangle)
{
    struct rectangle *grown = room_for_one(regions->rectangle, regions->n_rectangles,
                                           &regions->rectangle_room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    regions->rectangle = grown;
    grown[regions->n_rectangles++] = *rectangle;
    return 0;
}

static int add_region(struct regions *regions, const struct region *region)
{
    struct region *grown =
        room_for_one(regions->region, regions->n, &regions->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    regions->region = grown;
    grown[regions->n++] = *region;
    return 0;
}

/* -EINVAL: the line is not as it must be. */
static int take_line(struct regions *regions, const char *line, unsigned long number)
{
    struct region region = {.line = number, .at = regions->n_rectangles};
    struct rectangle rectangle;
    line += strspn(line, BLANKS);
    if (!*line || *line == '#')
        return 0;
    line = take_frames(line, &region);
    int error = line ? 0 : -EINVAL;
    while (!error) {
        line += strspn(line, BLANKS);
        if (!*line || *line == '#')
            break;
        line = rectangle_take(line, &rectangle);
        error = line ? add_rectangle(regions, &rectangle) : -EINVAL;
        region.n++;
    }
    if (!error && region.n == 0)
        error = -EINVAL;
    return error ? error : add_region(regions, &region);
}

static int compare_regions(const void *a, const void *b)
{
    const struct region *r = a, *s = b;
    return r->first != s->first ? (r->first < s->first ? -1 : 1)
                                : (r->line > s->line) - (r->line < s->line);
}

static int sort_regions(struct regions *regions)
{
    if (regions->n > 0)
        qsort(regions->region, regions->n, sizeof(*regions->region), compare_regions);
    for (size_t i = 1; i < regions->n; i++) {
        const struct region *one = &regions->region[i - 1], *next = &regions->region[i];
        unsigned long first = one->line < next->line ? one->line : next->line;
        unsigned long second = one->line < next->line ? next->line : one->line;
        if (next->first < one->end)
            return fail_because("%s: line %lu: frame %" PRIu64 " is in line %lu, too",
                                regions->path, second, next->first, first);
    }
    return 0;
}

static int read_lines(struct regions *regions, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int code = 0;
    for (unsigned long n = 1; !code && (length = getline(&line, &room, file)) >= 0; n++) {
        int error = strlen(line) == (size_t)length ? take_line(regions, line, n) : -EINVAL;
        if (error == -EINVAL)
            code = fail_because("%s: line %lu: not \"first:end y0:y1,x0:x1 ...\" with first < end, "
                                "y0 < y1 and x0 < x1",
                                regions->path, n);
        else if (error)
            code = fail(error, "%s", regions->path);
    }
    if (!code && ferror(file))
        code = fail_because("%s: %s", regions->path, strerror(errno));
    free(line);
    return code ? code : sort_regions(regions);
}

int regions_read(struct regions *regions, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return fail_because("%s: %s", path, strerror(errno));
    regions->path = strdup(path);
    int code = regions->path ? read_lines(regions, file) : fail(-ENOMEM, "%s", path);
    fclose(file);
    return code;
}

/* ---- Fitting ---- */

static int compare_rectangles(const void *a, const void *b)
{
    const struct rectangle *r = a, *s = b;
    return (r->x0 > s->x0) - (r->x0 < s->x0);
}

static int fit_region(const struct regions *regions, const struct region *region, const char *path,
                      const uint64_t *dims, struct regions *fitted)
{
    struct region own = *region;
    if (own.end == TO_THE_END)
        own.end = dims[0];
    if (own.first > own.end || own.end > dims[0])
        return fail_because("%s: line %lu: %s has only %" PRIu64 " frames", regions->path, own.line,
                            path, dims[0]);
    own.at = fitted->n_rectangles;
    for (size_t i = 0; i < own.n; i++) {
        struct rectangle rectangle = regions->rectangle[region->at + i];
        if (!rectangle_fit(&rectangle, dims[1], dims[2]))
            return fail_because("%s: line %lu: rectangle %zu does not lie in the frames of %s, "
                                "%" PRIu64 " x %" PRIu64,
                                regions->path, own.line, i + 1, path, dims[1], dims[2]);
        if (add_rectangle(fitted, &rectangle))
            return fail(-ENOMEM, "%s", path);
    }
    qsort(fitted->rectangle + own.at, own.n, sizeof(*fitted->rectangle), compare_rectangles);
    return add_region(fitted, &own) ? fail(-ENOMEM, "%s", path) : 0;
}

int regions_fit(const struct regions *regions, const char *path, uint64_t frames, uint64_t height,
                uint64_t width, struct regions *fitted)
{
    const uint64_t dims[] = {frames, height, width};
    int code = 0;
    *fitted = (struct regions){0};
    for (size_t i = 0; i < regions->n && !code; i++)
        code = fit_region(regions, &regions->region[i], path, dims, fitted);
    if (code)
        regions_free(fitted);
    return code;
}

struct sought {
    const struct regions *regions;
    uint64_t frame;
};

static bool ends_behind(const void *context, size_t i)
{
    const struct sought *sought = context;
    return sought->regions->region[i].end > sought->frame;
}

const struct region *region_of(const struct regions *regions, uint64_t frame)
{
    const struct sought sought = {regions, frame};
    size_t low = search_between(0, regions->n, ends_behind, &sought);
    return low < regions->n && regions->region[low].first <= frame ? &regions->region[low] : NULL;
}
