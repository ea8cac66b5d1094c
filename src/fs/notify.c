/* A queue of changes with the requests that wait for them, a thread that works it off, and one that
 * answers, puts nodes, and sees to it that nobody waits too long. */
#include "fs/notify.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/thread.h"
#include "fs/open.h"

#define KNOWN_BITS   (1u << 23) /* 1 MiB */
#define BLOCK_BITS   (1u << 20)
#define BLOCK_FRAMES 1024        /* frames of which one bit says whether any of them may be known */
#define ANSWER_NANOS 1000000000u /* that an answer is held back at most, */
#define CLOSE_NANOS  20000000000u /* and that of ANSWER_CLOSED: longer than who looks waits */
#define POLL_MILLIS  20

/* When to invalidate again what the kernel may still be about to clear. */
static const uint64_t again_nanos[] = {200000, 1000000, 5000000, 30000000, 200000000};

struct job {
    struct job *prev, *next;
    bool has_change;
    struct change change;
    uint64_t writer;
    fuse_req_t request; /* NULL: nobody waits, or it was answered */
    struct answer answer;
    struct timespec deadline; /* of the answer; of one that is to come: when */
};

/* Look-ups that are not answered yet, by the time at which they began: before the last time that
 * somebody waited for them, or after. */
struct lookups {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended;
    unsigned now; /* those that begin now */
    size_t running[2];
};

struct notify {
    struct nodes *nodes;
    struct fuse_session *session;
    struct keeper *keeper;
    int connection; /* of the thread */
    pthread_t thread, guard;
    struct lookups lookups;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct job *jobs;  /* the first is being worked at */
    struct job *later; /* by the time at which they become jobs */
    struct job *done;  /* but for the answer and for the hold of a node */
    bool is_ending, has_ended;
    /* Bits by hash, never cleared: of inodes, and of blocks of frames. */
    _Atomic uint64_t known[KNOWN_BITS / 64];
    _Atomic uint64_t known_blocks[BLOCK_BITS / 64];
};

/* ---- What the kernel may know ---- */

static uint32_t hash(uint64_t number)
{
    return (uint32_t)(number * 0x9E3779B97F4A7C15u >> 32);
}

static uint64_t block_of(struct inode inode)
{
    return inode_pack((struct inode){.node = inode.node, .frame = inode.frame / BLOCK_FRAMES});
}

static void set_bit(_Atomic uint64_t *bits, uint32_t bit)
{
    uint64_t mask = (uint64_t)1 << bit % 64;
    if (!(atomic_load_explicit(&bits[bit / 64], memory_order_relaxed) & mask))
        atomic_fetch_or(&bits[bit / 64], mask);
}

static bool is_set(_Atomic uint64_t *bits, uint32_t bit)
{
    return atomic_load(&bits[bit / 64]) >> bit % 64 & 1;
}

void notify_known(struct notify *notify, struct inode inode)
{
    if (!notify)
        return;
    set_bit(notify->known, hash(inode_pack(inode)) % KNOWN_BITS);
    set_bit(notify->known_blocks, hash(block_of(inode)) % BLOCK_BITS);
}

static _Thread_local unsigned began; /* the time at which this thread's look-up did */

void notify_begin_lookup(struct notify *notify)
{
    if (!notify)
        return;
    struct lookups *lookups = &notify->lookups;
    pthread_mutex_lock(&lookups->lock);
    began = lookups->now;
    lookups->running[began]++;
    pthread_mutex_unlock(&lookups->lock);
}

void notify_end_lookup(struct notify *notify)
{
    if (!notify)
        return;
    struct lookups *lookups = &notify->lookups;
    pthread_mutex_lock(&lookups->lock);
    if (--lookups->running[began] == 0)
        pthread_cond_signal(&lookups->ended);
    pthread_mutex_unlock(&lookups->lock);
}

