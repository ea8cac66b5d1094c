/* Forking workers on request, and waiting for them; at the end for the zygotes themselves:
 * process 1 of a container often reaps no orphans. */
#include "hdf5/worker/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/hash.h"
#include "hdf5/worker/confine.h"

#define CONTROL 3 /* the descriptor that it hears us by */
#define WORK    4 /* that of a worker */
#define OWN     5 /* how soon the zygote is ended for want of memory; closed in a worker */

/* Thousandths of the machine's memory that a worker counts as having more than it has, when the kernel looks for a
 * process to end for want of memory: it is missed less than the program, and than most others. */
#define SOONER    500
#define MOST_SOON 1000

#define END_MILLIS   1000        /* that a zygote has to end by itself */
#define ANSWER_NANOS 10000000000 /* that it has to answer, and a worker to end that was killed */

/* Microseconds between two looks whether a worker has ended: twice as long each time, up to the last. */
#define FIRST_PAUSE 50
#define LAST_PAUSE  10000

/* What is done in a zygote, and by its workers. */
struct life {
    void (*prepare)(void);
    void (*work)(int socket);
    size_t memory;
};

struct request {
    pid_t end;    /* 0: fork a worker, whose socket comes with this */
    bool is_kept; /* it is only looked at whether that one has ended */
};

struct answer {
    int error;
    pid_t pid;
    int status;
};

struct zygote {
    bool is_open; /* its workers look at the world before they confine themselves */
    const char *name, *worker_name;
    int control;  /* our end; -1: it does not run */
    bool is_late; /* it owes us an answer that was not waited for any more */
    pthread_mutex_t lock;
    pid_t pid, parent;
    size_t memory; /* that each of its workers may have */
};

struct zygote zygote_of_libhdf5 = {
    false, "sparsefs-hdf5z", "sparsefs-hdf5", -1, false, PTHREAD_MUTEX_INITIALIZER, 0, 0, 0};
struct zygote zygote_of_plugins = {
    true, "sparsefs-plugz", "sparsefs-plugin", -1, false, PTHREAD_MUTEX_INITIALIZER, 0, 0, 0};
struct zygote zygote_of_images = {
    false, "sparsefs-imagez", "sparsefs-image", -1, false, PTHREAD_MUTEX_INITIALIZER, 0, 0, 0};

static struct zygote *const all[] = {&zygote_of_libhdf5, &zygote_of_plugins, &zygote_of_images};

#define N_ZYGOTES (sizeof(all) / sizeof(*all))

/* ---- The zygote ---- */

/* Signals that say that it has a fault itself end it; others are for those who know it. */
static void let_faults_through(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        sigaddset(&set, faults[i]);
        signal(faults[i], SIG_DFL);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void become_worker(const struct zygote *zygote, const struct life *life, int socket)
{
    prctl(PR_SET_NAME, zygote->worker_name);
    let_faults_through();
    (void)close(OWN); /* it is not always there */
    bool is_ready = (socket == WORK || dup2(socket, WORK) == WORK) && close(CONTROL) == 0;
    if (is_ready && !zygote->is_open && !confine_worker(life->memory))
        _exit(UNCONFINED);
    if (is_ready)
        life->work(WORK);
    _exit(is_ready ? 0 : 1);
}

/* In a zygote: how soon it is ended itself, and its workers are, as text. */
static char as_before[24], sooner[24];

/* Whose file this is nobody may write any more who is not dumpable: so it is opened before, and what workers are to
 * have the zygote has as they are forked. */
static void find_own(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    int kept = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, OWN) : -1;
    if (fd >= 0)
        close(fd);
    if (kept < 0 || read(kept, as_before, sizeof(as_before) - 1) <= 0)
        return;
    long score = strtol(as_before, NULL, 10) + SOONER;
    snprintf(sooner, sizeof(sooner), "%ld", score < MOST_SOON ? score : MOST_SOON);
}

static void set_own(const char *score)
{
    if (*score && pwrite(OWN, score, strlen(score), 0) < 0)
        return; /* then nobody is ended sooner */
}

