/* Reading requests in as many threads as needed, up to a limit; the thread that runs the loop
 * waits for signals. A thread is ended by a signal of its own, which interrupts its read(2): sent
 * repeatedly until the thread has ended, as it may come just before the call. It is sent under the
 * lock and only to threads that read, so that it never interrupts the serving of a request.
 *
 * Requests that serving threads wait for are read by additional threads, which then stay. A thread that waits is
 * counted once, also while it waits in the midst of a wait: else more would seem to wait than there are. One that takes
 * long without saying that it waits, as in a system call for a disk that does not answer, is replaced, too: while all
 * are busy, the thread that runs the loop looks at them each second.
 *
 * When the loop ends, requests are read for those that wait then, and for none that begins to wait later: else programs
 * that go on would keep it from its end for ever. */
#include "fs/daemon/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/invariants.h"
#include "common/thread.h"

#define WAKE        SIGURG /* its default action is to be ignored */
#define AGAIN_NANOS 10000000
#define LOOK_NANOS  40000
#define AWAY_NANOS  50000 /* a gap like this: another thread had the processor */
#define PAUSE_NANOS 20000000
#define SOON_NANOS  100000     /* including the time to wake the client */
#define LONG_NANOS  1000000000 /* for a request */

struct server {
    struct server *prev, *next;
    struct loop *loop;
    pthread_t thread;
    bool is_reading;   /* or has just read */
    bool is_away;      /* it waits, or its request takes long: not busy */
    uint64_t received; /* when it last did */
};

struct loop {
    struct fuse_session *session;
    pthread_t runner;
    sigset_t ending; /* the signals that end it */
    unsigned most;
    bool has_processors;       /* more than one */
    atomic_flag is_looked_for; /* a request, by a server; guards look_after */
    uint64_t look_after;       /* this time */
    pthread_mutex_t lock;      /* guards what follows */
    pthread_cond_t ended;      /* a server has */
    bool ends;
    bool is_gone;      /* the mount or its connection has ended: no more requests come */
    bool is_watched;   /* all may be busy: it is looked whether a request takes long */
    bool comes_soon;   /* the last request was short and came right after an answer */
    uint64_t answered; /* when the last one was */
    int error;
    struct server *servers;
    unsigned running, reading, busy; /* of them; busy: those that are not away, so at most all */
    unsigned awaiting; /* threads that began to wait before the end, also others than these */
};

static _Thread_local struct server *this_server; /* NULL: this thread serves no requests */
static _Thread_local unsigned waits; /* that this thread has begun, one in the midst of another */
static _Thread_local bool is_awaiting;

static void start_server(struct loop *loop);

/* The lock must be held, here and in what follows. */
static void leave(struct loop *loop, struct server *server)
{
    if (!server || server->is_away)
        return;
    server->is_away = true;
    loop->busy--;
}

static void come_back(struct loop *loop, struct server *server)
{
    if (!server || !server->is_away)
        return;
    server->is_away = false;
    loop->busy++;
}

static void end(struct loop *loop)
{
    loop->ends = true;
    pthread_kill(loop->runner, WAKE);
}

/* Whether requests are still to be read. */
static bool goes_on(const struct loop *loop)
{
    return !loop->is_gone && (!loop->ends || loop->awaiting > 0);
}

/* Returns when there is a request, or soon. If another thread had the processor meanwhile, polling
 * pauses for some time: that thread may be the client. */
static void look_for_request(struct loop *loop)
{
    struct pollfd descriptor = {.fd = fuse_session_fd(loop->session), .events = POLLIN};
    const uint64_t began = clock_now();
    uint64_t before = began, now = began;
    while (poll(&descriptor, 1, 0) == 0 && now - began < LOOK_NANOS) {
        before = now;
        now = clock_now();
        if (now - before > AWAY_NANOS)
            loop->look_after = now + PAUSE_NANOS;
    }
}

