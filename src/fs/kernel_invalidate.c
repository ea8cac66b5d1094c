/* A queue of invalidations with the requests that wait for them, worker threads that carry them
 * out, and a guard that answers requests at their deadline. */
#include "fs/kernel_invalidate.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/thread.h"
#include "fs/kernel_missed.h"
#include "fs/merge_changes.h"
#include "fs/mount.h"
#include "fs/overtaken_reads.h"

#define ANSWER_NANOS 1000000000u  /* that an answer is held back at most, */
#define CLOSE_NANOS  20000000000u /* and ANSWER_CLOSED: above PATIENCE_NANOS */
#define POLL_MILLIS  20

/* Threads that invalidate: one of them is waiting for a job, if there are not so many yet. */
#define MOST_WORKERS 32

/* So long a request waits for the pages of its own inode, which the kernel may hold until it is
 * answered: a WRITE, and a truncation, where that is rare. */
#define WRITE_NANOS    2000000
#define TRUNCATE_NANOS 1000000000

/* When to invalidate again what the kernel may still be about to clear. */
static const uint64_t again_nanos[] = {200000, 1000000, 5000000, 30000000, 200000000};

struct notify {
    struct change_inodes inodes;
    struct fuse_session *session;
    struct keeper *keeper;
    int connection; /* of the workers */
    pthread_t guard;
    struct recent *recent;
    struct missed *missed;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t wanted;  /* workers: there may be something to do */
    pthread_cond_t changed; /* guard: a request waits, or can be answered */
    struct job *jobs;
    struct job *later; /* by the time at which they become jobs */
    struct job *done;  /* but for the answer, and what they hold */
    bool runs_others;  /* a worker has one of those that invalidate other datasets */
    bool is_ending, has_ended;
    unsigned most_workers, n_workers, n_idle, n_ended;
    pthread_t worker[MOST_WORKERS];
};

void notify_known(struct notify *notify, struct inode inode)
{
    if (!notify)
        return;
    missed_told(notify->missed, inode_pack(inode));
    known_add(notify->inodes.known, inode);
}

void notify_begin_look(struct notify *notify, struct look *look)
{
    if (notify)
        known_begin_look(notify->inodes.known, look);
    else
        *look = (struct look){0};
}

void notify_begin_answer(struct notify *notify, struct look *look)
{
    if (notify)
        known_begin_answer(notify->inodes.known, look);
}

void notify_end_answer(struct notify *notify, const struct look *look)
{
    if (notify)
        known_end_answer(notify->inodes.known, look);
}

/* Takes the request from a job, so that only one thread answers it. The lock must be held. */
static fuse_req_t take_request(struct job *job)
{
    fuse_req_t request = job->request;
    job->request = NULL;
    return request;
}

/* ---- The queue ---- */

/* Where in the stacks a change is. The views of a dataset that has more frames have changed as a
 * whole. */
static void find_ranges(struct notify *notify, struct job *job)
{
    const struct change *change = &job->change;
    struct views *views;
    if (change->node->type != NODE_DATASET || change->names ||
        node_get_views(notify->inodes.nodes, change->node, &views) < 0)
        return;
    for (unsigned i = 0; i < 2; i++)
        view_bytes_of(views, VIEW_STACK_RAW + i, change->first, change->last, &job->stack[i].offset,
                      &job->stack[i].n);
    node_put_views(notify->inodes.nodes, change->node);
}

/* A change holds its node. NULL: no memory. */
static struct job *new_change_job(struct notify *notify, const struct change *change,
                                  bool is_of_others)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->has_change = true;
    job->change = *change;
    job->is_of_others = is_of_others;
    if (!is_of_others)
        find_ranges(notify, job);
    node_hold(notify->inodes.nodes, change->node->number);
    return job;
}

