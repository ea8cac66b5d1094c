/* The pixel mask that NeXus files have beside an image: read once for each dataset. */
#include <errno.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "view/pixel.h"

/* A mask has the dims of the frame, and integers. -ENOENT: this is none. */
static int read_mask(struct views *views, struct sfs_dataset *dataset, unsigned char *mask)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    const struct sfs_type *type = &info->type;
    const uint64_t *frame_dims = views->dims + views->info->rank - views->frame_rank;
    uint64_t dims[SFS_MAX_RANK];
    struct sfs_slab slab = {.rank = 2, .count = {frame_dims[0], frame_dims[1]}};
    (void)sfs_dataset_dims(dataset, dims);
    if (info->rank != 2 || views->frame_rank != 2 || dims[0] != frame_dims[0] ||
        dims[1] != frame_dims[1] || type->class != SFS_INTEGER || type->size > 8)
        return -ENOENT;
    size_t n = (size_t)views->frame_elements;
    unsigned char *elements = malloc(n * type->size);
    int error = elements ? sfs_read(dataset, &slab, 0, elements, n * type->size) : -ENOMEM;
    for (size_t i = 0; i < n && !error; i++) {
        uint64_t bits = number_bits(type, elements + i * type->size);
        mask[i] = bits == 0 ? PIXEL_GOOD : bits == 1 ? PIXEL_GAP : PIXEL_BAD;
    }
    free(elements);
    return error;
}

static int load_mask(struct views *views, struct pixel_mask *mask)
{
    struct sfs_dataset *dataset;
    size_t n = (size_t)views->frame_elements;
    unsigned char *pixels = malloc(n);
    int error = pixels ? nexus_open(views, "pixel_mask", &dataset) : -ENOMEM;
    if (!error) {
        error = read_mask(views, dataset, pixels);
        sfs_dataset_close(dataset);
    }
    if (error)
        free(pixels);
    else
        *mask = (struct pixel_mask){.pixels = pixels, .n = n};
    mask->is_known = !error || error == -ENOENT;
    return error == -ENOENT ? 0 : error;
}

int pixel_mask_get(struct views *views, const unsigned char **mask)
{
    int error = interrupt_lock(&views->lock); /* it is held while it is read */
    if (error)
        return error;
    if (!views->mask.is_known)
        error = load_mask(views, &views->mask);
    *mask = views->mask.pixels;
    pthread_mutex_unlock(&views->lock);
    return error;
}

void pixel_mask_drop(struct views *views)
{
    free(views->mask.pixels);
    views->mask = (struct pixel_mask){0};
}
