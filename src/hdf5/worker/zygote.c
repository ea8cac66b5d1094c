/* Forking workers on request, and waiting for them. */
#include "hdf5/worker/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "hdf5/worker/confine.h"

#define NAME        "sparsefs-hdf5z" /* of the zygote; of workers: */
#define WORKER_NAME "sparsefs-hdf5"
#define CONTROL     3 /* the descriptor that it hears us by */
#define WORK        4 /* that of a worker */

struct request {
    pid_t end; /* 0: fork a worker, whose socket comes with this */
};

struct answer {
    int error;
    pid_t pid;
    int status;
};

union ancillary {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int control = -1; /* our end */
static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;

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

static void become_worker(void (*work)(int), size_t memory, int socket)
{
    prctl(PR_SET_NAME, WORKER_NAME);
    let_faults_through();
    bool is_ready = (socket == WORK || dup2(socket, WORK) == WORK) && close(CONTROL) == 0 &&
                    confine_worker(memory);
    if (is_ready)
        work(WORK);
    _exit(is_ready ? 0 : 1);
}

static struct answer fork_one(void (*work)(int), size_t memory, int socket)
{
    pid_t pid = socket < 0 ? -1 : fork();
    if (pid == 0)
        become_worker(work, memory, socket);
    struct answer answer = {.error = pid > 0 ? 0 : socket < 0 ? -EPROTO : -errno, .pid = pid};
    if (socket >= 0)
        close(socket);
    return answer;
}

static struct answer end_one(pid_t pid)
{
    struct answer answer = {.pid = pid};
    kill(pid, SIGKILL); /* it is our child, or none, but not anybody else's number */
    while (waitpid(pid, &answer.status, 0) < 0 && !answer.error)
        answer.error = errno == EINTR ? 0 : -errno;
    return answer;
}

/* The descriptor that came with the request, or -1. */
static bool hear(struct request *request, int *fd)
{
    union ancillary ancillary;
    struct iovec data = {request, sizeof(*request)};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    ssize_t n;
    do
        n = recvmsg(CONTROL, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    *fd = -1;
    const struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(header), sizeof(*fd));
    return n == (ssize_t)sizeof(*request);
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

static void run_zygote(void (*prepare)(void), void (*work)(int), size_t memory, int socket)
{
    struct request request;
    int fd;
    if (!keep_only(socket))
        _exit(1);
    setsid();
    prctl(PR_SET_NAME, NAME);
    confine_surroundings();
    prctl(PR_SET_DUMPABLE, 0);
    control = -1;
    prepare();
    while (hear(&request, &fd)) {
        struct answer answer = request.end > 0 ? end_one(request.end) : fork_one(work, memory, fd);
        if (send(CONTROL, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

/* ---- The program ---- */

int zygote_start(void (*prepare)(void), void (*work)(int socket), size_t memory)
{
    int ends[2];
    sigset_t all, before;
    if (control >= 0)
        return -EALREADY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    int error = pid < 0 ? -errno : 0;
    if (pid == 0)
        run_zygote(prepare, work, memory, ends[1]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (error)
        close(ends[0]);
    else
        control = ends[0];
    return error;
}

static int ask(const struct request *request, int fd, struct answer *answer)
{
    union ancillary ancillary = {.header = {.cmsg_level = SOL_SOCKET,
                                            .cmsg_type = SCM_RIGHTS,
                                            .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec data = {(void *)request, sizeof(*request)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        memcpy(CMSG_DATA(&ancillary.header), &fd, sizeof(fd));
        message.msg_control = &ancillary;
        message.msg_controllen = sizeof(ancillary);
    }
    pthread_mutex_lock(&control_lock);
    ssize_t n = sendmsg(control, &message, MSG_NOSIGNAL);
    while (n >= 0 && (n = recv(control, answer, sizeof(*answer), 0)) < 0 && errno == EINTR)
        n = 0;
    pthread_mutex_unlock(&control_lock);
    return n == (ssize_t)sizeof(*answer) ? answer->error : -EPIPE;
}

int zygote_fork(pid_t *pid, int *out)
{
    int ends[2];
    struct answer answer;
    if (control < 0)
        return -EPIPE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    int error = ask(&(struct request){0}, ends[1], &answer);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return error;
    }
    *pid = answer.pid;
    *out = ends[0];
    return 0;
}

int zygote_end(pid_t pid, int *status)
{
    struct answer answer;
    int error = ask(&(struct request){.end = pid}, -1, &answer);
    *status = error ? 0 : answer.status;
    return error;
}
