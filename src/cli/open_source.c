/* Opening files that commands read, also while another program writes them. */
#include "cli/open_source.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/closed_folders.h"
#include "cli/image_in_mount.h"
#include "common/links_of_others.h"
#include "common/load_stdin_or_gzip.h"

#define MOST_TRIES 20 /* of a file that grows */

/* Address space of a process that copies chunks, which may have 4 GiB: them, and what else is
 * there. */
#define COPYING_MEMORY (SIZE_MAX > UINT32_MAX ? (size_t)((uint64_t)10 << 30) : 0)

static const char *allowed;

void source_allow(const char *folder)
{
    allowed = folder;
}

static struct stat expected;
static bool is_expected;

void source_expect(const struct stat *st)
{
    is_expected = st;
    if (st)
        expected = *st;
}

static int check_expected(struct sfs_file *file)
{
    struct stat st;
    int error = is_expected ? sfs_stat(file, &st) : 0;
    bool is_other =
        is_expected && !error && (st.st_dev != expected.st_dev || st.st_ino != expected.st_ino);
    is_expected = false;
    return is_other ? -ESTALE : error;
}

static size_t chunk_memory;

void source_limit_chunks(size_t most)
{
    chunk_memory = most;
}

size_t source_chunk_memory(void)
{
    return chunk_memory;
}

static bool are_apart;

int files_keep_apart(bool copies)
{
    int error = sfs_start_hdf5_workers(copies ? COPYING_MEMORY : 0, 0);
    are_apart = !error;
    return error;
}

bool files_are_apart(void)
{
    return are_apart;
}

const char *source_allowed(void)
{
    return allowed;
}

/* Standard input, or a compressed file: it is read once, and stays until the process ends. */
static int load(const char *path, struct loaded **out)
{
    static struct kept {
        char *path;
        struct loaded loaded;
        struct kept *next;
    } * kept;
    for (struct kept *one = kept; one; one = one->next) {
        if (!strcmp(one->path, path)) {
            *out = &one->loaded;
            return 0;
        }
    }
    struct kept *made = calloc(1, sizeof(*made));
    char *copy = strdup(path);
    int error = made && copy
                    ? load_image(path, load_default_limit(),
                                 "half of the memory: inflate it beforehand", &made->loaded)
                    : -ENOMEM;
    if (error) {
        free(made);
        free(copy);
        return error;
    }
    made->path = copy;
    made->next = kept;
    kept = made;
    *out = &made->loaded;
    return 0;
}

int source_open_as(const char *path, struct sfs_options *options, struct sfs_file **file)
{
    struct loaded *loaded;
    if (!load_is_wanted(path))
        return sfs_open(path, options, file);
    int error = load(path, &loaded);
    if (error)
        return error;
    struct stat st = loaded->st;
    st.st_mode = loaded->narrow;
    struct sfs_image_options image = {
        .name = path, .is_of_file = true, .st = loaded->has_st ? &st : NULL};
    options->image = &image;
    error = sfs_open_image(loaded->bytes, loaded->n, SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE,
                           options, file);
    options->image = NULL;
    return error;
}

/* name: NULL, or what the file is called, which stands elsewhere. */
static int open_named(const char *path, const char *name, struct sfs_file **file)
{
    struct sfs_options options = {
        .cache_size = FILE_CACHE_BYTES,
        .beside_writer = !name,
        .name = name,
        .external_files = allowed,
        .hdf5_worker = are_apart,
        .chunk_memory = chunk_memory,
    };
    int error = source_open_as(path, &options, file);
    if (!error && (error = check_expected(*file)) < 0)
        sfs_discard(*file);
    return error ? fail(error, "%s", path) : 0;
}

int source_open(const char *path, struct sfs_file **file)
{
    return open_named(path, NULL, file);
}

/* A file that goes with the last descriptor or mapping of it. */
static int open_unnamed(const char *place)
{
    char *copy = strdup(place), *name = NULL;
    const char *directory = copy ? dirname(copy) : NULL;
    int fd = directory ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (directory && fd < 0 && asprintf(&name, "%s/.sparsectl.XXXXXX", directory) >= 0) {
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            unlink(name);
        free(name);
    }
    free(copy);
    return fd;
}

/* The image of a followed file, in a mapping that stays until the process ends. That the disk has no room
 * for it, or has refused some of it, the mapping does not say: a page would be a signal, or be lost. */
