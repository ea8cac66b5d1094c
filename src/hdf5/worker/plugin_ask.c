/* Chunks are given to processes of plugins, again if others have killed one, unless they end them themselves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/chunks_given_up.h"
#include "hdf5/worker/plugin_private.h"

#define GROWTH ((size_t)1 << 20) /* that encoding may add to twice the bytes */

struct job {
    enum plugin_call call;
    struct filter_pipeline pipeline;
    const void *in;
    size_t in_size, most; /* bytes before, and after at most */
    int ids[PIPELINE_MOST_FILTERS];
    size_t n_ids;
    int rank; /* PLUGINS_COMPLETE */
    const uint64_t *chunk_dims;
    char names[16 * PIPELINE_MOST_FILTERS]; /* of the filters, for messages */
    uint64_t number;                        /* that stands for it; 0: not worked out yet */
    uint64_t spent;                         /* nanoseconds of the processes that had it */
};

static int is_missing(int id)
{
    char line[200];
    snprintf(line, sizeof(line), FILTER_IS_MISSING, id);
    library_reason(line);
    return -EOPNOTSUPP;
}

/* Which filters it wants; one that is missing may be left out when encoding. */
static int choose_ids(struct job *job)
{
    size_t at = 0;
    for (size_t i = 0; i < job->pipeline.n; i++) {
        const struct sfs_filter *filter = &job->pipeline.filters[i];
        if (job->pipeline.mask >> i & 1)
            continue;
        at += (size_t)snprintf(job->names + at, sizeof(job->names) - at, "%s%d",
                               job->n_ids ? ", " : "", filter->id);
        if (plugins_available(filter->id))
            job->ids[job->n_ids++] = filter->id;
        else if (job->call == PLUGINS_DECODE || !filter->optional)
            return is_missing(filter->id);
    }
    return 0;
}

static uint64_t number_of(struct job *job)
{
    if (job->number == 0)
        job->number = plugin_chunk_number(&job->pipeline, job->in, job->in_size);
    return job->number;
}

/* Bytes are looked at only where there has been something. */
static bool is_given_up(struct job *job)
{
    return plugin_chunks_ended_any() && plugin_chunk_is_given_up(number_of(job));
}

static void describe(struct wire *request, const struct job *job)
{
    wire_uints(request, (uint64_t[]){job->call, job->in_size, job->most}, 3);
    if (job->call == PLUGINS_DECODE)
        wire_uint(request, job->pipeline.mask);
    if (job->call == PLUGINS_COMPLETE) {
        wire_uint(request, (uint64_t)job->rank);
        wire_uints(request, job->chunk_dims, job->rank);
    }
    wire_uint(request, job->pipeline.n);
    for (size_t i = 0; i < job->pipeline.n; i++) {
        const struct sfs_filter *filter = &job->pipeline.filters[i];
        wire_uints(request, (uint64_t[]){(uint64_t)filter->id, filter->optional, filter->n_values},
                   3);
        wire_put(request, filter->values, filter->n_values * sizeof(*filter->values));
    }
}

struct result {
    struct plugin_process *process; /* to be given back when the bytes have been taken */
    const unsigned char *bytes;
    size_t n;
    uint32_t mask;
};

static int take_result(const struct job *job, struct cursor *results, struct result *result)
{
    result->n = job->most;
    result->mask = 0;
    if (job->call != PLUGINS_DECODE) {
        result->n = (size_t)take_uint(results, job->most);
        result->mask = (uint32_t)take_uint(results, UINT32_MAX);
    }
    return take_end(results, true) ? -EPROTO : 0;
}

static int has_no_memory(const struct job *job)
{
    char line[sizeof(job->names) + 120];
    snprintf(line, sizeof(line),
             "filter %s: its process may not have as much memory as it wants (hdf5_memory=)",
             job->names);
    library_reason(line);
    return -EIO;
}

