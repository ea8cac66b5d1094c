#include "fs/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "common/mounts.h"

#define KINDS           ((size_t)1 << 16) /* that are known, at most */
#define FIRST_BYTES     4096              /* of a file, that are read at once */
#define FIRST_OFFSET    512               /* of a signature behind a user block */
#define SETTLED_SECONDS 2
#define FIRST_NAMES     64

static const char signature[8] = "\211HDF\r\n\032\n";

/* A state of a file, and whether it is HDF5 then. */
struct known_kind {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
    bool is_known, is_hdf5;
};

struct folder {
    char *path;
    int fd;
    dev_t device;
    pthread_mutex_t lock;     /* guards what follows */
    struct known_kind *kinds; /* by a hash of the inode */
};

int folder_create(const char *path, struct folder **out)
{
    struct stat st;
    struct folder *folder = calloc(1, sizeof(*folder));
    if (!folder)
        return -ENOMEM;
    pthread_mutex_init(&folder->lock, NULL);
    folder->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = folder->fd < 0 || fstat(folder->fd, &st) < 0 ? -errno : 0;
    folder->path = strdup(path);
    folder->kinds = calloc(KINDS, sizeof(*folder->kinds));
    if (!error && (!folder->path || !folder->kinds))
        error = -ENOMEM;
    if (error) {
        folder_destroy(folder);
        return error;
    }
    folder->device = st.st_dev;
    *out = folder;
    return 0;
}

void folder_destroy(struct folder *folder)
{
    if (!folder)
        return;
    if (folder->fd >= 0)
        close(folder->fd);
    pthread_mutex_destroy(&folder->lock);
    free(folder->kinds);
    free(folder->path);
    free(folder);
}

const char *folder_path(const struct folder *folder)
{
    return folder->path;
}

int folder_statvfs(const struct folder *folder, struct statvfs *st)
{
    return fstatvfs(folder->fd, st) < 0 ? -errno : 0;
}

/* ---- Finding ---- */

/* A directory of another device than the folder's may be our own mount, which must not be asked. */
static int check_found(const struct folder *folder, int fd)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.stx_mode))
        return S_ISREG(st.stx_mode) || S_ISLNK(st.stx_mode) ? 0 : -ENOENT;
    bool is_other = makedev(st.stx_dev_major, st.stx_dev_minor) != folder->device;
    return is_other && mounts_is_sparsefs(st.stx_dev_major, st.stx_dev_minor) ? -ENOENT : 0;
}

