/* Attributes. libhdf5 cannot open a sparse dataset, but it can open attributes of an object that it
 * is given by name; so names are kept as they are seen. Where that is not enough it looks for one
 * itself, through all groups. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/private.h"

#define MAX_SEEN 4096

void sfs_attributes_free(struct sfs_attributes *attributes)
{
    if (!attributes)
        return;
    for (size_t i = 0; i < attributes->n; i++) {
        free(attributes->attribute[i].name);
        free(attributes->attribute[i].text);
        free(attributes->attribute[i].json);
    }
    free(attributes->attribute);
    memset(attributes, 0, sizeof(*attributes));
}

/* ---- Names ---- */

static void forget(struct hdf5 *hdf5, struct seen *seen)
{
    HASH_DEL(hdf5->seen, seen);
    free(seen->name);
    free(seen);
}

void seen_clear(struct hdf5 *hdf5)
{
    struct seen *seen, *next;
    HASH_ITER (hh, hdf5->seen, seen, next) {
        forget(hdf5, seen);
    }
}

void seen_note(struct hdf5 *hdf5, uint64_t group, const char *name, uint64_t address)
{
    struct seen *seen;
    HASH_FIND(hh, hdf5->seen, &address, sizeof(address), seen);
    if (seen && seen->group == group && !strcmp(seen->name, name))
        return;
    if (seen)
        forget(hdf5, seen);
    else if (HASH_COUNT(hdf5->seen) == MAX_SEEN)
        forget(hdf5, hdf5->seen);
    seen = malloc(sizeof(*seen));
    char *own_name = strdup(name);
    if (seen && own_name) {
        *seen = (struct seen){.address = address, .group = group, .name = own_name};
        HASH_ADD(hh, hdf5->seen, address, sizeof(seen->address), seen);
        if (!hash_failed())
            return;
    }
    free(own_name);
    free(seen);
}

/* Whether the name that was seen still leads to the object. If so *group is open and *info filled
 * with what the caller needs. */
static bool check_seen(struct hdf5 *hdf5, const struct seen *seen, hid_t lapl, hid_t *group,
                       H5O_info_t *info)
{
    *group = H5Oopen_by_addr(hdf5->file, seen->group);
    if (*group >= 0 &&
        H5Oget_info_by_name2(*group, seen->name, info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS, lapl) >=
            0 &&
        info->addr == seen->address)
        return true;
    if (*group >= 0)
        H5Oclose(*group);
    *group = H5I_INVALID_HID;
    H5Eclear2(H5E_DEFAULT);
    return false;
}

/* Lets libhdf5 look for a path to the object. */
static int search_name(struct hdf5 *hdf5, uint64_t address)
{
    haddr_t reference = address;
    ssize_t n = H5Rget_name(hdf5->file, H5R_OBJECT, &reference, NULL, 0);
    if (n <= 0)
        return library_failed(-EIO);
    char *path = malloc((size_t)n + 1);
    if (!path)
        return -ENOMEM;
    int error = 0;
    if (H5Rget_name(hdf5->file, H5R_OBJECT, &reference, path, (size_t)n + 1) < 0)
        error = library_failed(-EIO);
    else
        seen_note(hdf5, hdf5->root, path, address);
    free(path);
    return error;
}

/* A group and a name in it that leads to the object. */
static int find_name(struct hdf5 *hdf5, uint64_t address, hid_t lapl, hid_t *group,
                     const char **name, H5O_info_t *info)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        struct seen *seen;
        HASH_FIND(hh, hdf5->seen, &address, sizeof(address), seen);
        if (seen && check_seen(hdf5, seen, lapl, group, info)) {
            *name = seen->name;
            return 0;
        }
        int error = attempt == 0 ? search_name(hdf5, address) : 0;
        if (error)
            return error;
    }
    return library_failed_because(-EIO, "the object has no name that libhdf5 finds");
}

/* ---- One after the other ---- */

struct iteration {
    attribute_action action;
    void *context;
    int error;
};

static herr_t visit(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
    (void)info;
    struct iteration *iteration = data;
    hid_t id = H5Aopen(object, name, H5P_DEFAULT);
    iteration->error = iteration->action(id, name, iteration->context);
    if (id >= 0)
        H5Aclose(id);
    return iteration->error ? -1 : 0;
}

static int visit_by_index(hid_t group, const char *object, hsize_t i, hid_t lapl,
                          struct iteration *iteration)
{
    ssize_t n = H5Aget_name_by_idx(group, object, H5_INDEX_NAME, H5_ITER_INC, i, NULL, 0, lapl);
    if (n < 0)
        return library_failed(-EIO);
    char *name = malloc((size_t)n + 1);
    if (!name)
        return -ENOMEM;
    int error;
    if (H5Aget_name_by_idx(group, object, H5_INDEX_NAME, H5_ITER_INC, i, name, (size_t)n + 1,
                           lapl) < 0) {
        error = library_failed(-EIO);
    } else {
        hid_t id = H5Aopen_by_name(group, object, name, H5P_DEFAULT, lapl);
        error = iteration->action(id, name, iteration->context);
        if (id >= 0)
            H5Aclose(id);
    }
    free(name);
    return error;
}

static int visit_by_name(struct hdf5 *hdf5, uint64_t address, struct iteration *iteration)
{
    const char *name = NULL;
    hid_t group;
    H5O_info_t info;
    hid_t lapl = tree_link_access();
    if (lapl < 0)
        return library_failed(-EIO);
    int error = find_name(hdf5, address, lapl, &group, &name, &info);
    if (!error) {
        for (hsize_t i = 0; i < info.num_attrs && !error; i++)
            error = visit_by_index(group, name, i, lapl, iteration);
        H5Oclose(group);
    }
    H5Pclose(lapl);
    return error;
}

int attributes_each(struct hdf5 *hdf5, uint64_t address, attribute_action action, void *context)
{
    struct iteration iteration = {.action = action, .context = context};
    hid_t object = H5Oopen_by_addr(hdf5->file, address);
    if (object < 0) {
        H5Eclear2(H5E_DEFAULT);
        return visit_by_name(hdf5, address, &iteration);
    }
    int error = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, &iteration) < 0)
        error = iteration.error ? iteration.error : library_failed(-EIO);
    H5Oclose(object);
    return error;
}

static int add_attribute(hid_t id, const char *name, void *context)
{
    struct sfs_attributes *attributes = context;
    struct sfs_attribute *grown =
        reallocarray(attributes->attribute, attributes->n + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    attributes->attribute = grown;

    struct sfs_attribute *attribute = &grown[attributes->n];
    memset(attribute, 0, sizeof(*attribute));
    attribute->name = strdup(name);
    if (!attribute->name)
        return -ENOMEM;
    attributes->n++;
    /* One attribute that cannot be read must not hide the others. */
    int error = id < 0 ? -EIO : text_attribute(id, &attribute->text, &attribute->json);
    if (error)
        H5Eclear2(H5E_DEFAULT);
    return error == -ENOMEM ? error : 0;
}

int hdf5_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *out)
{
    struct sfs_attributes attributes = {0};
    library_enter();
    int error = attributes_each(hdf5, address, add_attribute, &attributes);
    error = library_leave_with(error);
    if (error)
        sfs_attributes_free(&attributes);
    else
        *out = attributes;
    return error;
}