/* One try; -EPIPE: others have killed the process. */
static int try_once(struct job *job, const struct wire *request, size_t place,
                    struct result *result)
{
    struct plugin_process *process;
    struct cursor results;
    char what[sizeof(job->names) + 32];
    bool is_lost;
    bool may_end = job->call == PLUGINS_DECODE; /* what is written must not fail by it */
    int error = plugin_take(job->ids, job->n_ids, place + job->most, may_end, &process);
    if (error)
        return error;
    memcpy(process->shared, job->in, job->in_size);
    uint64_t begun = clock_now();
    error = plugin_exchange(process, request, may_end, &results, &is_lost);
    job->spent += clock_now() - begun;
    if (!error) {
        error = take_result(job, &results, result);
        is_lost = error != 0;
    }
    if (!is_lost) {
        result->process = process;
        result->bytes = process->shared + place;
        if (error)
            plugin_give_back(process);
        return error == -ENOMEM ? has_no_memory(job) : error;
    }
    if (error == -EINTR) { /* the chunk may be sound */
        plugin_end(process);
        return error;
    }
    snprintf(what, sizeof(what), "to %s filter %s", job->call == PLUGINS_DECODE ? "undo" : "apply",
             job->names);
    if (!plugin_bury(process, what, error))
        return -EPIPE;
    if (error == -ENOMEM) /* ours, for its reply */
        return error;
    plugin_chunk_ended_one(number_of(job), error == -ETIMEDOUT);
    return -EIO;
}

static int run(struct job *job, struct result *result)
{
    struct wire request = {0};
    size_t place = plugins_place(job->in_size);
    if (place == SIZE_MAX || job->most > SIZE_MAX / 4 - place)
        return -ENOMEM;
    int error = choose_ids(job);
    if (error)
        return error;
    describe(&request, job);
    error = request.failed ? -ENOMEM : -EPIPE;
    for (int i = 0; i < PLUGIN_MOST_TRIES && plugin_may_try_again(job->spent) && error == -EPIPE;
         i++) {
        if (is_given_up(job)) {
            library_reason("these bytes have ended the process of plugins before, and are not "
                           "given to it any more");
            error = -EIO;
        } else {
            error = try_once(job, &request, place, result);
        }
    }
    wire_free(&request);
    return error == -EPIPE ? -EIO : error;
}

int plugins_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                   void *out, size_t out_size)
{
    if (pipeline->n > PIPELINE_MOST_FILTERS || in_size == 0 ||
        out_size == 0) /* where no filter is run */
        return local_filter_decode(pipeline, in, in_size, out, out_size);
    struct job job = {.call = PLUGINS_DECODE,
                      .pipeline = *pipeline,
                      .in = in,
                      .in_size = in_size,
                      .most = out_size};
    struct result result;
    int error = run(&job, &result);
    if (error)
        return error;
    memcpy(out, result.bytes, out_size);
    plugin_give_back(result.process);
    return 0;
}

int plugins_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                   size_t *out_size)
{
    if (pipeline->n > PIPELINE_MOST_FILTERS || size == 0)
        return local_filter_encode(pipeline, in, size, out, out_size);
    if (size > SIZE_MAX / 8)
        return -ENOMEM;
    struct job job = {.call = PLUGINS_ENCODE,
                      .pipeline = {pipeline->n, pipeline->filters, 0},
                      .in = in,
                      .in_size = size,
                      .most = 2 * size + GROWTH};
    struct result result;
    int error = run(&job, &result);
    if (error)
        return error;
    void *bytes = malloc(result.n ? result.n : 1);
    if (bytes) {
        memcpy(bytes, result.bytes, result.n);
        *out = bytes;
        *out_size = result.n;
        pipeline->mask = result.mask;
    }
    plugin_give_back(result.process);
    return bytes ? 0 : -ENOMEM;
}

int plugins_complete(const struct sfs_filter *filter, const struct sfs_encoded *type, int rank,
                     const uint64_t *chunk_dims, struct completed *completed)
{
    if (rank < 1 || rank > SFS_MAX_RANK || type->n == 0)
        return -EINVAL;
    struct job job = {.call = PLUGINS_COMPLETE,
                      .pipeline = {1, filter, 0},
                      .in = type->bytes,
                      .in_size = type->n,
                      .most = sizeof(*completed),
                      .rank = rank,
                      .chunk_dims = chunk_dims};
    struct result result;
    int error = run(&job, &result);
    if (error)
        return error;
    bool is_one = result.n == sizeof(*completed);
    if (is_one)
        memcpy(completed, result.bytes, sizeof(*completed));
    plugin_give_back(result.process);
    is_one = is_one && completed->n <= COMPLETED_MOST &&
             memchr(completed->name, '\0', sizeof(completed->name));
    if (!is_one)
        library_reason("its plugin gives parameters that cannot be");
    return is_one ? 0 : -EINVAL;
}
