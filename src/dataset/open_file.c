/* Opening and closing files: a store, libhdf5 and a cache over it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/thread.h"
#include "dataset/files_together.h"
#include "dataset/private.h"
#include "dataset/virtual_sources.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

#define MOST_TRIES 200 /* of opening a file that is followed */

const char *sfs_hdf5_version(void)
{
    return hdf5_version();
}

void sfs_leave_hdf5_at_exit(void)
{
    hdf5_leave_at_exit();
}

#define WORKER_MEMORY  ((size_t)1 << 30)
#define WORKER_SECONDS 10.0

int sfs_start_hdf5_workers(size_t memory, double timeout)
{
    filters_provide(); /* inherited by the processes */
    double seconds = timeout > 0 ? timeout : WORKER_SECONDS;
    hdf5_answer_directly(true);
    return hdf5_start_workers(memory ? memory : WORKER_MEMORY, (uint64_t)(seconds * 1e9));
}

/* Files that it may lead to. */
static int set_reach(struct store *store, const struct sfs_options *options, bool is_of_root)
{
    const struct store_reach reach = {
        .files = options->external_files,
        .for_others = options->for_others,
        .shown = options->mode,
        .is_of_root = is_of_root,
    };
    int error = store_set_reach(store, &reach);
    if (error && error != -ENOMEM)
        why_say(store_why(store), "%s: external_files: %s", reach.files, strerror(-error));
    return error;
}

/* Where what libhdf5 does is done as root, for whoever looks on, and nothing confines it, its files
 * are root's, and only root may write them, or somebody has said that he trusts who made them. */
static int limit(const struct sfs_file *file, const struct sfs_options *options)
{
    struct stat st;
    bool is_of_root =
        options->for_others && !options->is_trusted && !file->has_worker && geteuid() == 0;
    int error = set_reach(file->store, options, is_of_root);
    if (!error && is_of_root)
        error = store_stat(file->store, &st);
    if (!error && is_of_root)
        st.st_uid = store_owner(file->store, &st);
    if (error || !is_of_root || store_is_roots(&st))
        return error;
    store_say(file->store, NULL,
              "it is the file of user %u%s: libhdf5 would read it as root, and others look on "
              "(allow_other): mount it with trust, or without hdf5=inside",
              (unsigned)st.st_uid, st.st_uid == 0 ? ", and others may write it" : "");
    return -EPERM;
}

static pthread_once_t plugins_sifted = PTHREAD_ONCE_INIT;

/* Errors of file_open_as. */
static int make_over(struct store *store, const struct common_cache *common,
                     const struct sfs_options *options, bool create, struct sfs_file **out)
{
    struct common_cache own = {0};
    struct sfs_file *file = calloc(1, sizeof(*file));
    if (!file) {
        store_close(store);
        return -ENOMEM;
    }
    struct why why;
    pthread_mutex_init(&file->lock, NULL);
    pthread_mutex_init(&file->flushing.lock, NULL);
    pthread_cond_init(&file->flushing.ended_one, NULL);
    thread_init_lock(&file->commit_lock);
    pthread_mutex_init(&file->protected_from_libhdf5.lock, NULL);
    pthread_mutex_init(&file->writing.lock, NULL);
    file->writing.can_end = store_is_shared(store);
    file->writing.is_writer = !file->writing.can_end;
    pthread_mutex_init(&file->renewing, NULL);
    file->store = store;
    file->follows = store_is_following(store);
    int error = use_init(&file->use);
    if (error) {
        store_close(store);
        free(file);
        return error;
    }
    file->owns_cache = !common;
    file->fill_missing = options && options->fill_missing;
    file->has_worker = options && options->hdf5_worker;
    error = common ? 0 : common_cache_create(options, &own);
    file->cache = (common ? common : &own)->cache;
    file->ahead = (common ? common : &own)->ahead;
    if (!error && options)
        error = limit(file, options);
    if (!error && file->has_worker && !hdf5_has_workers())
        error = -EINVAL;
    filters_provide();
    pthread_once(&plugins_sifted, hdf5_sift_plugins);
    if (!error) {
        error = create && file->has_worker ? hdf5_create_in_worker(store, &file->hdf5)
                : create                   ? hdf5_create(store, &file->hdf5)
                : file->has_worker         ? hdf5_open_in_worker(store, &file->hdf5)
                                           : hdf5_open(store, &file->hdf5);
        if (!error && create)
            error = hdf5_flush(file->hdf5);
        if (error && error != STORE_MOVED && error != -EINTR)
            store_say(store, NULL, "cannot %s: %s", create ? "create an HDF5 file" : "open as HDF5",
                      hdf5_error());
    }
    if (!error) {
        error = superblock_read(store, &file->superblock, &why);
        if (error == -EIO || error == -EILSEQ) {
            store_say(store, NULL, "%s", why.text);
            error = error == -EILSEQ ? -EINVAL : error;
        }
        store_set_landmark(store, file->superblock.address);
    }
    if (!error)
        error = protected_from_libhdf5_init(file);
    if (error) {
        sfs_discard(file);
        return error;
    }
    store_opened(store);
    *out = file;
    return 0;
}

