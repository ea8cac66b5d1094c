/* Calls on one dataset from several threads: changing the dims excludes all other calls, and change
 * counters tell results from before a change from those after it. */
#include <assert.h>
#include <errno.h>

#include "common/interrupt.h"
#include "common/thread.h"
#include "dataset/private.h"

#define CHANGING_NOW ((uint64_t)1)
#define ONE_CHANGE   ((uint64_t)1 << 16)

/* Innermost first. sfs_chunk_iterate calls a function that may call anything: a nested call must
 * not take the lock, where it would wait behind a writer. */
static _Thread_local struct call *calls;

bool use_is_mine(const struct use *use)
{
    for (const struct call *i = calls; i; i = i->outer)
        if (i->use == use)
            return true;
    return false;
}

bool use_is_only(const struct use *use)
{
    for (const struct call *i = calls; i; i = i->outer)
        if (i->use && i->use != use)
            return false;
    return true;
}

int use_init(struct use *use)
{
    int error = thread_init_lock(&use->lock);
    if (!error && (error = thread_init_lock(&use->parts)) < 0)
        pthread_rwlock_destroy(&use->lock);
    pthread_mutex_init(&use->gate, NULL);
    pthread_cond_init(&use->passed, NULL);
    atomic_init(&use->changes, ONE_CHANGE); /* 0 has a meaning */
    atomic_init(&use->extents, 1);
    atomic_init(&use->n_waiting, 0);
    return error;
}

void use_destroy(struct use *use)
{
    pthread_cond_destroy(&use->passed);
    pthread_mutex_destroy(&use->gate);
    pthread_rwlock_destroy(&use->parts);
    pthread_rwlock_destroy(&use->lock);
}

/* Whether this thread is in a call on anything that is not used before this in any case. */
static bool is_inside_another(const struct use *use)
{
    for (const struct call *i = calls; i; i = i->outer)
        if (i->use && i->use != use->all)
            return true;
    return false;
}

/* Whether anybody waits to change the dims of what this thread is in a call on. */
static bool is_waited_for(void)
{
    for (const struct call *i = calls; i; i = i->outer)
        if (i->use && atomic_load(&i->use->n_waiting) > 0)
            return true;
    return false;
}

static void come_beside(struct use *use)
{
    pthread_mutex_lock(&use->gate);
    while (use->is_alone)
        (void)interrupt_wait(&use->passed, &use->gate);
    use->n_beside++;
    pthread_mutex_unlock(&use->gate);
}

/* What waits for the lock to change dims keeps others from it. A call inside a call on something else must not wait for
 * these without end, as they may wait for others that wait for this thread: not at all if anybody waits to change dims
 * of what it has, and else, where it is known to others in another way only, for some time. Without that time, calls
 * that come without a pause would keep out who changes dims. Then it waits only for who is changing them. */
static bool begin_beside(struct use *use)
{
    if (pthread_rwlock_tryrdlock(&use->lock) == 0)
        return false;
    if (!is_waited_for() && interrupt_try_rdlock(&use->lock))
        return false;
    come_beside(use);
    return true;
}

/* Who waits to change dims asks now and then whether it is interrupted, and would never find a moment for it if others
 * took the lock each time. -EINTR. */
static int let_pass(struct use *use)
{
    int error = 0;
    pthread_mutex_lock(&use->gate);
    while (!error && atomic_load(&use->n_waiting) > 0)
        error = interrupt_wait(&use->passed, &use->gate);
    pthread_mutex_unlock(&use->gate);
    return error;
}

/* Who is interrupted meanwhile waits only for who is changing dims: what it calls ends soon. */
static bool begin_in_turn(struct use *use)
{
    int error = atomic_load(&use->n_waiting) > 0 ? let_pass(use) : 0;
    if (!error)
        error = interrupt_rdlock(&use->lock);
    if (error)
        come_beside(use);
    return error != 0;
}

static void end_beside(struct use *use)
{
    pthread_mutex_lock(&use->gate);
    if (--use->n_beside == 0)
        pthread_cond_broadcast(&use->passed);
    pthread_mutex_unlock(&use->gate);
}

