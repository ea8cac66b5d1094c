/* Open files: a store, libhdf5 and a cache over it, and the tree of objects, which libhdf5 reads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "common/log.h"
#include "common/size.h"
#include "common/thread.h"
#include "dataset/read_ahead.h"
#include "dataset/private.h"
#include "dataset/series.h"
#include "dataset/virtual_sources.h"
#include "filter/filter.h"
#include "format/dataset_header.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
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
 * are root's, or somebody has said that he trusts who made them. */
static int limit(const struct sfs_file *file, const struct sfs_options *options)
{
    struct stat st;
    bool is_of_root =
        options->for_others && !options->is_trusted && !file->has_worker && geteuid() == 0;
    int error = set_reach(file->store, options, is_of_root);
    if (!error && is_of_root)
        error = store_stat(file->store, &st);
    if (error || !is_of_root || st.st_uid == 0)
        return error;
    store_say(file->store, NULL,
              "it is the file of user %u: libhdf5 would read it as root, and others look on "
              "(allow_other): mount it with trust, or without hdf5=inside",
              (unsigned)st.st_uid);
    return -EPERM;
}

#define CHUNK_SHARE  4 /* of the machine's memory, for one chunk */
#define CHUNK_MEMORY ((uint64_t)4 << 30)

/* The largest chunk of HDF5, if the machine has memory for several. */
static size_t default_chunk_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    uint64_t share = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes / CHUNK_SHARE
                                            : CHUNK_MEMORY / CHUNK_SHARE;
    return size_of(share < CHUNK_MEMORY ? share : CHUNK_MEMORY);
}

int common_cache_create(const struct sfs_options *options, struct common_cache *common)
{
    size_t size = options && options->cache_size ? options->cache_size : SFS_DEFAULT_CACHE_SIZE;
    unsigned workers = options ? options->workers : 0;
    if (workers == 0)
        workers = thread_processors();
    enum sfs_policy policy = options ? options->policy : SFS_POLICY_DEFAULT;
    *common = (struct common_cache){0};
    if ((unsigned)policy > SFS_POLICY_S3_FIFO)
        return -EINVAL;
    int error = cache_create(size, workers, &common->cache);
    if (error)
        return error;
    bool given = options && options->chunk_memory;
    cache_set_policy(common->cache, policy);
    cache_limit_chunks(common->cache, given ? options->chunk_memory : default_chunk_memory());
    return ahead_create(common->cache, &common->ahead);
}

void common_cache_destroy(const struct common_cache *common)
{
    ahead_destroy(common->ahead);
    cache_destroy(common->cache);
}

static pthread_once_t plugins_sifted = PTHREAD_ONCE_INIT;

int file_over(struct store *store, const struct common_cache *common,
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
    pthread_mutex_init(&file->claimed_space.lock, NULL);
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
        error = claimed_space_init(file);
    if (error) {
        sfs_discard(file);
        return error;
    }
    store_opened(store);
    *out = file;
    return 0;
}