static int step(const struct folder *folder, int directory, const char *name)
{
    int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? -errno : check_found(folder, fd);
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

int folder_find_in(const struct folder *folder, int directory, const char *name, struct stat *st)
{
    int fd = step(folder, directory, name);
    if (fd < 0 || fstat(fd, st) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

int folder_find(const struct folder *folder, const char *path, struct stat *st)
{
    char *copy = strdup(path), *left = copy, *part;
    if (!copy)
        return -ENOMEM;
    int at = fcntl(folder->fd, F_DUPFD_CLOEXEC, 0);
    int error = at < 0 ? -errno : 0;
    while (!error && (part = strsep(&left, "/"))) {
        if (!*part)
            continue;
        int next = step(folder, at, part);
        close(at);
        at = next;
        error = next < 0 ? next : 0;
    }
    free(copy);
    if (!error && fstat(at, st) < 0) {
        error = -errno;
        close(at);
    }
    return error ? error : at;
}

int folder_open_found(int found)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- Kinds ---- */

static bool is_signature(const char *bytes)
{
    return memcmp(bytes, signature, sizeof(signature)) == 0;
}

static bool has_signature(int fd, off_t size)
{
    char bytes[FIRST_BYTES];
    const size_t most = FIRST_BYTES / 2 + sizeof(signature);
    ssize_t n = pread(fd, bytes, most, 0);
    size_t end = n > 0 ? (size_t)n : 0;
    if (end >= sizeof(signature) && is_signature(bytes))
        return true;
    size_t at = FIRST_OFFSET;
    for (; at + sizeof(signature) <= end; at *= 2)
        if (is_signature(bytes + at))
            return true;
    const uint64_t last = size > 0 ? (uint64_t)size : 0;
    for (uint64_t offset = at; end == most && offset < last; offset *= 2)
        if (pread(fd, bytes, sizeof(signature), (off_t)offset) == sizeof(signature) &&
            is_signature(bytes))
            return true;
    return false;
}

static bool is_of(const struct known_kind *kind, const struct stat *st)
{
    return kind->is_known && kind->inode == st->st_ino && kind->device == st->st_dev &&
           kind->size == st->st_size && kind->modified.tv_sec == st->st_mtim.tv_sec &&
           kind->modified.tv_nsec == st->st_mtim.tv_nsec &&
           kind->changed.tv_sec == st->st_ctim.tv_sec &&
           kind->changed.tv_nsec == st->st_ctim.tv_nsec;
}

static struct known_kind *place_of(const struct folder *folder, const struct stat *st)
{
    uint64_t hash = ((uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 32) * 0x9E3779B97F4A7C15u;
    return &folder->kinds[(hash >> 32) % KINDS];
}

/* A state that is so new is not known by its times: the file may be changed without another time,
 * as these are taken from a clock that ticks, on some file systems once in two seconds. */
bool folder_is_settled(const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time_t last = st->st_mtim.tv_sec > st->st_ctim.tv_sec ? st->st_mtim.tv_sec : st->st_ctim.tv_sec;
    return now.tv_sec - last > SETTLED_SECONDS;
}

/* One that could not be read may be read the next time. */
static bool look_for_signature(struct folder *folder, int found, const struct stat *st)
{
    int fd = folder_open_found(found);
    if (fd < 0)
        return false;
    bool is_hdf5 = has_signature(fd, st->st_size);
    close(fd);
    if (!folder_is_settled(st))
        return is_hdf5;
    pthread_mutex_lock(&folder->lock);
    *place_of(folder, st) = (struct known_kind){st->st_dev,  st->st_ino, st->st_size, st->st_mtim,
                                                st->st_ctim, true,       is_hdf5};
    pthread_mutex_unlock(&folder->lock);
    return is_hdf5;
}

enum folder_kind folder_kind(struct folder *folder, int found, const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return FOLDER_DIRECTORY;
    if (S_ISLNK(st->st_mode))
        return FOLDER_SYMLINK;
    pthread_mutex_lock(&folder->lock);
    struct known_kind known = *place_of(folder, st);
    pthread_mutex_unlock(&folder->lock);
    bool is_hdf5 = is_of(&known, st) ? known.is_hdf5 : look_for_signature(folder, found, st);
    return is_hdf5 ? FOLDER_HDF5 : FOLDER_FILE;
}

/* ---- Listing ---- */

static int add_name(struct folder_names *names, size_t *room, const char *name)
{
    if (names->n == *room) {
        size_t more = *room ? *room * 2 : FIRST_NAMES;
        char **grown = reallocarray(names->name, more, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        names->name = grown;
        *room = more;
    }
    names->name[names->n] = strdup(name);
    return names->name[names->n++] ? 0 : -ENOMEM;
}

static int read_names(DIR *stream, struct folder_names *names)
{
    const struct dirent *entry;
    size_t room = 0;
    int error = 0;
    errno = 0;
    while (!error && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = add_name(names, &room, entry->d_name);
        errno = 0;
    }
    return error ? error : -errno;
}

int folder_list(int found, struct folder_names *names)
{
    *names = (struct folder_names){.directory = found};
    int fd = openat(names->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    int error = stream ? read_names(stream, names) : -errno;
    if (stream)
        closedir(stream);
    else if (fd >= 0)
        close(fd);
    if (error)
        folder_names_free(names);
    return error;
}

void folder_names_free(struct folder_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    if (names->directory >= 0)
        close(names->directory);
    *names = (struct folder_names){.directory = -1};
}
