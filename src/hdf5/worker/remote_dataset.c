/* Asking a worker for what libhdf5 knows of datasets. What is known of open ones is kept here:
 * another worker is told of them when it does not know them, and what it then says must be the
 * same. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/private.h"
#include "hdf5/worker/remote_private.h"
#include "store/store.h"

#define MOST_TRIES 3 /* of a call on a dataset that a worker does not know */
#define BATCHES    8 /* that are kept of a dataset */

void remote_dataset_free(struct remote_dataset *dataset)
{
    free(dataset->path);
    free(dataset->text);
    free(dataset->batches);
    free(dataset);
}

struct described {
    struct sfs_dataset_info *info;
    struct hdf5_storage *storage;
};

static int take_described(struct cursor *results, void *out)
{
    struct described *described = out;
    int error = take_info(results, described->info);
    if (error)
        return error;
    error = take_storage(results, described->info, described->storage);
    if (error)
        hdf5_info_free(described->info);
    return error;
}

void remote_forget_text(struct remote_dataset *dataset)
{
    free(dataset->text);
    dataset->text = NULL;
}

void remote_forget_chunks(struct remote_dataset *dataset)
{
    for (unsigned i = 0; dataset->batches && i < BATCHES; i++)
        dataset->batches[i].n = 0;
}

void remote_set_dims(struct remote_dataset *dataset, const uint64_t *dims)
{
    uint64_t n;
    memcpy(dataset->dims, dims, (size_t)dataset->rank * sizeof(*dims));
    remote_forget_chunks(dataset);
    remote_forget_text(dataset);
    dataset->has_numbers = false;
    if (dataset->rank == 0 || dataset->chunk_dims[0] == 0)
        return;
    for (int i = 0; i < dataset->rank; i++)
        dataset->grid[i] =
            dims[i] / dataset->chunk_dims[i] + (dims[i] % dataset->chunk_dims[i] != 0);
    dataset->has_numbers = box_product(dataset->grid, dataset->rank, 1, &n) && n > 0;
}

/* Who opens a dataset for its text asks for it at once: of many that are open, few have one. */
static void keep_text(struct remote *remote, struct remote_dataset *dataset,
                      struct remote_text *text)
{
    uint64_t *oldest = &remote->text_of[remote->next_text++ % MOST_TEXTS];
    struct remote_dataset *other = remote_dataset_find(remote, *oldest);
    if (other)
        remote_forget_text(other);
    *oldest = dataset->address;
    dataset->text = text->bytes;
    dataset->text_n = text->n;
    dataset->text_limit = remote->text_limit;
    text->bytes = NULL;
}

/* It may be the text that is taken over. */
static int keep_dataset(struct remote *remote, uint64_t address,
                        const struct sfs_dataset_info *info, struct remote_text *text)
{
    struct remote_dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return -ENOMEM;
    dataset->address = address;
    dataset->rank = info->rank;
    dataset->element_size = info->type.size;
    if (info->layout == SFS_CHUNKED)
        memcpy(dataset->chunk_dims, info->chunk_dims, sizeof(dataset->chunk_dims));
    remote_set_dims(dataset, info->dims);
    HASH_ADD(hh, remote->datasets, address, sizeof(address), dataset);
    if (hash_failed()) {
        remote_dataset_free(dataset);
        return -ENOMEM;
    }
    if (text->bytes)
        keep_text(remote, dataset, text);
    return 0;
}

/* Elements of an open one are taken by its rank and their size. */
static bool is_like(const struct remote_dataset *dataset, const struct sfs_dataset_info *info)
{
    return info->rank == dataset->rank && info->type.size == dataset->element_size;
}

struct remote_dataset *remote_dataset_find(struct remote *remote, uint64_t address)
{
    struct remote_dataset *dataset;
    HASH_FIND(hh, remote->datasets, &address, sizeof(address), dataset);
    return dataset;
}

static int describe(struct remote *remote, uint64_t address, struct sfs_dataset_info *info,
                    struct hdf5_storage *storage)
{
    struct described described = {info, storage};
    struct wire request;
    remote_request(&request, WORKER_DATASET_OPEN, address);
    int error = remote_ask_locked(remote, WORKER_DATASET_OPEN, address, &request, take_described,
                                  &described);
    wire_free(&request);
    return error;
}

static void forget(struct sfs_dataset_info *info, struct hdf5_storage *storage)
{
    hdf5_info_free(info);
    hdf5_segments_free(storage->n_segments, storage->segments);
    *storage = (struct hdf5_storage){0};
}

