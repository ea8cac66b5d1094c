/* Pixels of frames that are images, for the views that show them in other types: their values,
 * which of them are defined, and the pixel mask that NeXus files have beside them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "view/pixel.h"

#define PIECE_BYTES ((size_t)1 << 20)

bool pixel_is_number(const struct sfs_type *type)
{
    bool has_value = type->class == SFS_FLOAT
                         ? type->size == 2 || type->size == 4 || type->size == 8
                         : is_number(type) && type->size <= 8;
    return has_value && type->size > 0;
}

int pixels_read(struct views *views, uint64_t frame, pixels_action action, void *context)
{
    struct sfs_slab slab = view_frame_slab(views, frame);
    size_t size = views->info->type.size;
    uint64_t most = PIECE_BYTES / size, n;
    unsigned char *piece = malloc((size_t)most * size);
    if (!piece)
        return -ENOMEM;
    int error = 0;
    for (uint64_t first = 0; first < views->frame_elements && !error; first += n) {
        n = views->frame_elements - first < most ? views->frame_elements - first : most;
        error = interrupt_check();
        if (!error)
            error = sfs_read(views->dataset, &slab, first * size, piece, (size_t)n * size);
        if (!error) {
            show_elements(views, piece, n);
            action(context, first, (size_t)n, piece);
        }
    }
    free(piece);
    return error;
}

int pixels_clear_undefined(struct views *views, uint64_t frame, unsigned char *is_there)
{
    struct defined_frame *defined;
    memset(is_there, 1, (size_t)views->frame_elements);
    if (!views->is_sparse)
        return 0;
    int error = defined_get(views, frame, DEFINED_INTERVALS, &defined);
    if (error)
        return error;
    const struct sfs_interval *interval = defined->defined.interval;
    uint64_t end = 0;
    for (size_t i = 0; i < defined->defined.n; i++) {
        memset(is_there + end, 0, (size_t)(interval[i].first - end));
        end = interval[i].first + (interval[i + 1].index - interval[i].index);
    }
    memset(is_there + end, 0, (size_t)(views->frame_elements - end));
    defined_put(views, defined);
    return 0;
}

/* ---- The mask ---- */

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