/* Waits for those that run; others begin meanwhile, as one may take long. By one thread. */
static void wait_for_lookups(struct lookups *lookups)
{
    pthread_mutex_lock(&lookups->lock);
    unsigned before = lookups->now;
    lookups->now = !before;
    while (lookups->running[before] > 0)
        pthread_cond_wait(&lookups->ended, &lookups->lock);
    pthread_mutex_unlock(&lookups->lock);
}

/* ---- What a change concerns ---- */

/* Called for an inode that the kernel may know; true ends the walk. */
typedef bool (*visit_function)(struct notify *notify, uint64_t inode);

static bool visit_known(struct notify *notify, struct inode inode, uint64_t except,
                        visit_function visit)
{
    uint64_t number = inode_pack(inode);
    return number != except && is_set(notify->known, hash(number) % KNOWN_BITS) &&
           visit(notify, number);
}

static bool is_view_of_frame(unsigned kind)
{
    return kind < VIEW_STACK_RAW;
}

static bool visit_frames(struct notify *notify, const struct change *change, uint32_t node,
                         uint64_t except, visit_function visit)
{
    for (uint64_t frame = change->first; frame <= change->last && frame < INODE_MAX_FRAMES;) {
        struct inode inode = {.node = node, .frame = frame};
        if (!is_set(notify->known_blocks, hash(block_of(inode)) % BLOCK_BITS)) {
            frame += BLOCK_FRAMES - frame % BLOCK_FRAMES;
            continue;
        }
        for (unsigned kind = 0; is_view_of_frame(kind); kind++) {
            inode.entry = ENTRY_VIEW + kind;
            if (change->views >> kind & 1 && visit_known(notify, inode, except, visit))
                return true;
        }
        frame++;
    }
    return false;
}

static bool visit_node(struct notify *notify, const struct change *change, uint32_t number,
                       uint64_t except, visit_function visit)
{
    struct inode inode = {.node = number, .entry = ENTRY_NODE};
    if (change->node->type == NODE_GROUP)
        return visit_known(notify, inode, except, visit);
    for (unsigned kind = VIEW_STACK_RAW; kind < VIEW_KINDS; kind++) {
        inode.entry = ENTRY_VIEW + kind;
        if (change->views >> kind & 1 && visit_known(notify, inode, except, visit))
            return true;
    }
    for (inode.entry = ENTRY_FRAMES; change->names && inode.entry < ENTRY_CSR_DIR; inode.entry++)
        if (visit_known(notify, inode, except, visit))
            return true;
    return visit_frames(notify, change, number, except, visit);
}

/* Visits what the kernel may know of what a change concerns, but for one inode. */
static bool visit_change(struct notify *notify, const struct change *change, uint64_t except,
                         visit_function visit)
{
    uint32_t *numbers;
    size_t n = node_same(notify->nodes, change->node, &numbers);
    bool ended = n == 0 && visit_node(notify, change, change->node->number, except, visit);
    for (size_t i = 0; i < n && !ended; i++)
        ended = visit_node(notify, change, numbers[i], except, visit);
    free(numbers);
    return ended;
}

static bool concerns(const struct change *change, const struct node *node, struct inode inode)
{
    unsigned kind = inode_view(inode);
    return change->node->type == NODE_DATASET && node->object == change->node->object &&
           change->views >> kind & 1 &&
           (!is_view_of_frame(kind) ||
            (inode.frame >= change->first && inode.frame <= change->last));
}

/* ---- Answers ---- */

/* Interrupted: no release will come. */
static void answer_opened(fuse_req_t request, const struct answer *answer)
{
    struct mount *mount = fuse_req_userdata(request);
    if (fuse_reply_open(request, &answer->info) == -ENOENT)
        open_file_put(mount, open_file_of(&answer->info));
}

void answer_entry(fuse_req_t request, const struct fuse_entry_param *entry)
{
    struct mount *mount = fuse_req_userdata(request);
    if (fuse_reply_entry(request, entry) == -ENOENT && entry->ino)
        node_forgotten(mount->nodes, inode_unpack(entry->ino).node, 1);
}