/* A followed file may move while it is being opened. */
static int follow_file(const struct opening *opening, struct sfs_file **out)
{
    const struct store_opening how = {
        .found = opening->found, .follows = true, .why = opening->why};
    int error = STORE_MOVED;
    for (unsigned i = 0; i < MOST_TRIES && error == STORE_MOVED; i++) {
        struct store *store;
        error = store_open_as(opening->path, &how, &store);
        if (error)
            break;
        if (i >= STORE_FREE_TRIES)
            store_hold(store); /* closing it releases it */
        error = file_over(store, opening->common, opening->options, false, out);
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
    if (options->follow)
        return options->writable ? -EINVAL : follow_file(opening, out);
    const struct store_opening how = {.found = opening->found,
                                      .writable = options->writable,
                                      .is_shared = options->writable && options->share,
                                      .why = opening->why};
    int error = store_open_as(opening->path, &how, &store);
    if (error)
        return error;
    if (!options->writable && options->name && (error = store_rename(store, options->name)) < 0) {
        store_close(store);
        return error;
    }
    return file_over(store, opening->common, options, false, out);
}

int file_open_or_read(const struct opening *opening, int *refusal, struct sfs_file **file)
{
    struct sfs_options options = *opening->options;
    struct opening reading = *opening;
    opening->why->text[0] = '\0';
    *refusal = file_open_as(opening, file);
    if (!*refusal || *refusal == -ENOMEM || *refusal == -EINTR)
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
        return open_beside_writer(path, options, file);
    return file_open_as(&opening, file);
}

int sfs_create(const char *path, const struct sfs_options *options, struct sfs_file **file)
{
    struct store *store;
    bool replace = options && options->replace;
    int error = options && options->mode ? store_create_as(path, replace, options->mode, &store)
                                         : store_create(path, replace, &store);
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
    int error = file_open_as(&opening, file);
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

/* With both locks held: writes metadata that only memory has to the store: indexes, headers,
 * libhdf5's cache. */
static int write_metadata(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    HASH_ITER (hh, file->datasets, dataset, next) {
        int error = dataset->sparse ? sparse_flush(&dataset->layout) : 0;
        if (!error)
            error = unfinished_put_dims(dataset);
        if (error)
            return error;
    }
    int error = hdf5_flush(file->hdf5);
    if (error)
        log_error("%s: cannot flush: %s", sfs_path(file), hdf5_error());
    return error;
}

/* With the lock held: records and logs which datasets have chunks that cannot be stored. Where edge
 * chunks have no filters, all chunks must match the committed dims: then nothing is committed. */
static int look_at_left(struct sfs_file *file, bool any)
{
    struct sfs_dataset *dataset, *next;
    int held = 0;
    HASH_ITER (hh, file->datasets, dataset, next) {
        int error = any && dataset->cache ? cache_left(dataset->cache) : 0;
        atomic_store(&dataset->left, error);
        if (!error)
            continue;
        bool holds = dataset->layout.unfiltered_edges;
        log_error("%s: %s: chunks of it cannot be stored, and stay in memory: %s; all else %s",
                  sfs_path(file), dataset->path, strerror(-error),
                  holds ? "waits for them" : "is committed");
        held = holds ? error : held;
    }
    return held;
}

static void begin_commit(struct sfs_file *file, bool keeps_promises)
{
    struct sfs_dataset *dataset, *next;
    pthread_mutex_lock(&file->lock);
    pthread_rwlock_rdlock(&file->commit_lock);
    file->is_committing = true;
    HASH_ITER (hh, file->datasets, dataset, next)
        unfinished_begin_commit(dataset, keeps_promises);
    pthread_rwlock_unlock(&file->commit_lock);
    pthread_mutex_unlock(&file->lock);
}

static void end_commit(struct sfs_file *file, bool is_committed)
{
    struct sfs_dataset *dataset, *next;
    pthread_mutex_lock(&file->lock);
    pthread_rwlock_rdlock(&file->commit_lock);
    file->is_committing = false;
    HASH_ITER (hh, file->datasets, dataset, next)
        unfinished_end_commit(dataset, is_committed);
    pthread_rwlock_unlock(&file->commit_lock);
    pthread_mutex_unlock(&file->lock);
}

/* During a commit datasets can be opened, closed, read, and written in the cache; only changes of
 * the store wait. */
static int commit(struct sfs_file *file, bool keeps_promises, int *left)
{
    begin_commit(file, keeps_promises);
    int error = cache_flush_most(file->cache, file->store, left);
    if (!error) {
        pthread_mutex_lock(&file->lock);
        error = look_at_left(file, *left);
        pthread_rwlock_wrlock(&file->commit_lock);
        if (!error)
            error = write_metadata(file);
        pthread_mutex_unlock(&file->lock);
        if (!error)
            error = store_commit(file->store);
        unfinished_restore(file);
        pthread_rwlock_unlock(&file->commit_lock);
    }
    end_commit(file, !error);
    return error;
}

int file_flush(struct sfs_file *file, bool keeps_promises, int *left)
{
    struct flushing *flushing = &file->flushing;
    pthread_mutex_lock(&flushing->lock);
    uint64_t mine = flushing->begun + 1;
    flushing->keeps_promises |= keeps_promises;
    while (flushing->running && flushing->ended < mine)
        pthread_cond_wait(&flushing->ended_one, &flushing->lock);
    if (flushing->ended < mine) {
        keeps_promises = flushing->keeps_promises;
        flushing->keeps_promises = false;
        flushing->running = true;
        flushing->begun++;
        pthread_mutex_unlock(&flushing->lock);
        int mine_left = 0, error = commit(file, keeps_promises, &mine_left);
        pthread_mutex_lock(&flushing->lock);
        flushing->left = mine_left;
        flushing->running = false;
        flushing->ended++;
        flushing->error = error;
        pthread_cond_broadcast(&flushing->ended_one);
    }
    int error = flushing->error;
    *left = flushing->left;
    pthread_mutex_unlock(&flushing->lock);
    return error;
}

static int flush(struct sfs_file *file, bool keeps_promises, int *left)
{
    *left = 0;
    if (!writing_hold(file))
        return store_is_writable(file->store) ? store_check_end(file->store) : 0;
    int error = file_flush(file, keeps_promises, left);
    sfs_end_writing(file);
    return error;
}

int sfs_flush(struct sfs_file *file)
{
    int left, error = flush(file, true, &left);
    return error ? error : left;
}

int sfs_flush_for(struct sfs_file *file, struct sfs_dataset *dataset)
{
    int left, error = flush(file, true, &left);
    return error || !left || !dataset ? error : atomic_load(&dataset->left);
}

int sfs_flush_error(struct sfs_dataset *dataset)
{
    return atomic_load(&dataset->left);
}

int sfs_flush_finished(struct sfs_file *file)
{
    int left;
    return flush(file, false, &left);
}

int sfs_settle(struct sfs_file *file)
{
    if (!writing_hold(file))
        return 0;
    int error = store_settle(file->store);
    sfs_end_writing(file);
    return error;
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
    int error = store_close(file->store);
    if (file->owns_cache)
        common_cache_destroy(&(struct common_cache){file->cache, file->ahead});
    pthread_rwlock_destroy(&file->commit_lock);
    pthread_cond_destroy(&file->flushing.ended_one);
    pthread_mutex_destroy(&file->flushing.lock);
    pthread_mutex_destroy(&file->lock);
    pthread_mutex_destroy(&file->claimed_space.lock);
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

const char *sfs_path(const struct sfs_file *file)
{
    return store_path(file->store);
}

int sfs_stat(const struct sfs_file *file, struct stat *st)
{
    FOLLOWED((struct sfs_file *)file);
    return store_stat(file->store, st);
}

int sfs_statvfs(const struct sfs_file *file, struct statvfs *st)
{
    FOLLOWED((struct sfs_file *)file);
    return store_statvfs(file->store, st);
}

mode_t sfs_mode_led_to(const struct sfs_file *file)
{
    return store_mode_led_to(file->store);
}

int sfs_set_mode(struct sfs_file *file, mode_t mode)
{
    return store_set_mode(file->store, mode);
}

int sfs_set_cache_size(struct sfs_file *file, size_t bytes)
{
    if (bytes == 0)
        return -EINVAL;
    cache_set_limit(file->cache, bytes);
    return 0;
}

void sfs_statistics(const struct sfs_file *file, struct sfs_statistics *statistics)
{
    cache_statistics(file->cache, statistics);
    store_counters(file->store, &statistics->store_reads, &statistics->store_bytes_read);
    statistics->store_commits = store_commits(file->store);
}

uint64_t dataset_store_address(const struct sfs_file *file, uint64_t address)
{
    uint64_t at;
    return __builtin_add_overflow(address, file->superblock.base, &at) ? UINT64_MAX : at;
}

int object_failed(const struct sfs_file *file, const char *what, uint64_t address, int error,
                  struct why *why)
{
    if (error == -EIO)
        store_say(file->store, why, "cannot read the %s at address %" PRIu64 ": %s", what, address,
                  hdf5_error());
    return error;
}

uint64_t sfs_root(const struct sfs_file *file)
{
    return hdf5_root(file->hdf5);
}

static int list_once(struct sfs_file *file, uint64_t group, struct sfs_links *links,
                     struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_list(file->hdf5, group, links);
    if (!error && (error = series_list(file, group, links)))
        sfs_links_free(links);
    return object_failed(file, "group", group, error, why);
}

int file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links, struct why *why)
{
    struct sfs_links found;
    int error = FOLLOWING(file, list_once(file, group, &found, why));
    if (!error)
        *links = found;
    return error;
}

int sfs_list(struct sfs_file *file, uint64_t group, struct sfs_links *links)
{
    return file_list(file, group, links, NULL);
}

static int lookup_once(struct sfs_file *file, uint64_t group, const char *name, bool any,
                       struct sfs_link *link, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_lookup(file->hdf5, group, name, link);
    if (error == -ENOENT && any)
        error = series_lookup(file, group, name, link);
    return object_failed(file, "group", group, error, why);
}

static int look_up(struct sfs_file *file, uint64_t group, const char *name, bool any,
                   struct sfs_link *link, struct why *why)
{
    struct sfs_link found;
    int error = FOLLOWING(file, lookup_once(file, group, name, any, &found, why));
    if (!error)
        *link = found;
    return error;
}

int sfs_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link)
{
    return look_up(file, group, name, true, link, NULL);
}

int file_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link,
                struct why *why)
{
    return look_up(file, group, name, false, link, why);
}