static void destroy_job(struct notify *notify, struct job *job)
{
    if (job->has_change)
        node_put(notify->inodes.nodes, job->change.node->number);
    free(job);
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

/* Returns what is left over for the caller to destroy without the lock, or NULL: the same may be done already by what
 * was queued before. The lock must be held. */
static struct job *append_job(struct notify *notify, struct job *job)
{
    job->deadline = clock_in(is_close(job) ? CLOSE_NANOS : ANSWER_NANOS);
    job->latest = job->deadline;
    DL_APPEND(notify->jobs, job);
    if (job->has_change)
        pthread_cond_signal(&notify->wanted);
    if (job->request)
        pthread_cond_signal(&notify->changed);
    return job_is_unawaited(job) ? job_merge(&notify->jobs, job) : NULL;
}

static void append_unless_ended(struct notify *notify, struct job *job)
{
    struct job *left = job;
    pthread_mutex_lock(&notify->lock);
    if (!notify->has_ended) /* then no thread would take it */
        left = append_job(notify, job);
    pthread_mutex_unlock(&notify->lock);
    if (left)
        destroy_job(notify, left);
}

/* Whether delaying a writer until its change is made known could deadlock: another writer is
 * delayed, and each change invalidates the inode of which the other holds pages (setting attributes
 * alone holds none, and waits for none); or there is no free worker. What other datasets show cannot
 * be written. The lock must be held. */
static bool is_in_a_circle(const struct notify *notify, const struct change *change,
                           struct inode writer)
{
    const struct job *job;
    bool is_short = notify->n_idle == 0 && notify->n_workers == notify->most_workers;
    DL_FOREACH (notify->jobs, job) {
        if (!job->has_change || job->is_of_others || job->writer == inode_pack(writer) ||
            job->change.only_attributes || !change_concerns(&job->change, change->node, writer))
            continue;
        if (is_short || (job->request && job->writer && !change->only_attributes &&
                         change_concerns(change, job->change.node, inode_unpack(job->writer))))
            return true;
    }
    return false;
}

/* What of the writer's own inode is to be invalidated: after a truncation all; of what a WRITE has
 * put there nothing, if it is there still. */
static bool find_own(struct notify *notify, uint64_t writer, const struct answer *answer,
                     struct range *own)
{
    *own = (struct range){0};
    if (!writer || answer->kind != ANSWER_WRITTEN)
        return writer;
    *own = (struct range){answer->offset, answer->written};
    return !answer->is_of_map && own->n > 0 &&
           recent_is_doubtful(notify->recent, writer, own->offset, own->n);
}

static bool say_yes(void *context, struct inode inode)
{
    (void)context, (void)inode;
    return true;
}

/* Whether other datasets will be invalidated after this with what is queued. The lock must be held. */
static bool are_others_queued(const struct notify *notify, const struct change *change)
{
    const struct job *job;
    DL_FOREACH (notify->jobs, job) {
        if (job->is_of_others && !job->runs && job->change.node == change->node)
            return true;
    }
    return false;
}

/* Nobody waits for the pages of other datasets but by closing or syncing, as a READ of them may have to wait for
 * their sources. Before anything is answered after which that may be asked for. */
static void append_others(struct notify *notify, const struct change *change)
{
    struct job *job = new_change_job(notify, change, true);
    if (!job)
        return;
    struct job *left = job;
    pthread_mutex_lock(&notify->lock);
    if (!notify->has_ended && !are_others_queued(notify, change))
        left = append_job(notify, job);
    pthread_mutex_unlock(&notify->lock);
    if (left)
        destroy_job(notify, left);
}

void notify_change(struct notify *notify, const struct change *change, uint64_t writer,
                   fuse_req_t request, const struct answer *answer)
{
    struct range own;
    bool has_others = notify && change_visit_others(change, &notify->inodes, say_yes, NULL);
    bool waits_for_others = has_others && request && !writer;
    if (has_others && !waits_for_others)
        append_others(notify, change);
    bool has_own = notify && !change->only_attributes && find_own(notify, writer, answer, &own);
    bool is_known = has_own || waits_for_others ||
                    (notify && change_visit(change, &notify->inodes, writer, say_yes, NULL));
    bool may = request && !is_known && may_answer(change, request, answer, false);
    struct job *job =
        notify && (is_known || (request && !may)) ? new_change_job(notify, change, false) : NULL;
    if (job) {
        job->writer = writer;
        job->has_others = waits_for_others;
        job->has_own = has_own;
        job->own = has_own ? own : (struct range){0};
        if (answer)
            job->answer = *answer;
        struct job *left = job;
        pthread_mutex_lock(&notify->lock);
        bool has_ended = notify->has_ended; /* no thread would take it */
        if (!has_ended && request &&
            !(writer && is_in_a_circle(notify, change, inode_unpack(writer)))) {
            job->request = request;
            request = NULL;
        }
        if (!has_ended)
            left = append_job(notify, job);
        pthread_mutex_unlock(&notify->lock);
        if (left)
            destroy_job(notify, left);
    }
    if (request && !may)
        (void)may_answer(change, request, answer, true);
    if (request)
        answer_now(request, answer);
}

void notify_names_were_old(struct notify *notify, const struct node *node)
{
    const struct change change = {.node = node, .first = 1, .names = node->type == NODE_DATASET};
    struct job *job = notify ? new_change_job(notify, &change, false) : NULL;
    if (!job)
        return;
    job->is_repeated = true;
    append_unless_ended(notify, job);
}

void notify_read(struct notify *notify, uint64_t inode, uint64_t offset, size_t n)
{
    if (notify)
        recent_read(notify->recent, inode, offset, n);
}

static int compare_times(const struct timespec *a, const struct timespec *b)
{
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? -1 : 1;
    return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec ? 1 : 0;
}

static int compare_deadlines(const struct job *a, const struct job *b)
{
    return compare_times(&a->deadline, &b->deadline);
}

/* What is left over the guard destroys. The lock must be held. */
static void take_later(struct notify *notify)
{
    struct job *later, *left;
    while ((later = notify->later) && (notify->is_ending || clock_has_come(&later->deadline))) {
        DL_DELETE(notify->later, later);
        left = append_job(notify, later);
        if (!left)
            continue;
        DL_APPEND(notify->done, left);
        pthread_cond_signal(&notify->changed);
    }
}

void notify_again(struct notify *notify, const struct change *change)
{
    struct job *jobs = NULL, *job, *next;
    for (size_t i = 0; notify && i < sizeof(again_nanos) / sizeof(*again_nanos); i++) {
        if (!(job = new_change_job(notify, change, false)))
            break;
        job->deadline = clock_in(again_nanos[i]);
        DL_APPEND(jobs, job);
    }
    if (!jobs)
        return;
    pthread_mutex_lock(&notify->lock);
    take_later(notify); /* there may be no worker that has time for it */
    DL_FOREACH_SAFE (jobs, job, next) {
        DL_DELETE(jobs, job);
        DL_INSERT_INORDER(notify->later, job, compare_deadlines);
    }
    pthread_cond_signal(&notify->wanted);
    pthread_mutex_unlock(&notify->lock);
}

/* Whether an answer waits for something that is queued. The lock must be held. */
static bool waits_for_any(const struct notify *notify, const struct answer *answer)
{
    const struct job *job;
    DL_FOREACH (notify->jobs, job) {
        if (job->has_change && !(job->is_of_others && answer->is_of_own))
            return true;
    }
    return false;
}

void notify_answer(struct notify *notify, fuse_req_t request, const struct answer *answer)
{
    struct job *job = notify ? calloc(1, sizeof(*job)) : NULL;
    if (job) {
        *job = (struct job){.request = request, .answer = *answer};
        pthread_mutex_lock(&notify->lock);
        bool waits = waits_for_any(notify, answer);
        if (waits)
            (void)append_job(notify, job); /* no change */
        pthread_mutex_unlock(&notify->lock);
        if (waits)
            return;
        free(job);
    }
    answer_now(request, answer);
}

/* ---- The threads ---- */

struct invalidation {
    struct notify *notify;
    const struct job *job;
};

/* error: what the kernel has said. */
static void note_missed(struct notify *notify, uint64_t inode, unsigned times, int error)
{
    if (error == -ENOENT)
        missed_add(notify->missed, &(struct missed_inode){inode, times});
}

static bool invalidate(void *context, struct inode inode)
{
    const struct invalidation *of = context;
    struct notify *notify = of->notify;
    uint64_t number = inode_pack(inode);
    unsigned stack = inode.entry - (ENTRY_VIEW + VIEW_STACK_RAW);
    struct range range = {0};
    if (of->job->change.only_attributes) {
        note_missed(notify, number, 0, keeper_invalidate_attributes(notify->connection, number));
        return false;
    }
    if (!of->job->is_of_others && inode_is_view(inode) &&
        stack < sizeof(of->job->stack) / sizeof(*of->job->stack))
        range = of->job->stack[stack];
    recent_begin_forgetting(notify->recent, number, range.offset, range.n);
    int error = keeper_invalidate(notify->connection, number, range.offset, range.n);
    recent_end_forgetting(notify->recent, number);
    note_missed(notify, number, 0, error);
    return false;
}

/* If the invalidation waits for the writer itself, that is answered meanwhile. The one for a WRITE
 * is not recorded as an invalidation: a program that writes and reads continuously would remain
 * doubtful. */
static void invalidate_own(struct notify *notify, struct job *job)
{
    bool is_write = job->answer.kind == ANSWER_WRITTEN;
    pthread_mutex_lock(&notify->lock);
    job->deadline = clock_in(is_write ? WRITE_NANOS : TRUNCATE_NANOS);
    pthread_cond_signal(&notify->changed);
    pthread_mutex_unlock(&notify->lock);
    if (!is_write)
        recent_begin_forgetting(notify->recent, job->writer, job->own.offset, job->own.n);
    keeper_invalidate(notify->connection, job->writer, job->own.offset, job->own.n);
    if (!is_write)
        recent_end_forgetting(notify->recent, job->writer);
}

/* The first that no worker has, or NULL. Other datasets are invalidated by one worker at a time, however
 * long that has to wait. The lock must be held. */
static struct job *free_job(const struct notify *notify)
{
    struct job *job;
    DL_FOREACH (notify->jobs, job) {
        if (job->has_change && !job->runs && !(job->is_of_others && notify->runs_others))
            return job;
    }
    return NULL;
}

static void *work(void *data);

/* Only a worker can start another one, and it may be about to wait in the kernel: there must be one
 * that takes the next job. The lock must be held. */
static void start_another(struct notify *notify)
{
    if (notify->n_idle > 0 || notify->n_workers == notify->most_workers || notify->is_ending)
        return;
    if (thread_start(&notify->worker[notify->n_workers], work, notify) == 0)
        notify->n_workers++;
    else
        notify->most_workers = notify->n_workers;
}

/* The lock must be held; it is dropped meanwhile. */
static void tell_missed(struct notify *notify)
{
    struct missed_inode missed;
    while (!notify->is_ending && missed_take(notify->missed, &missed)) {
        start_another(notify);
        pthread_mutex_unlock(&notify->lock);
        note_missed(notify, missed.inode, missed.times,
                    keeper_invalidate_attributes(notify->connection, missed.inode));
        pthread_mutex_lock(&notify->lock);
    }
}

/* Until there may be something to do. The lock must be held. */
static void wait_for_work(struct notify *notify)
{
    uint64_t missed = missed_next(notify->missed), now = clock_now();
    struct timespec deadline = clock_in(missed > now ? missed - now : 0);
    if (notify->later && (!missed || compare_times(&notify->later->deadline, &deadline) < 0))
        deadline = notify->later->deadline;
    notify->n_idle++;
    if (notify->later || missed)
        pthread_cond_timedwait(&notify->wanted, &notify->lock, &deadline);
    else
        pthread_cond_wait(&notify->wanted, &notify->lock);
    notify->n_idle--;
}

/* Waits for a job; NULL: there is none, and the mount ends. The lock must be held. */
static struct job *next_job(struct notify *notify)
{
    for (;;) {
        tell_missed(notify);
        take_later(notify);
        struct job *job = free_job(notify);
        if (job || notify->is_ending)
            return job;
        wait_for_work(notify);
    }
}

/* The lock must be held. */
static void set_done(struct notify *notify, struct job *job)
{
    DL_DELETE(notify->jobs, job);
    DL_APPEND(notify->done, job);
    pthread_cond_signal(&notify->changed);
}

/* However long a READ of them takes. The lock must be held. */
static void wait_for_others(struct notify *notify, struct job *job)
{
    const struct job until = {.deadline = clock_in(ANSWER_NANOS)};
    if (compare_deadlines(&until, job) < 0)
        job->deadline = until.deadline;
    pthread_cond_signal(&notify->changed);
}

/* Those that wait for no more: none that is behind a change of its own dataset. The lock must be held. */
static void end_waiting(struct notify *notify)
{
    struct job *job, *next;
    bool has_others = false;
    DL_FOREACH_SAFE (notify->jobs, job, next) {
        if (job->has_change && !job->is_of_others)
            return;
        if (job->has_change)
            has_others = true;
        else if (!has_others || job->answer.is_of_own)
            set_done(notify, job);
    }
}

/* Ends a job, unless other datasets are left, or it is a close, and another view was looked at meanwhile. The lock
 * must be held. */
static void end_job(struct notify *notify, struct job *job)
{
    job->runs = false;
    if (job->is_of_others)
        notify->runs_others = false;
    if (job->has_others && !job->is_of_others) {
        job->is_of_others = true;
        if (is_close(job))
            wait_for_others(notify, job);
    } else if (is_close(job) &&
               !may_answer(&job->change, job->request, &job->answer, notify->is_ending)) {
        job->is_of_others = false;
        job->deadline = job->latest;
        DL_DELETE(notify->jobs, job);
        DL_APPEND(notify->jobs, job);
    } else {
        set_done(notify, job);
    }
    end_waiting(notify);
}

/* What was read before the change, and is not answered yet, will not be kept by the kernel; what is being answered it
 * has got when this returns. Of a close also what was read before other views began to be told of it. */
static void make_old(struct notify *notify, const struct job *job)
{
    struct known *known = notify->inodes.known;
    bool names = job->change.names || job->change.node->type != NODE_DATASET;
    if (!job->is_repeated)
        known_changed(known, names);
    known_wait_for_answers(known);
}

/* They cannot answer: they have nothing but what they invalidate through. The lock must be held. */
static void work_on(struct notify *notify)
{
    struct job *job;
    while ((job = next_job(notify))) {
        struct invalidation invalidation = {notify, job};
        bool send = !notify->is_ending;
        job->runs = true;
        if (job->is_of_others)
            notify->runs_others = true;
        start_another(notify);
        if (is_close(job) && !job->is_of_others)
            forget_looks(job);
        pthread_mutex_unlock(&notify->lock);
        if (send) {
            make_old(notify, job);
            if (job->is_of_others)
                change_visit_others(&job->change, &notify->inodes, invalidate, &invalidation);
            else
                change_visit(&job->change, &notify->inodes, job->writer, invalidate, &invalidation);
        }
        if (send && job->has_own)
            invalidate_own(notify, job);
        pthread_mutex_lock(&notify->lock);
        end_job(notify, job);
    }
    if (++notify->n_ended == notify->n_workers) {
        notify->has_ended = true;
        pthread_cond_signal(&notify->changed);
    }
}

static void *work(void *data)
{
    struct notify *notify = data;
    pthread_mutex_lock(&notify->lock);
    work_on(notify);
    pthread_mutex_unlock(&notify->lock);
    return NULL;
}

static void *work_first(void *data)
{
    struct notify *notify = data;
    notify->connection = keeper_part(notify->keeper, fuse_session_fd(notify->session));
    return work(notify);
}

/* The job with the earliest deadline that has a request. The lock must be held. */
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
    destroy_job(notify, job);
    pthread_mutex_lock(&notify->lock);
}

