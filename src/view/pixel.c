/* Pixels of frames that are images, for the views that show them in other types: their values,
 * which of them are defined, and the pixel mask that NeXus files have beside them. */
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "view/pixel.h"

#define PIECE_BYTES ((size_t)1 << 20)

uint64_t pixel_bits(const struct sfs_type *type, const unsigned char *element)
{
    uint64_t value = 0;
    uint32_t four;
    if (type->size == sizeof(uint16_t)) /* what detectors have, without a loop */
        return element[type->big_endian] | (uint64_t)element[!type->big_endian] << 8;
    if (type->size == sizeof(four)) {
        memcpy(&four, element, sizeof(four));
        return type->big_endian ? be32toh(four) : le32toh(four);
    }
    for (size_t i = 0; i < type->size; i++)
        value |= (uint64_t)element[type->big_endian ? type->size - 1 - i : i] << 8 * i;
    return value;
}

int64_t pixel_signed(const struct sfs_type *type, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)type->size;
    return type->is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* IEEE 754 of 16 bits. */
static double half(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023);
    double value = exponent == 31  ? (bits & 1023 ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

double pixel_value(const struct sfs_type *type, const unsigned char *element)
{
    uint64_t bits = pixel_bits(type, element);
    if (type->class != SFS_FLOAT)
        return type->is_signed ? (double)pixel_signed(type, bits) : (double)bits;
    if (type->size == sizeof(float)) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof(value));
        return value;
    }
    double value;
    memcpy(&value, &bits, sizeof(value));
    return type->size == sizeof(double) ? value : half(bits);
}

bool pixel_is_number(const struct sfs_type *type)
{
    bool has_value = type->class == SFS_FLOAT
                         ? type->size == 2 || type->size == 4 || type->size == 8
                         : is_number(type) && type->size <= 8;
    return has_value && type->size > 0;
}

bool pixel_is_marked(const struct sfs_type *type, uint64_t bits)
{
    return type->class == SFS_INTEGER && !type->is_signed &&
           bits == UINT64_MAX >> (64 - 8 * type->size);
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
        uint64_t bits = pixel_bits(type, elements + i * type->size);
        mask[i] = bits == 0 ? PIXEL_GOOD : bits == 1 ? PIXEL_GAP : PIXEL_BAD;
    }
    free(elements);
    return error;
}

static int load_mask(struct views *views, struct pixel_mask *mask)
{
    struct sfs_dataset *dataset;
    unsigned char *pixels = malloc((size_t)views->frame_elements);
    int error = pixels ? nexus_open(views, "pixel_mask", &dataset) : -ENOMEM;
    if (!error) {
        error = read_mask(views, dataset, pixels);
        sfs_dataset_close(dataset);
    }
    if (error)
        free(pixels);
    else
        mask->pixels = pixels;
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
