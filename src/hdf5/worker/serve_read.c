/* Calls that read the file: each takes its arguments, and puts its results. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/clock.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/answers_ahead.h"
#include "hdf5/worker/serve_private.h"
#include "store/store.h"

#define AHEAD_NANOS 20000000 /* for what is asked for of several objects at once */
#define MOST_SHOWN  4096     /* elements of a dataset, bytes of one, whose text is small */

static bool is_ahead; /* answers are sent ahead: no call waits for them */

uint64_t serve_take_object(struct cursor *in)
{
    return take_uint(in, UINT64_MAX);
}

static int do_open(struct cursor *in, struct wire *out)
{
    char *name;
    int error = served.store ? -EINVAL : take_string(in, true, &name);
    if (error)
        return error;
    error = serve_open_store(in, name, &served.store, &served.file);
    free(name);
    if (!error)
        error = local_open(served.store, &served.hdf5);
    if (!error)
        wire_uint(out, served.hdf5->root);
    return error;
}

static int do_renew(struct cursor *in, struct wire *out)
{
    char *name;
    int error = take_string(in, true, &name);
    free(name);
    if (error)
        return error;
    serve_renew_store(in);
    error = local_renew(served.hdf5);
    if (!error)
        wire_uint(out, served.hdf5->root);
    return error;
}

static int do_list(struct cursor *in, struct wire *out)
{
    struct sfs_links links;
    int error = local_list(served.hdf5, serve_take_object(in), &links);
    if (error)
        return error;
    wire_links(out, &links);
    sfs_links_free(&links);
    return 0;
}

static int do_lookup(struct cursor *in, struct wire *out)
{
    struct sfs_link link;
    char *name;
    uint64_t group = serve_take_object(in);
    int error = take_string(in, true, &name);
    if (!error)
        error = local_lookup(served.hdf5, group, name, &link);
    if (!error) {
        wire_link(out, &link);
        sfs_link_free(&link);
    }
    free(name);
    return error;
}

static int do_find(struct cursor *in, struct wire *out)
{
    char *path;
    uint64_t address, group = serve_take_object(in);
    int error = take_string(in, true, &path);
    if (!error)
        error = local_find(served.hdf5, group, path, &address);
    if (!error)
        wire_uint(out, address);
    free(path);
    return error;
}

static int do_object_type(struct cursor *in, struct wire *out)
{
    enum sfs_object_type type;
    int error = local_object_type(served.hdf5, serve_take_object(in), &type);
    if (!error)
        wire_uint(out, type);
    return error;
}

static int do_attributes(struct cursor *in, struct wire *out)
{
    struct sfs_attributes attributes;
    uint64_t object = serve_take_object(in);
    int error = is_ahead ? local_attributes_at_hand(served.hdf5, object, &attributes)
                         : local_attributes(served.hdf5, object, &attributes);
    if (error)
        return error;
    wire_attributes(out, &attributes);
    sfs_attributes_free(&attributes);
    return 0;
}

/* The results of the next object, if there is room. -EFBIG: there is none. */
static int put_next(call_function function, struct cursor *in, struct wire *out)
{
    struct wire results = {0};
    int error = function(in, &results);
    if (is_ahead && (error == -EIO || error == -EAGAIN)) {
        results.n = 0; /* it is asked for alone, if at all */
        error = 0;
    }
    if (!error && results.failed)
        error = -ENOMEM;
    if (!error && is_ahead && results.n + sizeof(uint64_t) + out->n > LISTED_MOST_BYTES)
        error = -EFBIG;
    if (!error)
        wire_bytes(out, results.bytes, results.n);
    wire_free(&results);
    return error;
}

/* What keeps those behind the first one from being answered is no error: they are asked for again.
 */
static int do_several(struct cursor *in, struct wire *out)
{
    uint64_t begun = clock_now(), call = take_uint(in, WORKER_CALLS - 1);
    call_function function = call == WORKER_OBJECT_TYPE  ? do_object_type
                             : call == WORKER_ATTRIBUTES ? do_attributes
                                                         : NULL;
    if (in->failed || !function)
        return -EINVAL;
    int error = put_next(function, in, out), ahead = error;
    is_ahead = true;
    while (!ahead && in->left > 0 && clock_now() - begun < AHEAD_NANOS)
        ahead = put_next(function, in, out);
    is_ahead = false;
    return error;
}