void answer_now(fuse_req_t request, const struct answer *answer)
{
    if (answer->error || answer->kind == ANSWER_ERROR || answer->kind == ANSWER_CLOSED)
        fuse_reply_err(request, -answer->error);
    else if (answer->kind == ANSWER_WRITTEN)
        fuse_reply_write(request, answer->written);
    else if (answer->kind == ANSWER_ATTRIBUTES)
        fuse_reply_attr(request, &answer->st, answer->timeout);
    else if (answer->kind == ANSWER_OPENED)
        answer_opened(request, answer);
    else
        answer_entry(request, &answer->entry);
}

/* Takes the request from a job, so that only one thread answers it. The lock must be held. */
static fuse_req_t take_request(struct job *job)
{
    fuse_req_t request = job->request;
    job->request = NULL;
    return request;
}

/* ---- The queue ---- */

/* A change holds its node. NULL: no memory. */
static struct job *new_change_job(struct notify *notify, const struct change *change)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->has_change = true;
    job->change = *change;
    node_hold(notify->nodes, change->node->number);
    return job;
}

static bool is_close(const struct job *job)
{
    return job->request && job->answer.kind == ANSWER_CLOSED;
}

/* Whether a request can be answered after a change, which must then be done; in_any_case: it can.
 */
static bool may_answer(const struct change *change, fuse_req_t request, const struct answer *answer,
                       bool in_any_case)
{
    const struct mount *mount = fuse_req_userdata(request);
    return answer->kind != ANSWER_CLOSED ||
           staging_closed(mount->staging, change->node, inode_view(answer->inode),
                          answer->inode.frame, in_any_case);
}

static void forget_looks(const struct job *job)
{
    const struct mount *mount = fuse_req_userdata(job->request);
    staging_forget_looks(mount->staging, job->change.node, inode_view(job->answer.inode),
                         job->answer.inode.frame);
}

/* The lock must be held. */
static void append_job(struct notify *notify, struct job *job)
{
    job->deadline = clock_in(is_close(job) ? CLOSE_NANOS : ANSWER_NANOS);
    DL_APPEND(notify->jobs, job);
    pthread_cond_broadcast(&notify->changed);
}

/* Whether one of the changes in the queue concerns an inode. The lock must be held. */
static bool is_awaited(const struct notify *notify, const struct node *node, struct inode inode)
{
    const struct job *job;
    DL_FOREACH (notify->jobs, job) {
        if (job->has_change && inode_pack(inode) != job->writer &&
            concerns(&job->change, node, inode))
            return true;
    }
    return false;
}

static bool say_yes(struct notify *notify, uint64_t inode)
{
    (void)notify, (void)inode;
    return true;
}

void notify_change(struct notify *notify, const struct change *change, uint64_t writer,
                   fuse_req_t request, const struct answer *answer)
{
    bool is_known = notify && visit_change(notify, change, writer, say_yes);
    bool may = request && !is_known && may_answer(change, request, answer, false);
    struct job *job =
        notify && (is_known || (request && !may)) ? new_change_job(notify, change) : NULL;
    if (job) {
        job->writer = writer;
        pthread_mutex_lock(&notify->lock);
        bool has_ended = notify->has_ended; /* nobody would take it */
        if (!has_ended && request &&
            !(writer && is_awaited(notify, change->node, inode_unpack(writer)))) {
            job->request = request;
            job->answer = *answer;
            request = NULL;
        }
        if (!has_ended)
            append_job(notify, job);
        pthread_mutex_unlock(&notify->lock);
        if (has_ended) {
            node_put(notify->nodes, change->node->number);
            free(job);
        }
    }
    if (request && !may)
        (void)may_answer(change, request, answer, true);
    if (request)
        answer_now(request, answer);
}

