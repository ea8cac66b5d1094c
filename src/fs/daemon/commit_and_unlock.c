/* Commits of one file, giving its lock back when nothing has changed for an interval, and the number of
 * background commits that failed. */
#include "fs/daemon/commit_and_unlock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/thread.h"
#include "fs/daemon/timer_thread.h"

struct commits {
    struct sfs_file *file;
    struct fresh *fresh;
    struct periodic *periodic; /* or NULL */
    atomic_bool has_changes;   /* since the last commit */
    pthread_rwlock_t held;     /* for reading while something is committed: many share one commit;
                                * commits_hold is not kept out by those that follow each other */
    pthread_mutex_t lock;      /* guards what follows */
    unsigned failures;
    int error; /* of the last failure */
};

int commits_now(struct commits *commits, struct sfs_dataset *dataset)
{
    fresh_finish_closed(commits->fresh);
    pthread_rwlock_rdlock(&commits->held);
    atomic_store(&commits->has_changes, false);
    int error = dataset ? sfs_flush_for(commits->file, dataset) : sfs_flush(commits->file);
    pthread_rwlock_unlock(&commits->held);
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

void commits_in_background(struct commits *commits)
{
    if (fresh_age(commits->fresh))
        commits_note(commits);
    pthread_rwlock_rdlock(&commits->held);
    int error =
        atomic_load(&commits->has_changes) ? commit_most(commits) : settle_and_share(commits);
    pthread_rwlock_unlock(&commits->held);
    if (!error)
        return;
    log_error("%s: what was written could not be committed: %s", sfs_path(commits->file),
              strerror(-error));
    pthread_mutex_lock(&commits->lock);
    commits->failures++;
    commits->error = error;
    pthread_mutex_unlock(&commits->lock);
}

static void commit_regularly(void *commits)
{
    commits_in_background(commits);
}

int commits_create(struct sfs_file *file, struct fresh *fresh, unsigned seconds,
                   struct commits **out)
{
    struct commits *commits = calloc(1, sizeof(*commits));
    if (!commits)
        return -ENOMEM;
    pthread_mutex_init(&commits->lock, NULL);
    thread_init_lock(&commits->held);
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
    pthread_rwlock_destroy(&commits->held);
    pthread_mutex_destroy(&commits->lock);
    free(commits);
}

void commits_hold(struct commits *commits)
{
    pthread_rwlock_wrlock(&commits->held);
}

void commits_release(struct commits *commits)
{
    pthread_rwlock_unlock(&commits->held);
}

void commits_note(struct commits *commits)
{
    atomic_store(&commits->has_changes, true);
}

unsigned commits_failures(struct commits *commits)
{
    pthread_mutex_lock(&commits->lock);
    unsigned failures = commits->failures;
    pthread_mutex_unlock(&commits->lock);
    return failures;
}

int commits_error(struct commits *commits, unsigned *seen)
{
    pthread_mutex_lock(&commits->lock);
    int error = commits->failures != *seen ? commits->error : 0;
    *seen = commits->failures;
    pthread_mutex_unlock(&commits->lock);
    return error;
}
