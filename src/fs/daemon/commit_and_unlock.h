/* Commits: on request, and in the background at regular intervals. Thread-safe. */
#ifndef SPARSEFS_FS_DAEMON_COMMIT_AND_UNLOCK_H
#define SPARSEFS_FS_DAEMON_COMMIT_AND_UNLOCK_H

#include <stdbool.h>

#include "fs/unfinished_new_frames.h"
#include "sparsefs/sparsefs.h"
#include "view/view.h"

struct commits;

/* seconds: between commits in the background, which leave out frames that are fresh; 0: only
 * those two functions make some. file is open for writing and, like fresh, outlives this. -ENOMEM;
 * errors of periodic_create. commits_destroy waits for a background commit; NULL is fine. */
int commits_create(struct sfs_file *file, struct fresh *fresh, unsigned seconds,
                   struct commits **commits);
void commits_destroy(struct commits *commits);

/* Something was written: there is something to commit. */
void commits_note(struct commits *commits);

/* A background commit by time, however long it takes: if there were no changes since the last one it settles the store,
 * and shares the file, if that can be: else the next one tries it again. Errors are logged, and given by
 * commits_error. */
void commits_in_background(struct commits *commits);

/* Everything written before is durable when this returns 0, except fresh frames that were not closed
 * and, if dataset is not NULL, chunks of other datasets that cannot be stored. Errors of sfs_flush,
 * or of sfs_flush_for; -EINTR, before anything is committed: it waited for who holds them. */
int commits_now(struct commits *commits, struct sfs_dataset *dataset);

/* While it lasts there is no commit, nor another one like it: what is written then is atomic. Not while committing; not
 * nested. */
const struct view_hold *commits_hold(const struct commits *commits);

/* What has failed so far: commits in the background, and syncs of external raw data by whomever, which no later commit
 * makes good. For a new reader of commits_error. */
struct commits_seen {
    unsigned failures, losses;
};
struct commits_seen commits_failed(struct commits *commits);

/* The error of one of them that this reader, whose *seen it is, was not told yet. */
int commits_error(struct commits *commits, struct commits_seen *seen);

#endif
