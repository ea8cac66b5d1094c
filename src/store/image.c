/* Stores in memory: HDF5 file images, with the buffers and callbacks that the HDF5 document on file
 * image operations has. One buffer holds all bytes up to the store's end and at times some more; it
 * moves when it grows, so its lock is held while it is read or written. One that is only read does
 * not move, and is lent (store_view). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/thread.h"
#include "sparsefs/sparsefs.h"
#include "store/private.h"

#define FIRST_BYTES ((uint64_t)64 << 10) /* of a new image, and the least by which one grows */
#define COPY_BYTES  ((size_t)1 << 20)

struct image {
    unsigned char *bytes; /* under lock, as is its size */
    uint64_t size;
    pthread_rwlock_t lock; /* for writing while bytes change or move */
    bool is_ours;          /* to be freed */
    bool fixed;
    uint64_t increment;
    struct sfs_image_callbacks callbacks; /* the user data is our own copy */
    char *backing;
    bool replace;       /* whatever stands where the backing file is to be */
    mode_t mode;        /* of a new backing file; 0: not chosen */
    bool own_links;     /* of its path, as struct store_creation has it */
    bool is_like;       /* it gets the group that the store's `st` says */
    bool unbacked;      /* the backing file is not as the image is */
    int folder;         /* that it was, or is being, written to last; -1: not yet */
    char *written;      /* where, without symbolic links */
    struct stat backed; /* what stands there */
};

/* ---- Callbacks ---- */

static void *image_malloc(const struct image *image, uint64_t n)
{
    const struct sfs_image_callbacks *c = &image->callbacks;
    return c->image_malloc ? c->image_malloc(n, SFS_IMAGE_OP_OPEN, c->user_data) : malloc(n);
}

static bool image_copy(const struct image *image, void *to, const void *from, size_t n)
{
    const struct sfs_image_callbacks *c = &image->callbacks;
    if (c->image_memcpy)
        return c->image_memcpy(to, from, n, SFS_IMAGE_OP_OPEN, c->user_data);
    memcpy(to, from, n);
    return true;
}

/* Moves the buffer, or leaves it as it is. */
static int image_resize(struct image *image, uint64_t size)
{
    const struct sfs_image_callbacks *c = &image->callbacks;
    pthread_rwlock_wrlock(&image->lock);
    unsigned char *bytes =
        c->image_realloc ? c->image_realloc(image->bytes, size, SFS_IMAGE_OP_RESIZE, c->user_data)
                         : realloc(image->bytes, size);
    if (bytes) {
        /* Cleared: bytes that were allocated and never written must not leak memory of this
         * process. */
        if (size > image->size)
            memset(bytes + image->size, 0, size - image->size);
        image->bytes = bytes;
        image->size = size;
    }
    pthread_rwlock_unlock(&image->lock);
    return bytes ? 0 : -ENOMEM;
}

static int image_free(const struct image *image)
{
    const struct sfs_image_callbacks *c = &image->callbacks;
    if (c->image_free)
        return c->image_free(image->bytes, SFS_IMAGE_OP_CLOSE, c->user_data) ? -EIO : 0;
    free(image->bytes);
    return 0;
}

/* ---- Opening and closing ---- */

static int take_callbacks(struct image *image, const struct sfs_image_callbacks *callbacks)
{
    if (!callbacks)
        return 0;
    if (callbacks->user_data && !(callbacks->user_data_copy && callbacks->user_data_free))
        return -EINVAL;
    struct sfs_image_callbacks taken = *callbacks;
    if (taken.user_data)
        taken.user_data = taken.user_data_copy(taken.user_data);
    if (callbacks->user_data && !taken.user_data)
        return -ENOMEM;
    image->callbacks = taken;
    return 0;
}

static int take_bytes(struct image *image, void *bytes, size_t n, bool copy)
{
    image->size = n;
    if (bytes && !copy) {
        image->bytes = bytes;
        return 0;
    }
    if (!bytes)
        image->size = image->increment;
    image->bytes = image_malloc(image, image->size);
    if (!image->bytes)
        return -ENOMEM;
    image->is_ours = true;
    if (!bytes)
        memset(image->bytes, 0, image->size);
    return !bytes || image_copy(image, image->bytes, bytes, n) ? 0 : -EIO;
}