/* With the lock held, but dropped meanwhile. To look for a request is cheaper than to sleep and be
 * woken where each comes as soon as the last is answered, and is short, as from a program that
 * lists a tree: one thread does it, after a request that came so. Reads of frames are not short,
 * and need the processor for decoding. */
static int read_request(struct server *server, struct fuse_buf *buffer)
{
    struct loop *loop = server->loop;
    const bool looks = loop->comes_soon;
    pthread_mutex_unlock(&loop->lock);
    if (looks && !atomic_flag_test_and_set(&loop->is_looked_for)) {
        if (clock_now() >= loop->look_after)
            look_for_request(loop);
        atomic_flag_clear(&loop->is_looked_for);
    }
    int n = fuse_session_receive_buf(loop->session, buffer);
    pthread_mutex_lock(&loop->lock);
    server->received = clock_now();
    loop->comes_soon = loop->has_processors && server->received - loop->answered < SOON_NANOS;
    return n;
}

/* The same. Starts a thread if no other one is reading. */
static void serve_request(struct server *server, struct fuse_buf *buffer)
{
    struct loop *loop = server->loop;
    server->is_reading = false;
    if (--loop->reading == 0)
        start_server(loop);
    pthread_mutex_unlock(&loop->lock);
    fuse_session_process_buf(loop->session, buffer);
    SANE(waits == 0);
    pthread_mutex_lock(&loop->lock);
    come_back(loop, server);
    loop->answered = clock_now();
    loop->comes_soon &= loop->answered - server->received < SOON_NANOS;
    loop->reading++;
    server->is_reading = true;
}

static void *serve(void *data)
{
    struct server *server = data;
    struct loop *loop = server->loop;
    struct fuse_buf buffer = {0};
    sigset_t wake;
    this_server = server;
    sigemptyset(&wake);
    sigaddset(&wake, WAKE);
    pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
    pthread_mutex_lock(&loop->lock);
    while (goes_on(loop)) {
        int n = read_request(server, &buffer);
        if (n > 0) {
            serve_request(server, &buffer);
        } else if (n != -EINTR && n != -EAGAIN) { /* 0: the mount is gone */
            loop->error = loop->error ? loop->error : n;
            loop->is_gone = true;
            end(loop);
        }
    }
    server->is_reading = false;
    loop->reading--;
    loop->running--;
    loop->busy--;
    pthread_cond_signal(&loop->ended);
    pthread_mutex_unlock(&loop->lock);
    free(buffer.mem);
    return NULL;
}

/* The thread that runs the loop looks at them in a while. The lock must be held, here and in what follows. */
static void watch(struct loop *loop)
{
    if (!loop->is_watched)
        pthread_kill(loop->runner, WAKE);
    loop->is_watched = true;
}

static bool add_server(struct loop *loop)
{
    struct server *server = calloc(1, sizeof(*server));
    if (!server)
        return false;
    *server = (struct server){.loop = loop, .is_reading = true};
    if (thread_start(&server->thread, serve, server) != 0) {
        free(server);
        return false;
    }
    DL_APPEND(loop->servers, server);
    loop->running++;
    loop->busy++;
    loop->reading++;
    return true;
}

/* If there may be one more and can be: else it is tried again, also when one takes long. */
static void start_server(struct loop *loop)
{
    SANE(loop->busy <= loop->running && loop->reading <= loop->busy);
    if (!goes_on(loop))
        return;
    if (loop->busy >= loop->most || !add_server(loop))
        watch(loop);
}

/* As long as requests are read none of the servers has ended. */
static void replace_those_that_take_long(struct loop *loop)
{
    struct server *server;
    uint64_t now = clock_now();
    loop->is_watched = false;
    if (!goes_on(loop))
        return;
    DL_FOREACH (loop->servers, server)
        if (!server->is_reading && now - server->received > LONG_NANOS)
            leave(loop, server);
    if (loop->reading == 0)
        start_server(loop);
}

static void do_nothing(int number)
{
    (void)number;
}

