/* A process for plugins of libhdf5. While it loads them it is not confined, and has no byte of any
 * file; when it gets the first it can do nothing but compute. */
#include "hdf5/worker/plugin_serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/confine.h"
#include "hdf5/worker/plugin_pool.h"

static unsigned char *shared;
static size_t shared_bytes;

static void say_nothing(int level, const char *line)
{
    (void)level, (void)line; /* what fails is in the reply */
}

static bool share(int socket)
{
    int fd;
    if (!descriptor_receive(socket, &shared_bytes, sizeof(shared_bytes), &fd) || fd < 0)
        return false;
    shared = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return shared != MAP_FAILED;
}

/* ---- Loading ---- */

/* In place of those that libhdf5 has by its variables and defaults. */
static int set_folders(struct cursor *in)
{
    unsigned n;
    int error = 0;
    while (H5PLsize(&n) >= 0 && n > 0)
        if (H5PLremove(n - 1) < 0)
            return library_failed(-EIO);
    for (uint64_t left = take_uint(in, PLUGINS_MOST_FOLDERS); left > 0 && !error; left--) {
        char *folder;
        error = take_string(in, true, &folder);
        if (!error && H5PLappend(folder) < 0)
            error = library_failed(-EIO);
        free(folder);
    }
    return error;
}

static int do_load(struct cursor *in, struct wire *out)
{
    size_t memory = (size_t)take_uint(in, SIZE_MAX);
    library_enter();
    int error = set_folders(in);
    library_leave();
    for (uint64_t n = take_uint(in, PLUGINS_MOST_IDS); n > 0 && !error; n--)
        wire_uint(out, local_filter_available((int)take_uint(in, INT32_MAX)));
    confine_surroundings();
    confine_environment();
    if (!confine_worker(memory))
        _exit(UNCONFINED);
    return error;
}

/* ---- Chunks ---- */

static int take_filters(struct cursor *in, struct sfs_filter filters[PIPELINE_MOST_FILTERS],
                        struct filter_pipeline *pipeline)
{
    pipeline->n = (size_t)take_uint(in, PIPELINE_MOST_FILTERS);
    pipeline->filters = filters;
    for (size_t i = 0; i < pipeline->n; i++) {
        struct sfs_filter *filter = &filters[i];
        *filter =
            (struct sfs_filter){.id = (int)take_uint(in, INT32_MAX), .optional = take_bool(in)};
        filter->n_values = take_count(in, sizeof(*filter->values));
        filter->values = (const void *)cursor_bytes(in, filter->n_values * sizeof(*filter->values));
    }
    return take_end(in, true);
}

/* Where the result is to be. */
static unsigned char *take_sizes(struct cursor *in, size_t *before, size_t *after)
{
    *before = (size_t)take_uint(in, shared_bytes);
    *after = (size_t)take_uint(in, shared_bytes);
    size_t place = plugins_place(*before);
    if (place > shared_bytes || *after > shared_bytes - place)
        in->failed = true;
    return in->failed ? NULL : shared + place;
}

static int do_decode(struct cursor *in, struct wire *out)
{
    (void)out;
    struct sfs_filter filters[PIPELINE_MOST_FILTERS];
    struct filter_pipeline pipeline;
    size_t before, after;
    unsigned char *to = take_sizes(in, &before, &after);
    pipeline.mask = (uint32_t)take_uint(in, UINT32_MAX);
    int error = take_filters(in, filters, &pipeline);
    return error ? error : local_filter_decode(&pipeline, shared, before, to, after);
}

static int do_encode(struct cursor *in, struct wire *out)
{
    struct sfs_filter filters[PIPELINE_MOST_FILTERS];
    struct filter_pipeline pipeline;
    size_t before, most, n;
    void *made;
    unsigned char *to = take_sizes(in, &before, &most);
    int error = take_filters(in, filters, &pipeline);
    if (!error)
        error = local_filter_encode(&pipeline, shared, before, &made, &n);
    if (error)
        return error;
    if (n > most)
        error = library_failed_because(-EINVAL, "filters make too many bytes of it");
    else if (n > 0)
        memcpy(to, made, n);
    free(made);
    wire_uints(out, (uint64_t[]){n, pipeline.mask}, 2);
    return error;
}

static int do_complete(struct cursor *in, struct wire *out)
{
    struct sfs_filter filters[PIPELINE_MOST_FILTERS];
    struct filter_pipeline pipeline;
    struct completed completed = {0};
    uint64_t chunk_dims[SFS_MAX_RANK];
    size_t before, most;
    unsigned char *to = take_sizes(in, &before, &most);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, chunk_dims, rank);
    int error = take_filters(in, filters, &pipeline);
    if (!error && pipeline.n != 1)
        error = -EINVAL;
    if (!error)
        error = local_filter_complete(pipeline.filters, &(struct sfs_encoded){shared, before}, rank,
                                      chunk_dims, &completed);
    if (error)
        return error;
    if (most < sizeof(completed))
        return -EINVAL;
    memcpy(to, &completed, sizeof(completed));
    wire_uints(out, (uint64_t[]){sizeof(completed), 0}, 2);
    return 0;
}

static void answer(struct cursor *in, struct wire *out)
{
    static int (*const calls[PLUGINS_CALLS])(struct cursor *,
                                             struct wire *) = {[PLUGINS_LOAD] = do_load,
                                                               [PLUGINS_DECODE] = do_decode,
                                                               [PLUGINS_ENCODE] = do_encode,
                                                               [PLUGINS_COMPLETE] = do_complete};
    struct wire results = {0};
    uint64_t call = take_uint(in, PLUGINS_CALLS - 1);
    library_reason("");
    int error = in->failed ? -EINVAL : calls[call](in, &results);
    wire_uint(out, (uint64_t)-error);
    wire_string(out, error ? hdf5_error() : "");
    if (!error)
        wire_put(out, results.bytes, results.n);
    wire_free(&results);
}

void plugin_serve(int socket)
{
    struct wire in = {0}, out = {0};
    enum message_kind kind;
    sfs_set_log(say_nothing, LOG_ERR);
    while ((shared || share(socket)) && channel_receive(socket, &kind, &in, UINT64_MAX) == 0 &&
           kind == MESSAGE_CALL) {
        struct cursor cursor = cursor_over(in.bytes, in.n);
        out.n = 0;
        out.failed = false;
        answer(&cursor, &out);
        if (channel_send(socket, MESSAGE_REPLY, &out, UINT64_MAX) < 0)
            break;
    }
    wire_free(&in);
    wire_free(&out);
    _exit(0);
}