/* The attributes of an image without a file: only its owner may read it. */
static void default_stat(struct stat *st)
{
    *st = (struct stat){.st_mode = S_IFREG | 0600, .st_nlink = 1, .st_blksize = PAGE_BYTES};
    st->st_uid = geteuid();
    st->st_gid = getegid();
    clock_gettime(CLOCK_REALTIME, &st->st_mtim);
    st->st_atim = st->st_ctim = st->st_mtim;
}

/* The backing file is written to the place of this one again. -ENOMEM; errors of fcntl(2). */
static int remember_place(struct image *image, const struct store *file)
{
    char *written = strdup(file->place);
    int folder = written ? fcntl(file->folder, F_DUPFD_CLOEXEC, 0) : -1;
    if (folder < 0) {
        int error = written ? -errno : -ENOMEM;
        free(written);
        return error;
    }
    if (image->folder >= 0)
        close(image->folder);
    free(image->written);
    image->written = written;
    image->folder = folder;
    return 0;
}

static int set_backing(struct image *image, const struct store_image *how)
{
    image->replace = how->replace;
    image->mode = how->mode;
    image->own_links = how->own_links;
    image->is_like = how->st;
    image->unbacked = how->backing && !how->from;
    image->backing = how->backing ? strdup(how->backing) : NULL;
    if (how->backing && !image->backing)
        return -ENOMEM;
    if (how->from && !how->from->place) {
        log_error("%s: it has no name by which it could be replaced", how->name);
        return -ENOENT;
    }
    if (how->from) {
        image->backed = how->from->st; /* as it was before its bytes were read */
        return remember_place(image, how->from);
    }
    if (how->backing && !how->replace && access(how->backing, F_OK) == 0) {
        log_error("%s: it is there already", how->backing);
        return -EEXIST;
    }
    return 0;
}

static int open_image(struct store *store, void *bytes, size_t n, const struct store_image *how)
{
    struct image *image = store->image = calloc(1, sizeof(*image));
    if (!image)
        return -ENOMEM;
    thread_init_lock(&image->lock);
    image->folder = -1;
    image->fixed = how->fixed;
    image->increment = how->increment ? how->increment : FIRST_BYTES;
    int error = set_backing(image, how);
    if (error)
        return error;
    error = take_callbacks(image, how->callbacks);
    if (!error)
        error = take_bytes(image, bytes, n, how->copy);
    if (error)
        store_say(store, NULL, "cannot open the image: %s",
                  error == -EIO ? "its memcpy callback failed" : strerror(-error));
    return error;
}

int store_open_image(void *bytes, size_t n, const struct store_image *how, struct store **out)
{
    struct store *store = file_new(how->name, how->writable);
    if (!store)
        return -ENOMEM;
    int error = open_image(store, bytes, n, how);
    if (!error && strchr(how->name, '/'))
        error = place_keep_name(store);
    if (error) {
        store_close(store);
        return error;
    }
    if (how->st)
        store->st = *how->st;
    else
        default_stat(&store->st);
    store->st.st_size = (off_t)n;
    store->committed_end = n;
    atomic_store(&store->end, n);
    if (how->from)
        free_space_load(how->from, store);
    if (!how->writable)
        store->map = (const char *)store->image->bytes;
    *out = store;
    return 0;
}

void store_take_image(struct store *store)
{
    store->image->is_ours = true;
}

int image_destroy(struct store *store)
{
    struct image *image = store->image;
    const struct sfs_image_callbacks *c = &image->callbacks;
    int error = 0;
    /* The buffer is cut to the size of the file, if the callbacks can. */
    if (store->writable && !image->fixed && store->committed_end > 0 &&
        store->committed_end != image->size)
        image_resize(image, store->committed_end);
    if (image->is_ours)
        error = image_free(image);
    if (c->user_data && c->user_data_free(c->user_data) != 0)
        error = -EIO;
    if (error)
        store_say(store, NULL, "a callback could not free the image");
    pthread_rwlock_destroy(&image->lock);
    if (image->folder >= 0)
        close(image->folder);
    free(image->written);
    free(image->backing);
    free(image);
    return error;
}

/* ---- Bytes ---- */

void image_read(struct image *image, uint64_t address, void *buffer, size_t n)
{
    pthread_rwlock_rdlock(&image->lock);
    size_t there = address >= image->size      ? 0
                   : image->size - address < n ? (size_t)(image->size - address)
                                               : n;
    if (there > 0)
        memcpy(buffer, image->bytes + address, there);
    pthread_rwlock_unlock(&image->lock);
    memset((char *)buffer + there, 0, n - there);
}

