/* The tree of objects, which libhdf5 or our own reader reads: links, kinds, attributes. */
#include <errno.h>
#include <inttypes.h>

#include "dataset/private.h"
#include "dataset/series.h"
#include "format/dataset_header.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

uint64_t dataset_store_address(const struct sfs_file *file, uint64_t address)
{
    uint64_t at;
    return __builtin_add_overflow(address, file->superblock.base, &at) ? UINT64_MAX : at;
}

int object_failed(const struct sfs_file *file, const char *what, uint64_t address, int error,
                  struct why *why)
{
    if (error == -EIO)
        store_say(file->store, why, "cannot read the %s at address %" PRIu64 ": %s", what, address,
                  hdf5_error());
    return error;
}

uint64_t sfs_root(const struct sfs_file *file)
{
    return hdf5_root(file->hdf5);
}

static int list_once(struct sfs_file *file, uint64_t group, struct sfs_links *links,
                     struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_list(file->hdf5, group, links);
    if (!error && (error = series_list(file, group, links)))
        sfs_links_free(links);
    return object_failed(file, "group", group, error, why);
}

int file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links, struct why *why)
{
    struct sfs_links found;
    int error = FOLLOWING(file, list_once(file, group, &found, why));
    if (!error)
        *links = found;
    return error;
}

int sfs_list(struct sfs_file *file, uint64_t group, struct sfs_links *links)
{
    return file_list(file, group, links, NULL);
}

static int lookup_once(struct sfs_file *file, uint64_t group, const char *name, bool any,
                       struct sfs_link *link, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_lookup(file->hdf5, group, name, link);
    if (error == -ENOENT && any)
        error = series_lookup(file, group, name, link);
    return object_failed(file, "group", group, error, why);
}

static int look_up(struct sfs_file *file, uint64_t group, const char *name, bool any,
                   struct sfs_link *link, struct why *why)
{
    struct sfs_link found;
    int error = FOLLOWING(file, lookup_once(file, group, name, any, &found, why));
    if (!error)
        *link = found;
    return error;
}

int sfs_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link)
{
    return look_up(file, group, name, true, link, NULL);
}

int file_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link,
                struct why *why)
{
    return look_up(file, group, name, false, link, why);
}

/* A hard link from a damaged file may have any address. */
static int find_once(struct sfs_file *file, uint64_t group, const char *path, bool any,
                     uint64_t *address, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_find(file->hdf5, group, path, address);
    if (error == -ENOENT && any)
        error = series_find(file, group, path, address);
    else if (!error && series_is_address(*address))
        error = -ENOENT;
    return object_failed(file, "group", group, error, why);
}

static int find(struct sfs_file *file, uint64_t group, const char *path, bool any,
                uint64_t *address, struct why *why)
{
    uint64_t found;
    int error = FOLLOWING(file, find_once(file, group, path, any, &found, why));
    if (!error)
        *address = found;
    return error;
}

int sfs_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address)
{
    return find(file, group, path, true, address, NULL);
}

int file_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address,
              struct why *why)
{
    return find(file, group, path, false, address, why);
}

/* Whether the object is a sparse dataset, which libhdf5 cannot open. */
static int check_sparse(struct sfs_file *file, uint64_t address, struct why *why)
{
    struct dataset_header header;
    struct why reason;
    int error = dataset_header_read(file->store, &file->superblock,
                                    dataset_store_address(file, address), &header, &reason);
    if (!error)
        dataset_header_free(&header);
    if (error != -EIO && error != -EILSEQ && error != -EOPNOTSUPP)
        return error;
    store_say(file->store, why, "cannot read the object at address %" PRIu64 ": %s", address,
              reason.text);
    return error == -EOPNOTSUPP ? error : -EIO;
}

/* libhdf5 is not safe with a damaged header. Before it reads that of a sparse dataset we have
 * verified the messages that we know. */
static int check_before(struct sfs_file *file, uint64_t address, struct why *why)
{
    struct object_header *header;
    struct why dropped;
    int error = object_header_read(file->store, &file->superblock,
                                   dataset_store_address(file, address), &header, &dropped);
    if (error) /* of any object */
        return error == -ENOMEM || error == STORE_MOVED ? error : 0;
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    bool is_sparse = layout && layout_message_is_structured(layout);
    object_header_free(header);
    return is_sparse ? check_sparse(file, address, why) : 0;
}

static int object_type_once(struct sfs_file *file, uint64_t address, enum sfs_object_type *type,
                            struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    if (series_is_address(address)) {
        *type = SFS_DATASET;
        return 0;
    }
    error = check_before(file, address, why);
    if (error)
        return error;
    error = hdf5_object_type(file->hdf5, address, type);
    if (error != -EIO)
        return error;
    error = check_sparse(file, address, why);
    if (!error)
        *type = SFS_DATASET;
    return error == -EINVAL ? object_failed(file, "object", address, -EIO, why) : error;
}

int file_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type,
                     struct why *why)
{
    enum sfs_object_type found;
    int error = FOLLOWING(file, object_type_once(file, address, &found, why));
    if (!error)
        *type = found;
    return error;
}

int sfs_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type)
{
    return file_object_type(file, address, type, NULL);
}

static int attributes_once(struct sfs_file *file, uint64_t address,
                           struct sfs_attributes *attributes, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    *attributes = (struct sfs_attributes){0};
    if (series_is_address(address))
        return 0;
    error = check_before(file, address, why);
    if (error)
        return error;
    return object_failed(file, "attributes of the object", address,
                         hdf5_attributes(file->hdf5, address, attributes), why);
}

int file_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes,
                    struct why *why)
{
    struct sfs_attributes found;
    int error = FOLLOWING(file, attributes_once(file, address, &found, why));
    if (!error)
        *attributes = found;
    return error;
}

int sfs_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes)
{
    return file_attributes(file, address, attributes, NULL);
}

static int datatype_text_once(struct sfs_file *file, uint64_t address, char **text)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    return object_failed(file, "datatype", address, hdf5_datatype_text(file->hdf5, address, text),
                         NULL);
}

int sfs_datatype_text(struct sfs_file *file, uint64_t address, char **text)
{
    char *found;
    int error = FOLLOWING(file, datatype_text_once(file, address, &found));
    if (!error)
        *text = found;
    return error;
}
