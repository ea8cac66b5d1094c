/* Finding the detector of a dataset in a NeXus file. */
#include "view/detector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"

#define MOST_GROUPS 64 /* of an instrument that are looked at */

/* Whether it is one; or an error. */
static int is_detector(struct sfs_file *file, uint64_t address)
{
    struct sfs_attributes attributes;
    bool found = false;
    int error = sfs_attributes(file, address, &attributes);
    if (error)
        return error;
    for (size_t i = 0; i < attributes.n && !found; i++)
        found = !strcmp(attributes.attribute[i].name, "NX_class") && attributes.attribute[i].text &&
                !strcmp(attributes.attribute[i].text, "NXdetector");
    sfs_attributes_free(&attributes);
    return found;
}

/* The same. Other objects may have such names. */
static int is_group(struct sfs_file *file, uint64_t address)
{
    enum sfs_object_type type;
    int error = sfs_object_type(file, address, &type);
    return error ? (error == -EOPNOTSUPP ? 0 : error) : type == SFS_GROUP;
}

static int is_group_of_detector(struct sfs_file *file, uint64_t address)
{
    int is_one = is_group(file, address);
    return is_one > 0 ? is_detector(file, address) : is_one;
}

/* -ENOENT, too, where it is no group. */
static int find_group(struct sfs_file *file, uint64_t group, const char *name, uint64_t *address)
{
    int error = sfs_find(file, group, name, address);
    int is_one = error ? error : is_group(file, *address);
    return is_one > 0 ? 0 : is_one < 0 ? is_one : -ENOENT;
}

/* The one named `detector`, or the first of that class, among the groups of an instrument. */
static int find_in_instrument(struct sfs_file *file, uint64_t instrument, uint64_t *detector)
{
    struct sfs_links links;
    int error = find_group(file, instrument, "detector", detector);
    if (error != -ENOENT)
        return error;
    error = sfs_list(file, instrument, &links);
    if (error)
        return error;
    error = -ENOENT;
    for (size_t i = 0; i < links.n && i < MOST_GROUPS && error; i++) {
        const struct sfs_link *link = &links.link[i];
        int is_it = link->type == SFS_LINK_HARD ? is_group_of_detector(file, link->address) : 0;
        if (is_it > 0)
            *detector = link->address;
        if (is_it > 0 || (is_it < 0 && error == -ENOENT)) /* what was not read may be it */
            error = is_it > 0 ? 0 : is_it;
    }
    sfs_links_free(&links);
    if (error && interrupt_check() < 0)
        error = -EINTR;
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

int detector_find(struct sfs_file *file, const char *dataset, uint64_t *detector, uint64_t *entry)
{
    char *path = strdup(dataset);
    int error = path ? -ENOENT : -ENOMEM;
    uint64_t group, instrument;
    while (error == -ENOENT && go_up(path)) {
        error = sfs_find(file, sfs_root(file), path, &group);
        if (error)
            continue;
        *entry = group;
        *detector = group;
        int is_found = is_detector(file, group);
        error = is_found < 0 ? is_found : is_found ? 0 : interrupt_check();
        if (error)
            break;
        if (is_found) {
            (void)(go_up(path) && go_up(path));
            error = sfs_find(file, sfs_root(file), path, entry);
            break;
        }
        error = find_group(file, group, "instrument", &instrument);
        if (!error)
            error = find_in_instrument(file, instrument, detector);
    }
    free(path);
    return error;
}

int detector_open(struct sfs_file *file, uint64_t group, const char *path,
                  struct sfs_dataset **dataset)
{
    uint64_t address;
    enum sfs_object_type type;
    int error = sfs_find(file, group, path, &address);
    if (!error)
        error = sfs_object_type(file, address, &type);
    if (!error && type != SFS_DATASET)
        error = -ENOENT;
    return error ? error : sfs_dataset_open(file, address, path, dataset);
}