void image_write(struct image *image, uint64_t address, const void *bytes, size_t n)
{
    pthread_rwlock_wrlock(&image->lock);
    memcpy(image->bytes + address, bytes, n);
    pthread_rwlock_unlock(&image->lock);
}

static uint64_t rounded_up(const struct image *image, uint64_t size)
{
    uint64_t over = size % image->increment;
    return size + (over ? image->increment - over : 0);
}

int image_reserve(struct store *store, uint64_t end)
{
    struct image *image = store->image;
    if (end <= image->size)
        return 0;
    if (image->fixed) {
        store_say(store, NULL, "the image cannot grow: it is not to be released");
        return -ENOSPC;
    }
    /* Grows by half, so that many small steps copy it only a few times; or by what is needed. */
    uint64_t half = image->size + image->size / 2;
    const uint64_t sizes[] = {rounded_up(image, half > end ? half : end), rounded_up(image, end),
                              end};
    int error = -ENOMEM;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && error; i++)
        if (i == 0 || sizes[i] < sizes[i - 1])
            error = image_resize(image, sizes[i]);
    if (error)
        store_say(store, NULL, "no memory for an image of %" PRIu64 " bytes", end);
    return error;
}

bool image_is_fixed(const struct store *store)
{
    return store->image && store->image->fixed;
}

void image_apply(struct store *store, uint64_t new_end)
{
    struct page *page, *next;
    HASH_ITER (hh, store->pages, page, next) {
        uint64_t at = page->number * PAGE_BYTES;
        size_t n = at >= new_end ? 0 : new_end - at < PAGE_BYTES ? new_end - at : PAGE_BYTES;
        if (n > 0) /* pages of a store without a directory are in memory */
            image_write(store->image, at, page->bytes, n);
    }
    store->image->unbacked = store->image->backing;
}

/* ---- The backing file ---- */

bool image_is_unbacked(const struct store *store)
{
    return store->image->unbacked;
}

static int copy_to(struct store *store, struct store *to)
{
    uint64_t end = store->committed_end, address;
    int error = store_allocate(to, end, &address);
    for (uint64_t at = 0; at < end && !error; at += COPY_BYTES) {
        size_t n = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
        /* The caller holds `change`, under which images change. */
        error = store_write(to, at, store->image->bytes + at, n);
    }
    return error;
}

/* Where the backing file was written last. It stays in its folder, even if that is renamed. */
static int place_backing(const struct image *image, char **path)
{
    char *folder = place_of_descriptor(image->folder);
    if (!folder)
        return -ESTALE;
    int n = asprintf(path, "%s/%s", folder, place_entry(image->written));
    free(folder);
    return n < 0 ? -ENOMEM : 0;
}

/* Whether the file at that place is the one that was read or written last, possibly changed since.
 */
static bool is_backed(const struct image *image)
{
    struct stat st;
    return fstatat(image->folder, place_entry(image->written), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == image->backed.st_dev && st.st_ino == image->backed.st_ino;
}

static int create_backing(const struct store *store, struct store **to)
{
    const struct image *image = store->image;
    char *place = NULL;
    int error = image->folder < 0 ? 0 : place_backing(image, &place);
    const char *path = place ? place : image->backing;
    if (!error && place && is_backed(image))
        error = create_in_place_of(path, &image->backed, to);
    else if (!error)
        error = store_create_as(path,
                                &(struct store_creation){.replace = image->replace,
                                                         .mode = image->mode,
                                                         .like = image->is_like ? &store->st : NULL,
                                                         .own_links = image->own_links && !place},
                                to);
    free(place);
    return error;
}

int image_write_back(struct store *store)
{
    struct image *image = store->image;
    struct store *to;
    if (!image->unbacked || store->committed_end == 0)
        return 0;
    int error = create_backing(store, &to);
    if (error)
        return error;
    error = copy_to(store, to);
    if (!error)
        error = remember_place(image, to);
    if (!error)
        error = store_commit(to);
    if (!error)
        free_space_hand_on(store, to);
    /* A commit that has failed may have given the file its name before. */
    if ((!error || place_leads(to, to->place) > 0) && fstat(to->fd, &image->backed) < 0)
        image->backed = (struct stat){0};
    store_close(to);
    if (error)
        return error;
    image->unbacked = false;
    return 0;
}
