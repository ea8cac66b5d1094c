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
#include "common/interrupt.h"
#include "common/log.h"
#include "common/thread.h"
#include "hdf5/private.h"
#include "hdf5/trusted_plugin_folders.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/client.h"
#include "hdf5/worker/plugin_available.h"
#include "hdf5/worker/plugin_private.h"
#include "hdf5/worker/plugin_serve.h"
#include "hdf5/worker/zygote.h"

#define LEAST_ROOM ((size_t)4 << 20)    /* bytes shared with a process */
#define MOST_KEPT  ((size_t)128 << 20)  /* of these, by one that waits for its next chunk */
#define MOST_REPLY ((uint64_t)64 << 10) /* bytes: what is decoded is shared */
#define LOADING    "to load them"

static struct {
    bool is_on; /* this and what follows is set before there are threads */
    size_t memory;
    uint64_t timeout;
    unsigned most;        /* processes */
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t freed;
    unsigned n; /* processes, with those that are about to be started */
    struct plugin_process *idle;
} plugins = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

/* ---- Processes ---- */

bool plugin_has(const struct plugin_process *process, int id)
{
    for (size_t i = 0; i < process->n_ids; i++)
        if (process->ids[i] == id)
            return true;
    return false;
}

static void add_id(struct plugin_process *process, int id)
{
    if (process->n_ids < PLUGINS_MOST_IDS && !plugin_has(process, id))
        process->ids[process->n_ids++] = id;
}

/* patience: see zygote_end. */
static struct worker_end end(struct plugin_process *process, uint64_t patience)
{
    struct worker_end end = {0};
    if (process->socket >= 0) {
        close(process->socket);
        (void)zygote_end(&zygote_of_plugins, process->pid, patience, &end);
    }
    if (process->shared)
        munmap(process->shared, process->room);
    wire_free(&process->in);
    free(process);
    return end;
}

static void count_one_less(void)
{
    pthread_mutex_lock(&plugins.lock);
    plugins.n--;
    pthread_cond_broadcast(&plugins.freed);
    pthread_mutex_unlock(&plugins.lock);
}

void plugin_end(struct plugin_process *process)
{
    (void)end(process, 0);
    count_one_less();
}

