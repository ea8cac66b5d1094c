/* What stands beside a dataset in a NeXus file: its detector, in whose group it is or which its
 * NXentry has in `instrument`, and from there what was measured how. Nothing of it has to be there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/detector.h"
#include "view/pixel.h"

#define TEXT_BYTES ((size_t)4096)

static int open_in(struct views *views, enum nexus_place place, const char *name,
                   struct sfs_dataset **dataset)
{
    uint64_t detector = 0, entry = 0;
    char specific[64];
    int error = detector_find(views->file, views->path, &detector, &entry);
    if (error || place == NEXUS_ENTRY)
        return error ? error : detector_open(views->file, entry, name, dataset);
    error = detector_open(views->file, detector, name, dataset);
    if (error != -ENOENT)
        return error;
    snprintf(specific, sizeof(specific), "detectorSpecific/%s", name);
    return detector_open(views->file, detector, specific, dataset);
}

int nexus_open(struct views *views, const char *name, struct sfs_dataset **dataset)
{
    return open_in(views, NEXUS_DETECTOR, name, dataset);
}

int nexus_text(struct views *views, const char *name, char *text, size_t n)
{
    struct sfs_dataset *dataset;
    char *all;
    size_t all_n;
    int error = open_in(views, NEXUS_DETECTOR, name, &dataset);
    if (error)
        return error;
    error = sfs_dataset_info(dataset)->elements == 1 ? sfs_text(dataset, TEXT_BYTES, &all, &all_n)
                                                     : -ENOENT;
    if (!error) {
        snprintf(text, n, "%.*s", (int)all_n, all);
        free(all);
    }
    sfs_dataset_close(dataset);
    return error;
}

/* ---- Numbers ---- */

struct unit {
    const char *name; /* in a file */
    const char *of;
    double factor;
};

static const struct unit units[] = {
    {"m", "m", 1},        {"metre", "m", 1},    {"meter", "m", 1},         {"cm", "m", 1e-2},
    {"mm", "m", 1e-3},    {"um", "m", 1e-6},    {"micrometer", "m", 1e-6}, {"nm", "m", 1e-9},
    {"s", "s", 1},        {"sec", "s", 1},      {"second", "s", 1},        {"seconds", "s", 1},
    {"ms", "s", 1e-3},    {"us", "s", 1e-6},    {"ns", "s", 1e-9},         {"A", "A", 1},
    {"angstrom", "A", 1}, {"Angstrom", "A", 1}, {"angstroms", "A", 1},     {"Angstroms", "A", 1},
    {"\xc3\x85", "A", 1}, {"nm", "A", 10},      {"pm", "A", 0.01},         {"m", "A", 1e10},
};

/* By what a dataset's numbers are to be multiplied. */
static int find_factor(struct views *views, const struct sfs_dataset *dataset, const char *unit,
                       double *factor)
{
    struct sfs_attributes attributes;
    *factor = 1;
    int error = sfs_attributes(views->file, sfs_dataset_address(dataset), &attributes);
    if (error)
        return error;
    for (size_t i = 0; i < attributes.n; i++) {
        const struct sfs_attribute *attribute = &attributes.attribute[i];
        if (strcmp(attribute->name, "units") != 0 || !attribute->text)
            continue;
        error = -EINVAL;
        for (size_t k = 0; k < sizeof(units) / sizeof(*units) && error; k++) {
            if (strcmp(units[k].name, attribute->text) != 0 || strcmp(units[k].of, unit) != 0)
                continue;
            *factor = units[k].factor;
            error = 0;
        }
    }
    sfs_attributes_free(&attributes);
    return error;
}

/* An element of a dataset of no or one dimension. */
static int read_number(struct sfs_dataset *dataset, uint64_t n, double *value)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    struct sfs_slab slab = {.rank = 1, .start = {n}, .count = {1}};
    uint64_t dims[SFS_MAX_RANK];
    unsigned char element[8];
    (void)sfs_dataset_dims(dataset, dims);
    if (info->space == SFS_SPACE_NULL || info->rank > 1 || n >= (info->rank ? dims[0] : 1) ||
        !pixel_is_number(&info->type))
        return -ENOENT;
    int error = sfs_read(dataset, &slab, 0, element, info->type.size);
    if (!error)
        *value = number_value(&info->type, element);
    return error;
}

int nexus_number(struct views *views, enum nexus_place place, const char *name, const char *unit,
                 double *value)
{
    struct sfs_dataset *dataset;
    double factor = 1;
    int error = open_in(views, place, name, &dataset);
    if (error)
        return error;
    error = sfs_dataset_info(dataset)->elements == 1 ? read_number(dataset, 0, value) : -ENOENT;
    if (!error && unit)
        error = find_factor(views, dataset, unit, &factor);
    if (!error)
        *value *= factor;
    sfs_dataset_close(dataset);
    return error;
}

int nexus_number_of(struct views *views, const char *path, uint64_t n, double *value)
{
    struct sfs_dataset *dataset;
    int error = open_in(views, NEXUS_ENTRY, path, &dataset);
    if (error)
        return error;
    error = read_number(dataset, n, value);
    sfs_dataset_close(dataset);
    return error;
}
