/* Answers from the store. */
#include "hdf5/own_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "format/links.h"
#include "format/plain_dataset.h"
#include "store/store.h"

struct direct {
    struct store *store;
    uint64_t timeout; /* nanoseconds */
    bool is_late;     /* a call has taken longer */
    struct superblock superblock;
    unsigned writings;     /* of the store, when that was read */
    struct sfs_links root; /* the links of the root group, from when it is opened until they are
                            * asked for */
    bool has_root;
};

/* What of an error of the format is one of ours. */
static int asks_libhdf5(const struct direct *direct, int error, const struct why *why)
{
    if (!error || error == -ENOMEM || error == -EINTR || error == -EAGAIN)
        return error;
    if (error == -ETIMEDOUT) {
        log_warning("%s: reading what is asked for has taken more than %.1f s: from now on "
                    "libhdf5 reads it",
                    store_path(direct->store), (double)direct->timeout / 1e9);
        return -EAGAIN;
    }
    log_message(LOG_DEBUG, "%s: libhdf5 is asked: %s", store_path(direct->store),
                error == -EILSEQ || error == -EOPNOTSUPP ? why->text : strerror(EIO));
    return -EAGAIN;
}

static void forget_root(struct direct *direct)
{
    links_free(&direct->root);
    direct->has_root = false;
}

/* What is kept is of before. */
static int renew(struct direct *direct, struct why *why)
{
    struct superblock superblock;
    unsigned writings = store_writings(direct->store);
    if (writings == direct->writings)
        return 0;
    int error = plain_superblock(direct->store, &superblock, why);
    if (!error && superblock.root != direct->superblock.root)
        error = why_unsupported(why, "it has another root group than before");
    if (error)
        return error;
    forget_root(direct);
    direct->superblock = superblock;
    direct->writings = writings;
    return 0;
}

/* Each call is between these two. */
static int begin(struct direct *direct, struct why *why)
{
    if (direct->is_late)
        return -EAGAIN;
    deadline_begin(clock_now() + direct->timeout);
    return renew(direct, why);
}

static int end(struct direct *direct, int error, const struct why *why)
{
    deadline_end();
    direct->is_late |= error == -ETIMEDOUT;
    return asks_libhdf5(direct, error, why);
}

/* Addresses of hdf5.h count from the superblock, those of the store and the format from its begin.
 */
static int read_header(struct direct *direct, uint64_t address, struct object_header **header,
                       struct why *why)
{
    if (__builtin_add_overflow(address, direct->superblock.base, &address))
        return why_damaged(why, "the address of an object");
    return plain_header(direct->store, &direct->superblock, address, header, why);
}

static int read_links(struct direct *direct, uint64_t group, struct sfs_links *links,
                      struct why *why)
{
    struct object_header *header;
    int error = read_header(direct, group, &header, why);
    if (error)
        return error;
    error = links_read(direct->store, &direct->superblock, header, links, why);
    object_header_free(header);
    for (size_t i = 0; i < links->n && !error; i++)
        if (links->link[i].type == SFS_LINK_HARD)
            links->link[i].address -= direct->superblock.base;
    return error;
}

/* libhdf5 looks at the symbol table of the root when it opens a file: it would not open one in
 * which that is damaged. */
static int read_root(struct direct *direct, uint64_t address, struct why *why)
{
    struct object_header *header;
    enum sfs_object_type type;
    int error = read_header(direct, address, &header, why);
    if (error)
        return error;
    bool has_symbols = object_header_find(header, MESSAGE_SYMBOL_TABLE);
    error = plain_type(header, &type, why);
    object_header_free(header);
    if (!error && type != SFS_GROUP)
        error = why_damaged(why, "a root that is no group");
    if (!error && has_symbols) {
        error = read_links(direct, address, &direct->root, why);
        direct->has_root = !error;
    }
    return error;
}

int direct_open(struct store *store, uint64_t timeout, struct direct **out, uint64_t *root)
{
    struct why why;
    struct direct *direct = calloc(1, sizeof(*direct));
    if (!direct)
        return -ENOMEM;
    direct->store = store;
    direct->timeout = timeout;
    direct->writings = store_writings(store);
    int error = begin(direct, &why);
    if (!error)
        error = plain_superblock(store, &direct->superblock, &why);
    uint64_t address = direct->superblock.root - direct->superblock.base;
    if (!error)
        error = read_root(direct, address, &why);
    error = end(direct, error, &why);
    if (error) {
        direct_close(direct);
        return error;
    }
    *root = address;
    *out = direct;
    return 0;
}

void direct_close(struct direct *direct)
{
    if (!direct)
        return;
    forget_root(direct);
    free(direct);
}

