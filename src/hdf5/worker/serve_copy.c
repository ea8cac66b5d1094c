/* Calls that copy from another file, which libhdf5 has open beside its own here: what one was made
 * to do by what it is made of does no more harm than the other can. */
#include <errno.h>
#include <stdlib.h>

#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/copy_message.h"
#include "hdf5/worker/serve_private.h"
#include "store/store.h"

#define MOST_VALUES 65536 /* of a filter */

/* It stays open from one call to the next. */
static struct {
    uint64_t number, state;
    struct store *store; /* NULL: none is open */
    struct hdf5 *hdf5;
} source;

bool serve_is_source(const struct store *store)
{
    return source.store && store == source.store;
}

static void close_source(void)
{
    local_close(source.hdf5);
    store_close(source.store);
    source.hdf5 = NULL;
    source.store = NULL;
}

static int open_source(struct cursor *in)
{
    char *name;
    uint64_t number = take_uint(in, UINT64_MAX), state = take_uint(in, UINT64_MAX);
    bool is_known = source.store && source.number == number && source.state == state &&
                    !store_is_live(source.store);
    int error = take_string(in, true, &name);
    if (error)
        return error;
    if (is_known) {
        uint64_t description[COPY_DESCRIPTION];
        take_uints(in, description, COPY_DESCRIPTION);
        free(name);
        return 0;
    }
    close_source();
    error = serve_open_store(in, name, &source.store, NULL);
    free(name);
    if (error)
        return error;
    error = local_open(source.store, &source.hdf5);
    if (error)
        close_source();
    source.number = number;
    source.state = state;
    return error;
}

/* *hdf5: NULL if there is none. */
static int take_source(struct cursor *in, struct hdf5 **hdf5)
{
    enum copy_source which = (enum copy_source)take_uint(in, COPY_FROM_OTHER);
    if (in->failed)
        return -EINVAL;
    *hdf5 = which == COPY_FROM_ITSELF ? served.hdf5 : NULL;
    if (which != COPY_FROM_OTHER)
        return 0;
    int error = open_source(in);
    *hdf5 = source.hdf5;
    return error;
}

/* ---- New datasets ---- */

struct creation {
    char *path;
    struct hdf5_create create;
    uint64_t dims[SFS_MAX_RANK], max_dims[SFS_MAX_RANK], chunk_dims[SFS_MAX_RANK];
    struct sfs_filter filters[PIPELINE_MOST_FILTERS];
};

static void free_creation(struct creation *creation)
{
    for (size_t i = 0; i < creation->create.n_filters; i++)
        free((void *)creation->filters[i].values);
    free(creation->path);
}

/* Its plugin has a name, and has completed the parameters. */
static int stand_in(struct cursor *in, int id)
{
    char *name;
    int error = take_string(in, true, &name);
    if (error)
        return error;
    library_enter();
    error = filter_stand_in(id, name) ? 0 : library_failed(-EIO);
    library_leave();
    free(name);
    return error;
}

static int take_filter(struct cursor *in, struct sfs_filter *filter)
{
    filter->id = (int)take_uint(in, INT32_MAX);
    filter->optional = take_bool(in);
    bool is_complete = take_bool(in);
    size_t n = take_count(in, sizeof(uint64_t));
    if (in->failed || n > MOST_VALUES)
        return -EINVAL;
    unsigned *values = calloc(n ? n : 1, sizeof(*values));
    for (size_t i = 0; i < n && values; i++)
        values[i] = (unsigned)take_uint(in, UINT32_MAX);
    filter->n_values = n;
    filter->values = values;
    return !values ? -ENOMEM : is_complete ? stand_in(in, filter->id) : 0;
}

/* Some of which there may be none. */
static const uint64_t *take_some_dims(struct cursor *in, int rank, uint64_t *dims)
{
    if (!take_bool(in))
        return NULL;
    take_uints(in, dims, rank);
    return dims;
}

static int take_creation(struct cursor *in, struct creation *creation)
{
    struct hdf5_create *create = &creation->create;
    int error = take_string(in, true, &creation->path);
    if (error)
        return error;
    create->rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, creation->dims, create->rank);
    create->dims = creation->dims;
    create->max_dims = take_some_dims(in, create->rank, creation->max_dims);
    create->chunk_dims = take_some_dims(in, create->rank, creation->chunk_dims);
    create->selection_version_1 = take_bool(in);
    create->unfiltered_edges = take_bool(in);
    create->allocation = (enum sfs_allocation)take_uint(in, SFS_ALLOCATION_LATE);
    create->fill_time = (enum sfs_fill_time)take_uint(in, SFS_FILL_NEVER);
    struct sfs_encoded type = serve_take_encoded(in), fill = serve_take_encoded(in);
    create->type = type.bytes;
    create->type_size = type.n;
    create->fill = fill.n > 0 ? fill.bytes : NULL;
    size_t size, n = (size_t)take_uint(in, PIPELINE_MOST_FILTERS);
    error = in->failed ? -EINVAL : local_type_size(type.bytes, type.n, &size);
    if (!error && create->fill && fill.n < size)
        error = -EINVAL;
    create->filters = creation->filters;
    while (create->n_filters < n && !error)
        error = take_filter(in, &creation->filters[create->n_filters++]);
    return error;
}

int serve_create_dataset(struct cursor *in, struct wire *out)
{
    struct creation creation = {0};
    struct hdf5_create *create = &creation.create;
    uint64_t address = 0;
    bool is_dense = take_bool(in);
    int error = take_creation(in, &creation);
    create->attributes_of = take_uint(in, UINT64_MAX);
    if (!error)
        error = take_source(in, &create->attributes_from);
    if (!error && in->failed)
        error = -EINVAL;
    if (!error && is_dense)
        error = local_create_dense(served.hdf5, creation.path, create, &address);
    else if (!error && !create->chunk_dims)
        error = -EINVAL;
    else if (!error)
        error = local_create_dataset(served.hdf5, creation.path, create, &address);
    free_creation(&creation);
    return serve_put_number(out, error, address);
}

/* ---- Copies ---- */

int serve_copy_attributes(struct cursor *in, struct wire *out)
{
    struct hdf5 *from;
    uint64_t object = take_uint(in, UINT64_MAX), of = take_uint(in, UINT64_MAX);
    int error = take_source(in, &from);
    if (!error && (in->failed || !from))
        error = -EINVAL;
    if (!error)
        error = local_copy_attributes(served.hdf5, object, from, of);
    return serve_put_number(out, error, 0);
}

typedef int (*copy_function)(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of);

static int copy(struct cursor *in, struct wire *out, copy_function function)
{
    struct hdf5 *from;
    char *path;
    int error = take_string(in, true, &path);
    if (error)
        return error;
    uint64_t of = take_uint(in, UINT64_MAX);
    error = take_source(in, &from);
    if (!error && (in->failed || !from))
        error = -EINVAL;
    if (!error)
        error = function(served.hdf5, path, from, of);
    free(path);
    return serve_put_number(out, error, 0);
}

int serve_copy_object(struct cursor *in, struct wire *out)
{
    return copy(in, out, local_copy_object);
}

int serve_copy_group(struct cursor *in, struct wire *out)
{
    return copy(in, out, local_copy_group);
}

/* ---- References ---- */

static int copy_references(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of)
{
    return local_copy_references(to, path, from, of,
                                 &(struct copied_paths){.find = serve_path_of_copy});
}

int serve_copy_references(struct cursor *in, struct wire *out)
{
    return copy(in, out, copy_references);
}
