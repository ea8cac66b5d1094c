/* Which pixels of a detector are none. */
#ifndef SPARSEFS_CLI_PIXEL_MASK_H
#define SPARSEFS_CLI_PIXEL_MASK_H

#include "cli/cli.h"

struct pixel_mask {
    bool is_none;          /* nor is 2^n - 1 of unsigned integers a mark */
    unsigned char *masked; /* of each element of an image, 0: it is not; NULL: of all */
    uint64_t n;            /* elements of one image, or of all of a frame */
};

/* asked: "none", FILE:DATASET, or NULL for the NXdetector's `pixel_mask`, if it fits the dataset at
 * this path. A mask has the dims of a frame, or of its last two axes, and integers, of which all
 * but 0 are masked. FAILED; USAGE. */
int pixel_mask_read(const char *asked, struct sfs_file *file, const char *path,
                    const struct sfs_dataset_info *info, struct pixel_mask *mask);
void pixel_mask_free(struct pixel_mask *mask);

#endif
