/* What stands beside a dataset in a NeXus file: its detector, in whose group it is or which its
 * NXentry has in `instrument`, and from there what was measured how. Nothing of it has to be there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/pixel.h"

#define MOST_GROUPS 64 /* of an instrument that are looked at */
#define TEXT_BYTES  ((size_t)4096)

static bool is_group(struct views *views, uint64_t address)
{
    enum sfs_object_type type;
    return sfs_object_type(views->file, address, &type) == 0 && type == SFS_GROUP;
}

static bool is_detector(struct views *views, uint64_t address)
{
    struct sfs_attributes attributes;
    bool found = false;
    if (sfs_attributes(views->file, address, &attributes) != 0)
        return false;
    for (size_t i = 0; i < attributes.n && !found; i++)
        found = !strcmp(attributes.attribute[i].name, "NX_class") && attributes.attribute[i].text &&
                !strcmp(attributes.attribute[i].text, "NXdetector");
    sfs_attributes_free(&attributes);
    return found;
}

/* The one named `detector`, or the first of that class, among the groups of an instrument. */
static int find_in_instrument(struct views *views, uint64_t instrument, uint64_t *detector)
{
    struct sfs_links links;
    int error = sfs_find(views->file, instrument, "detector", detector);
    if (error != -ENOENT)
        return error;
    error = sfs_list(views->file, instrument, &links);
    if (error)
        return error;
    error = -ENOENT;
    for (size_t i = 0; i < links.n && i < MOST_GROUPS && error; i++) {
        const struct sfs_link *link = &links.link[i];
        if (link->type != SFS_LINK_HARD || !is_group(views, link->address) ||
            !is_detector(views, link->address))
            continue;
        *detector = link->address;
        error = 0;
    }
    sfs_links_free(&links);
    return error;
}

/* Cuts the last name off a path; false: it is the root's. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || path[1] == '\0')
        return false;
    slash[slash == path] = '\0';
    return true;
}

/* The detector, and the group whose `instrument` it is in, or the root if the dataset is in it. */
static int find_detector(struct views *views, uint64_t *detector, uint64_t *entry)
{
    char *path = strdup(views->path);
    int error = path ? -ENOENT : -ENOMEM;
    uint64_t group, instrument;
    while (error == -ENOENT && go_up(path)) {
        error = sfs_find(views->file, sfs_root(views->file), path, &group);
        if (error)
            continue;
        *entry = group;
        *detector = group;
        if (is_detector(views, group)) {
            (void)(go_up(path) && go_up(path));
            error = sfs_find(views->file, sfs_root(views->file), path, entry);
            break;
        }
        error = sfs_find(views->file, group, "instrument", &instrument);
        if (!error)
            error = find_in_instrument(views, instrument, detector);
    }
    free(path);
    return error;
}

static int open_at(struct views *views, uint64_t group, const char *path,
                   struct sfs_dataset **dataset)
{
    uint64_t address;
    enum sfs_object_type type;
    int error = sfs_find(views->file, group, path, &address);
    if (!error)
        error = sfs_object_type(views->file, address, &type);
    if (!error && type != SFS_DATASET)
        error = -ENOENT;
    return error ? error : sfs_dataset_open(views->file, address, path, dataset);
}

static int open_in(struct views *views, enum nexus_place place, const char *name,
                   struct sfs_dataset **dataset)
{
    uint64_t detector = 0, entry = 0;
    char specific[64];
    int error = find_detector(views, &detector, &entry);
    if (error || place == NEXUS_ENTRY)
        return error ? error : open_at(views, entry, name, dataset);
    error = open_at(views, detector, name, dataset);
    if (error != -ENOENT)
        return error;
    snprintf(specific, sizeof(specific), "detectorSpecific/%s", name);
    return open_at(views, detector, specific, dataset);
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
        *value = pixel_value(&info->type, element);
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
