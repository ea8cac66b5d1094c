/* Reading pixel masks. */
#include "cli/pixel_mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/external_links.h"
#include "cli/options.h"
#include "cli/tree.h"
#include "view/detector.h"
#include "view/element_number.h"

#define MOST_PIXELS ((uint64_t)1 << 28) /* a byte of memory for each */

void pixel_mask_free(struct pixel_mask *mask)
{
    free(mask->masked);
    *mask = (struct pixel_mask){0};
}

/* Whether the dims are the last ones of the other. */
static bool fits(const struct sfs_dataset_info *mask, const struct sfs_dataset_info *info)
{
    bool is_image = mask->rank == 2 || (info->rank > 2 && mask->rank == info->rank - 1);
    return is_image && mask->type.class != SFS_FLOAT && is_numeric(&mask->type) &&
           mask->type.size <= sizeof(uint64_t) && mask->elements <= MOST_PIXELS &&
           !memcmp(mask->dims, info->dims + info->rank - mask->rank,
                   (size_t)mask->rank * sizeof(*mask->dims));
}

static int read_pixels(struct sfs_dataset *dataset, struct pixel_mask *mask)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    size_t n = (size_t)info->elements, size = info->type.size;
    struct sfs_slab slab = {.rank = info->rank};
    memcpy(slab.count, info->dims, sizeof(slab.count));
    unsigned char *elements = malloc(n * size + 1);
    mask->masked = malloc(n + 1);
    mask->n = n;
    int error =
        elements && mask->masked ? sfs_read(dataset, &slab, 0, elements, n * size) : -ENOMEM;
    for (size_t i = 0; i < n && !error; i++)
        mask->masked[i] = number_bits(&info->type, elements + i * size) != 0;
    free(elements);
    return error;
}

/* The detector's own. There need be none. */
static int read_own(struct sfs_file *file, const char *path, const struct sfs_dataset_info *info,
                    struct pixel_mask *mask)
{
    static const char *const names[] = {"pixel_mask", "detectorSpecific/pixel_mask"};
    uint64_t detector, entry;
    struct sfs_dataset *dataset;
    int error = detector_find(file, path, &detector, &entry), found = -ENOENT;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !error && found == -ENOENT; i++)
        found = detector_open(file, detector, names[i], &dataset);
    error = error ? error : found;
    if (!error) {
        if (fits(sfs_dataset_info(dataset), info))
            error = read_pixels(dataset, mask);
        sfs_dataset_close(dataset);
    }
    if (error == -ENOENT)
        messages_forget();
    return error && error != -ENOENT ? fail(error, "%s:%s: pixel_mask", sfs_path(file), path) : 0;
}

static int read_dataset(struct sfs_file *file, const char *asked, const char *mask_path,
                        const struct sfs_dataset_info *info, struct pixel_mask *mask)
{
    struct sfs_dataset *dataset;
    int code = tree_open(file, mask_path, &dataset);
    if (code)
        return code;
    if (!fits(sfs_dataset_info(dataset), info))
        code = fail_because("--mask %s: not integers with the dims of a frame", asked);
    else {
        int error = read_pixels(dataset, mask);
        code = error ? fail(error, "--mask %s", asked) : 0;
    }
    sfs_dataset_close(dataset);
    return code;
}

static int read_other(const char *asked, const struct sfs_dataset_info *info,
                      struct pixel_mask *mask)
{
    struct target target = {0};
    struct sfs_file *file;
    int code = target_parse("import", asked, &target);
    if (!code && !target.path)
        code = refuse("import", "--mask %s: not FILE:DATASET, or none", asked);
    if (!code)
        code = target_open(&target, &file);
    if (!code) {
        code = read_dataset(file, asked, target.path, info, mask);
        sfs_discard(file);
    }
    target_free(&target);
    return code;
}

int pixel_mask_read(const char *asked, struct sfs_file *file, const char *path,
                    const struct sfs_dataset_info *info, struct pixel_mask *mask)
{
    *mask = (struct pixel_mask){.is_none = asked && !strcmp(asked, "none")};
    if (mask->is_none)
        return 0;
    return asked ? read_other(asked, info, mask) : read_own(file, path, info, mask);
}
