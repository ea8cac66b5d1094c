/* Asking a worker for what libhdf5 knows of a file: its groups, and what is in them. */
#include "hdf5/worker/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/private.h"
#include "hdf5/worker/remote_private.h"
#include "store/store.h"

static atomic_ullong n_remotes; /* that there have been */

static bool is_only_read(const struct store *store)
{
    return !store_is_writable(store) || store_is_shared(store);
}

/* ---- The lock ---- */

static void close_closed(struct remote *remote)
{
    struct closed *closed = atomic_exchange(&remote->closed, NULL), *next;
    for (; closed; closed = next) {
        next = closed->next;
        remote_close_now(remote, closed->address);
        free(closed);
    }
}

void remote_lock(struct remote *remote)
{
    client_lock(remote->client);
    close_closed(remote);
}

int remote_lock_interruptible(struct remote *remote)
{
    int error = client_lock_interruptible(remote->client);
    if (!error)
        close_closed(remote);
    return error;
}

void remote_unlock(struct remote *remote)
{
    client_unlock(remote->client);
}

/* ---- Files ---- */

/* A store that cannot be read directly is opened by a worker. */
static int open_file(struct remote *remote, uint64_t timeout, bool directly, uint64_t *root)
{
    int error = directly && is_only_read(remote->store)
                    ? direct_open(remote->store, timeout, &remote->direct, root)
                    : -EAGAIN;
    if (error != -EAGAIN)
        return error;
    remote_lock(remote);
    error = client_start(remote->client, root);
    remote_unlock(remote);
    return error;
}

int remote_begin(struct remote *remote)
{
    uint64_t root;
    remote_lock(remote);
    int error = client_start(remote->client, &root);
    remote_unlock(remote);
    return error == -ECHILD ? -EIO : error;
}

int remote_open(struct store *store, uint64_t timeout, bool directly, struct remote **out,
                uint64_t *root)
{
    struct remote *remote = calloc(1, sizeof(*remote));
    if (!remote)
        return -ENOMEM;
    remote->store = store;
    remote->number = atomic_fetch_add(&n_remotes, 1);
    int error = client_create(store, timeout, &remote->client);
    if (!error && store)
        error = open_file(remote, timeout, directly, root);
    if (error)
        remote_close(remote);
    else
        *out = remote;
    return error;
}

void remote_close(struct remote *remote)
{
    if (!remote)
        return;
    struct remote_dataset *dataset, *next;
    struct closed *closed = atomic_load(&remote->closed), *closed_next;
    for (; closed; closed = closed_next) {
        closed_next = closed->next;
        free(closed);
    }
    HASH_ITER (hh, remote->datasets, dataset, next) {
        HASH_DEL(remote->datasets, dataset);
        remote_dataset_free(dataset);
    }
    listed_clear(&remote->listed);
    client_destroy(remote->client);
    direct_close(remote->direct);
    free(remote);
}

int remote_renew(struct remote *remote, uint64_t *root)
{
    struct remote_dataset *dataset, *next;
    remote_lock(remote);
    listed_clear(&remote->listed);
    HASH_ITER (hh, remote->datasets, dataset, next)
        remote_forget_text(dataset);
    atomic_fetch_add(&remote->renewals, 1);
    int error = client_renew(remote->client, root);
    remote_unlock(remote);
    return error;
}

struct direct *remote_direct(const struct remote *remote, uint64_t object)
{
    bool may = is_only_read(remote->store) && !client_is_struck(remote->client, object);
    return may ? remote->direct : NULL;
}

int remote_ask_locked(struct remote *remote, enum worker_call call, uint64_t object,
                      struct wire *request, take_function take, void *out)
{
    struct cursor results;
    if (call >= WORKER_FIRST_CHANGE)
        listed_clear(&remote->listed);
    int error = client_ask(remote->client, call, object, request, &results);
    if (error)
        return error;
    error = take ? take(&results, out) : 0;
    return error == -EIO ? client_distrust(remote->client, call, object) : error;
}

int remote_ask(struct remote *remote, enum worker_call call, uint64_t object, struct wire *request,
               take_function take, void *out)
{
    bool may_end = call < WORKER_FIRST_CHANGE && call != WORKER_TYPE_EQUAL; /* which has no error */
    int error = 0;
    if (may_end)
        error = remote_lock_interruptible(remote);
    else
        remote_lock(remote);
    if (!error) {
        error = remote_ask_locked(remote, call, object, request, take, out);
        remote_unlock(remote);
    }
    wire_free(request);
    return error;
}

void remote_request(struct wire *request, enum worker_call call, uint64_t object)
{
    client_request(request, call);
    wire_uint(request, object);
}

int remote_take_text(struct cursor *results, void *out)
{
    struct remote_text *text = out;
    size_t n = take_count(results, 1);
    const unsigned char *bytes = cursor_bytes(results, n);
    if (results->failed)
        return -EIO;
    text->bytes = malloc(n + 1);
    if (!text->bytes)
        return -ENOMEM;
    memcpy(text->bytes, bytes, n);
    text->bytes[n] = '\0';
    text->n = n;
    return 0;
}

/* ---- Groups ---- */

static int take_links_of(struct cursor *results, void *out)
{
    return take_links(results, out);
}

int remote_list(struct remote *remote, uint64_t group, struct sfs_links *links)
{
    struct wire request;
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    remote_request(&request, WORKER_LIST, group);
    struct direct *direct = remote_direct(remote, group);
    error = direct ? direct_list(direct, group, links) : -EAGAIN;
    if (error == -EAGAIN)
        error = remote_ask_locked(remote, WORKER_LIST, group, &request, take_links_of, links);
    if (!error)
        listed_note(&remote->listed, group, links);
    remote_unlock(remote);
    wire_free(&request);
    return error;
}