int file_over(struct store *store, const struct common_cache *common,
              const struct sfs_options *options, bool create, struct sfs_file **out)
{
    return file_error(make_over(store, common, options, create, out));
}

/* A followed file may move while it is being opened. */
static int follow_file(const struct opening *opening, bool own_links, struct sfs_file **out)
{
    const struct store_opening how = {
        .found = opening->found, .follows = true, .own_links = own_links, .why = opening->why};
    int error = STORE_MOVED;
    for (unsigned i = 0; i < MOST_TRIES && error == STORE_MOVED; i++) {
        struct store *store;
        error = store_open_as(opening->path, &how, &store);
        if (error)
            break;
        if (i >= STORE_FREE_TRIES)
            store_hold(store); /* closing it releases it */
        error = make_over(store, opening->common, opening->options, false, out);
        if (!error && i >= STORE_FREE_TRIES)
            store_release((*out)->store);
    }
    if (error != STORE_MOVED)
        return error;
    why_say(opening->why, "%s: it is committed to too often to be followed", opening->path);
    return -EBUSY;
}

int file_open_as(const struct opening *opening, struct sfs_file **out)
{
    static const struct sfs_options none;
    const struct sfs_options *options = opening->options ? opening->options : &none;
    struct store *store;
    bool own_links = options->own_links && (options->writable || options->for_others);
    if (options->follow)
        return options->writable ? -EINVAL : follow_file(opening, own_links, out);
    const struct store_opening how = {.found = opening->found,
                                      .writable = options->writable,
                                      .is_shared = options->writable && options->share,
                                      .own_links = own_links,
                                      .why = opening->why};
    int error = store_open_as(opening->path, &how, &store);
    if (error)
        return error;
    if (!options->writable && options->name && (error = store_rename(store, options->name)) < 0) {
        store_close(store);
        return error;
    }
    return make_over(store, opening->common, options, false, out);
}

int file_open_or_read(const struct opening *opening, int *refusal, struct sfs_file **file)
{
    struct sfs_options options = *opening->options;
    struct opening reading = *opening;
    opening->why->text[0] = '\0';
    *refusal = file_open_as(opening, file);
    if (*refusal == -ECHILD) /* with one it may be written */
        log_error("%s", opening->why->text);
    if (!*refusal || *refusal == -ECHILD || *refusal == -ENOMEM || *refusal == -EINTR)
        return *refusal;
    if (!opening->why->text[0])
        why_say(opening->why, "%s: %s", opening->path, strerror(-*refusal));
    options.writable = options.share = false;
    reading.options = &options;
    reading.why = NULL;
    return file_open_as(&reading, file);
}

/* A message about a writer is dropped if the file can be followed; otherwise the reason why it
 * cannot be is. */
static int open_beside_writer(const char *path, const struct sfs_options *options,
                              struct sfs_file **out)
{
    struct why why = {""}, other;
    struct opening opening = {.path = path, .options = options, .why = &why};
    int error = file_open_as(&opening, out);
    bool is_busy = error == -EBUSY;
    if (is_busy) {
        struct sfs_options follow = *options;
        follow.follow = true;
        opening.options = &follow;
        opening.why = &other;
        error = file_open_as(&opening, out);
    }
    if (*why.text && (error || !is_busy))
        log_error("%s", why.text);
    return error;
}

int sfs_open(const char *path, const struct sfs_options *options, struct sfs_file **file)
{
    const struct opening opening = {.path = path, .options = options};
    if (options && options->beside_writer && !options->writable && !options->follow)
        return file_error(open_beside_writer(path, options, file));
    return file_error(file_open_as(&opening, file));
}