static int list(struct direct *direct, uint64_t group, struct sfs_links *links, struct why *why)
{
    if (!direct->has_root || group != direct->superblock.root - direct->superblock.base)
        return read_links(direct, group, links, why);
    *links = direct->root;
    direct->root = (struct sfs_links){0};
    direct->has_root = false;
    return 0;
}

int direct_list(struct direct *direct, uint64_t group, struct sfs_links *links)
{
    struct why why;
    *links = (struct sfs_links){0};
    int error = begin(direct, &why);
    if (!error)
        error = list(direct, group, links, &why);
    return end(direct, error, &why);
}

int direct_object_type(struct direct *direct, uint64_t address, enum sfs_object_type *type)
{
    struct object_header *header;
    struct why why;
    int error = begin(direct, &why);
    if (!error)
        error = read_header(direct, address, &header, &why);
    if (!error) {
        error = plain_type(header, type, &why);
        object_header_free(header);
    }
    return end(direct, error, &why);
}

/* ---- Datasets ---- */

static void describe_space(const struct dataspace_message *space, struct sfs_dataset_info *info)
{
    info->space = space->space;
    info->rank = space->rank;
    memcpy(info->dims, space->dims, (size_t)space->rank * sizeof(*info->dims));
    memcpy(info->max_dims, space->max_dims, (size_t)space->rank * sizeof(*info->max_dims));
    info->elements = space->space == SFS_SPACE_SCALAR ? 1 : 0;
    if (space->rank > 0 && !box_product(info->dims, info->rank, 1, &info->elements))
        info->elements = UINT64_MAX;
}

static int describe_fill(const struct plain_dataset *dataset, struct sfs_dataset_info *info)
{
    size_t size = dataset->type.size;
    if (size > DIRECT_MOST_ELEMENT)
        return -EAGAIN;
    char *fill = calloc(1, size);
    if (!fill)
        return -ENOMEM;
    if (dataset->fill.size > 0)
        memcpy(fill, dataset->fill.value, size);
    info->type.size = size;
    hdf5_info_set_fill(info, fill);
    return direct_element_json(&dataset->type, info->fill, &info->fill_json);
}

static void describe_layout(struct plain_dataset *dataset, struct sfs_dataset_info *info,
                            struct hdf5_storage *storage)
{
    info->layout = dataset->layout;
    if (dataset->layout == SFS_CONTIGUOUS) {
        bool is_there = dataset->address != UINT64_MAX && dataset->bytes > 0;
        storage->address = is_there ? dataset->address : UINT64_MAX;
        storage->bytes = is_there ? dataset->bytes : 0;
    }
    if (dataset->layout == SFS_CHUNKED) {
        size_t rank = (size_t)dataset->dataspace.rank;
        memcpy(info->chunk_dims, dataset->chunk_dims, rank * sizeof(*info->chunk_dims));
        info->unfiltered_edges = storage->unfiltered_edges = dataset->unfiltered_edges;
        storage->in_array = dataset->in_array;
    }
    info->allocation = dataset->fill.allocation;
    info->fill_time = dataset->fill.fill_time;
    info->n_filters = dataset->n_filters;
    info->filters = dataset->filters;
    dataset->n_filters = 0;
    dataset->filters = NULL;
}

static int describe(struct plain_dataset *dataset, struct sfs_dataset_info *info,
                    struct hdf5_storage *storage)
{
    void *encoded = NULL;
    describe_space(&dataset->dataspace, info);
    int error = direct_type_describe(&dataset->type, &info->type);
    if (!error)
        error = direct_type_encode(&dataset->type, dataset->datatype.data, dataset->datatype.size,
                                   &encoded, &info->encoded_type.n);
    info->encoded_type.bytes = encoded;
    if (!error && !info->type.has_pointers)
        error = describe_fill(dataset, info);
    if (!error)
        describe_layout(dataset, info, storage);
    return error;
}

static int open_dataset(struct direct *direct, const struct object_header *header,
                        struct sfs_dataset_info *info, struct hdf5_storage *storage,
                        struct why *why)
{
    struct plain_dataset dataset;
    int error = plain_dataset_decode(&direct->superblock, header, &dataset, why);
    if (error)
        return error;
    error = direct_type_is_known(&dataset.type)
                ? describe(&dataset, info, storage)
                : why_unsupported(why, "a datatype that is newer than libhdf5");
    plain_dataset_free(&dataset);
    if (error)
        hdf5_info_free(info);
    return error == -EAGAIN ? why_unsupported(why, "an element of so many bytes") : error;
}

int direct_dataset_open(struct direct *direct, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage)
{
    struct object_header *header;
    struct why why;
    *info = (struct sfs_dataset_info){0};
    *storage = (struct hdf5_storage){0};
    int error = begin(direct, &why);
    if (!error)
        error = read_header(direct, address, &header, &why);
    if (!error) {
        error = open_dataset(direct, header, info, storage, &why);
        object_header_free(header);
    }
    return end(direct, error, &why);
}
