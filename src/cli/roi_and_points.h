/* Which elements of a frame stay defined: those of rectangles (--roi) and points (--points),
 * together, of every frame or of some; y and x are the last two axes. And which frames are stored
 * in full. */
#ifndef SPARSEFS_CLI_ROI_AND_POINTS_H
#define SPARSEFS_CLI_ROI_AND_POINTS_H

#include "cli/regions.h"

#define EVERY_FRAME UINT64_MAX

/* Elements x0 to x1 - 1 of row y. */
struct pick_row {
    uint64_t frame; /* or EVERY_FRAME */
    uint64_t y, x0, x1;
};

struct pick {
    bool is_used;        /* false: everything is picked */
    uint64_t full_every; /* 0: no frame is stored in full */
    size_t n_rois;
    struct rectangle *roi;
    size_t n, room;
    struct regions regions;
    struct pick_row *row; /* after pick_fit ascending, and disjoint within a frame */
};

void pick_free(struct pick *pick);

/* Takes "y0:y1,x0:x1", any of which may be missing, of every frame; or the path of a file of
 * regions. USAGE; FAILED. */
int pick_add_roi(struct pick *pick, const char *text);

/* Takes a file of lines "y x", or "frame y x" throughout; '#' begins a comment. FAILED. */
int pick_read_points(struct pick *pick, const char *path);

/* Makes *fitted of it for a dataset: everything has to lie inside. FAILED. */
int pick_fit(const struct pick *pick, const char *path, const struct sfs_dataset_info *info,
             struct pick *fitted);

/* The pieces of a row of a frame: *n of them from the result on. */
const struct pick_row *pick_find(const struct pick *pick, uint64_t frame, uint64_t y, size_t *n);

/* Whether a frame is stored in full. */
bool pick_is_full(const struct pick *pick, uint64_t frame);

#endif