static int take_link_of(struct cursor *results, void *out)
{
    return take_link(results, out);
}

int remote_lookup(struct remote *remote, uint64_t group, const char *name, struct sfs_link *link)
{
    struct wire request;
    remote_request(&request, WORKER_LOOKUP, group);
    wire_string(&request, name);
    return remote_ask(remote, WORKER_LOOKUP, group, &request, take_link_of, link);
}

int remote_take_number(struct cursor *results, void *out)
{
    *(uint64_t *)out = take_uint(results, UINT64_MAX);
    return take_end(results, false);
}

int remote_find(struct remote *remote, uint64_t group, const char *path, uint64_t *address)
{
    struct wire request;
    remote_request(&request, WORKER_FIND, group);
    wire_string(&request, path);
    return remote_ask(remote, WORKER_FIND, group, &request, remote_take_number, address);
}

/* ---- What is asked for of many objects, one after the other ---- */

static const enum worker_call calls_ahead[LISTED_WHATS] = {
    [LISTED_TYPE] = WORKER_OBJECT_TYPE, [LISTED_ATTRIBUTES] = WORKER_ATTRIBUTES};

/* Nobody but us changes the file, and nothing that we change is among it but by a worker. */
bool remote_may_ask_ahead(const struct remote *remote, enum listed_what what)
{
    return !store_is_live(remote->store) &&
           (what == LISTED_TYPE || !store_is_writable(remote->store));
}

static struct listed_row row_of(struct remote *remote, enum listed_what what,
                                const uint64_t *address)
{
    struct listed_row row = listed_row(&remote->listed, what, address);
    unsigned n = 0;
    while (n < row.n && !client_is_struck(remote->client, row.addresses[n]))
        n++;
    row.n = n;
    return row;
}

/* -EAGAIN: nothing was said of the object ahead; -EPIPE: what cannot be. */
static int take_said(struct remote *remote, enum listed_what what, uint64_t address,
                     take_function take, void *out)
{
    size_t n;
    const unsigned char *said = listed_said(&remote->listed, what, address, &n);
    if (!said)
        return -EAGAIN;
    struct cursor cursor = cursor_over(said, n);
    int error = take(&cursor, out);
    if (error == -EIO) {
        listed_forget(&remote->listed, what, address);
        error = client_distrust_try(remote->client, WORKER_SEVERAL, address);
    }
    return error;
}

/* What is more than a row may be is not kept: then only the first one was answered. Nor is what may leave out
 * something. */
static int keep_row(struct remote *remote, const struct listed_row *row, enum listed_what what,
                    const struct cursor *results)
{
    if (results->left > LISTED_MOST_BYTES || client_has_missed(remote->client))
        return -EAGAIN;
    unsigned char *said = malloc(results->left ? results->left : 1);
    if (!said)
        return -ENOMEM;
    memcpy(said, results->at, results->left);
    int error = listed_keep(row, what, said, results->left);
    return error ? client_distrust_try(remote->client, WORKER_SEVERAL, row->addresses[0]) : 0;
}

/* As client_try. */
static int ask_row(struct remote *remote, enum listed_what what, const struct listed_row *row)
{
    struct wire request;
    struct cursor results;
    client_request(&request, WORKER_SEVERAL);
    wire_uint(&request, calls_ahead[what]);
    wire_uints(&request, row->addresses, (int)row->n);
    int error = client_try(remote->client, WORKER_SEVERAL, row->addresses[0], &request, &results);
    if (!error)
        error = keep_row(remote, row, what, &results);
    wire_free(&request);
    return error;
}

/* -EAGAIN: it is to be asked for alone. */
static int ask_ahead(struct remote *remote, enum listed_what what, uint64_t address,
                     take_function take, void *out)
{
    if (remote->starts != client_starts(remote->client))
        listed_clear_said(&remote->listed);
    remote->starts = client_starts(remote->client);
    struct listed_row row = {0};
    int error = take_said(remote, what, address, take, out);
    if (error == -EAGAIN) {
        row = row_of(remote, what, &address);
        error = row.n < 2 ? -EAGAIN : ask_row(remote, what, &row);
        if (!error)
            error = take_said(remote, what, address, take, out);
    }
    if (error != -EPIPE)
        return error;
    listed_failed(&remote->listed, &row);
    return -EAGAIN;
}

static int ask_listed(struct remote *remote, enum listed_what what, uint64_t address,
                      take_function take, void *out)
{
    struct wire request;
    enum worker_call call = calls_ahead[what];
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    error =
        remote_may_ask_ahead(remote, what) ? ask_ahead(remote, what, address, take, out) : -EAGAIN;
    if (error == -EAGAIN) {
        remote_request(&request, call, address);
        error = remote_ask_locked(remote, call, address, &request, take, out);
        wire_free(&request);
    }
    remote_unlock(remote);
    return error;
}

static int take_object_type(struct cursor *results, void *out)
{
    *(enum sfs_object_type *)out = (enum sfs_object_type)take_uint(results, SFS_DATATYPE);
    return take_end(results, false);
}

int remote_object_type(struct remote *remote, uint64_t address, enum sfs_object_type *type)
{
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    struct direct *direct = remote_direct(remote, address);
    error = direct ? direct_object_type(direct, address, type) : -EAGAIN;
    remote_unlock(remote);
    return error == -EAGAIN ? ask_listed(remote, LISTED_TYPE, address, take_object_type, type)
                            : error;
}

static int take_attributes_of(struct cursor *results, void *out)
{
    return take_attributes(results, out);
}

int remote_attributes(struct remote *remote, uint64_t address, struct sfs_attributes *attributes)
{
    return ask_listed(remote, LISTED_ATTRIBUTES, address, take_attributes_of, attributes);
}
