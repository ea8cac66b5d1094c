/* What stands beside a dataset in a NeXus file: its detector, in whose group it is or which its
 * NXentry has in `instrument`, and from there what was measured how. Nothing of it has to be there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/pixel.h"

#define MOST_GROUPS 64 /* of an instrument that are looked at */

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
        if (is_detector(views, group))
            break;
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

int nexus_open(struct views *views, const char *name, struct sfs_dataset **dataset)
{
    uint64_t detector, entry;
    char specific[64];
    int error = find_detector(views, &detector, &entry);
    if (error)
        return error;
    error = open_at(views, detector, name, dataset);
    if (error != -ENOENT)
        return error;
    snprintf(specific, sizeof(specific), "detectorSpecific/%s", name);
    return open_at(views, detector, specific, dataset);
}
