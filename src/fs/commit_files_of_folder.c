/* Commits of a mount: which file a change is of, and, of a folder, all files: one after the other if that is asked
 * for, beside each other in the background. */
#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/thread.h"
#include "fs/mount.h"

/* By its node the file is found again that has to be committed still. */
static void keep_top(struct mount *mount, const struct node *node)
{
    while (!node_is_top(node))
        node = node->parent;
    uint32_t none = 0;
    if (atomic_load(&node->mounted->top) != 0)
        return;
    node_hold(mount->nodes, node->number);
    if (!atomic_compare_exchange_strong(&node->mounted->top, &none, node->number))
        node_put(mount->nodes, node->number);
}

/* Nothing is left to commit. A thread that writes again has called sfs_begin_writing before it sees
 * the node kept: so it is seen here. */
static void let_go_of_top(struct mount *mount, struct mounted_file *file)
{
    uint32_t none = 0, top = together_is_shared(file->file) ? atomic_exchange(&file->top, 0) : 0;
    if (top == 0)
        return;
    bool is_kept =
        !together_is_shared(file->file) && atomic_compare_exchange_strong(&file->top, &none, top);
    if (!is_kept)
        node_put(mount->nodes, top);
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

/* In memory, until it is in its file. */
static bool something_waits(const struct mount *mount)
{
    return temporaries_have_names(mount->temporaries) || matrices_may_wait(mount->matrices);
}

static bool is_gone(const struct mounted_file *file)
{
    struct stat st;
    return sfs_stat(file->file, &st) == 0 && st.st_nlink == 0;
}

/* After a commit in the background. */
static void note_committed(struct mount *mount, struct mounted_file *file)
{
    let_go_of_top(mount, file);
    bool has_to_go = something_waits(mount) && is_gone(file);
    if (has_to_go)
        atomic_store(&file->is_gone, true);
    if (has_to_go || together_is_outdated(file->file))
        mounted_outdate(file);
}

/* ---- In the background: each file by a thread, as its disk, or who replaces a frame of it, may have it wait for long,
 * and others are committed meanwhile ---- */

/* More have to wait, but in all no longer than this for as many as do not end. */
#define MOST_AT_A_TIME 64
#define WAITED_NANOS   UINT64_C(1000000000)

struct beside {
    struct mount *mount;
    struct mounted_file *file; /* used; NULL: what waits is to be lost */
};

/* What waits in memory keeps HDF5 files open that nobody finds any more, for those who wrote it. */
static void lose_what_waits(struct mount *mount)
{
    temporaries_lose(mount->temporaries);
    matrices_lose(mount->matrices);
    atomic_store(&mount->is_losing, false);
}

static void commit_file(struct mount *mount, struct mounted_file *file)
{
    commits_in_background(file->commits);
    note_committed(mount, file);
    atomic_store(&file->is_committed, false);
    mounted_let_be(file);
}

static void do_beside(const struct beside *beside)
{
    if (beside->file)
        commit_file(beside->mount, beside->file);
    else
        lose_what_waits(beside->mount);
}

static void *run_beside(void *data)
{
    struct beside *beside = data;
    struct mount *mount = beside->mount;
    do_beside(beside);
    free(beside);
    pthread_mutex_lock(&mount->beside_lock);
    mount->n_beside--;
    pthread_cond_signal(&mount->fewer_beside);
    pthread_mutex_unlock(&mount->beside_lock);
    return NULL;
}

static int start_beside(struct beside *beside, const struct timespec *deadline)
{
    struct mount *mount = beside->mount;
    pthread_t thread;
    pthread_mutex_lock(&mount->beside_lock);
    while (mount->n_beside >= MOST_AT_A_TIME && !clock_has_come(deadline))
        (void)pthread_cond_timedwait(&mount->fewer_beside, &mount->beside_lock, deadline);
    int error = thread_start(&thread, run_beside, beside);
    if (!error) {
        pthread_detach(thread);
        mount->n_beside++;
    }
    pthread_mutex_unlock(&mount->beside_lock);
    return -error;
}

struct turn {
    struct mount *mount;
    struct timespec deadline; /* of waiting for others to end */
};

/* Without a thread it is done here. */
static void begin_beside(const struct turn *turn, struct mounted_file *file)
{
    const struct beside here = {turn->mount, file};
    struct beside *beside = malloc(sizeof(*beside));
    if (beside)
        *beside = here;
    if (beside && start_beside(beside, &turn->deadline) == 0)
        return;
    free(beside);
    do_beside(&here);
}

static int commit_in_background(void *context, struct mounted_file *file)
{
    if (!file->commits || atomic_exchange(&file->is_committed, true))
        return 0;
    mounted_use_again(file);
    begin_beside(context, file);
    return 0;
}

/* A file that is being closed is committed by that. */
void mount_commit_regularly(void *context)
{
    struct mount *mount = context;
    struct turn turn = {mount, clock_in(WAITED_NANOS)};
    (void)mounted_files_each(mount->files, false, commit_in_background, &turn);
    if (something_waits(mount) && !atomic_exchange(&mount->is_losing, true))
        begin_beside(&turn, NULL);
}

void mount_wait_for_losing(struct mount *mount)
{
    pthread_mutex_lock(&mount->beside_lock);
    while (atomic_load(&mount->is_losing))
        pthread_cond_wait(&mount->fewer_beside, &mount->beside_lock);
    pthread_mutex_unlock(&mount->beside_lock);
}

void mount_wait_for_commits(struct mount *mount)
{
    pthread_mutex_lock(&mount->beside_lock);
    while (mount->n_beside > 0)
        pthread_cond_wait(&mount->fewer_beside, &mount->beside_lock);
    pthread_mutex_unlock(&mount->beside_lock);
}
