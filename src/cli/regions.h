/* Rectangles that are not the same in all frames (--roi FILE). */
#ifndef SPARSEFS_CLI_REGIONS_H
#define SPARSEFS_CLI_REGIONS_H

#include "cli/cli.h"

#define TO_THE_END UINT64_MAX

struct rectangle {
    uint64_t y0, y1, x0, x1; /* y1, x1: behind the last, or TO_THE_END */
};

/* Frames that a line of the file is about. */
struct region {
    uint64_t first, end; /* behind the last, or TO_THE_END */
    unsigned long line;
    size_t at, n; /* its rectangles */
};

struct regions {
    char *path; /* of the file, NULL: there is none */
    size_t n, room;
    struct region *region; /* ascending, and disjoint */
    size_t n_rectangles, rectangle_room;
    struct rectangle *rectangle; /* of fitted ones ascending by x0 within a region */
};

void regions_free(struct regions *regions);

/* Takes "y0:y1,x0:x1", any of which may be missing, at the beginning of a text that goes on with
 * white space or ends; returns what is behind it, or NULL. */
const char *rectangle_take(const char *text, struct rectangle *rectangle);

/* Sets the ends that were left out. false: it does not lie in such frames. */
bool rectangle_fit(struct rectangle *rectangle, uint64_t height, uint64_t width);

/* Reads lines of "FRAMES RECTANGLE ...", FRAMES being "first:end", either of which may be missing,
 * or one number; '#' begins a comment. The ranges must not overlap. FAILED. */
int regions_read(struct regions *regions, const char *path);

/* Makes *fitted of it for frames of a dataset: everything has to lie inside. FAILED. */
int regions_fit(const struct regions *regions, const char *path, uint64_t frames, uint64_t height,
                uint64_t width, struct regions *fitted);

/* The region of a frame, or NULL. */
const struct region *region_of(const struct regions *regions, uint64_t frame);

#endif