/* A hard link from a damaged file may have any address. */
static int find_once(struct sfs_file *file, uint64_t group, const char *path, bool any,
                     uint64_t *address, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    error = hdf5_find(file->hdf5, group, path, address);
    if (error == -ENOENT && any)
        error = series_find(file, group, path, address);
    else if (!error && series_is_address(*address))
        error = -ENOENT;
    return object_failed(file, "group", group, error, why);
}

static int find(struct sfs_file *file, uint64_t group, const char *path, bool any,
                uint64_t *address, struct why *why)
{
    uint64_t found;
    int error = FOLLOWING(file, find_once(file, group, path, any, &found, why));
    if (!error)
        *address = found;
    return error;
}

int sfs_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address)
{
    return find(file, group, path, true, address, NULL);
}

int file_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address,
              struct why *why)
{
    return find(file, group, path, false, address, why);
}

/* Whether the object is a sparse dataset, which libhdf5 cannot open. */
static int check_sparse(struct sfs_file *file, uint64_t address, struct why *why)
{
    struct dataset_header header;
    struct why reason;
    int error = dataset_header_read(file->store, &file->superblock,
                                    dataset_store_address(file, address), &header, &reason);
    if (!error)
        dataset_header_free(&header);
    if (error != -EIO && error != -EILSEQ && error != -EOPNOTSUPP)
        return error;
    store_say(file->store, why, "cannot read the object at address %" PRIu64 ": %s", address,
              reason.text);
    return error == -EOPNOTSUPP ? error : -EIO;
}

