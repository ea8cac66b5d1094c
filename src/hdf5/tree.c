/* Groups and links. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

void sfs_link_free(struct sfs_link *link)
{
    if (!link)
        return;
    free(link->name);
    free(link->target);
    free(link->target_file);
    memset(link, 0, sizeof(*link));
}

void sfs_links_free(struct sfs_links *links)
{
    if (!links)
        return;
    for (size_t i = 0; i < links->n; i++)
        sfs_link_free(&links->link[i]);
    free(links->link);
    memset(links, 0, sizeof(*links));
}

/* Fills the targets of a soft or external link. */
static int describe_target(hid_t group, const char *name, const H5L_info_t *info,
                           struct sfs_link *link)
{
    char *value = calloc(1, info->u.val_size + 1);
    if (!value)
        return -ENOMEM;
    int error = 0;
    if (H5Lget_val(group, name, value, info->u.val_size, H5P_DEFAULT) < 0) {
        error = library_failed(-EIO);
    } else if (link->type == SFS_LINK_SOFT) {
        link->target = value;
        return 0;
    } else {
        const char *file, *path;
        unsigned flags;
        if (H5Lunpack_elink_val(value, info->u.val_size, &flags, &file, &path) < 0) {
            error = library_failed(-EIO);
        } else {
            link->target_file = strdup(file);
            link->target = strdup(path);
            if (!link->target_file || !link->target)
                error = -ENOMEM;
        }
    }
    free(value);
    return error;
}

static int describe_link(hid_t group, const char *name, const H5L_info_t *info,
                         struct sfs_link *link)
{
    memset(link, 0, sizeof(*link));
    link->name = strdup(name);
    if (!link->name)
        return -ENOMEM;
    int error = 0;
    switch (info->type) {
    case H5L_TYPE_HARD:
        link->type = SFS_LINK_HARD;
        link->address = info->u.address;
        break;
    case H5L_TYPE_SOFT:
        link->type = SFS_LINK_SOFT;
        error = describe_target(group, name, info, link);
        break;
    case H5L_TYPE_EXTERNAL:
        link->type = SFS_LINK_EXTERNAL;
        error = describe_target(group, name, info, link);
        break;
    default:
        link->type = SFS_LINK_USER;
    }
    if (error)
        sfs_link_free(link);
    return error;
}

struct listing {
    struct sfs_links *links;
    size_t room;
    bool left_out; /* links whose names are no names: libhdf5 cannot find them either */
};

static int add_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct listing *listing = context;
    struct sfs_links *links = listing->links;
    if (!*name || strchr(name, '/')) {
        listing->left_out = true;
        return 0;
    }
    struct sfs_link *grown = room_for_one(links->link, links->n, &listing->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    links->link = grown;
    int error = describe_link(group, name, info, &links->link[links->n]);
    links->n += error == 0;
    return error;
}

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    struct link_walk *walk = data;
    if (!walk->is_at_place)
        walk->piece = piece_prolong(walk->piece);
    walk->is_at_place = true;
    walk->error = walk->action(group, name, info, walk->context);
    return walk->error ? -1 : piece_is_over(walk->piece);
}

int tree_walk_links(struct hdf5 *hdf5, struct link_walk *walk)
{
    H5G_info_t info;
    int error = 0;
    hid_t group = H5Oopen_by_addr(hdf5->file, walk->group);
    walk->piece = piece_begin();
    walk->error = 0;
    walk->is_at_place = false;
    if (group < 0 || (!walk->is_begun && H5Gget_info(group, &info) < 0)) {
        error = library_failed(-EIO);
    } else {
        walk->n = walk->is_begun ? walk->n : info.nlinks;
        walk->is_begun = true;
        /* In the order of names libhdf5 would read and sort all of them for every piece. */
        if (walk->at < walk->n &&
            H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &walk->at, visit_link, walk) < 0)
            error = walk->error ? walk->error : library_failed(-EIO);
        walk->is_done = walk->at >= walk->n;
    }
    if (group >= 0)
        H5Oclose(group);
    return error;
}

/* -EAGAIN: links have changed meanwhile. */
static int list_in_pieces(struct hdf5 *hdf5, uint64_t address, struct sfs_links *links)
{
    struct listing listing = {.links = links};
    struct link_walk walk = {.group = address, .action = add_link, .context = &listing};
    unsigned changes = atomic_load(&hdf5->links_changed);
    int error = 0;
    while (!walk.is_done && !error) {
        library_enter();
        if (walk.is_begun && atomic_load(&hdf5->links_changed) != changes)
            error = -EAGAIN;
        else
            error = tree_walk_links(hdf5, &walk);
        error = library_leave_with(error);
    }
    if (!error && listing.left_out)
        log_warning("%s: links of the group at address %" PRIu64
                    " are left out: their names are empty, or have a slash",
                    store_path(hdf5->store), address);
    return error;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct sfs_link *)a)->name, ((const struct sfs_link *)b)->name);
}