static int64_t map_image(struct sfs_file *followed, int fd, void **bytes)
{
    int64_t n = sfs_get_image(followed, NULL, 0);
    for (int i = 0; i < MOST_TRIES && n > 0; i++) {
        size_t room = (size_t)n + (size_t)n / 4; /* it may grow meanwhile */
        int error = posix_fallocate(fd, 0, (off_t)room);
        if (error == ENOSPC)
            error = posix_fallocate(fd, 0, (off_t)(room = (size_t)n));
        if (error)
            return -error;
        *bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (*bytes == MAP_FAILED)
            return -errno;
        n = sfs_get_image(followed, *bytes, room);
        if (n != -ERANGE)
            return n > 0 && (ftruncate(fd, n) < 0 || fsync(fd) < 0) ? -errno : n;
        munmap(*bytes, room);
        n = sfs_get_image(followed, NULL, 0);
    }
    return n;
}

/* Of the open file: another one may have its path by now. */
static int look_at(const struct sfs_file *file, struct stat *st)
{
    int error = sfs_stat(file, st);
    if (!error)
        st->st_mode &= ~(mode_t)0777 | sfs_mode_led_to(file);
    return error;
}

/* -EOPNOTSUPP: it has no image. */
static int open_copy(struct sfs_file *followed, const char *place, struct sfs_file **file)
{
    void *bytes = NULL;
    int fd = open_unnamed(place);
    struct stat st;
    int64_t n = fd < 0 ? -errno : map_image(followed, fd, &bytes);
    if (fd >= 0)
        close(fd);
    int error = n < 0 ? (int)n : look_at(followed, &st);
    if (error)
        return error;
    struct sfs_image_options image = {.name = sfs_path(followed), .is_of_file = true, .st = &st};
    struct sfs_options options = {.cache_size = FILE_CACHE_BYTES,
                                  .image = &image,
                                  .external_files = allowed,
                                  .hdf5_worker = are_apart,
                                  .chunk_memory = chunk_memory};
    return sfs_open_image(bytes, (size_t)n, SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE, &options,
                          file);
}

/* *of_mounted: of the file in a mount, if the image there was opened. */
static int open_whole(const char *path, const char *place, uint64_t most, struct sfs_file **file,
                      struct stat *of_mounted)
{
    struct mounted_image image;
    struct stat st;
    struct sfs_file *followed;
    int code = source_open(path, file);
    if (code || !sfs_is_following(*file))
        return code;
    followed = *file;
    if (mounted_image_open(path, &image) == 0) {
        sfs_discard(followed);
        source_expect(fstat(image.fd, &st) == 0 ? &st : NULL);
        code = open_named(image.path, path, file);
        *of_mounted = image.st;
        mounted_image_close(&image);
        return code;
    }
    if (sfs_get_image(followed, NULL, 0) > (int64_t)most)
        return DONE;
    int error = open_copy(followed, place, file);
    if (error == -EOPNOTSUPP) { /* of a writer in SWMR mode, as it is */
        messages_forget();
        return DONE;
    }
    if (error)
        code = fail(error, "%s", path);
    sfs_discard(followed);
    return code;
}

/* Whoever chose the names may not search all folders on the way to what they mean. Links of the file's owner may have
 * been put there by another user, under another name. */
static bool has_names_of_others(const char *path, const struct stat *st)
{
    uid_t user;
    return links_check(path, st, &user) != 0 || user != 0;
}

int source_open_whole(const char *path, const char *place, uint64_t most, struct sfs_file **file,
                      struct stat *shown)
{
    struct stat st = {0};
    bool is_found = is_expected, is_input = !strcmp(path, LOAD_STANDARD_INPUT);
    int code = open_whole(path, place, most, file, &st);
    int error = code || st.st_mode ? 0 : look_at(*file, &st);
    if (error) {
        sfs_discard(*file);
        code = fail(error, "%s", path);
    }
    if (code)
        return code;
    mode_t mode = st.st_mode & 0777;
    if (!is_input && (is_found || has_names_of_others(path, &st)))
        mode &= folders_open_to(path, &st, allowed);
    *shown = (struct stat){.st_mode = is_input ? 0 : S_IFREG | (mode ? mode : S_IRUSR),
                           .st_nlink = 1,
                           .st_uid = st.st_uid,
                           .st_gid = st.st_gid};
    return DONE;
}
