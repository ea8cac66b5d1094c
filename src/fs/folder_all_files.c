/* All open files of a folder: closing them, and what is done with each. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/thread.h"
#include "fs/folder_files_private.h"

/* ---- Closing: as many threads as files, as the disk of one may have it wait for long ---- */

#define TOLD_NANOS UINT64_C(30000000000)

/* One that is not being closed, rather one that is not committed by another thread. NULL: all are. */
static struct mounted_file *find_open(const struct mounted_files *files)
{
    struct mounted_file *file, *committed = NULL;
    DL_FOREACH2 (files->open, file, next_open) {
        if (!file->is_busy && !atomic_load(&file->is_committed))
            return file;
        if (!file->is_busy)
            committed = file;
    }
    return committed;
}

/* Until none is open: one that another thread closes may stay, or something is lost by it. The lock must be held, and
 * is dropped meanwhile. */
static void close_open(struct mounted_files *files)
{
    while (files->open) {
        struct mounted_file *file = find_open(files);
        if (!file || atomic_load(&file->is_committed)) /* it is used for that */
            pthread_cond_wait(&files->changed, &files->lock);
        else
            (void)mounted_close(file, false);
    }
}

static void *run_closing(void *data)
{
    struct mounted_files *files = data;
    pthread_mutex_lock(&files->lock);
    close_open(files);
    files->n_closing--;
    pthread_cond_broadcast(&files->changed);
    pthread_mutex_unlock(&files->lock);
    return NULL;
}

/* The same; until they have ended. */
static void wait_for_closing(struct mounted_files *files)
{
    const struct timespec deadline = clock_in(TOLD_NANOS);
    const struct mounted_file *file;
    while (files->n_closing > 0 && !clock_has_come(&deadline))
        (void)pthread_cond_timedwait(&files->changed, &files->lock, &deadline);
    if (files->n_closing > 0)
        DL_FOREACH2 (files->open, file, next_open)
            log_warning("%s: what was written last is still being committed", file->path);
    while (files->n_closing > 0)
        pthread_cond_wait(&files->changed, &files->lock);
}

int mounted_files_close(struct mounted_files *files)
{
    pthread_t thread;
    pthread_mutex_lock(&files->lock);
    for (unsigned n = files->n_open; n > 0 && thread_start(&thread, run_closing, files) == 0; n--) {
        pthread_detach(thread);
        files->n_closing++;
    }
    if (files->n_closing == 0)
        close_open(files);
    wait_for_closing(files);
    int lost = files->lost;
    pthread_mutex_unlock(&files->lock);
    return lost;
}

/* ---- Something is done with each ---- */

/* The next open file, which is in use then, or NULL; waits for one that is being closed, as that may fail
 * and leave it open, or leaves it out. -EINTR. */
static int next_open(struct mounted_files *files, struct mounted_file **all, size_t n, size_t *i,
                     bool waits, struct mounted_file **out)
{
    int error = 0;
    *out = NULL;
    pthread_mutex_lock(&files->lock);
    for (; *i < n && !*out && !error; ++*i) {
        while (waits && all[*i]->is_busy && !error)
            error = interrupt_wait_monotonic(&files->changed, &files->lock);
        if (!error && all[*i]->file && !all[*i]->is_busy)
            *out = all[*i];
    }
    if (*out)
        (*out)->users++;
    pthread_mutex_unlock(&files->lock);
    return error;
}

/* Those that are open, with a reference each; the caller frees the array. */
static struct mounted_file **all_open(struct mounted_files *files, size_t *n)
{
    struct mounted_file *file;
    pthread_mutex_lock(&files->lock);
    struct mounted_file **all = calloc(files->n_open + 1, sizeof(struct mounted_file *));
    *n = 0;
    DL_FOREACH2 (all ? files->open : NULL, file, next_open) {
        mounted_ref(file);
        all[(*n)++] = file;
    }
    pthread_mutex_unlock(&files->lock);
    return all;
}

int mounted_files_each(struct mounted_files *files, bool waits,
                       int (*action)(void *context, struct mounted_file *file), void *context)
{
    size_t n, i = 0;
    struct mounted_file *file, **all = all_open(files, &n);
    int error = all ? 0 : -ENOMEM;
    int stopped = all ? next_open(files, all, n, &i, waits, &file) : error;
    while (!stopped && file) {
        int failed = action(context, file);
        error = error ? error : failed;
        mounted_ref(file); /* that of a user */
        mounted_let_be(file);
        stopped = next_open(files, all, n, &i, waits, &file);
    }
    error = error ? error : stopped;
    for (i = 0; all && i < n; i++)
        mounted_unref(all[i]);
    free(all);
    return error;
}

static int refresh(void *context, struct mounted_file *file)
{
    (void)context;
    return sfs_refresh(file->file);
}

int mounted_files_refresh(struct mounted_files *files)
{
    return mounted_files_each(files, true, refresh, NULL);
}

void mounted_files_interrupt(struct mounted_files *files)
{
    const struct mounted_file *file;
    pthread_mutex_lock(&files->lock);
    DL_FOREACH2 (files->open, file, next_open)
        sfs_interrupt(file->file);
    pthread_mutex_unlock(&files->lock);
}

void mounted_files_statistics(struct mounted_files *files, struct mounted_statistics *statistics)
{
    const struct mounted_file *file;
    struct sfs_statistics of_file;
    struct sfs_statistics *sums = &statistics->sums;
    together_statistics(files->together, sums);
    pthread_mutex_lock(&files->lock);
    statistics->lock = SFS_LOCK_NONE;
    statistics->most = files->most;
    statistics->open = files->n_open;
    statistics->opened = files->opened;
    sums->store_reads = files->closed.store_reads;
    sums->store_bytes_read = files->closed.store_bytes_read;
    sums->store_commits = files->closed.store_commits;
    DL_FOREACH2 (files->open, file, next_open) {
        enum sfs_lock lock = sfs_lock(file->file);
        statistics->lock = lock > statistics->lock ? lock : statistics->lock;
        sfs_statistics(file->file, &of_file);
        sums->store_reads += of_file.store_reads;
        sums->store_bytes_read += of_file.store_bytes_read;
        sums->store_commits += of_file.store_commits;
    }
    pthread_mutex_unlock(&files->lock);
}

int mounted_files_set_cache_size(struct mounted_files *files, size_t bytes)
{
    return together_set_cache_size(files->together, bytes);
}
