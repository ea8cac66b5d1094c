/* What a mount is made of, made and freed. */
#include "fs/mount.h"

#include <errno.h>
#include <unistd.h>

#include "common/clock.h"
#include "fs/daemon/timer_thread.h"

/* Frames that take more than this share of the cache do not wait in it to be closed. */
#define FRESH_SHARE 4

static size_t most_of_fresh(const struct options *options)
{
    return options->cache_size / FRESH_SHARE;
}

/* ---- Files of a folder ---- */

/* Commits in the background are made for all of them by one thread. */
static int opened(void *context, struct mounted_file *file, struct sfs_file *opened)
{
    const struct mount *mount = context;
    bool is_writable = mount->is_writable && sfs_is_writable(opened);
    atomic_store(&file->is_read_only, !is_writable);
    if (!is_writable)
        return 0;
    int error = fresh_create(mount->nodes, most_of_fresh(mount->options), &file->fresh);
    if (!error)
        error = commits_create(opened, file->fresh, 0, &file->commits);
    if (error) {
        fresh_destroy(file->fresh);
        file->fresh = NULL;
    }
    return error;
}

/* Neither the file nor anything in it is in use. */
static void closing(void *context, struct mounted_file *file)
{
    struct mount *mount = context;
    nodes_close_views(mount->nodes, file);
    listings_forget_file(mount->listings, file);
    removed_forget_file(mount->removed, file);
    follow_forget(mount->follow, file->file);
    commits_destroy(file->commits);
    fresh_destroy(file->fresh);
    file->commits = NULL;
    file->fresh = NULL;
    uint32_t top = atomic_exchange(&file->top, 0);
    if (top != 0)
        node_put(mount->nodes, top);
}

/* ---- Mounts ---- */

/* Whatever of a mount that is written is not of one file. */
static int create_for_writing(struct mount *mount, const char *label)
{
    const struct options *options = mount->options;
    staging_limit_init(&mount->limit, options->staging_size);
    int error = times_create(&mount->times);
    if (!error)
        error = staging_create(mount->nodes, &mount->staging);
    if (!error)
        error = temporaries_create(mount->nodes, label, &mount->limit, &mount->temporaries);
    if (!error)
        error = matrices_create(mount->nodes, &mount->limit, &mount->matrices);
    if (!error)
        error = removed_create(&mount->limit, label, &mount->removed);
    if (!error)
        staging_collect(mount->staging, &mount->limit, options->sparsify);
    return error;
}

static void init(struct mount *mount)
{
    for (size_t i = 0; i < MOUNT_BECOMING; i++)
        pthread_mutex_init(&mount->becoming[i], NULL);
    pthread_mutex_init(&mount->beside_lock, NULL);
    clock_init_condition(&mount->fewer_beside);
}

static int create_nodes_of_folder(struct mount *mount)
{
    struct stat st;
    int fd = folder_find(mounted_files_folder(mount->files), "", &st);
    if (fd < 0)
        return fd;
    close(fd);
    return nodes_create_of_folder(mount->files, &st, mount->options->frame_rank, &mount->nodes);
}

int mount_create_of_folder(struct mount *mount, const struct options *options,
                           struct mounted_files *files)
{
    static const struct mounted_calls calls = {opened, closing};
    *mount = (struct mount){.options = options, .files = files, .is_writable = !options->read_only};
    init(mount);
    int error = create_nodes_of_folder(mount);
    mount->listings = error ? NULL : listings_create(listings_most_used_bytes());
    if (!error && !mount->listings)
        error = -ENOMEM;
    if (!error && mount->is_writable)
        error = create_for_writing(mount, folder_path(mounted_files_folder(files)));
    if (!error && mount->is_writable && options->commit_interval)
        error = periodic_create(options->commit_interval, mount_commit_regularly, mount,
                                &mount->periodic);
    if (!error && options->follow > 0)
        error = follow_create(mount->nodes, options->follow, &mount->follow);
    mounted_files_set_calls(files, &calls, mount);
    if (error)
        (void)mount_destroy(mount);
    return error;
}

int mount_create(struct mount *mount, const struct options *options, struct sfs_file *file)
{
    *mount = (struct mount){.options = options, .file = file, .is_writable = sfs_is_writable(file)};
    init(mount);
    int error = nodes_create(file, options->external_links, options->frame_rank, &mount->nodes);
    mount->listings = error ? NULL : listings_create(listings_most_used_bytes());
    if (!error && !mount->listings)
        error = -ENOMEM;
    if (!error && mount->is_writable)
        error = create_for_writing(mount, sfs_path(file));
    if (!error && mount->is_writable)
        error = fresh_create(mount->nodes, most_of_fresh(options), &mount->fresh);
    if (!error && mount->is_writable)
        error = commits_create(file, mount->fresh, options->commit_interval, &mount->commits);
    if (!error)
        node_get(mount->nodes, 0)->mounted->commits = mount->commits;
    if (!error && options->follow > 0)
        error = follow_create(mount->nodes, options->follow, &mount->follow);
    if (error)
        (void)mount_destroy(mount);
    return error;
}

int mount_destroy(struct mount *mount)
{
    periodic_destroy(mount->periodic);
    mount_wait_for_losing(mount);
    matrices_end(mount->matrices); /* whose files are closed next */
    if (mount->files)              /* the thread that follows must use none */
        mounted_files_interrupt(mount->files);
    follow_destroy(mount->follow);
    mount->follow = NULL;
    int lost = mount->files && mount->nodes ? mounted_files_close(mount->files) : 0;
    mount_wait_for_commits(mount);
    matrices_destroy(mount->matrices);
    commits_destroy(mount->commits);
    fresh_destroy(mount->fresh);
    removed_destroy(mount->removed);
    temporaries_destroy(mount->temporaries);
    staging_destroy(mount->staging);
    times_destroy(mount->times);
    listings_destroy(mount->listings);
    nodes_destroy(mount->nodes);
    for (size_t i = 0; i < MOUNT_BECOMING; i++)
        pthread_mutex_destroy(&mount->becoming[i]);
    pthread_cond_destroy(&mount->fewer_beside);
    pthread_mutex_destroy(&mount->beside_lock);
    return lost;
}

void mount_begin_letting_go(const struct mount *mount)
{
    if (mount->files && mount->loop)
        loop_begin_wait(mount->loop);
}

void mount_end_letting_go(const struct mount *mount)
{
    if (mount->files && mount->loop)
        loop_end_wait(mount->loop);
}