static int compare_deadlines(const struct job *a, const struct job *b)
{
    if (a->deadline.tv_sec != b->deadline.tv_sec)
        return a->deadline.tv_sec < b->deadline.tv_sec ? -1 : 1;
    return a->deadline.tv_nsec < b->deadline.tv_nsec   ? -1
           : a->deadline.tv_nsec > b->deadline.tv_nsec ? 1
                                                       : 0;
}

void notify_again(struct notify *notify, const struct change *change)
{
    if (!notify)
        return;
    pthread_mutex_lock(&notify->lock);
    for (size_t i = 0; i < sizeof(again_nanos) / sizeof(*again_nanos); i++) {
        struct job *job = new_change_job(notify, change);
        if (!job)
            break;
        job->deadline = clock_in(again_nanos[i]);
        DL_INSERT_INORDER(notify->later, job, compare_deadlines);
    }
    pthread_cond_broadcast(&notify->changed);
    pthread_mutex_unlock(&notify->lock);
}

void notify_answer(struct notify *notify, fuse_req_t request, const struct answer *answer)
{
    struct job *job = notify ? calloc(1, sizeof(*job)) : NULL;
    if (job) {
        *job = (struct job){.request = request, .answer = *answer};
        pthread_mutex_lock(&notify->lock);
        bool is_idle = !notify->jobs;
        if (!is_idle)
            append_job(notify, job);
        pthread_mutex_unlock(&notify->lock);
        if (!is_idle)
            return;
        free(job);
    }
    answer_now(request, answer);
}

/* ---- The threads ---- */

static bool invalidate(struct notify *notify, uint64_t inode)
{
    keeper_invalidate(notify->connection, inode);
    return false;
}

/* Waits for the next job; NULL: there is none, and the mount ends. The lock must be held. */
static struct job *next_job(struct notify *notify)
{
    for (;;) {
        struct job *later = notify->later;
        if (later && (notify->is_ending || clock_has_come(&later->deadline))) {
            DL_DELETE(notify->later, later);
            append_job(notify, later);
        } else if (notify->jobs || notify->is_ending) {
            return notify->jobs;
        } else if (later) {
            struct timespec deadline = later->deadline;
            pthread_cond_timedwait(&notify->changed, &notify->lock, &deadline);
        } else {
            pthread_cond_wait(&notify->changed, &notify->lock);
        }
    }
}

/* It can neither answer nor put nodes, of which a dataset may be closed and flushed: it has no
 * descriptors but what it invalidates through. */
static void *work(void *data)
{
    struct notify *notify = data;
    notify->connection = keeper_part(notify->keeper, fuse_session_fd(notify->session));
    pthread_mutex_lock(&notify->lock);
    for (;;) {
        struct job *job = next_job(notify);
        if (!job)
            break;
        bool send = job->has_change && !notify->is_ending;
        if (is_close(job))
            forget_looks(job);
        pthread_mutex_unlock(&notify->lock);
        if (send) {
            wait_for_lookups(&notify->lookups);
            visit_change(notify, &job->change, job->writer, invalidate);
        }
        pthread_mutex_lock(&notify->lock);
        DL_DELETE(notify->jobs, job);
        if (is_close(job) &&
            !may_answer(&job->change, job->request, &job->answer, notify->is_ending)) {
            DL_APPEND(notify->jobs, job);
        } else {
            DL_APPEND(notify->done, job);
            pthread_cond_broadcast(&notify->changed);
        }
    }
    notify->has_ended = true;
    pthread_cond_broadcast(&notify->changed);
    pthread_mutex_unlock(&notify->lock);
    return NULL;
}

/* The job with the earliest deadline that somebody waits for. The lock must be held. */
static struct job *first_awaited(const struct notify *notify)
{
    struct job *job, *first = NULL;
    DL_FOREACH (notify->jobs, job) {
        if (job->request && (!first || compare_deadlines(job, first) < 0))
            first = job;
    }
    return first;
}

