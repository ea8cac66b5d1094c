/* What a mount is made of, made and freed. */
#include "fs/mount.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Frames that take more than this share of the cache do not wait in it to be closed. */
#define FRESH_SHARE 4

/* Nobody uses the file, nor what is in it. */
static void closing(void *context, struct mounted_file *file)
{
    struct mount *mount = context;
    nodes_close_views(mount->nodes, file);
    listings_forget_file(mount->listings, file);
    follow_forget(mount->follow, file->file);
}

int mount_create_of_folder(struct mount *mount, const struct options *options,
                           struct mounted_files *files)
{
    struct stat st;
    *mount = (struct mount){.options = options, .files = files};
    pthread_rwlock_init(&mount->tree_lock, NULL);
    for (size_t i = 0; i < MOUNT_BECOMING; i++)
        pthread_mutex_init(&mount->becoming[i], NULL);
    atomic_init(&mount->removals, 0);
    int fd = folder_find(mounted_files_folder(files), "", &st);
    int error =
        fd < 0 ? fd : nodes_create_of_folder(files, &st, options->frame_rank, &mount->nodes);
    if (fd >= 0)
        close(fd);
    mount->listings = error ? NULL : listings_create();
    if (!error && !mount->listings)
        error = -ENOMEM;
    if (!error && options->follow > 0)
        error = follow_create(mount->nodes, options->follow, &mount->follow);
    mounted_files_set_closing(files, closing, mount);
    if (error)
        mount_destroy(mount);
    return error;
}

int mount_create(struct mount *mount, const struct options *options, struct sfs_file *file)
{
    *mount = (struct mount){.options = options, .file = file, .is_writable = sfs_is_writable(file)};
    pthread_rwlock_init(&mount->tree_lock, NULL);
    for (size_t i = 0; i < MOUNT_BECOMING; i++)
        pthread_mutex_init(&mount->becoming[i], NULL);
    atomic_init(&mount->removals, 0);
    int error = nodes_create(file, options->external_links, options->frame_rank, &mount->nodes);
    mount->listings = error ? NULL : listings_create();
    if (!error && !mount->listings)
        error = -ENOMEM;
    if (!error && mount->is_writable)
        error = times_create(&mount->times);
    if (!error && mount->is_writable)
        error = staging_create(mount->nodes, &mount->staging);
    if (!error && mount->is_writable)
        error = temporaries_create(mount->nodes, sfs_path(file), options->staging_size,
                                   &mount->temporaries);
    if (!error && mount->is_writable)
        error = fresh_create(mount->nodes, options->cache_size / FRESH_SHARE, &mount->fresh);
    if (!error && mount->is_writable)
        error = commits_create(file, mount->fresh, options->commit_interval, &mount->commits);
    if (!error && mount->is_writable)
        staging_collect(mount->staging, mount->temporaries, mount->commits, options->staging_size,
                        options->sparsify);
    if (!error && options->follow > 0)
        error = follow_create(mount->nodes, options->follow, &mount->follow);
    if (error)
        mount_destroy(mount);
    return error;
}

void mount_destroy(struct mount *mount)
{
    if (mount->files) /* the thread that follows must use none */
        mounted_files_interrupt(mount->files);
    follow_destroy(mount->follow);
    mount->follow = NULL;
    if (mount->files && mount->nodes)
        mounted_files_close(mount->files);
    commits_destroy(mount->commits);
    fresh_destroy(mount->fresh);
    temporaries_destroy(mount->temporaries);
    staging_destroy(mount->staging);
    times_destroy(mount->times);
    listings_destroy(mount->listings);
    nodes_destroy(mount->nodes);
    for (size_t i = 0; i < MOUNT_BECOMING; i++)
        pthread_mutex_destroy(&mount->becoming[i]);
    pthread_rwlock_destroy(&mount->tree_lock);
}