void use_begin(struct use *use, struct call *call)
{
    bool is_beside = false;
    if (use && !use_is_mine(use))
        is_beside = is_inside_another(use) ? begin_beside(use) : begin_in_turn(use);
    *call = (struct call){.use = use, .is_beside = is_beside, .outer = calls};
    calls = call;
}

bool use_try_begin(struct use *use, struct call *call)
{
    if (use && !use_is_mine(use) &&
        (atomic_load(&use->n_waiting) > 0 || pthread_rwlock_tryrdlock(&use->lock) != 0))
        return false;
    *call = (struct call){.use = use, .outer = calls};
    calls = call;
    return true;
}

void use_end(struct call *call)
{
    assert(calls == call);
    calls = call->outer;
    if (call->is_beside)
        end_beside(call->use);
    else if (call->use && !use_is_mine(call->use))
        pthread_rwlock_unlock(&call->use->lock);
}

static void count(struct use *use, uint64_t n)
{
    atomic_fetch_add(&use->changes, n);
    if (use->all)
        atomic_fetch_add(&use->all->changes, n);
}

static void count_begin(struct use *use)
{
    count(use, CHANGING_NOW);
}

static void count_end(struct use *use)
{
    count(use, ONE_CHANGE - CHANGING_NOW);
}

/* Whether this is the outermost changing call of this thread: a nested one must not take the lock
 * again. */
static bool takes_parts(const struct use *use)
{
    for (const struct call *i = calls; i; i = i->outer)
        if (i->use == use && i->has_parts)
            return false;
    calls->has_parts = true;
    return true;
}

struct use *change_begin(struct use *use)
{
    if (takes_parts(use))
        interrupt_ask_rdlock(&use->parts);
    count_begin(use);
    return use;
}

struct use *patch_begin(struct use *use)
{
    if (takes_parts(use))
        interrupt_ask_wrlock(&use->parts);
    count_begin(use);
    return use;
}

void change_end(struct use **use)
{
    count_end(*use);
    if (calls->has_parts)
        pthread_rwlock_unlock(&(*use)->parts);
    calls->has_parts = false;
}

void use_changed(struct use *use)
{
    count(use, ONE_CHANGE);
}

/* With the lock held. -EINTR: others are beside still. */
static int wait_for_beside(struct use *use)
{
    int error = 0;
    pthread_mutex_lock(&use->gate);
    while (!error && use->n_beside > 0)
        error = interrupt_wait(&use->passed, &use->gate);
    use->is_alone = !error;
    pthread_mutex_unlock(&use->gate);
    return error;
}

int alone_get(struct use *use, struct use **alone)
{
    assert(!use_is_mine(use));
    atomic_fetch_add(&use->n_waiting, 1);
    int error = interrupt_wrlock(&use->lock);
    if (!error) {
        error = wait_for_beside(use);
        if (error)
            pthread_rwlock_unlock(&use->lock);
    }
    atomic_fetch_sub(&use->n_waiting, 1);
    if (error) {
        pthread_mutex_lock(&use->gate);
        pthread_cond_broadcast(&use->passed);
        pthread_mutex_unlock(&use->gate);
        return error;
    }
    count_begin(use);
    *alone = use;
    return 0;
}

struct use *alone_begin(struct use *use)
{
    UNINTERRUPTED();
    struct use *alone = NULL;
    (void)alone_get(use, &alone);
    return alone;
}

void alone_end(struct use **use)
{
    if (!*use)
        return;
    count_end(*use);
    pthread_mutex_lock(&(*use)->gate);
    (*use)->is_alone = false;
    pthread_cond_broadcast(&(*use)->passed);
    pthread_mutex_unlock(&(*use)->gate);
    pthread_rwlock_unlock(&(*use)->lock);
}

void alone_call_begin(struct use *use, struct call *call)
{
    *call = (struct call){.use = use, .outer = calls};
    calls = call;
}

void alone_call_end(struct call *call)
{
    assert(calls == call);
    calls = call->outer;
}

/* What a virtual dataset shows may be any other dataset of its file. */
uint64_t sfs_dataset_changes(const struct sfs_dataset *dataset)
{
    uint64_t changes = atomic_load(&dataset->use.changes);
    if (dataset->info.layout == SFS_VIRTUAL && sfs_is_writable(dataset->file))
        changes += atomic_load(&dataset->file->use.changes);
    return changes % ONE_CHANGE == 0 ? changes : 0;
}
