/* Asking a worker for new datasets and links, and for copies of what another file has: its libhdf5
 * opens that, too, and nothing of it comes to ours. */
#include <errno.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/copy_message.h"
#include "hdf5/worker/plugin_pool.h"
#include "hdf5/worker/remote_private.h"
#include "store/store.h"

/* Starts a request about a path. */
static void request_at(struct wire *request, enum worker_call call, const char *path)
{
    client_request(request, call);
    wire_string(request, path);
}

static int ask_at(struct remote *remote, enum worker_call call, const char *path,
                  struct wire *request)
{
    return remote_ask(remote, call, remote_number(path, strlen(path)), request, NULL, NULL);
}

int remote_reopen(struct remote *remote)
{
    struct wire request;
    client_request(&request, WORKER_REOPEN);
    return remote_ask(remote, WORKER_REOPEN, 0, &request, NULL, NULL);
}

int remote_unlink(struct remote *remote, const char *path)
{
    struct wire request;
    request_at(&request, WORKER_UNLINK, path);
    return ask_at(remote, WORKER_UNLINK, path, &request);
}

int remote_create_link(struct remote *remote, const char *path, const struct sfs_link *link,
                       const struct object_header *counted)
{
    char no_name[] = "";
    struct sfs_link named = *link;
    struct wire request;
    named.name = no_name;
    request_at(&request, WORKER_CREATE_LINK, path);
    wire_link(&request, &named);
    remote_lock(remote);
    client_let_write(remote->client, counted);
    int error = remote_ask_locked(remote, WORKER_CREATE_LINK, remote_number(path, strlen(path)),
                                  &request, NULL, NULL);
    client_let_write(remote->client, NULL);
    remote_unlock(remote);
    wire_free(&request);
    return error;
}

/* ---- With a source ---- */

struct copying {
    struct remote *to, *from; /* from: NULL: there is none */
    const struct sfs_moved *moved;
    size_t n_moved;
};

/* Puts the source behind what is in the request, and asks. */
static int ask_with(const struct copying *copying, enum worker_call call, uint64_t object,
                    struct wire *request, take_function take, void *out)
{
    struct remote *to = copying->to, *from = copying->from;
    bool is_other = from && from != to;
    remote_lock(to);
    client_set_source(to->client, is_other ? from->store : NULL, copying->moved, copying->n_moved);
    wire_uint(request, is_other ? COPY_FROM_OTHER : from ? COPY_FROM_ITSELF : COPY_FROM_NOTHING);
    if (is_other) {
        wire_uints(request, (uint64_t[]){from->number, atomic_load(&from->renewals)}, 2);
        wire_string(request, store_path(from->store));
        client_put_source(to->client, request);
    }
    int error = remote_ask_locked(to, call, object, request, take, out);
    client_set_source(to->client, NULL, NULL, 0);
    remote_unlock(to);
    wire_free(request);
    return error;
}

static void put_some_dims(struct wire *request, const uint64_t *dims, int rank)
{
    wire_uint(request, dims != NULL);
    if (dims)
        wire_uints(request, dims, rank);
}

/* The process of libhdf5 has no plugins: one that has completes the parameters. A filter that is
 * optional, and is missing, stays as it is. */
static int put_filter(struct wire *request, const struct hdf5_create *create,
                      const struct sfs_filter *filter)
{
    const struct sfs_encoded type = {create->type, create->type_size};
    struct completed completed;
    struct sfs_filter put = *filter;
    bool is_complete = create->chunk_dims && plugins_run_apart() &&
                       !filter_is_built_in(filter->id) && plugins_available(filter->id);
    int error = is_complete
                    ? plugins_complete(filter, &type, create->rank, create->chunk_dims, &completed)
                    : 0;
    if (error)
        return error;
    if (is_complete) {
        put.n_values = completed.n;
        put.values = completed.values;
    }
    wire_uints(request, (uint64_t[]){(uint64_t)put.id, put.optional, is_complete, put.n_values}, 4);
    for (size_t k = 0; k < put.n_values; k++)
        wire_uint(request, put.values[k]);
    if (is_complete)
        wire_string(request, completed.name);
    return 0;
}

static int put_creation(struct wire *request, const struct hdf5_create *create)
{
    struct datatype_element element = {0};
    if (create->rank < 0 || create->rank > SFS_MAX_RANK)
        return -EINVAL;
    wire_uint(request, (uint64_t)create->rank);
    wire_uints(request, create->dims, create->rank);
    put_some_dims(request, create->max_dims, create->rank);
    put_some_dims(request, create->chunk_dims, create->rank);
    wire_uint(request, create->selection_version_1);
    wire_uint(request, create->unfiltered_edges);
    wire_uint(request, create->allocation);
    wire_uint(request, create->fill_time);
    wire_bytes(request, create->type, create->type_size);
    int error = create->fill ? remote_measure(create->type, create->type_size, &element) : 0;
    if (error)
        return error;
    wire_bytes(request, create->fill, (size_t)element.size);
    wire_uint(request, create->n_filters);
    for (size_t i = 0; i < create->n_filters && !error; i++)
        error = put_filter(request, create, &create->filters[i]);
    return error;
}

int remote_create_dataset(struct remote *remote, const char *path, bool is_dense,
                          const struct hdf5_create *create, struct remote *from, uint64_t *address)
{
    const struct copying copying = {.to = remote, .from = from};
    struct wire request;
    client_request(&request, WORKER_CREATE_DATASET);
    wire_uint(&request, is_dense);
    wire_string(&request, path);
    int error = put_creation(&request, create);
    if (error) {
        wire_free(&request);
        return error;
    }
    wire_uint(&request, create->attributes_of);
    return ask_with(&copying, WORKER_CREATE_DATASET, remote_number(path, strlen(path)), &request,
                    remote_take_number, address);
}

int remote_copy_attributes(struct remote *to, uint64_t object, struct remote *from, uint64_t of)
{
    const struct copying copying = {.to = to, .from = from};
    struct wire request;
    remote_request(&request, WORKER_COPY_ATTRIBUTES, object);
    wire_uint(&request, of);
    return ask_with(&copying, WORKER_COPY_ATTRIBUTES, object, &request, NULL, NULL);
}

static int copy_at(const struct copying *copying, enum worker_call call, const char *path,
                   uint64_t of)
{
    struct wire request;
    request_at(&request, call, path);
    wire_uint(&request, of);
    return ask_with(copying, call, remote_number(path, strlen(path)), &request, NULL, NULL);
}

int remote_copy_object(struct remote *to, const char *path, struct remote *from, uint64_t of)
{
    return copy_at(&(struct copying){.to = to, .from = from}, WORKER_COPY_OBJECT, path, of);
}

int remote_copy_group(struct remote *to, const char *path, struct remote *from, uint64_t of)
{
    return copy_at(&(struct copying){.to = to, .from = from}, WORKER_COPY_GROUP, path, of);
}

int remote_copy_references(struct remote *to, const char *path, struct remote *from, uint64_t of,
                           const struct sfs_moved *moved, size_t n)
{
    return copy_at(&(struct copying){to, from, moved, n}, WORKER_COPY_REFERENCES, path, of);
}
