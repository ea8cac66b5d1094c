/* The pool of processes for plugins: starting them, leasing idle ones, and handling those that die.
 */
#include "hdf5/worker/plugin_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "common/thread.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/trusted_plugin_folders.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/client.h"
#include "hdf5/worker/plugin_given_up.h"
#include "hdf5/worker/plugin_known.h"
#include "hdf5/worker/plugin_serve.h"
#include "hdf5/worker/zygote.h"

#define MOST_TRIES 10                   /* of one call, if others kill the process */
#define LEAST_ROOM ((size_t)4 << 20)    /* bytes shared with a process */
#define MOST_KEPT  ((size_t)128 << 20)  /* of these, by one that waits for its next chunk */
#define MOST_REPLY ((uint64_t)64 << 10) /* bytes: what is decoded is shared */
#define GROWTH     ((size_t)1 << 20)    /* that encoding may add to twice the bytes */
#define LOADING    "to load them"

struct process {
    struct process *next; /* of those that are idle */
    pid_t pid;
    int socket; /* -1: it has not been started */
    unsigned char *shared;
    size_t room; /* bytes of that */
    int ids[PLUGINS_MOST_IDS];
    size_t n_ids;
    struct wire in;
};

static struct {
    bool is_on; /* this and what follows is set before there are threads */
    size_t memory;
    uint64_t timeout;
    unsigned most;        /* processes */
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t freed;
    unsigned n; /* processes, with those that are about to be started */
    struct process *idle;
} plugins = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

/* ---- Processes ---- */

static bool has_id(const struct process *process, int id)
{
    for (size_t i = 0; i < process->n_ids; i++)
        if (process->ids[i] == id)
            return true;
    return false;
}

static void add_id(struct process *process, int id)
{
    if (process->n_ids < PLUGINS_MOST_IDS && !has_id(process, id))
        process->ids[process->n_ids++] = id;
}

/* How it has ended, as waitpid(2). */
static int end(struct process *process)
{
    int status = 0;
    if (process->socket >= 0) {
        close(process->socket);
        (void)zygote_end(&zygote_of_plugins, process->pid, &status);
    }
    if (process->shared)
        munmap(process->shared, process->room);
    wire_free(&process->in);
    free(process);
    return status;
}

static int end_and_forget(struct process *process)
{
    int status = end(process);
    pthread_mutex_lock(&plugins.lock);
    plugins.n--;
    pthread_cond_signal(&plugins.freed);
    pthread_mutex_unlock(&plugins.lock);
    return status;
}

/* What one chunk has taken is not kept for those that take little. */
static void give_back(struct process *process)
{
    if (process->room > MOST_KEPT) {
        end_and_forget(process);
        return;
    }
    pthread_mutex_lock(&plugins.lock);
    process->next = plugins.idle;
    plugins.idle = process;
    pthread_cond_signal(&plugins.freed);
    pthread_mutex_unlock(&plugins.lock);
}

static int known_error(uint64_t number)
{
    static const int known[] = {EILSEQ, EINVAL, EOPNOTSUPP, ENOMEM};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (number == (uint64_t)known[i])
            return -known[i];
    return -EIO;
}

/* *is_lost: nothing can be expected of it any more, for which the error is the reason. */
static int exchange(struct process *process, const struct wire *request, struct cursor *results,
                    bool *is_lost)
{
    enum message_kind kind;
    uint64_t number, until = clock_now() + plugins.timeout;
    int error = channel_send(process->socket, MESSAGE_CALL, request, until);
    if (!error)
        error = channel_receive_most(process->socket, &kind, &process->in, MOST_REPLY, until);
    if (!error && kind != MESSAGE_REPLY)
        error = -EPROTO;
    if (!error)
        error = client_take_reply(&process->in, &number, results);
    *is_lost = error != 0;
    return error || number == 0 ? error : known_error(number);
}