static int take_shown(struct cursor *results, struct described *described, struct remote_text *text)
{
    int error = take_described(results, described);
    if (error)
        return error;
    if (take_bool(results))
        error = remote_take_text(results, text);
    if (!error && (take_end(results, true) < 0 || text->n > LISTED_MOST_BYTES))
        error = -EIO;
    if (error) {
        forget(described->info, described->storage);
        free(text->bytes);
        *text = (struct remote_text){0};
    }
    return error;
}

/* The description of a dataset, and its text if those of others were wanted, too. -EAGAIN: it is to
 * be asked for by itself. */
static int show(struct remote *remote, uint64_t address, struct sfs_dataset_info *info,
                struct hdf5_storage *storage, struct remote_text *text)
{
    struct described described = {info, storage};
    struct wire request;
    struct cursor results;
    if (remote->text_limit == 0 || !remote_may_ask_ahead(remote, LISTED_ATTRIBUTES) ||
        !listed_may_fail(&remote->listed) || client_is_struck(remote->client, address))
        return -EAGAIN;
    remote_request(&request, WORKER_SHOW, address);
    wire_uint(&request, remote->text_limit);
    int error = client_try(remote->client, WORKER_SHOW, address, &request, &results);
    if (!error) {
        error = take_shown(&results, &described, text);
        if (error == -EIO)
            error = client_distrust_try(remote->client, WORKER_SHOW, address);
    }
    wire_free(&request);
    if (error == -EPIPE)
        listed_failed(&remote->listed, NULL);
    return error == -EPIPE ? -EAGAIN : error;
}

int remote_dataset_open(struct remote *remote, uint64_t address, struct sfs_dataset_info *info,
                        struct hdf5_storage *storage)
{
    *info = (struct sfs_dataset_info){0};
    *storage = (struct hdf5_storage){0};
    struct remote_text text = {0};
    unsigned opened_by = 0;
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    struct direct *direct = remote_direct(remote, address);
    error = direct ? direct_dataset_open(direct, address, info, storage) : -EAGAIN;
    bool is_asked = error == -EAGAIN;
    if (error == -EAGAIN)
        error = show(remote, address, info, storage, &text);
    if (error == -EAGAIN)
        error = describe(remote, address, info, storage);
    if (is_asked && !error)
        opened_by = client_answered_by(remote->client);
    struct remote_dataset *open = error ? NULL : remote_dataset_find(remote, address);
    if (open && !is_like(open, info))
        error = store_is_live(remote->store)
                    ? -ESTALE
                    : client_distrust(remote->client, WORKER_DATASET_OPEN, address);
    else if (!error && !open)
        error = keep_dataset(remote, address, info, &text);
    if (!error && (open = remote_dataset_find(remote, address)) && opened_by > 0)
        open->opened_by = opened_by;
    if (error)
        forget(info, storage);
    remote_unlock(remote);
    free(text.bytes);
    return error;
}

/* Whether the worker has opened it: not if it was described without one, or by one before. */
static bool is_known(struct remote *remote, const struct remote_dataset *dataset)
{
    return dataset->opened_by > 0 && dataset->opened_by == client_starts(remote->client);
}

void remote_close_now(struct remote *remote, uint64_t address)
{
    struct wire request;
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    if (!dataset)
        return;
    if (dataset->text) /* it was not consumed */
        remote->text_limit = 0;
    bool is_told = is_known(remote, dataset);
    HASH_DEL(remote->datasets, dataset);
    remote_dataset_free(dataset);
    if (!is_told)
        return;
    remote_request(&request, WORKER_DATASET_CLOSE, address);
    client_tell(remote->client, WORKER_DATASET_CLOSE, address, &request);
    wire_free(&request);
}

/* Nobody waits for that: who comes next does it. */
void remote_dataset_close(struct remote *remote, uint64_t address)
{
    struct closed *closed = NULL;
    bool is_locked = client_try_lock(remote->client);
    if (!is_locked && !(closed = calloc(1, sizeof(*closed)))) {
        client_lock(remote->client);
        is_locked = true;
    }
    if (is_locked) {
        remote_close_now(remote, address);
        remote_unlock(remote);
        return;
    }
    closed->address = address;
    closed->next = atomic_load(&remote->closed);
    while (!atomic_compare_exchange_weak(&remote->closed, &closed->next, closed))
        ;
}