/* In a zygote: its workers. Of one for which there is no memory only the kernel knows. */
static struct {
    pid_t *pids;
    size_t n, room;
} workers;

static void remember(pid_t pid)
{
    if (workers.n == workers.room) {
        size_t room = 2 * workers.room + 8;
        pid_t *pids = realloc(workers.pids, room * sizeof(*pids));
        if (!pids)
            return;
        workers.pids = pids;
        workers.room = room;
    }
    workers.pids[workers.n++] = pid;
}

static void forget(pid_t pid)
{
    for (size_t i = 0; i < workers.n; i++)
        if (workers.pids[i] == pid)
            workers.pids[i--] = workers.pids[--workers.n];
}

static struct answer fork_one(const struct zygote *zygote, const struct life *life, int socket)
{
    set_own(sooner);
    pid_t pid = socket < 0 ? -1 : fork();
    if (pid == 0)
        become_worker(zygote, life, socket);
    set_own(as_before);
    if (pid > 0)
        remember(pid);
    struct answer answer = {.error = pid > 0 ? 0 : socket < 0 ? -EPROTO : -errno, .pid = pid};
    if (socket >= 0)
        close(socket);
    return answer;
}

/* -EAGAIN: it has not ended yet. It is not waited for: what a worker does is not to hold up others. */
static struct answer end_one(const struct request *request)
{
    struct answer answer = {.pid = request->end};
    if (!request->is_kept)
        kill(request->end, SIGKILL); /* it is our child, or none, but not anybody else's number */
    pid_t ended = TEMP_FAILURE_RETRY(waitpid(request->end, &answer.status, WNOHANG));
    answer.error = ended > 0 ? 0 : ended == 0 ? -EAGAIN : -errno;
    if (answer.error != -EAGAIN)
        forget(request->end);
    return answer;
}

static void end_all(void)
{
    for (size_t i = 0; i < workers.n; i++)
        kill(workers.pids[i], SIGKILL);
    for (size_t i = 0; i < workers.n; i++)
        (void)TEMP_FAILURE_RETRY(waitpid(workers.pids[i], NULL, 0));
}

/* Its descriptors are null, and the way to us. */
static bool keep_only(int socket)
{
    int null = open("/dev/null", O_RDWR), kept = fcntl(socket, F_DUPFD, WORK);
    bool done = null >= 0 && kept >= 0;
    for (int fd = 0; done && fd < CONTROL; fd++)
        done = dup2(null, fd) == fd;
    done = done && dup2(kept, CONTROL) == CONTROL;
    descriptors_close_from(WORK);
    return done;
}