/* Why a process is no more: hdf5_error() says it. Whether it has done so itself. */
static bool bury(struct process *process, const char *what, int error)
{
    char how[128], line[400];
    int status = end_and_forget(process);
    client_say_end(error, status, plugins.timeout, how, sizeof(how));
    snprintf(line, sizeof(line), "the process of plugins ended, asked %s: %s", what, how);
    library_reason(line);
    if (error != -EPIPE || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return true;
    log_warning("%s", line);
    return false;
}

/* ---- Starting ---- */

/* Memory that stays as large as it is, so that looking at it is always safe. */
static int share(struct process *process, size_t room)
{
    int fd = memfd_create("sparsefs-chunk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    process->room = room;
    if (ftruncate(fd, (off_t)room) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        goto error;
    void *shared = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        goto error;
    process->shared = shared;
    return fd;
error:;
    int error = -errno;
    close(fd);
    return error;
}

/* What is shared does not count, nor what a large chunk takes once more between two filters. */
static uint64_t memory_of(const struct process *process)
{
    uint64_t of_chunk = process->room > LEAST_ROOM ? 2 * (uint64_t)process->room : 0;
    return plugins.memory ? plugins.memory + of_chunk : 0;
}

static void ask_to_load(struct wire *request, const struct process *process)
{
    wire_uint(request, PLUGINS_LOAD);
    wire_uint(request, memory_of(process));
    plugin_folders_put(request);
    wire_uint(request, process->n_ids);
    for (size_t i = 0; i < process->n_ids; i++)
        wire_uint(request, (uint64_t)process->ids[i]);
}

/* Of the ids those are left that it has. */
static int take_loaded(struct process *process, struct cursor *results)
{
    size_t n = process->n_ids;
    bool is_there[PLUGINS_MOST_IDS];
    for (size_t i = 0; i < n; i++)
        is_there[i] = take_bool(results);
    if (take_end(results, true))
        return -EPROTO;
    process->n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        int id = process->ids[i];
        plugin_note(id, is_there[i]);
        if (is_there[i])
            process->ids[process->n_ids++] = id;
    }
    return 0;
}

static int run_process(struct process *process, size_t room)
{
    int fd = share(process, room);
    if (fd < 0)
        return fd;
    int error = zygote_fork(&zygote_of_plugins, &process->pid, &process->socket);
    if (error)
        process->socket = -1;
    else /* if that fails, so does what is asked next */
        (void)!descriptor_send(process->socket, &process->room, sizeof(process->room), fd);
    close(fd);
    return error;
}

/* -ENOMEM; -EIO, -EPIPE: hdf5_error() says why; the latter: others have killed it. The process is
 * gone then. */
static int load(struct process *process)
{
    struct wire request = {0};
    struct cursor results;
    bool is_lost;
    ask_to_load(&request, process);
    int error = exchange(process, &request, &results, &is_lost);
    wire_free(&request);
    if (!error) {
        error = take_loaded(process, &results);
        is_lost = error != 0;
    }
    if (is_lost) {
        bool is_own = bury(process, LOADING, error);
        return error == -ENOMEM ? error : is_own ? -EIO : -EPIPE;
    }
    if (error)
        end_and_forget(process);
    return error == -ENOMEM || !error ? error : -EIO;
}

/* One that loads these, and all others that are known to be there. It is counted already. */
static int start(const int *ids, size_t n_ids, size_t needed, struct process **out)
{
    size_t room = LEAST_ROOM;
    int known[PLUGINS_MOST_IDS];
    while (room < needed && room <= SIZE_MAX / 4)
        room *= 2;
    struct process *process = calloc(1, sizeof(*process));
    if (!process || room < needed) {
        free(process);
        pthread_mutex_lock(&plugins.lock);
        plugins.n--;
        pthread_cond_signal(&plugins.freed);
        pthread_mutex_unlock(&plugins.lock);
        return -ENOMEM;
    }
    process->socket = -1;
    for (size_t i = 0; i < n_ids; i++)
        add_id(process, ids[i]);
    size_t n_known = plugins_known(known);
    for (size_t i = 0; i < n_known; i++)
        add_id(process, known[i]);
    int error = run_process(process, room);
    if (error) {
        library_reason("no process can be started for plugins");
        log_error("cannot start a process for plugins of libhdf5: %s", strerror(-error));
        end_and_forget(process);
        return error == -ENOMEM ? error : -EIO;
    }
    error = load(process);
    if (!error)
        *out = process;
    return error;
}

static bool fits(const struct process *process, const int *ids, size_t n_ids, size_t needed)
{
    bool has_all = process->room >= needed;
    for (size_t i = 0; i < n_ids && has_all; i++)
        has_all = has_id(process, ids[i]);
    return has_all;
}

/* An idle process that fits, or else any; the lock is held. */
static struct process *take_idle(const int *ids, size_t n_ids, size_t needed, bool any)
{
    struct process **at = &plugins.idle;
    while (*at && !any && !fits(*at, ids, n_ids, needed))
        at = &(*at)->next;
    struct process *process = *at;
    if (process)
        *at = process->next;
    return process;
}

/* Leases a process, exclusively, until it is given back or ended. Which of the ids it has is known
 * then. -ENOMEM, -EIO; -EPIPE: it was killed by others while it was started. */
static int take(const int *ids, size_t n_ids, size_t needed, struct process **out)
{
    pthread_mutex_lock(&plugins.lock);
    struct process *found, *other = NULL;
    while (!(found = take_idle(ids, n_ids, needed, false)) && plugins.n >= plugins.most &&
           !(other = take_idle(ids, n_ids, needed, true)))
        pthread_cond_wait(&plugins.freed, &plugins.lock);
    plugins.n += !found && !other;
    pthread_mutex_unlock(&plugins.lock);
    if (other)
        end(other); /* the new one is counted in its place */
    *out = found;
    return found ? 0 : start(ids, n_ids, needed, out);
}

/* Two threads that ask at once may both start one. */
bool plugins_available(int id)
{
    struct process *process;
    bool is_available = false;
    if (id <= 0 || plugin_is_known(id, &is_available))
        return id > 0 && is_available;
    int error = -EPIPE;
    for (int i = 0; i < MOST_TRIES && error == -EPIPE; i++)
        error = take(&id, 1, 0, &process);
    if (error == -EIO || error == -EPIPE)
        log_error("plugins of libhdf5: filter %d: %s", id, hdf5_error());
    if (error) {
        plugin_note(id, false);
        return false;
    }
    is_available = has_id(process, id);
    if (process->n_ids > 0)
        give_back(process);
    else
        end_and_forget(process);
    return is_available;
}

/* ---- Chunks ---- */

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
    struct process *process; /* to be given back when the bytes have been taken */
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
    struct process *process;
    struct cursor results;
    char what[sizeof(job->names) + 32];
    bool is_lost;
    int error = take(job->ids, job->n_ids, place + job->most, &process);
    if (error)
        return error;
    memcpy(process->shared, job->in, job->in_size);
    error = exchange(process, request, &results, &is_lost);
    if (!error) {
        error = take_result(job, &results, result);
        is_lost = error != 0;
    }
    if (!is_lost) {
        result->process = process;
        result->bytes = process->shared + place;
        if (error)
            give_back(process);
        return error == -ENOMEM ? has_no_memory(job) : error;
    }
    snprintf(what, sizeof(what), "to %s filter %s", job->call == PLUGINS_DECODE ? "undo" : "apply",
             job->names);
    if (!bury(process, what, error))
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
    for (int i = 0; i < MOST_TRIES && error == -EPIPE; i++) {
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
    give_back(result.process);
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
    give_back(result.process);
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
    give_back(result.process);
    is_one = is_one && completed->n <= COMPLETED_MOST &&
             memchr(completed->name, '\0', sizeof(completed->name));
    if (!is_one)
        library_reason("its plugin gives parameters that cannot be");
    return is_one ? 0 : -EINVAL;
}

/* ---- The beginning ---- */

/* libhdf5 looks for its folders again in each. */
static void prepare(void)
{
    library_enter();
    (void)H5open(); /* if it fails it does so again in each */
    library_leave();
    plugins.is_on = false;
}

int plugins_start(size_t memory, uint64_t timeout)
{
    int error = zygote_start(&zygote_of_plugins, prepare, plugin_serve, memory);
    if (error)
        return error;
    plugins.memory = memory;
    plugins.timeout = timeout;
    plugins.most = thread_processors();
    plugins.is_on = true;
    return 0;
}

bool plugins_run_apart(void)
{
    return plugins.is_on;
}
