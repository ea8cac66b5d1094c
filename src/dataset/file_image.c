/* Files in memory, and the images of files that are open. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/private.h"
#include "store/store.h"

#define PIECE_BYTES ((size_t)1 << 20)
#define ALL_FLAGS   (SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE)

static const struct sfs_image_options no_options;

static const struct sfs_image_options *image_options(const struct sfs_options *options)
{
    return options && options->image ? options->image : &no_options;
}

/* The rules of H5LTopen_file_image, and that of callbacks with user data. */
static const char *what_is_wrong(const void *buffer, size_t n, unsigned flags,
                                 const struct sfs_image_options *options)
{
    const struct sfs_image_callbacks *callbacks = options->callbacks;
    if (!buffer || n == 0)
        return "there are no bytes";
    if (flags & ~(unsigned)ALL_FLAGS)
        return "there is no such flag";
    if ((flags & SFS_IMAGE_DONT_RELEASE) && !(flags & SFS_IMAGE_DONT_COPY))
        return "what is copied is released: SFS_IMAGE_DONT_RELEASE wants SFS_IMAGE_DONT_COPY";
    if (options->backing_path && !(flags & SFS_IMAGE_WRITABLE))
        return "an image that is only read has no backing file";
    if (callbacks && callbacks->user_data &&
        !(callbacks->user_data_copy && callbacks->user_data_free))
        return "user data of callbacks want user_data_copy and user_data_free";
    return NULL;
}

static struct store_image held(const struct sfs_image_options *options, mode_t mode, unsigned flags)
{
    return (struct store_image){
        .name = options->name ? options->name : "image",
        .writable = flags & SFS_IMAGE_WRITABLE,
        .copy = !(flags & SFS_IMAGE_DONT_COPY),
        .fixed = flags & SFS_IMAGE_DONT_RELEASE,
        .callbacks = options->callbacks,
        .increment = options->increment,
        .backing = options->backing_path,
        .mode = mode,
        .st = options->st,
    };
}

static bool is_taken(const struct sfs_image_options *options)
{
    return options->name && !options->is_of_file && access(options->name, F_OK) == 0;
}

int sfs_open_image(void *buffer, size_t n, unsigned flags, const struct sfs_options *options,
                   struct sfs_file **file)
{
    const struct sfs_image_options *image = image_options(options);
    struct store_image how = held(image, options ? options->mode : 0, flags);
    struct store *store;
    const char *wrong = what_is_wrong(buffer, n, flags, image);
    how.own_links = options && options->own_links;
    if (wrong) {
        log_error("%s: cannot open the image: %s", how.name, wrong);
        return -EINVAL;
    }
    if (is_taken(image)) {
        log_error("%s: there is a file of this name already", how.name);
        return -EEXIST;
    }
    int error = store_open_image(buffer, n, &how, &store);
    if (!error && how.writable)
        unused_space_find(store);
    if (!error)
        error = file_over(store, NULL, options, false, file);
    if (!error && (flags & SFS_IMAGE_DONT_COPY) && !(flags & SFS_IMAGE_DONT_RELEASE))
        store_take_image(store);
    return error;
}

/* All of a store, in memory that the caller frees. */
static int read_all(struct store *store, void **bytes, size_t *n)
{
    uint64_t size = store_size(store);
    *n = size <= SIZE_MAX ? (size_t)size : 0;
    *bytes = *n > 0 ? malloc(*n) : NULL;
    if (*n > 0 && !*bytes)
        return -ENOMEM;
    int error = *n > 0 ? store_read(store, 0, *bytes, *n) : size > 0 ? -ENOMEM : 0;
    if (error)
        free(*bytes);
    return error;
}

static int open_loaded(struct store *from, void *bytes, size_t n, bool is_backed,
                       const struct sfs_options *options, struct sfs_file **file)
{
    const struct sfs_image_options *image = image_options(options);
    struct store *store;
    struct store_image how = held(image, 0, options && options->writable ? SFS_IMAGE_WRITABLE : 0);
    struct stat st;
    how.name = store_path(from);
    how.copy = image->callbacks;
    how.backing = is_backed ? how.name : NULL;
    how.from = is_backed ? from : NULL;
    bool is_for_others = options && options->for_others;
    int unknown = (is_for_others ? store_stat_shown : store_stat)(from, &st);
    how.st = unknown ? NULL : &st;
    int error = store_open_image(bytes, n, &how, &store);
    if (error)
        return error;
    error = file_over(store, NULL, options, false, file);
    if (!error && !how.copy)
        store_take_image(store);
    return error;
}

int sfs_load_image(const char *path, bool is_backed, const struct sfs_options *options,
                   struct sfs_file **file)
{
    struct store *from;
    void *bytes = NULL;
    size_t n = 0;
    const struct sfs_image_options *image = image_options(options);
    const char *wrong = is_backed && !(options && options->writable)
                            ? "one that is only read has no backing file"
                        : image->backing_path || image->name
                            ? "it has the name of its file, and no other backing file"
                            : what_is_wrong("", 1, 0, image);
    if (wrong) {
        log_error("%s: cannot load the image: %s", path, wrong);
        return -EINVAL;
    }
    int error = store_open(path, &from);
    if (error)
        return error;
    error = read_all(from, &bytes, &n);
    if (!error) {
        error = open_loaded(from, bytes, n, is_backed, options, file);
        if (error || image->callbacks)
            free(bytes);
    }
    store_close(from);
    return error;
}