/* libhdf5 is not safe with a damaged header. Before it reads that of a sparse dataset we have
 * verified the messages that we know. */
static int check_before(struct sfs_file *file, uint64_t address, struct why *why)
{
    struct object_header *header;
    struct why dropped;
    int error = object_header_read(file->store, &file->superblock,
                                   dataset_store_address(file, address), &header, &dropped);
    if (error) /* of any object */
        return error == -ENOMEM || error == STORE_MOVED ? error : 0;
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    bool is_sparse = layout && layout_message_is_structured(layout);
    object_header_free(header);
    return is_sparse ? check_sparse(file, address, why) : 0;
}

static int object_type_once(struct sfs_file *file, uint64_t address, enum sfs_object_type *type,
                            struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    if (series_is_address(address)) {
        *type = SFS_DATASET;
        return 0;
    }
    error = check_before(file, address, why);
    if (error)
        return error;
    error = hdf5_object_type(file->hdf5, address, type);
    if (error != -EIO)
        return error;
    error = check_sparse(file, address, why);
    if (!error)
        *type = SFS_DATASET;
    return error == -EINVAL ? object_failed(file, "object", address, -EIO, why) : error;
}

int file_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type,
                     struct why *why)
{
    enum sfs_object_type found;
    int error = FOLLOWING(file, object_type_once(file, address, &found, why));
    if (!error)
        *type = found;
    return error;
}

int sfs_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type)
{
    return file_object_type(file, address, type, NULL);
}

static int attributes_once(struct sfs_file *file, uint64_t address,
                           struct sfs_attributes *attributes, struct why *why)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    *attributes = (struct sfs_attributes){0};
    if (series_is_address(address))
        return 0;
    error = check_before(file, address, why);
    if (error)
        return error;
    return object_failed(file, "attributes of the object", address,
                         hdf5_attributes(file->hdf5, address, attributes), why);
}

int file_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes,
                    struct why *why)
{
    struct sfs_attributes found;
    int error = FOLLOWING(file, attributes_once(file, address, &found, why));
    if (!error)
        *attributes = found;
    return error;
}

int sfs_attributes(struct sfs_file *file, uint64_t address, struct sfs_attributes *attributes)
{
    return file_attributes(file, address, attributes, NULL);
}

static int datatype_text_once(struct sfs_file *file, uint64_t address, char **text)
{
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    return object_failed(file, "datatype", address, hdf5_datatype_text(file->hdf5, address, text),
                         NULL);
}

int sfs_datatype_text(struct sfs_file *file, uint64_t address, char **text)
{
    char *found;
    int error = FOLLOWING(file, datatype_text_once(file, address, &found));
    if (!error)
        *text = found;
    return error;
}
