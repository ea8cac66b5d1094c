/* Commits of one file, giving its lock back when nothing has changed for an interval, and what has
 * failed that writers are to be told. */
#include "fs/daemon/commit_and_unlock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "fs/daemon/timer_thread.h"
#include "fs/interrupt.h"

struct commits {
    struct sfs_file *file;
    struct fresh *fresh;
    struct periodic *periodic; /* or NULL */
    atomic_bool has_changes;   /* since the last commit */
    struct view_hold hold;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* of what follows up to was_held */
    unsigned committing;    /* many share one commit */
    /* Who holds them and who commits take turns, so that neither is kept out by others that follow each other. */
    unsigned holding, waiting; /* or wait for that; for a commit */
    bool is_held, was_held;    /* was_held: that came last */
    unsigned failures;
    int error; /* of the last failure */
};

/* -EINTR: it does not begin. */
static int begin_commit(struct commits *commits)
{
    int error = 0;
    pthread_mutex_lock(&commits->lock);
    commits->waiting++;
    while ((commits->is_held || (commits->holding > 0 && !commits->was_held)) && !error)
        error = interrupt_wait(&commits->changed, &commits->lock);
    commits->waiting--;
    if (error) {
        pthread_cond_broadcast(&commits->changed);
    } else {
        commits->committing++;
        commits->was_held = false;
    }
    pthread_mutex_unlock(&commits->lock);
    return error;
}

static void end_commit(struct commits *commits)
{
    pthread_mutex_lock(&commits->lock);
    commits->committing--;
    pthread_cond_broadcast(&commits->changed);
    pthread_mutex_unlock(&commits->lock);
}

int commits_now(struct commits *commits, struct sfs_dataset *dataset)
{
    fresh_finish_closed(commits->fresh);
    int error = begin_commit(commits);
    if (error)
        return error;
    NOT_INTERRUPTIBLE();
    atomic_store(&commits->has_changes, false);
    error = dataset ? sfs_flush_for(commits->file, dataset) : sfs_flush(commits->file);
    end_commit(commits);
    if (error)
        atomic_store(&commits->has_changes, true);
    return error;
}

/* Chunks that cannot be stored are reported to the writers of their dataset, by fsync. */
static int commit_most(struct commits *commits)
{
    atomic_store(&commits->has_changes, false);
    int error = sfs_flush_finished(commits->file);
    if (error)
        atomic_store(&commits->has_changes, true);
    return error;
}

/* The lock is not shared while a writer has the file open, or chunks cannot be stored. */
static int settle_and_share(struct commits *commits)
{
    int error = sfs_settle(commits->file);
    if (!error && !atomic_load(&commits->has_changes))
        (void)sfs_share(commits->file);
    return error;
}

/* What has begun. */
static void end_in_background(struct commits *commits, int error)
{
    end_commit(commits);
    if (!error)
        return;
    pthread_mutex_lock(&commits->lock);
    commits->failures++;
    commits->error = error;
    pthread_mutex_unlock(&commits->lock);
    log_loss("%s: what was written could not be committed: %s", sfs_path(commits->file),
             strerror(-error));
}

void commits_in_background(struct commits *commits)
{
    if (fresh_age(commits->fresh))
        commits_note(commits);
    if (begin_commit(commits)) /* the next one tries it again */
        return;
    bool has_changes = atomic_load(&commits->has_changes);
    end_in_background(commits, has_changes ? commit_most(commits) : settle_and_share(commits));
}

static void commit_regularly(void *data)
{
    commits_in_background(data);
}

static int hold(void *context)
{
    struct commits *commits = context;
    int error = 0;
    pthread_mutex_lock(&commits->lock);
    commits->holding++;
    while ((commits->is_held || commits->committing > 0 ||
            (commits->waiting > 0 && commits->was_held)) &&
           !error)
        error = interrupt_wait(&commits->changed, &commits->lock);
    if (error) {
        commits->holding--;
        pthread_cond_broadcast(&commits->changed);
    } else {
        commits->is_held = commits->was_held = true;
    }
    pthread_mutex_unlock(&commits->lock);
    return error;
}

static void release(void *context)
{
    struct commits *commits = context;
    pthread_mutex_lock(&commits->lock);
    commits->is_held = false;
    commits->holding--;
    pthread_cond_broadcast(&commits->changed);
    pthread_mutex_unlock(&commits->lock);
}

int commits_create(struct sfs_file *file, struct fresh *fresh, unsigned seconds,
                   struct commits **out)
{
    struct commits *commits = calloc(1, sizeof(*commits));
    if (!commits)
        return -ENOMEM;
    pthread_mutex_init(&commits->lock, NULL);
    pthread_cond_init(&commits->changed, NULL);
    commits->hold = (struct view_hold){hold, release, commits};
    commits->file = file;
    commits->fresh = fresh;
    int error =
        seconds ? periodic_create(seconds, commit_regularly, commits, &commits->periodic) : 0;
    if (error)
        commits_destroy(commits);
    else
        *out = commits;
    return error;
}

void commits_destroy(struct commits *commits)
{
    if (!commits)
        return;
    periodic_destroy(commits->periodic);
    pthread_cond_destroy(&commits->changed);
    pthread_mutex_destroy(&commits->lock);
    free(commits);
}

const struct view_hold *commits_hold(const struct commits *commits)
{
    return &commits->hold;
}

void commits_note(struct commits *commits)
{
    atomic_store(&commits->has_changes, true);
}

/* *error: of what is new since then. */
static struct commits_seen look(struct commits *commits, const struct commits_seen *seen,
                                int *error)
{
    int lost;
    struct commits_seen now = {.losses = sfs_raw_losses(commits->file, &lost)};
    pthread_mutex_lock(&commits->lock);
    now.failures = commits->failures;
    *error = now.failures != seen->failures ? commits->error : 0;
    pthread_mutex_unlock(&commits->lock);
    if (now.losses != seen->losses)
        *error = lost;
    return now;
}

struct commits_seen commits_failed(struct commits *commits)
{
    struct commits_seen nothing = {0};
    int error;
    return look(commits, &nothing, &error);
}

int commits_error(struct commits *commits, struct commits_seen *seen)
{
    int error;
    *seen = look(commits, seen, &error);
    return error;
}