int sfs_create_image(const struct sfs_options *options, struct sfs_file **file)
{
    const struct sfs_image_options *image = image_options(options);
    struct store_image how = held(image, options ? options->mode : 0, SFS_IMAGE_WRITABLE);
    struct store *store;
    const char *wrong = what_is_wrong("", 1, SFS_IMAGE_WRITABLE, image);
    if (wrong) {
        log_error("%s: cannot create the image: %s", how.name, wrong);
        return -EINVAL;
    }
    how.replace = options && options->replace;
    how.own_links = options && options->own_links;
    int error = store_open_image(NULL, 0, &how, &store);
    return error ? error : file_over(store, NULL, options, true, file);
}

/* ---- Images of open files ---- */

struct sfs_snapshot {
    struct sfs_file *file;
    struct store_snapshot *of_store;
};

/* Between what a commit says of the file's end and its own end no space may change hands. */
int sfs_snapshot_open(struct sfs_file *file, struct sfs_snapshot **out)
{
    struct sfs_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (!snapshot)
        return -ENOMEM;
    snapshot->file = file;
    int error = interrupt_rdlock(&file->commit_lock);
    if (!error) {
        error = store_snapshot_open(file->store, &snapshot->of_store);
        pthread_rwlock_unlock(&file->commit_lock);
    }
    if (error)
        free(snapshot);
    else
        *out = snapshot;
    return error;
}

void sfs_snapshot_close(struct sfs_snapshot *snapshot)
{
    if (!snapshot)
        return;
    pthread_rwlock_rdlock(&snapshot->file->commit_lock);
    store_snapshot_close(snapshot->of_store);
    pthread_rwlock_unlock(&snapshot->file->commit_lock);
    free(snapshot);
}

uint64_t sfs_snapshot_size(const struct sfs_snapshot *snapshot)
{
    return store_snapshot_size(snapshot->of_store);
}

int sfs_snapshot_read(struct sfs_snapshot *snapshot, uint64_t offset, void *buffer, size_t n)
{
    return store_snapshot_read(snapshot->of_store, offset, buffer, n);
}

uint64_t sfs_committed_size(struct sfs_file *file)
{
    return store_committed_size(file->store);
}

typedef int (*read_function)(void *from, uint64_t offset, void *buffer, size_t n);

/* Addresses count from the superblock; so the image can leave out what stands before it. */
static int64_t copy_image(const struct sfs_file *file, uint64_t end, read_function read, void *from,
                          void *buffer, size_t n)
{
    struct superblock superblock = file->superblock;
    uint64_t start = superblock.address;
    /* Bytes behind the end of a file that is only read are not part of it. */
    if (sfs_is_writable(file) || superblock.end > end)
        superblock.end = end;
    if (superblock.end < start)
        return -EIO;
    uint64_t size = superblock.end - start;
    if (!buffer)
        return (int64_t)size;
    if (size > n)
        return -ERANGE;
    int error = read(from, start, buffer, size);
    if (error)
        return error;
    if (start > 0 || superblock.is_moved)
        superblock_drop_user_block(&superblock, buffer, size);
    return (int64_t)size;
}

static int read_snapshot(void *from, uint64_t offset, void *buffer, size_t n)
{
    return sfs_snapshot_read(from, offset, buffer, n);
}

/* In pieces: that it has moved on is seen soon. */
static int read_followed(void *from, uint64_t offset, void *buffer, size_t n)
{
    int error = 0;
    for (size_t done = 0; done < n && !error; done += PIECE_BYTES) {
        size_t piece = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        error = store_read(from, offset + done, (char *)buffer + done, piece);
    }
    return error;
}

static int copy_followed_once(struct sfs_file *file, void *buffer, size_t n, int64_t *size)
{
    FOLLOWED(file);
    if (store_is_live(file->store)) {
        log_error("%s: a writer in SWMR mode gives no state of all of the file: there is no image "
                  "of it",
                  sfs_path(file));
        return -EOPNOTSUPP;
    }
    *size = copy_image(file, store_size(file->store), read_followed, file->store, buffer, n);
    return *size < 0 ? (int)*size : 0;
}

static int64_t copy_followed(struct sfs_file *file, void *buffer, size_t n)
{
    int64_t size = 0;
    int error = FOLLOWING(file, copy_followed_once(file, buffer, n, &size));
    return error ? error : size;
}

int64_t sfs_get_image(struct sfs_file *file, void *buffer, size_t n)
{
    struct sfs_snapshot *snapshot;
    if (file->follows)
        return copy_followed(file, buffer, n);
    int error = sfs_flush(file);
    if (!error)
        error = sfs_snapshot_open(file, &snapshot);
    if (error)
        return error;
    int64_t size =
        copy_image(file, sfs_snapshot_size(snapshot), read_snapshot, snapshot, buffer, n);
    sfs_snapshot_close(snapshot);
    return size;
}