/* Text that is soon made, of what the program does not read itself. */
static void put_small_text(uint64_t dataset, const struct sfs_dataset_info *info, size_t limit,
                           struct wire *out)
{
    char *text = NULL;
    size_t n = 0;
    bool is_small = (info->layout == SFS_CONTIGUOUS || info->layout == SFS_COMPACT) &&
                    info->elements <= MOST_SHOWN && info->type.size <= MOST_SHOWN;
    size_t most = limit < LISTED_MOST_BYTES ? limit : LISTED_MOST_BYTES;
    int error = is_small ? local_text_at_hand(served.hdf5, dataset, most, &text, &n) : -EOPNOTSUPP;
    bool is_there = !error && n <= LISTED_MOST_BYTES;
    wire_uint(out, is_there);
    if (is_there)
        wire_bytes(out, text, n);
    free(error ? NULL : text);
}

static int open_dataset(struct cursor *in, struct wire *out, bool with_text)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    uint64_t dataset = serve_take_object(in);
    size_t limit = with_text ? (size_t)take_uint(in, SIZE_MAX) : 0;
    int error = local_dataset_open(served.hdf5, dataset, &info, &storage);
    if (error)
        return error;
    wire_info(out, &info);
    wire_storage(out, &storage);
    if (with_text)
        put_small_text(dataset, &info, limit, out);
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    return 0;
}

static int do_dataset_open(struct cursor *in, struct wire *out)
{
    return open_dataset(in, out, false);
}

static int do_show(struct cursor *in, struct wire *out)
{
    return open_dataset(in, out, true);
}

static int do_dataset_close(struct cursor *in, struct wire *out)
{
    (void)out;
    local_dataset_close(served.hdf5, serve_take_object(in));
    return 0;
}

int serve_find_open(uint64_t address, int rank, const struct cursor *in,
                    const struct open_dataset **dataset)
{
    library_enter();
    *dataset = dataset_find(served.hdf5, address);
    library_leave();
    return !*dataset ? -EBADF : in->failed || (*dataset)->rank != rank ? -EINVAL : 0;
}

static int do_dataset_renew(struct cursor *in, struct wire *out)
{
    struct hdf5_renewed renewed;
    uint64_t dataset = serve_take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    int error = in->failed ? -EIO : local_dataset_renew(served.hdf5, dataset, rank, &renewed);
    if (error)
        return error;
    wire_uints(out, renewed.dims, rank);
    wire_uint(out, renewed.form);
    wire_uint(out, renewed.data_address);
    return 0;
}

static int do_cache_sources(struct cursor *in, struct wire *out)
{
    (void)out;
    char *path;
    uint64_t dataset = serve_take_object(in), bytes = take_uint(in, SIZE_MAX);
    int error = take_string(in, true, &path);
    if (!error)
        error = local_cache_sources(served.hdf5, dataset, path, (size_t)bytes);
    free(path);
    return error;
}

static int do_mappings(struct cursor *in, struct wire *out)
{
    struct hdf5_mappings mappings;
    int error = local_mappings(served.hdf5, serve_take_object(in), &mappings);
    if (error)
        return error;
    wire_mappings(out, &mappings);
    hdf5_mappings_free(&mappings);
    return 0;
}

/* Of several chunks those before the first that cannot be found. */
static int do_locate(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], address = serve_take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    size_t n = (size_t)take_uint(in, SIZE_MAX);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    for (size_t i = 0; i < n && !error; i++) {
        struct hdf5_chunk chunk;
        take_uints(in, start, rank);
        error = in->failed ? -EINVAL : local_locate(served.hdf5, address, start, &chunk);
        if (error)
            return i > 0 ? 0 : error;
        wire_chunk(out, &chunk);
    }
    return error;
}