void plugin_give_back(struct plugin_process *process)
{
    if (process->room > MOST_KEPT) {
        plugin_end(process);
        return;
    }
    pthread_mutex_lock(&plugins.lock);
    process->next = plugins.idle;
    plugins.idle = process;
    pthread_cond_broadcast(&plugins.freed);
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

static int ask_whether_to_wait(void *context)
{
    (void)context;
    return interrupt_check();
}

int plugin_exchange(struct plugin_process *process, const struct wire *request, bool may_end,
                    struct cursor *results, bool *is_lost)
{
    enum message_kind kind;
    uint64_t number, until = clock_now() + plugins.timeout;
    const struct channel_wait wait = {&until, may_end ? ask_whether_to_wait : NULL, NULL, NULL};
    int error = channel_send_asking(process->socket, MESSAGE_CALL, request, &wait);
    if (!error)
        error = channel_receive_asking(process->socket, &kind, &process->in, MOST_REPLY, &wait);
    if (!error && kind != MESSAGE_REPLY)
        error = -EPROTO;
    if (!error)
        error = client_take_reply(&process->in, &number, results);
    *is_lost = error != 0;
    return error || number == 0 ? error : known_error(number);
}

bool plugin_bury(struct plugin_process *process, const char *what, int error)
{
    char how[128], line[400];
    const struct worker_end ended = end(process, error == -EPIPE ? WORKER_PATIENCE : 0);
    count_one_less();
    client_say_end(error, &ended, plugins.timeout, how, sizeof(how));
    snprintf(line, sizeof(line), "the process of plugins ended, asked %s: %s", what, how);
    library_reason(line);
    if (!client_was_killed(error, &ended))
        return true;
    log_warning("%s", line);
    return false;
}

bool plugin_may_try_again(uint64_t spent)
{
    return spent <= PLUGIN_MOST_TIMES * plugins.timeout;
}

/* ---- Starting ---- */

/* Memory that stays as large as it is, so that looking at it is always safe. */
static int share(struct plugin_process *process, size_t room)
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
static uint64_t memory_of(const struct plugin_process *process)
{
    uint64_t of_chunk = process->room > LEAST_ROOM ? 2 * (uint64_t)process->room : 0;
    return plugins.memory ? plugins.memory + of_chunk : 0;
}

static void ask_to_load(struct wire *request, const struct plugin_process *process)
{
    wire_uint(request, PLUGINS_LOAD);
    wire_uint(request, memory_of(process));
    plugin_folders_put(request);
    wire_uint(request, process->n_ids);
    for (size_t i = 0; i < process->n_ids; i++)
        wire_uint(request, (uint64_t)process->ids[i]);
}

/* Of the ids those are left that it has. */
static int take_loaded(struct plugin_process *process, struct cursor *results)
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

static int run_process(struct plugin_process *process, size_t room)
{
    int fd = share(process, room);
    if (fd < 0)
        return fd;
    int error = zygote_fork(&zygote_of_plugins, &process->pid, &process->socket);
    if (error)
        process->socket = -1;
    else /* if that fails, so does what is asked next */
        (void)descriptor_send(process->socket, &process->room, sizeof(process->room), fd);
    close(fd);
    return error;
}

/* -ENOMEM; -EIO, -EPIPE: hdf5_error() says why; the latter: others have killed it. The process is
 * gone then. */
static int load(struct plugin_process *process)
{
    struct wire request = {0};
    struct cursor results;
    bool is_lost;
    ask_to_load(&request, process);
    int error = plugin_exchange(process, &request, false, &results, &is_lost);
    wire_free(&request);
    if (!error) {
        error = take_loaded(process, &results);
        is_lost = error != 0;
    }
    if (is_lost) {
        bool is_own = plugin_bury(process, LOADING, error);
        return error == -ENOMEM ? error : is_own ? -EIO : -EPIPE;
    }
    if (error)
        plugin_end(process);
    return error == -ENOMEM || !error ? error : -EIO;
}

/* One that loads these, and all others that are known to be there. It is counted already. */
static int start(const int *ids, size_t n_ids, size_t needed, struct plugin_process **out)
{
    size_t room = LEAST_ROOM;
    int known[PLUGINS_MOST_IDS];
    while (room < needed && room <= SIZE_MAX / 4)
        room *= 2;
    struct plugin_process *process = calloc(1, sizeof(*process));
    if (!process || room < needed) {
        free(process);
        count_one_less();
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
        plugin_end(process);
        return error == -ENOMEM ? error : -EIO;
    }
    error = load(process);
    if (!error)
        *out = process;
    return error;
}

static bool fits(const struct plugin_process *process, const int *ids, size_t n_ids, size_t needed)
{
    bool has_all = process->room >= needed;
    for (size_t i = 0; i < n_ids && has_all; i++)
        has_all = plugin_has(process, ids[i]);
    return has_all;
}

/* An idle process that fits, or else any; the lock is held. */
static struct plugin_process *take_idle(const int *ids, size_t n_ids, size_t needed, bool any)
{
    struct plugin_process **at = &plugins.idle;
    while (*at && !any && !fits(*at, ids, n_ids, needed))
        at = &(*at)->next;
    struct plugin_process *process = *at;
    if (process)
        *at = process->next;
    return process;
}

int plugin_take(const int *ids, size_t n_ids, size_t needed, bool may_end,
                struct plugin_process **out)
{
    int error = 0;
    pthread_mutex_lock(&plugins.lock);
    struct plugin_process *found, *other = NULL;
    while (!error && !(found = take_idle(ids, n_ids, needed, false)) && plugins.n >= plugins.most &&
           !(other = take_idle(ids, n_ids, needed, true))) {
        if (may_end)
            error = interrupt_wait(&plugins.freed, &plugins.lock);
        else
            pthread_cond_wait(&plugins.freed, &plugins.lock);
    }
    plugins.n += !error && !found && !other;
    pthread_mutex_unlock(&plugins.lock);
    if (error)
        return error;
    if (other)
        (void)end(other, 0); /* the new one is counted in its place */
    *out = found;
    return found ? 0 : start(ids, n_ids, needed, out);
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
