/* Commits of a mount: which file a change is of, and, of a folder, all files: one after the other if that is asked
 * for, beside each other in the background. */
#include <errno.h>
#include <stdlib.h>

#include "common/thread.h"
#include "fs/mount.h"

/* By its node the file is found again that has to be committed still. */
static void keep_top(struct mount *mount, const struct node *node)
{
    while (!node_is_top(node))
        node = node->parent;
    if (atomic_exchange(&node->mounted->keeps_top, true))
        return;
    node_hold(mount->nodes, node->number);
    node->mounted->top = node->number;
}

/* Nothing is left to commit. A thread that writes again has called sfs_begin_writing before it sees
 * the node kept: so it is seen here. */
static void let_go_of_top(struct mount *mount, struct mounted_file *file)
{
    if (!together_is_shared(file->file) || !atomic_exchange(&file->keeps_top, false))
        return;
    bool is_kept = !together_is_shared(file->file) && !atomic_exchange(&file->keeps_top, true);
    if (!is_kept)
        node_put(mount->nodes, file->top);
}

void mount_note(struct mount *mount, const struct node *node, uid_t user)
{
    if (mount->files)
        keep_top(mount, node);
    mounted_changed(node->mounted, user);
    commits_note(mount_commits(mount, node));
}

struct commits *mount_commits(const struct mount *mount, const struct node *node)
{
    return mount->files && node ? node->mounted->commits : mount->commits;
}

struct fresh *mount_fresh(const struct mount *mount, const struct node *node)
{
    return mount->files && node ? node->mounted->fresh : mount->fresh;
}

/* None after one for which that was interrupted. */
static int commit(void *context, struct mounted_file *file)
{
    bool *is_interrupted = context;
    int error = file->commits && !*is_interrupted ? commits_now(file->commits, NULL) : 0;
    *is_interrupted |= error == -EINTR;
    return error;
}

int mount_commit_folder(struct mount *mount)
{
    bool is_interrupted = false;
    return mounted_files_each(mount->files, true, commit, &is_interrupted);
}

/* After a commit in the background. */
static void note_committed(struct mount *mount, struct mounted_file *file)
{
    let_go_of_top(mount, file);
    if (together_is_outdated(file->file))
        mounted_outdate(file);
}

/* ---- Files with changes: committing one can take long, as may waiting for who replaces a frame of it. Each is done
 * by a thread, so that others are committed meanwhile. ---- */

#define MOST_AT_A_TIME 64

struct committing {
    struct mount *mount;
    struct mounted_file *file; /* used */
};

static void commit_beside(const struct committing *committing)
{
    struct mount *mount = committing->mount;
    struct mounted_file *file = committing->file;
    commits_in_background(file->commits);
    note_committed(mount, file);
    atomic_store(&file->is_committed, false);
    mounted_let_be(file);
}

static void *run_beside(void *data)
{
    struct committing *committing = data;
    struct mount *mount = committing->mount;
    commit_beside(committing);
    free(committing);
    pthread_mutex_lock(&mount->committing_lock);
    mount->n_committing--;
    pthread_cond_signal(&mount->committed);
    pthread_mutex_unlock(&mount->committing_lock);
    return NULL;
}

static int start_beside(struct committing *committing)
{
    struct mount *mount = committing->mount;
    pthread_t thread;
    pthread_mutex_lock(&mount->committing_lock);
    int error = mount->n_committing < MOST_AT_A_TIME ? thread_start(&thread, run_beside, committing)
                                                     : EAGAIN;
    if (!error) {
        pthread_detach(thread);
        mount->n_committing++;
    }
    pthread_mutex_unlock(&mount->committing_lock);
    return -error;
}

/* Without a thread it is done here. */
static void begin_beside(struct mount *mount, struct mounted_file *file)
{
    const struct committing here = {mount, file};
    if (atomic_exchange(&file->is_committed, true))
        return;
    mounted_use_again(file);
    struct committing *committing = malloc(sizeof(*committing));
    if (committing)
        *committing = here;
    if (committing && start_beside(committing) == 0)
        return;
    free(committing);
    commit_beside(&here);
}

void mount_wait_for_commits(struct mount *mount)
{
    pthread_mutex_lock(&mount->committing_lock);
    while (mount->n_committing > 0)
        pthread_cond_wait(&mount->committed, &mount->committing_lock);
    pthread_mutex_unlock(&mount->committing_lock);
}

/* A commit that takes longer than an interval holds up none of other files. */
static int commit_in_background(void *context, struct mounted_file *file)
{
    if (!file->commits || atomic_load(&file->is_committed))
        return 0;
    if (commits_try_in_background(file->commits))
        note_committed(context, file);
    else
        begin_beside(context, file);
    return 0;
}

static int look_whether_gone(void *context, struct mounted_file *file)
{
    struct stat st;
    (void)context;
    if (sfs_stat(file->file, &st) == 0 && st.st_nlink == 0) {
        atomic_store(&file->is_gone, true);
        mounted_outdate(file);
    }
    return 0;
}

/* What waits in memory keeps HDF5 files open that nobody finds any more, for those who wrote it. */
static void lose_what_waits(struct mount *mount)
{
    if (!temporaries_have_names(mount->temporaries) && !matrices_may_wait(mount->matrices))
        return;
    (void)mounted_files_each(mount->files, false, look_whether_gone, NULL);
    temporaries_lose(mount->temporaries);
    matrices_lose(mount->matrices);
}

/* A file that is being closed is committed by that. */
void mount_commit_regularly(void *context)
{
    struct mount *mount = context;
    (void)mounted_files_each(mount->files, false, commit_in_background, mount);
    lose_what_waits(mount);
}