/* -EBADF of the very worker that has opened it cannot be. */
static int check_unknown(struct remote *remote, const struct remote_dataset *dataset,
                         enum worker_call call, int error)
{
    return error == -EBADF && is_known(remote, dataset)
               ? client_distrust(remote->client, call, dataset->address)
               : error;
}

static int tell_caches(struct remote *remote, const struct remote_dataset *dataset)
{
    struct wire request;
    remote_request(&request, WORKER_CACHE_SOURCES, dataset->address);
    wire_uint(&request, dataset->source_bytes);
    wire_string(&request, dataset->path);
    int error =
        remote_ask_locked(remote, WORKER_CACHE_SOURCES, dataset->address, &request, NULL, NULL);
    wire_free(&request);
    return error;
}

/* For a worker that does not know it. One that is being changed may have grown meanwhile. With its text, if it can be
 * had at once: -EAGAIN: it cannot, and it was not opened. */
static int open_again(struct remote *remote, struct remote_dataset *dataset,
                      struct remote_text *text)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    client_ask_anew(remote->client, true);
    int error = text ? show(remote, dataset->address, &info, &storage, text)
                     : describe(remote, dataset->address, &info, &storage);
    client_ask_anew(remote->client, false);
    if (error)
        return error;
    dataset->opened_by = client_answered_by(remote->client);
    bool is_same = is_like(dataset, &info) && !memcmp(info.dims, dataset->dims, sizeof(info.dims));
    forget(&info, &storage);
    if (!is_same && store_is_live(remote->store))
        return STORE_MOVED;
    if (!is_same)
        return client_distrust(remote->client, WORKER_DATASET_OPEN, dataset->address);
    return dataset->path ? tell_caches(remote, dataset) : 0;
}

/* What is there now, by what a worker says that has not opened it. */
static int renew_from_scratch(struct remote *remote, struct remote_dataset *dataset,
                              struct hdf5_renewed *renewed)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    int error = describe(remote, dataset->address, &info, &storage);
    if (error)
        return error;
    dataset->opened_by = client_answered_by(remote->client);
    if (info.rank != dataset->rank)
        error = -ESTALE;
    memcpy(renewed->dims, info.dims, sizeof(renewed->dims));
    renewed->data_address = storage.address;
    renewed->form = hdf5_form(&info, &storage);
    forget(&info, &storage);
    return error;
}

struct renewing {
    int rank;
    struct hdf5_renewed *renewed;
};

static int take_renewed(struct cursor *results, void *out)
{
    struct renewing *renewing = out;
    take_uints(results, renewing->renewed->dims, renewing->rank);
    renewing->renewed->form = take_uint(results, UINT64_MAX);
    renewing->renewed->data_address = take_uint(results, UINT64_MAX);
    return take_end(results, true);
}