/* Of a close that has waited for long enough: another view was looked at meanwhile. */
static void tell_again(struct notify *notify, const struct change *change)
{
    struct job *job = new_change_job(notify, change, true); /* opens no views */
    if (!job)
        return;
    job->is_of_others = false;
    append_unless_ended(notify, job);
}

/* One whose deadline has come. The lock must be held; it is dropped meanwhile. */
static void answer_late(struct notify *notify, struct job *job)
{
    struct answer answer = job->answer;
    struct change change = job->change; /* its node is held until we destroy the job */
    bool is_told = may_answer(&change, job->request, &answer, false);
    if (!is_told)
        (void)may_answer(&change, job->request, &answer, true);
    fuse_req_t request = take_request(job);
    struct job *left = job_is_unawaited(job) ? job_merge(&notify->jobs, job) : NULL;
    if (!job->has_change)
        set_done(notify, job);
    pthread_mutex_unlock(&notify->lock);
    if (!is_told)
        tell_again(notify, &change);
    answer_now(request, &answer);
    if (left)
        destroy_job(notify, left);
    pthread_mutex_lock(&notify->lock);
}

static void *guard(void *data)
{
    struct notify *notify = data;
    pthread_mutex_lock(&notify->lock);
    while (!notify->has_ended || notify->done) {
        struct job *job = notify->done ? NULL : first_awaited(notify);
        if (notify->done) {
            end_done(notify);
        } else if (!job) {
            pthread_cond_wait(&notify->changed, &notify->lock);
        } else if (!clock_has_come(&job->deadline)) {
            struct timespec deadline = job->deadline; /* the job may go meanwhile */
            pthread_cond_timedwait(&notify->changed, &notify->lock, &deadline);
        } else {
            answer_late(notify, job);
        }
    }
    pthread_mutex_unlock(&notify->lock);
    return NULL;
}

