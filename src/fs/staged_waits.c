/* What others wait for: who looks at a view, and commits, for what was closed and is not applied yet. */
#include <errno.h>
#include <utlist.h>

#include "common/clock.h"
#include "fs/staged_private.h"

/* The kernel announces the last close before close(2) returns. Who has waited for so long assumes that another
 * descriptor is open; so does whoever still waits so long after the first who did, as one who is interrupted begins
 * anew. */
#define PATIENCE_NANOS 5000000000u

/* longest wait of a reader for the answer to a close, which may wait for it */
#define CLOSING_NANOS 2000000

/* Whether another view, or (itself) that one, or (VIEW_KINDS) all of a dataset, shows what is
 * staged. */
static bool is_shown_by(const struct staged *staged, const struct node *node, enum view_kind view,
                        uint64_t frame, bool itself)
{
    const struct staged_key *key = &staged->key;
    bool is_of_frame = key->view < VIEW_STACK_RAW && view < VIEW_STACK_RAW;
    return key->object == node->object && (!is_of_frame || key->frame == frame) &&
           (itself || key->view != view || key->frame != frame);
}

/* One of those that are being closed, or (closed) were closed and may have been so for good. */
static struct staged *find_closed(const struct staging *staging, const struct node *node,
                                  enum view_kind view, uint64_t frame, bool itself, bool closed)
{
    for (struct staged *staged = staging->table; staged; staged = staged->hh.next)
        if ((closed ? staged->is_closed : staged->closing > 0) &&
            is_shown_by(staged, node, view, frame, itself))
            return staged;
    return NULL;
}

/* A selection that is just being applied: half of it would be seen. */
static bool is_any_in_work(const struct staging *staging, const struct node *node,
                           enum view_kind view, uint64_t frame, bool itself)
{
    for (const struct staged *staged = staging->table; staged; staged = staged->hh.next)
        if (staged->is_in_work && is_shown_by(staged, node, view, frame, itself))
            return true;
    return false;
}

bool staging_is_applied(struct staging *staging, const struct node *node, enum view_kind view,
                        uint64_t frame, bool itself)
{
    if (!staging || atomic_load(&staging->waiting) == 0)
        return true;
    pthread_mutex_lock(&staging->lock);
    bool is_applied = !is_any_in_work(staging, node, view, frame, itself) &&
                      !find_closed(staging, node, view, frame, itself, false) &&
                      !find_closed(staging, node, view, frame, itself, true);
    pthread_mutex_unlock(&staging->lock);
    return is_applied;
}

/* The lock must be held; it is dropped meanwhile. */
static void wait_for_answers(struct staging *staging, const struct node *node, enum view_kind view,
                             uint64_t frame, bool itself)
{
    const struct timespec end = clock_in(CLOSING_NANOS);
    while (find_closed(staging, node, view, frame, itself, false))
        if (pthread_cond_timedwait(&staging->changed, &staging->lock, &end) == ETIMEDOUT)
            return;
}

/* The same. Whether it is waited for no more. began: when this thread did (clock_now). */
static bool is_waited_out(struct staged *staged, uint64_t began)
{
    const uint64_t now = clock_now();
    if (staged->patient_until == 0)
        staged->patient_until = now + PATIENCE_NANOS;
    return now >= staged->patient_until || now >= began + PATIENCE_NANOS;
}

/* The same. -EINTR. */
static int wait_for_releases(struct staging *staging, const struct node *node, enum view_kind view,
                             uint64_t frame, bool itself)
{
    const uint64_t began = clock_now();
    struct staged *staged;
    int error = 0;
    while (!error && (staged = find_closed(staging, node, view, frame, itself, true))) {
        if (is_waited_out(staged, began))
            staged->is_closed = false; /* it is open still: no other request waits for it */
        else
            error = staging_wait(staging);
    }
    return error;
}

/* The same. */
static int wait_for_work(struct staging *staging, const struct node *node, enum view_kind view,
                         uint64_t frame, bool itself)
{
    int error = 0;
    while (!error && is_any_in_work(staging, node, view, frame, itself))
        error = staging_wait(staging);
    return error;
}

int staging_apply_closed(struct staging *staging, const struct node *node, enum view_kind view,
                         uint64_t frame, bool itself)
{
    pthread_mutex_lock(&staging->lock);
    int error = wait_for_work(staging, node, view, frame, itself);
    if (!error) {
        wait_for_answers(staging, node, view, frame, itself);
        error = wait_for_releases(staging, node, view, frame, itself);
    }
    if (!error) /* in one of these */
        error = wait_for_work(staging, node, view, frame, itself);
    for (struct staged *staged = staging->table; staged && !error; staged = staged->hh.next)
        if (staged->closing > 0 && is_shown_by(staged, node, view, frame, itself))
            staged->is_looked_at = true;
    pthread_mutex_unlock(&staging->lock);
    return error;
}

/* ---- Before a commit ---- */

bool staging_any_waits(const struct staging *staging)
{
    return staging && atomic_load(&staging->waiting) > 0;
}

bool staging_is_synced_by(const struct staged *staged, uint64_t close,
                          const struct staged_sync *sync)
{
    return close > 0 && close <= sync->close &&
           (!sync->commits || staged->node->mounted->commits == sync->commits);
}

/* One that may have been closed for good, or has been. */
static struct staged *find_to_sync(const struct staging *staging, const struct staged_sync *sync)
{
    for (struct staged *staged = staging->table; staged; staged = staged->hh.next)
        if ((staged->is_closed || staged->ending > 0) && !staged->is_written &&
            staging_is_synced_by(staged, staged->close, sync))
            return staged;
    return NULL;
}

int staging_apply_before_commit(struct staging *staging, const struct commits *commits)
{
    const uint64_t began = clock_now();
    struct staged_sync sync = {.commits = commits};
    struct staged *staged;
    int error = 0;
    pthread_mutex_lock(&staging->lock);
    sync.close = staging->closes;
    DL_APPEND(staging->syncs, &sync);
    while (!error && (staged = find_to_sync(staging, &sync))) {
        if (staged->ending == 0 && is_waited_out(staged, began))
            staged->is_closed = false; /* as above */
        else
            error = staging_wait(staging);
    }
    DL_DELETE(staging->syncs, &sync);
    pthread_mutex_unlock(&staging->lock);
    return error ? error : sync.error;
}