static int renew_dataset(struct remote *remote, struct remote_dataset *dataset,
                         struct hdf5_renewed *renewed)
{
    struct renewing renewing = {dataset->rank, renewed};
    struct wire request;
    remote_request(&request, WORKER_DATASET_RENEW, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    int error = remote_ask_locked(remote, WORKER_DATASET_RENEW, dataset->address, &request,
                                  take_renewed, &renewing);
    wire_free(&request);
    error = check_unknown(remote, dataset, WORKER_DATASET_RENEW, error);
    if (error == -EBADF)
        error = renew_from_scratch(remote, dataset, renewed);
    if (!error)
        remote_set_dims(dataset, renewed->dims);
    return error;
}

int remote_dataset_renew(struct remote *remote, uint64_t address, int rank,
                         struct hdf5_renewed *renewed)
{
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error =
        dataset && dataset->rank == rank ? renew_dataset(remote, dataset, renewed) : -ESTALE;
    remote_unlock(remote);
    return error;
}

int remote_ask_dataset(struct remote *remote, struct remote_dataset *dataset, enum worker_call call,
                       struct wire *request, take_function take, void *out)
{
    int error = -EBADF;
    client_ask_as_one(remote->client, true);
    for (int i = 0; i < MOST_TRIES && error == -EBADF; i++) {
        error = is_known(remote, dataset) ? 0 : open_again(remote, dataset, NULL);
        if (!error)
            error = remote_ask_locked(remote, call, dataset->address, request, take, out);
        error = check_unknown(remote, dataset, call, error);
    }
    client_ask_as_one(remote->client, false);
    if (error != -EBADF)
        return error;
    library_reason("the process of libhdf5 was started again each time it had opened the dataset");
    return -EIO;
}

int remote_cache_sources(struct remote *remote, uint64_t address, const char *path, size_t bytes)
{
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    error = dataset ? 0 : -EBADF;
    if (!error) {
        free(dataset->path);
        dataset->path = strdup(path);
        dataset->source_bytes = bytes;
        error = dataset->path ? tell_caches(remote, dataset) : -ENOMEM;
    }
    if (dataset)
        error = check_unknown(remote, dataset, WORKER_CACHE_SOURCES, error);
    if (error == -EBADF && dataset)
        error = open_again(remote, dataset, NULL); /* which tells it, too */
    remote_unlock(remote);
    return error;
}

static int ask_open(struct remote *remote, uint64_t address, enum worker_call call,
                    struct wire *request, take_function take, void *out)
{
    int error = remote_lock_interruptible(remote);
    if (!error) {
        struct remote_dataset *dataset = remote_dataset_find(remote, address);
        error = dataset ? remote_ask_dataset(remote, dataset, call, request, take, out) : -EBADF;
        remote_unlock(remote);
    }
    wire_free(request);
    return error;
}

static int take_mappings_of(struct cursor *results, void *out)
{
    return take_mappings(results, out);
}

int remote_mappings(struct remote *remote, uint64_t address, struct hdf5_mappings *mappings)
{
    struct wire request;
    *mappings = (struct hdf5_mappings){0};
    remote_request(&request, WORKER_MAPPINGS, address);
    return ask_open(remote, address, WORKER_MAPPINGS, &request, take_mappings_of, mappings);
}

/* What came with the description is handed out once. */
static bool take_kept_text(struct remote *remote, uint64_t address, size_t limit,
                           struct remote_text *text)
{
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    remote->text_limit = limit;
    if (!dataset || !dataset->text || dataset->text_limit != limit)
        return false;
    *text = (struct remote_text){dataset->text, dataset->text_n};
    dataset->text = NULL;
    return true;
}

/* That of one which the worker does not know yet, in one call. Where that fails, others say why. */
static bool open_for_text(struct remote *remote, uint64_t address, struct remote_text *text)
{
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    if (!dataset || is_known(remote, dataset))
        return false;
    if (open_again(remote, dataset, text) < 0) {
        free(text->bytes);
        *text = (struct remote_text){0};
    }
    return text->bytes;
}

int remote_text(struct remote *remote, uint64_t dataset, size_t limit, char **out, size_t *n)
{
    struct remote_text text = {0};
    struct wire request;
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    bool is_there =
        take_kept_text(remote, dataset, limit, &text) || open_for_text(remote, dataset, &text);
    remote_unlock(remote);
    if (!is_there) {
        remote_request(&request, WORKER_TEXT, dataset);
        wire_uint(&request, limit);
        error = ask_open(remote, dataset, WORKER_TEXT, &request, remote_take_text, &text);
    }
    if (!error) {
        *out = text.bytes;
        *n = text.n;
    }
    return error;
}

/* What a worker may answer of parts is as long as it must be, or at most as long as it may. */
struct parts_taken {
    struct remote_text text;
    size_t least, most;
};

static int take_parts(struct cursor *results, void *out)
{
    struct parts_taken *taken = out;
    int error = remote_take_text(results, &taken->text);
    if (!error && (taken->text.n < taken->least || taken->text.n > taken->most)) {
        free(taken->text.bytes);
        error = -EIO;
    }
    return error;
}

int remote_parts(struct remote *remote, uint64_t dataset, const struct hdf5_parts *wanted,
                 char **bytes, size_t *bytes_n)
{
    struct parts_taken taken = {.most = wanted->most};
    struct wire request;
    if (wanted->n > SFS_MOST_PARTS)
        return -EINVAL;
    if (wanted->parts == SFS_LENGTHS)
        taken.least = taken.most = (size_t)wanted->n * sizeof(uint64_t);
    else if (wanted->parts == SFS_LINES || wanted->parts == SFS_JSON)
        taken.least = (size_t)wanted->n; /* the ends */
    remote_request(&request, WORKER_PARTS, dataset);
    wire_uints(&request, (uint64_t[]){wanted->parts, wanted->first, wanted->n, wanted->most}, 4);
    int error = ask_open(remote, dataset, WORKER_PARTS, &request, take_parts, &taken);
    if (!error) {
        *bytes = taken.text.bytes;
        *bytes_n = taken.text.n;
    }
    return error;
}

/* A line for each. */
static int take_paths(struct cursor *results, void *out)
{
    struct parts_taken *taken = out;
    int error = take_parts(results, taken);
    const char *at = error ? NULL : taken->text.bytes, *end = error ? NULL : at + taken->text.n;
    size_t n = 0;
    for (; !error && n < taken->least && at < end; n++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        at = line_end ? line_end + 1 : end + 1;
    }
    if (!error && (n < taken->least || at != end)) {
        free(taken->text.bytes);
        error = -EIO;
    }
    return error;
}

int remote_paths(struct remote *remote, uint64_t dataset, const struct hdf5_addresses *addresses,
                 size_t most, char **lines, size_t *lines_n)
{
    struct parts_taken taken = {.least = addresses->n, .most = most};
    struct wire request;
    if (addresses->n > SFS_MOST_PARTS)
        return -EINVAL;
    remote_request(&request, WORKER_PATHS, dataset);
    wire_uint(&request, most);
    wire_uint(&request, addresses->n);
    wire_uints(&request, addresses->address, (int)addresses->n);
    int error = remote_ask(remote, WORKER_PATHS, dataset, &request, take_paths, &taken);
    if (!error) {
        *lines = taken.text.bytes;
        *lines_n = taken.text.n;
    }
    return error;
}

/* ---- Chunks ---- */

struct located {
    struct batch *batch;
    unsigned wanted;
};

static int take_located(struct cursor *results, void *out)
{
    const struct located *located = out;
    struct batch *batch = located->batch;
    for (batch->n = 0; batch->n < located->wanted && results->left > 0; batch->n++)
        if (take_chunk(results, &batch->chunk[batch->n]) < 0)
            break;
    if (!results->failed && batch->n > 0)
        return 0;
    batch->n = 0;
    return -EIO;
}

static uint64_t number_of(const struct remote_dataset *dataset, const uint64_t *start)
{
    uint64_t number = 0;
    for (int i = 0; i < dataset->rank; i++)
        number = number * dataset->grid[i] + start[i] / dataset->chunk_dims[i];
    return number;
}

/* The coordinates of the first element of the n-th chunk behind one; false: there is none. */
static bool start_behind(const struct remote_dataset *dataset, const uint64_t *start, uint64_t n,
                         uint64_t *behind)
{
    for (int i = dataset->rank - 1; i >= 0; i--) {
        uint64_t scaled = start[i] / dataset->chunk_dims[i] + n;
        n = scaled / dataset->grid[i];
        behind[i] = scaled % dataset->grid[i] * dataset->chunk_dims[i];
    }
    return n == 0;
}

/* Of a dataset whose chunks have numbers: the batch in which one is; or one to be filled, and how
 * many are worth asking for: all of few, of others more, the longer they are read in their order. */
static struct batch *batch_of(struct remote_dataset *dataset, uint64_t number, unsigned *wanted)
{
    uint64_t all = 1;
    for (int i = 0; i < dataset->rank; i++)
        all *= dataset->grid[i]; /* which is no more than a number can say */
    *wanted = number == 0 && all <= MOST_BATCH ? (unsigned)all : 1;
    for (unsigned i = 0; i < BATCHES; i++) {
        struct batch *batch = &dataset->batches[i];
        uint64_t behind = number - batch->first;
        if (batch->n > 0 && behind < batch->n) {
            *wanted = 0;
            return batch;
        }
        if (batch->n > 0 && behind < 2 * (uint64_t)batch->n && 2 * batch->n > *wanted)
            *wanted = 2 * batch->n;
    }
    *wanted = *wanted < MOST_BATCH ? *wanted : MOST_BATCH;
    return &dataset->batches[dataset->next_batch++ % BATCHES];
}

/* Asks for up to MOST_BATCH chunks; starts: the coordinates of all, which are freed. Not all need
 * be answered. */
static int ask_located(struct remote *remote, struct remote_dataset *dataset, struct wire *starts,
                       unsigned n, struct batch *batch)
{
    struct wire request;
    struct located located = {batch, n};
    remote_request(&request, WORKER_LOCATE, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uint(&request, n);
    wire_put(&request, starts->bytes, starts->n);
    request.failed |= starts->failed;
    batch->n = 0;
    int error =
        remote_ask_dataset(remote, dataset, WORKER_LOCATE, &request, take_located, &located);
    wire_free(starts);
    wire_free(&request);
    return error;
}

static int fill_batch(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                      uint64_t number, unsigned wanted, struct batch *batch)
{
    uint64_t behind[SFS_MAX_RANK];
    struct wire starts = {0};
    unsigned n = 0;
    wire_uints(&starts, start, dataset->rank);
    for (n = 1; n < wanted && start_behind(dataset, start, n, behind); n++)
        wire_uints(&starts, behind, dataset->rank);
    batch->first = number;
    return ask_located(remote, dataset, &starts, n, batch);
}

static int locate(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                  struct hdf5_chunk *chunk)
{
    struct batch alone = {0}, *batch = &alone;
    unsigned wanted = 1;
    uint64_t number = 0;
    if (!dataset->batches && dataset->has_numbers)
        dataset->batches = calloc(BATCHES, sizeof(*dataset->batches));
    if (dataset->batches && dataset->has_numbers) {
        number = number_of(dataset, start);
        batch = batch_of(dataset, number, &wanted);
    }
    int error = wanted ? fill_batch(remote, dataset, start, number, wanted, batch) : 0;
    if (!error && number - batch->first >= batch->n)
        error = -EIO;
    if (!error)
        *chunk = batch->chunk[number - batch->first];
    return error;
}

int remote_locate(struct remote *remote, uint64_t address, const uint64_t *start,
                  struct hdf5_chunk *chunk)
{
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    error = dataset ? locate(remote, dataset, start, chunk) : -EBADF;
    remote_unlock(remote);
    return error;
}

static int locate_many(struct remote *remote, struct remote_dataset *dataset,
                       const struct hdf5_stored *chunks, unsigned n, struct hdf5_chunk *found)
{
    struct batch batch;
    int error = 0;
    for (unsigned done = 0; done < n && !error; done += batch.n) {
        struct wire starts = {0};
        unsigned wanted = n - done < MOST_BATCH ? n - done : MOST_BATCH;
        for (unsigned i = 0; i < wanted; i++)
            wire_uints(&starts, chunks[done + i].start, dataset->rank);
        error = ask_located(remote, dataset, &starts, wanted, &batch);
        if (!error)
            memcpy(found + done, batch.chunk, batch.n * sizeof(*found));
    }
    return error;
}

int remote_locate_many(struct remote *remote, uint64_t address, const struct hdf5_stored *chunks,
                       unsigned n, struct hdf5_chunk *found)
{
    remote_lock(remote);
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    int error = dataset ? locate_many(remote, dataset, chunks, n, found) : -EBADF;
    remote_unlock(remote);
    return error;
}

/* ---- Elements ---- */

struct box_taken {
    const struct remote_dataset *dataset;
    const uint64_t *count, *memory_dims;
    uint64_t bytes;
    void *buffer;
};

static int take_box(struct cursor *results, void *out)
{
    const struct box_taken *box = out;
    const struct remote_dataset *dataset = box->dataset;
    const unsigned char *bytes = cursor_bytes(results, box->bytes);
    if (!bytes)
        return -EIO;
    if (dataset->rank == 0)
        memcpy(box->buffer, bytes, box->bytes);
    else
        box_copy(&(struct box_shape){dataset->rank, box->count, dataset->element_size}, box->buffer,
                 (struct box_place){box->memory_dims, NULL}, bytes,
                 (struct box_place){box->count, NULL});
    return 0;
}

static int read_box(struct remote *remote, struct remote_dataset *dataset, const uint64_t *start,
                    const uint64_t *count, const uint64_t *memory_dims, void *buffer)
{
    struct box_taken box = {dataset, count, memory_dims, dataset->element_size, buffer};
    struct wire request;
    if (!box_product(count, dataset->rank, dataset->element_size, &box.bytes) ||
        box.bytes > WIRE_MOST_BYTES) {
        library_reason("it is too large for one answer of libhdf5's process");
        return -EFBIG;
    }
    remote_request(&request, WORKER_READ, dataset->address);
    wire_uint(&request, (uint64_t)dataset->rank);
    wire_uints(&request, start, dataset->rank);
    wire_uints(&request, count, dataset->rank);
    wire_uint(&request, box.bytes);
    int error = remote_ask_dataset(remote, dataset, WORKER_READ, &request, take_box, &box);
    wire_free(&request);
    return error;
}

int remote_read(struct remote *remote, uint64_t address, const uint64_t *start,
                const uint64_t *count, const uint64_t *memory_dims, void *buffer)
{
    int error = remote_lock_interruptible(remote);
    if (error)
        return error;
    struct remote_dataset *dataset = remote_dataset_find(remote, address);
    error = !dataset ? -EBADF : read_box(remote, dataset, start, count, memory_dims, buffer);
    remote_unlock(remote);
    return error;
}

uint64_t remote_number(const void *bytes, size_t n)
{
    uint64_t number = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        number = (number ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return number;
}
