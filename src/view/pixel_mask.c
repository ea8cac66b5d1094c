/* The pixel mask that NeXus files have beside an image: read once for each dataset, and again after it was written. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "view/pixel.h"
#include "view/views_memory.h"

#define PIECE_BYTES ((size_t)1 << 20)

/* A mask has the dims of the frame, and integers. */
static bool is_mask(const struct views *views, struct sfs_dataset *dataset)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    const uint64_t *frame_dims = views->dims + views->info->rank - views->frame_rank;
    uint64_t dims[SFS_MAX_RANK];
    (void)sfs_dataset_dims(dataset, dims);
    return info->rank == 2 && views->frame_rank == 2 && dims[0] == frame_dims[0] &&
           dims[1] == frame_dims[1] && info->type.class == SFS_INTEGER && info->type.size <= 8;
}

static int read_mask(const struct views *views, struct sfs_dataset *dataset, unsigned char *mask)
{
    const struct sfs_type *type = &sfs_dataset_info(dataset)->type;
    const uint64_t *frame_dims = views->dims + views->info->rank - views->frame_rank;
    struct sfs_slab slab = {.rank = 2, .count = {frame_dims[0], frame_dims[1]}};
    const uint64_t most = PIECE_BYTES / type->size;
    unsigned char *piece = malloc(PIECE_BYTES);
    int error = piece ? 0 : -ENOMEM;
    for (uint64_t first = 0, n; first < views->frame_elements && !error; first += n) {
        n = views->frame_elements - first < most ? views->frame_elements - first : most;
        error = interrupt_check();
        if (!error)
            error = sfs_read(dataset, &slab, first * type->size, piece, (size_t)n * type->size);
        for (uint64_t i = 0; i < n && !error; i++) {
            uint64_t bits = number_bits(type, piece + i * type->size);
            mask[first + i] = bits == 0 ? PIXEL_GOOD : bits == 1 ? PIXEL_GAP : PIXEL_BAD;
        }
    }
    free(piece);
    return error;
}

static int make_mask(const struct views *views, struct sfs_dataset *dataset,
                     struct pixel_mask *mask)
{
    const size_t n = (size_t)views->frame_elements;
    int error = kept_memory_take(views, n);
    if (error)
        return error;
    unsigned char *pixels = malloc(n);
    atomic_store(&mask->changes, sfs_dataset_changes(dataset));
    error = pixels ? read_mask(views, dataset, pixels) : -ENOMEM;
    if (error) {
        free(pixels);
        kept_memory_give_back(n);
    } else {
        mask->pixels = pixels;
        mask->n = n;
    }
    return error;
}

static int load_mask(struct views *views, struct pixel_mask *mask)
{
    int error = mask->dataset ? 0 : nexus_open(views, "pixel_mask", &mask->dataset);
    if (!error)
        error = is_mask(views, mask->dataset) ? make_mask(views, mask->dataset, mask) : -ENOENT;
    mask->is_known = !error || error == -ENOENT;
    /* A virtual one counts as changed with all that is written. */
    atomic_store(&mask->is_watched,
                 !error && sfs_dataset_info(mask->dataset)->layout != SFS_VIRTUAL);
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

bool pixel_mask_is_outdated(const struct views *views)
{
    const struct pixel_mask *mask = &views->mask;
    return atomic_load(&mask->is_watched) &&
           atomic_load(&mask->changes) != sfs_dataset_changes(mask->dataset);
}

void pixel_mask_drop(struct views *views)
{
    struct pixel_mask *mask = &views->mask;
    kept_memory_give_back(mask->n);
    free(mask->pixels);
    mask->pixels = NULL;
    mask->n = 0;
    mask->is_known = false;
    atomic_store(&mask->is_watched, false);
}

void pixel_mask_close(struct views *views)
{
    pixel_mask_drop(views);
    sfs_dataset_close(views->mask.dataset);
}