static void init_locks(struct notify *notify)
{
    clock_init_condition(&notify->changed);
    clock_init_condition(&notify->wanted);
    pthread_mutex_init(&notify->lock, NULL);
}

static void destroy_locks(struct notify *notify)
{
    pthread_mutex_destroy(&notify->lock);
    pthread_cond_destroy(&notify->wanted);
    pthread_cond_destroy(&notify->changed);
}

static void end_work(struct notify *notify)
{
    atomic_store(&notify->inodes.are_unmounted, true);
    pthread_mutex_lock(&notify->lock);
    notify->is_ending = true;
    pthread_cond_broadcast(&notify->wanted);
    pthread_mutex_unlock(&notify->lock);
}

static void join_workers(struct notify *notify)
{
    for (unsigned i = 0; i < notify->n_workers; i++)
        pthread_join(notify->worker[i], NULL);
}

int notify_create(struct nodes *nodes, struct temporaries *temporaries,
                  struct fuse_session *session, struct keeper *keeper, struct notify **out)
{
    struct notify *notify = calloc(1, sizeof(*notify));
    if (!notify)
        return -ENOMEM;
    notify->inodes = (struct change_inodes){.nodes = nodes, .temporaries = temporaries};
    notify->session = session;
    notify->keeper = keeper;
    init_locks(notify);
    notify->recent = recent_create();
    notify->missed = missed_create();
    int error = notify->recent && notify->missed ? known_create(&notify->inodes.known) : -ENOMEM;
    if (error)
        goto failed;
    notify->most_workers = MOST_WORKERS;
    notify->n_workers = 1;
    error = -thread_start(&notify->worker[0], work_first, notify);
    if (error)
        goto failed;
    error = -thread_start(&notify->guard, guard, notify);
    if (error) {
        end_work(notify);
        join_workers(notify);
        goto failed;
    }
    *out = notify;
    return 0;

failed:
    known_destroy(notify->inodes.known);
    missed_destroy(notify->missed);
    recent_destroy(notify->recent);
    destroy_locks(notify);
    free(notify);
    return error;
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
    join_workers(notify);
    pthread_join(notify->guard, NULL);
    free(buffer.mem);
    known_destroy(notify->inodes.known);
    missed_destroy(notify->missed);
    recent_destroy(notify->recent);
    destroy_locks(notify);
    free(notify);
}