static void block_signals(struct loop *loop)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action = {.sa_handler = do_nothing}, old;
    sigaction(WAKE, &action, NULL); /* without SA_RESTART: read(2) is to return */
    sigemptyset(&loop->ending);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&loop->ending, numbers[i]);
    sigset_t blocked = loop->ending;
    sigaddset(&blocked, WAKE);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
}

int loop_create(struct fuse_session *session, unsigned threads, struct loop **out)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return -ENOMEM;
    loop->session = session;
    loop->runner = pthread_self();
    loop->most = threads;
    loop->has_processors = thread_processors() > 1;
    atomic_flag_clear(&loop->is_looked_for);
    pthread_mutex_init(&loop->lock, NULL);
    clock_init_condition(&loop->ended);
    block_signals(loop);
    *out = loop;
    return 0;
}

/* Whether it has to end; if not, *looks: it is to be looked at servers in a while. */
static bool has_to_end(struct loop *loop, bool *looks)
{
    pthread_mutex_lock(&loop->lock);
    bool ends = loop->ends;
    *looks = loop->is_watched;
    pthread_mutex_unlock(&loop->lock);
    return ends;
}

/* Which of these signals has come; WAKE also if none has for a while: then it has looked. */
static int wait_for_signal(struct loop *loop, const sigset_t *awaited, bool looks)
{
    static const struct timespec every = {.tv_sec = 1};
    int number = looks ? sigtimedwait(awaited, NULL, &every) : sigwaitinfo(awaited, NULL);
    if (number > 0 || errno != EAGAIN)
        return number > 0 ? number : WAKE;
    pthread_mutex_lock(&loop->lock);
    replace_those_that_take_long(loop);
    pthread_mutex_unlock(&loop->lock);
    return WAKE;
}

int loop_run(struct loop *loop)
{
    sigset_t awaited = loop->ending;
    bool looks;
    sigaddset(&awaited, WAKE);
    pthread_mutex_lock(&loop->lock);
    start_server(loop);
    int error = loop->running > 0 || loop->ends ? 0 : -EAGAIN;
    pthread_mutex_unlock(&loop->lock);
    while (!error && !has_to_end(loop, &looks))
        if (wait_for_signal(loop, &awaited, looks) != WAKE)
            break;
    return error;
}

void loop_end(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    end(loop);
    pthread_mutex_unlock(&loop->lock);
}

void loop_begin_wait(struct loop *loop)
{
    if (waits++ > 0)
        return;
    pthread_mutex_lock(&loop->lock);
    is_awaiting = !loop->ends;
    loop->awaiting += is_awaiting;
    leave(loop, this_server);
    if (loop->reading == 0)
        start_server(loop);
    pthread_mutex_unlock(&loop->lock);
}

void loop_end_wait(struct loop *loop)
{
    SANE(waits > 0);
    if (--waits > 0)
        return;
    pthread_mutex_lock(&loop->lock);
    SANE(loop->awaiting >= is_awaiting);
    loop->awaiting -= is_awaiting;
    come_back(loop, this_server);
    pthread_mutex_unlock(&loop->lock);
}

/* The lock must be held. */
static void wake_readers(struct loop *loop)
{
    const struct timespec deadline = clock_in(AGAIN_NANOS);
    const struct server *server;
    DL_FOREACH (loop->servers, server)
        if (server->is_reading)
            pthread_kill(server->thread, WAKE);
    pthread_cond_timedwait(&loop->ended, &loop->lock, &deadline);
}

int loop_stop(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->ends = true;
    while (loop->running > 0)
        wake_readers(loop);
    loop->is_gone = true; /* threads that serve now do so without them */
    int error = loop->error;
    pthread_mutex_unlock(&loop->lock);
    struct server *server, *next;
    DL_FOREACH_SAFE (loop->servers, server, next) {
        pthread_join(server->thread, NULL);
        free(server);
    }
    loop->servers = NULL;
    return error;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    pthread_cond_destroy(&loop->ended);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}