/* Packed, whatever the array is that it belongs into. */
static int do_read(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], address = serve_take_object(in), needed;
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    take_uints(in, count, rank);
    uint64_t bytes = take_uint(in, WIRE_MOST_BYTES);
    const struct open_dataset *dataset;
    int error = serve_find_open(address, rank, in, &dataset);
    if (!error && (!box_product(count, rank, dataset->size, &needed) || needed > bytes))
        error = -EINVAL;
    void *room = error ? NULL : wire_room(out, (size_t)bytes);
    if (!room)
        return error ? error : -ENOMEM;
    memset(room, 0, (size_t)bytes);
    return local_read(served.hdf5, address, start, count, count, room);
}

static int do_text(struct cursor *in, struct wire *out)
{
    uint64_t dataset = serve_take_object(in), limit = take_uint(in, SIZE_MAX);
    char *text;
    size_t n;
    int error = local_text(served.hdf5, dataset, (size_t)limit, &text, &n);
    if (error)
        return error;
    wire_bytes(out, text, n);
    free(text);
    return 0;
}

static int do_parts(struct cursor *in, struct wire *out)
{
    uint64_t dataset = serve_take_object(in);
    struct hdf5_parts wanted = {.parts = (enum sfs_parts)take_uint(in, HDF5_STORED)};
    wanted.first = take_uint(in, UINT64_MAX);
    wanted.n = take_uint(in, SFS_MOST_PARTS);
    wanted.most = (size_t)take_uint(in, SIZE_MAX);
    char *bytes;
    size_t bytes_n;
    int error = in->failed ? -EINVAL : local_parts(served.hdf5, dataset, &wanted, &bytes, &bytes_n);
    if (error)
        return error;
    wire_bytes(out, bytes, bytes_n);
    free(bytes);
    return 0;
}

static int do_paths(struct cursor *in, struct wire *out)
{
    serve_take_object(in);
    uint64_t most = take_uint(in, SIZE_MAX), n = take_uint(in, SFS_MOST_PARTS);
    uint64_t *addresses = in->failed ? NULL : calloc((size_t)n + 1, sizeof(*addresses));
    char *lines;
    size_t lines_n;
    if (!addresses)
        return in->failed ? -EINVAL : -ENOMEM;
    take_uints(in, addresses, (int)n);
    const struct hdf5_addresses wanted = {addresses, (size_t)n};
    int error =
        in->failed ? -EINVAL : local_paths(served.hdf5, &wanted, (size_t)most, &lines, &lines_n);
    free(addresses);
    if (error)
        return error;
    wire_bytes(out, lines, lines_n);
    free(lines);
    return 0;
}

int serve_put_string(struct wire *out, int error, char *string)
{
    if (error)
        return error;
    wire_string(out, string);
    free(string);
    return 0;
}

static int do_datatype_text(struct cursor *in, struct wire *out)
{
    char *text;
    int error = local_datatype_text(served.hdf5, serve_take_object(in), &text);
    return serve_put_string(out, error, text);
}

const call_function serve_reading[WORKER_CALLS] = {
    [WORKER_OPEN] = do_open,
    [WORKER_RENEW] = do_renew,
    [WORKER_LIST] = do_list,
    [WORKER_LOOKUP] = do_lookup,
    [WORKER_FIND] = do_find,
    [WORKER_OBJECT_TYPE] = do_object_type,
    [WORKER_ATTRIBUTES] = do_attributes,
    [WORKER_DATASET_OPEN] = do_dataset_open,
    [WORKER_DATASET_CLOSE] = do_dataset_close,
    [WORKER_DATASET_RENEW] = do_dataset_renew,
    [WORKER_CACHE_SOURCES] = do_cache_sources,
    [WORKER_MAPPINGS] = do_mappings,
    [WORKER_LOCATE] = do_locate,
    [WORKER_READ] = do_read,
    [WORKER_TEXT] = do_text,
    [WORKER_PARTS] = do_parts,
    [WORKER_PATHS] = do_paths,
    [WORKER_DATATYPE_TEXT] = do_datatype_text,
    [WORKER_SEVERAL] = do_several,
    [WORKER_SHOW] = do_show,
};