int sfs_create(const char *path, const struct sfs_options *options, struct sfs_file **file)
{
    struct store *store;
    struct store_creation how = {0};
    if (options)
        how = (struct store_creation){
            .replace = options->replace, .mode = options->mode, .own_links = options->own_links};
    int error = store_create_as(path, &how, &store);
    return error ? error : file_over(store, NULL, options, true, file);
}

/* Opens what `from` leads to, over its cache. is_free: what that leads to may be in its own folder.
 */
static int open_found(struct sfs_file *from, const struct store_found *found,
                      const struct sfs_options *options, bool is_free, struct sfs_file **file,
                      struct why *why)
{
    const struct common_cache common = {from->cache, from->ahead};
    const struct opening opening = {
        .path = found->path, .found = found, .common = &common, .options = options, .why = why};
    int error = file_error(file_open_as(&opening, file));
    if (error)
        return error;
    error = store_share_reach((*file)->store, from->store, is_free);
    if (error)
        sfs_discard(*file);
    return error;
}

int file_make_sources(struct sfs_file *file)
{
    if (file->sources)
        return 0;
    int error = sources_create(file, &file->sources);
    file->owns_sources = !error;
    return error;
}

int file_open_source(struct sfs_file *from, const struct store_found *found,
                     struct sources *sources, struct sfs_file **file, struct why *why)
{
    const struct sfs_options options = {.follow = from->follows,
                                        .fill_missing = from->fill_missing,
                                        .hdf5_worker = from->has_worker};
    int error = open_found(from, found, &options, false, file, why);
    if (!error)
        (*file)->sources = sources;
    return error;
}

int file_stat_linked(struct sfs_file *from, bool is_free, const char *name, struct stat *st)
{
    struct store_found found;
    int error = store_find(from->store, is_free ? STORE_ANY_LINK : STORE_LINK, name, &found);
    if (error)
        return error;
    *st = found.st;
    store_found_free(&found);
    return 0;
}

static int open_link(struct sfs_file *from, enum store_lead lead, const char *name,
                     struct sfs_file **out)
{
    const struct sfs_options options = {.follow = from->follows,
                                        .fill_missing = from->fill_missing,
                                        .hdf5_worker = from->has_worker};
    struct store_found found;
    struct sfs_file *file;
    int error = store_find(from->store, lead, name, &found);
    if (error)
        return error;
    error = open_found(from, &found, &options, lead == STORE_ANY_LINK, &file, NULL);
    store_found_free(&found);
    if (!error)
        *out = file;
    return error;
}

int sfs_open_linked(struct sfs_file *from, const char *name, struct sfs_file **file)
{
    return open_link(from, STORE_ANY_LINK, name, file);
}

int sfs_open_beneath(struct sfs_file *from, const char *name, struct sfs_file **file)
{
    return open_link(from, STORE_LINK, name, file);
}

bool sfs_is_writable(const struct sfs_file *file)
{
    return store_is_writable(file->store) && !(file->hdf5 && hdf5_is_lost(file->hdf5));
}

static int close_file(struct sfs_file *file)
{
    if (!file)
        return 0;
    dataset_close_virtual(file);
    if (file->owns_sources)
        sources_destroy(file->sources);
    dataset_close_all(file);
    hdf5_close(file->hdf5);
    object_header_free(atomic_load(&file->counted));
    int error = store_close(file->store);
    if (file->owns_cache)
        common_cache_destroy(&(struct common_cache){file->cache, file->ahead});
    pthread_rwlock_destroy(&file->commit_lock);
    pthread_cond_destroy(&file->flushing.ended_one);
    pthread_mutex_destroy(&file->flushing.lock);
    pthread_mutex_destroy(&file->lock);
    pthread_mutex_destroy(&file->protected_from_libhdf5.lock);
    pthread_mutex_destroy(&file->writing.lock);
    pthread_mutex_destroy(&file->renewing);
    use_destroy(&file->use);
    free(file);
    return error;
}

int sfs_close(struct sfs_file *file)
{
    int flushed = file ? sfs_flush(file) : 0;
    int closed = close_file(file);
    return flushed ? flushed : closed;
}

void sfs_discard(struct sfs_file *file)
{
    close_file(file);
}