int local_list(struct hdf5 *hdf5, uint64_t address, struct sfs_links *out)
{
    struct sfs_links links = {0};
    int error = -EAGAIN;
    while (error == -EAGAIN) {
        sfs_links_free(&links);
        error = list_in_pieces(hdf5, address, &links);
    }
    if (error) {
        sfs_links_free(&links);
        return error;
    }
    if (links.n > 1)
        qsort(links.link, links.n, sizeof(*links.link), compare_names);
    *out = links;
    return 0;
}

/* libhdf5 has found no link; or could not read one, and has taken that for an answer. */
static int not_there(void)
{
    int failure = driver_failure();
    return failure ? library_failed(failure) : -ENOENT;
}

int local_lookup(struct hdf5 *hdf5, uint64_t address, const char *name, struct sfs_link *link)
{
    /* libhdf5 takes names as paths: what it would not take as one name cannot be a link's. */
    if (!*name || !strcmp(name, ".") || strchr(name, '/'))
        return -ENOENT;

    memset(link, 0, sizeof(*link));
    library_enter();
    hid_t group = H5Oopen_by_addr(hdf5->file, address);
    int error = 0;
    H5L_info_t info;
    htri_t exists = group < 0 ? -1 : H5Lexists(group, name, H5P_DEFAULT);
    if (exists < 0)
        error = library_failed(-EIO);
    else if (!exists)
        error = not_there();
    else if (H5Lget_info(group, name, &info, H5P_DEFAULT) < 0)
        error = library_failed(-EIO);
    else
        error = describe_link(group, name, &info, link);
    if (!error && link->type == SFS_LINK_HARD)
        seen_note(hdf5, address, name, link->address);
    if (group >= 0)
        H5Oclose(group);
    error = library_leave_with(error);
    if (error)
        sfs_link_free(link);
    return error;
}

/* Never leaves the file: external and user-defined links are not followed. */
static herr_t refuse_external(const char *parent_file, const char *parent_group,
                              const char *child_file, const char *child_object, unsigned *flags,
                              hid_t fapl, void *data)
{
    (void)parent_file, (void)parent_group, (void)child_file, (void)child_object, (void)flags;
    (void)fapl, (void)data;
    return -1;
}

hid_t tree_link_access(void)
{
    hid_t lapl = H5Pcreate(H5P_LINK_ACCESS);
    if (lapl >= 0 && H5Pset_elink_cb(lapl, refuse_external, NULL) < 0) {
        H5Pclose(lapl);
        return H5I_INVALID_HID;
    }
    return lapl;
}

/* Where a path from a group leads. A hard link says so itself, whatever has become of its object;
 * soft ones are followed, as far as libhdf5 can read what they lead to. */
static bool follow(hid_t group, const char *path, hid_t lapl, uint64_t *found)
{
    H5L_info_t link;
    H5O_info_t object;
    if (H5Lget_info(group, path, &link, lapl) >= 0 && link.type == H5L_TYPE_HARD) {
        *found = link.u.address;
        return true;
    }
    if (H5Oget_info_by_name2(group, path, &object, H5O_INFO_BASIC, lapl) < 0)
        return false;
    *found = object.addr;
    return true;
}

/* Without opening the object, which libhdf5 cannot do with a sparse dataset. */
int local_find(struct hdf5 *hdf5, uint64_t address, const char *path, uint64_t *found)
{
    library_enter();
    int error = 0;
    hid_t lapl = tree_link_access();
    hid_t group = H5Oopen_by_addr(hdf5->file, address);
    if (lapl < 0 || group < 0)
        error = library_failed(-EIO);
    else if (!follow(group, path, lapl, found))
        error = library_failed(-ENOENT);
    else
        seen_note(hdf5, address, path, *found);
    if (group >= 0)
        H5Oclose(group);
    if (lapl >= 0)
        H5Pclose(lapl);
    return library_leave_with(error);
}

/* Without opening the object, too. */
int local_object_type(struct hdf5 *hdf5, uint64_t address, enum sfs_object_type *type)
{
    library_enter();
    int error = 0;
    haddr_t reference = address;
    H5O_type_t found = H5O_TYPE_UNKNOWN;
    if (H5Rget_obj_type2(hdf5->file, H5R_OBJECT, &reference, &found) < 0)
        found = H5O_TYPE_UNKNOWN;
    switch (found) {
    case H5O_TYPE_GROUP:
        *type = SFS_GROUP;
        break;
    case H5O_TYPE_DATASET:
        *type = SFS_DATASET;
        break;
    case H5O_TYPE_NAMED_DATATYPE:
        *type = SFS_DATATYPE;
        break;
    default:
        error = library_failed(-EIO);
    }
    return library_leave_with(error);
}

int local_datatype_text(struct hdf5 *hdf5, uint64_t address, char **text)
{
    library_enter();
    hid_t type = H5Oopen_by_addr(hdf5->file, address);
    int error = type < 0 ? library_failed(-EIO) : 0;
    if (!error && H5Iget_type(type) != H5I_DATATYPE) {
        library_reason("it is no datatype");
        error = -EIO;
    }
    if (!error)
        error = type_words(type, text);
    bool made = !error;
    if (type >= 0)
        H5Oclose(type);
    error = library_leave_with(error);
    if (error && made)
        free(*text);
    return error;
}