/* The lock must be held; it is dropped. */
static void end_done(struct notify *notify)
{
    struct job *job = notify->done;
    DL_DELETE(notify->done, job);
    pthread_mutex_unlock(&notify->lock);
    if (job->request)
        answer_now(job->request, &job->answer);
    if (job->has_change)
        node_put(notify->nodes, job->change.node->number);
    free(job);
    pthread_mutex_lock(&notify->lock);
}

static void *guard(void *data)
{
    struct notify *notify = data;
    pthread_mutex_lock(&notify->lock);
    while (!notify->has_ended || notify->done) {
        struct job *job = first_awaited(notify);
        if (notify->done) {
            end_done(notify);
        } else if (!job) {
            pthread_cond_wait(&notify->changed, &notify->lock);
        } else if (!clock_has_come(&job->deadline)) {
            struct timespec deadline = job->deadline; /* the job may go meanwhile */
            pthread_cond_timedwait(&notify->changed, &notify->lock, &deadline);
        } else {
            struct answer answer = job->answer;
            (void)may_answer(&job->change, job->request, &answer, true);
            fuse_req_t request = take_request(job);
            pthread_mutex_unlock(&notify->lock);
            answer_now(request, &answer);
            pthread_mutex_lock(&notify->lock);
        }
    }
    pthread_mutex_unlock(&notify->lock);
    return NULL;
}

static void init_locks(struct notify *notify)
{
    clock_init_condition(&notify->changed);
    pthread_mutex_init(&notify->lock, NULL);
    pthread_mutex_init(&notify->lookups.lock, NULL);
    pthread_cond_init(&notify->lookups.ended, NULL);
}

static void destroy_locks(struct notify *notify)
{
    pthread_cond_destroy(&notify->lookups.ended);
    pthread_mutex_destroy(&notify->lookups.lock);
    pthread_mutex_destroy(&notify->lock);
    pthread_cond_destroy(&notify->changed);
}

static void end_work(struct notify *notify)
{
    pthread_mutex_lock(&notify->lock);
    notify->is_ending = true;
    pthread_cond_broadcast(&notify->changed);
    pthread_mutex_unlock(&notify->lock);
}

int notify_create(struct nodes *nodes, struct fuse_session *session, struct keeper *keeper,
                  struct notify **out)
{
    struct notify *notify = calloc(1, sizeof(*notify));
    if (!notify)
        return -ENOMEM;
    notify->nodes = nodes;
    notify->session = session;
    notify->keeper = keeper;
    init_locks(notify);
    int error = thread_start(&notify->thread, work, notify);
    if (error)
        goto failed;
    error = thread_start(&notify->guard, guard, notify);
    if (error) {
        end_work(notify);
        pthread_join(notify->thread, NULL);
        goto failed;
    }
    *out = notify;
    return 0;

failed:
    destroy_locks(notify);
    free(notify);
    return -error;
}

/* Serves a request if there is one. */
static void serve_one(struct fuse_session *session, struct fuse_buf *buffer)
{
    struct pollfd ready = {.fd = fuse_session_fd(session), .events = POLLIN};
    if (poll(&ready, 1, POLL_MILLIS) > 0 && ready.revents == POLLIN &&
        fuse_session_receive_buf(session, buffer) > 0)
        fuse_session_process_buf(session, buffer);
}

void notify_destroy(struct notify *notify)
{
    if (!notify)
        return;
    struct fuse_buf buffer = {0};
    end_work(notify);
    pthread_mutex_lock(&notify->lock);
    while (!notify->has_ended) {
        pthread_mutex_unlock(&notify->lock);
        serve_one(notify->session, &buffer);
        pthread_mutex_lock(&notify->lock);
    }
    pthread_mutex_unlock(&notify->lock);
    pthread_join(notify->thread, NULL);
    pthread_join(notify->guard, NULL);
    free(buffer.mem);
    destroy_locks(notify);
    free(notify);
}