static void run_zygote(struct zygote *zygote, const struct life *life, int socket)
{
    struct request request;
    int fd;
    /* Where it is ignored, as whoever has started the program may have it, the numbers of workers that have
     * ended are others' before we know. */
    signal(SIGCHLD, SIG_DFL);
    if (!keep_only(socket))
        _exit(1);
    find_own();
    setsid();
    prctl(PR_SET_NAME, zygote->name);
    if (!zygote->is_open)
        confine_surroundings();
    prctl(PR_SET_DUMPABLE, 0);
    for (size_t i = 0; i < N_ZYGOTES; i++)
        all[i]->control = -1;
    hash_new_secret();
    life->prepare();
    if (!zygote->is_open)
        confine_environment();
    while (descriptor_receive(CONTROL, &request, sizeof(request), &fd)) {
        struct answer answer = request.end > 0 ? end_one(&request) : fork_one(zygote, life, fd);
        if (send(CONTROL, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    end_all();
    _exit(0);
}

/* ---- The program ---- */

int zygote_start(struct zygote *zygote, void (*prepare)(void), void (*work)(int socket),
                 size_t memory)
{
    const struct life life = {prepare, work, memory};
    int ends[2];
    sigset_t every, before;
    if (zygote->control >= 0)
        return -EALREADY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pid_t parent = getpid(), pid = fork();
    int error = pid < 0 ? -errno : 0;
    if (pid == 0)
        run_zygote(zygote, &life, ends[1]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (error) {
        close(ends[0]);
    } else {
        zygote->control = ends[0];
        zygote->pid = pid;
        zygote->parent = parent;
        zygote->memory = memory;
    }
    return error;
}

size_t zygote_memory(const struct zygote *zygote)
{
    return zygote->memory;
}

/* As the program ends. Other threads may still ask: the socket stays theirs, and tells them that it
 * is gone. */
__attribute__((destructor)) static void end_zygotes(void)
{
    for (size_t i = 0; i < N_ZYGOTES; i++)
        if (all[i]->control >= 0 && all[i]->parent == getpid())
            shutdown(all[i]->control, SHUT_WR);
    for (size_t i = 0; i < N_ZYGOTES; i++) {
        if (all[i]->control < 0 || all[i]->parent != getpid())
            continue;
        if (poll(&(struct pollfd){.fd = all[i]->control, .events = POLLIN}, 1, END_MILLIS) <= 0)
            kill(all[i]->pid, SIGKILL);
        (void)TEMP_FAILURE_RETRY(waitpid(all[i]->pid, NULL, 0));
    }
}

/* -ETIMEDOUT, -EPIPE. */
static int receive(struct zygote *zygote, struct answer *answer, uint64_t nanos)
{
    struct pollfd poller = {.fd = zygote->control, .events = POLLIN};
    uint64_t now = clock_now(), until = now + nanos;
    int n;
    do {
        n = poll(&poller, 1, (int)((until - now) / 1000000));
        now = clock_now();
    } while (n < 0 && errno == EINTR && now < until);
    zygote->is_late = n <= 0;
    if (n <= 0)
        return -ETIMEDOUT;
    ssize_t got = TEMP_FAILURE_RETRY(recv(zygote->control, answer, sizeof(*answer), 0));
    return got == (ssize_t)sizeof(*answer) ? 0 : -EPIPE;
}

/* One that is late is asked again when it has answered: until then nobody waits for it once more. A worker that
 * it forked late ends as nobody has the other end of its socket. */
static int ask(struct zygote *zygote, const struct request *request, int fd, struct answer *answer)
{
    pthread_mutex_lock(&zygote->lock);
    int error = zygote->is_late ? receive(zygote, answer, 0) : 0;
    if (!error)
        error = descriptor_send(zygote->control, request, sizeof(*request), fd);
    if (!error)
        error = receive(zygote, answer, ANSWER_NANOS);
    pthread_mutex_unlock(&zygote->lock);
    return error ? error : answer->error;
}

int zygote_fork(struct zygote *zygote, pid_t *pid, int *out)
{
    int ends[2];
    struct answer answer;
    if (zygote->control < 0)
        return -EPIPE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    int error = ask(zygote, &(struct request){0}, ends[1], &answer);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return error;
    }
    *pid = answer.pid;
    *out = ends[0];
    return 0;
}

/* Want of memory for asking passes. */
static bool may_follow(int error)
{
    return error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM;
}

/* -EAGAIN: it has not ended in that time. */
static int await(struct zygote *zygote, const struct request *request, uint64_t nanos,
                 struct answer *answer)
{
    uint64_t until = clock_now() + nanos;
    useconds_t pause = FIRST_PAUSE;
    int error = ask(zygote, request, -1, answer);
    while (may_follow(error) && clock_now() < until) {
        usleep(pause);
        pause = pause < LAST_PAUSE / 2 ? 2 * pause : LAST_PAUSE;
        error = ask(zygote, request, -1, answer);
    }
    return error;
}

int zygote_end(struct zygote *zygote, pid_t pid, uint64_t patience, struct worker_end *end)
{
    struct request request = {.end = pid, .is_kept = true};
    struct answer answer;
    int error = patience > 0 ? await(zygote, &request, patience, &answer) : -EAGAIN;
    bool lived_on = error == -EAGAIN;
    request.is_kept = false;
    if (lived_on)
        error = await(zygote, &request, ANSWER_NANOS, &answer);
    *end = error ? (struct worker_end){0} : (struct worker_end){answer.status, lived_on};
    return error == -EAGAIN ? -ETIMEDOUT : error;
}
