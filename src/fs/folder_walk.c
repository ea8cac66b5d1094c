/* Paths are walked by descriptors that only name a file (O_PATH); what kind a state of a regular file
 * is stands in a table by hash of its inode. */
#include "fs/folder_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/links_of_others.h"
#include "common/mounts.h"

#define KINDS           ((size_t)1 << 17) /* that are known, at most */
#define KINDS_TOGETHER  ((size_t)4)       /* that have one place */
#define FIRST_BYTES     4096              /* of a file, that are read at once */
#define FIRST_OFFSET    512               /* of a signature behind a user block */
#define SETTLED_SECONDS 2
#define FIRST_NAMES     64
#define FIRST_TEXT      1024 /* bytes of names */

#ifndef XFS_SUPER_MAGIC /* in headers before Linux 4.20 */
#define XFS_SUPER_MAGIC 0x58465342
#endif
#define ZFS_MAGIC 0x2fc12fc1

#ifndef STATX_ATTR_MOUNT_ROOT /* in headers before Linux 5.8 */
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

static const char signature[8] = "\211HDF\r\n\032\n";

/* A state of a file, whether it is HDF5 then, and its mode without what its ACL keeps from some. */
struct known_kind {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
    mode_t mode;
    bool is_known, is_hdf5;
};

struct folder {
    char *path;
    int fd;
    dev_t device;
    bool is_local;            /* its state can be read without asking another host */
    bool is_for_others;       /* ACLs are looked at */
    pthread_mutex_t lock;     /* guards what follows */
    struct known_kind *kinds; /* some by each hash of an inode */
    unsigned next_kind;       /* the entry of a full bucket to be replaced next */
};

/* Those of other machines and daemons are not among them. */
static bool is_local(int fd)
{
    static const uint32_t locals[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                      TMPFS_MAGIC, ZFS_MAGIC};
    struct statfs st;
    bool found = false;
    for (size_t i = 0; i < sizeof(locals) / sizeof(*locals) && !found; i++)
        found = fstatfs(fd, &st) == 0 && (uint32_t)st.f_type == locals[i];
    return found;
}

int folder_create(const char *path, bool is_for_others, struct folder **out)
{
    struct stat st;
    uid_t user;
    struct folder *folder = calloc(1, sizeof(*folder));
    if (!folder)
        return -ENOMEM;
    pthread_mutex_init(&folder->lock, NULL);
    folder->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = folder->fd < 0 || fstat(folder->fd, &st) < 0 ? -errno : 0;
    if (!error)
        error = links_check(path, &st, &user);
    folder->path = strdup(path);
    folder->is_for_others = is_for_others;
    folder->kinds = calloc(KINDS, sizeof(*folder->kinds));
    if (!error && (!folder->path || !folder->kinds))
        error = -ENOMEM;
    if (error) {
        folder_destroy(folder);
        return error;
    }
    folder->device = st.st_dev;
    folder->is_local = is_local(folder->fd);
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

bool folder_is_for_others(const struct folder *folder)
{
    return folder->is_for_others;
}

const char *folder_path(const struct folder *folder)
{
    return folder->path;
}

int folder_statvfs(const struct folder *folder, struct statvfs *st)
{
    return fstatvfs(folder->fd, st) < 0 ? -errno : 0;
}

/* ---- States of files that are known ---- */

static bool is_of(const struct known_kind *kind, const struct stat *st)
{
    return kind->is_known && kind->inode == st->st_ino && kind->device == st->st_dev &&
           kind->size == st->st_size && kind->modified.tv_sec == st->st_mtim.tv_sec &&
           kind->modified.tv_nsec == st->st_mtim.tv_nsec &&
           kind->changed.tv_sec == st->st_ctim.tv_sec &&
           kind->changed.tv_nsec == st->st_ctim.tv_nsec;
}

/* The first of those that may be it. */
static struct known_kind *place_of(const struct folder *folder, const struct stat *st)
{
    uint64_t hash = ((uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 32) * 0x9E3779B97F4A7C15u;
    return &folder->kinds[(hash >> 32) % (KINDS / KINDS_TOGETHER) * KINDS_TOGETHER];
}

/* Whether it is known; then *st gets its mode. */
static bool find_kind(const struct folder *folder, struct stat *st, bool *is_hdf5)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&folder->lock;
    const struct known_kind *kind = place_of(folder, st);
    bool found = false;
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < KINDS_TOGETHER && !found; i++) {
        found = is_of(&kind[i], st);
        if (found) {
            *is_hdf5 = kind[i].is_hdf5;
            st->st_mode = kind[i].mode;
        }
    }
    pthread_mutex_unlock(lock);
    return found;
}

static void look_at_acl(const struct folder *folder, int found, struct stat *st)
{
    bool is_hdf5;
    bool is_unknown = !S_ISREG(st->st_mode) || !find_kind(folder, st, &is_hdf5);
    if (is_unknown && folder->is_for_others)
        acl_narrow(found, st);
}

/* ---- Finding ---- */

/* Without asking a file system. */
static int look_at(int fd, struct statx *st)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, st) < 0 ? -errno : 0;
}

/* Whether what was found in a directory is on another device because something is mounted there; also if that cannot be
 * told. */
static bool is_mounted_there(int directory, const struct statx *st)
{
    struct statx above;
    if (st->stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return st->stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return look_at(directory, &above) < 0 || above.stx_dev_major != st->stx_dev_major ||
           above.stx_dev_minor != st->stx_dev_minor;
}

/* What is on another device may be our own mount, which must not be accessed, or that of somebody who lets us wait. The
 * directory in which it was found is none. */
static int check_found(const struct folder *folder, int directory, int fd)
{
    struct statx st;
    int error = look_at(fd, &st);
    if (error)
        return error;
    if (!S_ISDIR(st.stx_mode) && !S_ISREG(st.stx_mode) && !S_ISLNK(st.stx_mode))
        return -ENOENT;
    bool is_other = makedev(st.stx_dev_major, st.stx_dev_minor) != folder->device;
    int is_silent = is_other && is_mounted_there(directory, &st)
                        ? mounts_may_be_silent(st.stx_dev_major, st.stx_dev_minor)
                        : 0;
    return is_silent > 0 ? -ENOENT : is_silent;
}

static int step(const struct folder *folder, int directory, const char *name)
{
    int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? -errno : check_found(folder, directory, fd);
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

int folder_find_in(const struct folder *folder, int directory, const char *name, struct stat *st)
{
    int fd = step(folder, directory, name);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    look_at_acl(folder, fd, st);
    return fd;
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
    if (error)
        return error;
    look_at_acl(folder, at, st);
    return at;
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

/* Replaces an entry for another state of the file, an empty one, or one of the others. */
static void keep_kind(struct folder *folder, const struct stat *st, bool is_hdf5)
{
    struct known_kind *kind = place_of(folder, st);
    size_t at = 0;
    pthread_mutex_lock(&folder->lock);
    while (at < KINDS_TOGETHER && kind[at].is_known &&
           (kind[at].inode != st->st_ino || kind[at].device != st->st_dev))
        at++;
    if (at == KINDS_TOGETHER)
        at = folder->next_kind++ % KINDS_TOGETHER;
    kind[at] = (struct known_kind){st->st_dev,  st->st_ino,  st->st_size, st->st_mtim,
                                   st->st_ctim, st->st_mode, true,        is_hdf5};
    pthread_mutex_unlock(&folder->lock);
}

/* A state this recent is not cached: the file may change again with the same times, as these are
 * taken from a clock with a granularity of up to two seconds. */
bool folder_is_old_enough(const struct stat *st)
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
    if (folder_is_old_enough(st))
        keep_kind(folder, st, is_hdf5);
    return is_hdf5;
}

enum folder_kind folder_kind(struct folder *folder, int found, const struct stat *st)
{
    bool is_hdf5;
    if (S_ISDIR(st->st_mode))
        return FOLDER_DIRECTORY;
    if (S_ISLNK(st->st_mode))
        return FOLDER_SYMLINK;
    struct stat copy = *st;
    if (!find_kind(folder, &copy, &is_hdf5))
        is_hdf5 = look_for_signature(folder, found, st);
    return is_hdf5 ? FOLDER_HDF5 : FOLDER_FILE;
}

/* ---- Listing ---- */

/* Grows the array for one more element; *room is its capacity. */
static int make_room(void **array, size_t size, size_t n, size_t *room, size_t first)
{
    if (n <= *room)
        return 0;
    size_t more = *room ? *room : first;
    while (more < n)
        more *= 2;
    void *grown = reallocarray(*array, more, size);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room = more;
    return 0;
}

struct names_room {
    size_t names, text; /* that there is room for */
    size_t used;        /* of text */
};

static int add_name(struct folder_names *names, struct names_room *room, const struct dirent *entry)
{
    size_t n = strlen(entry->d_name) + 1;
    void *name = names->name, *text = names->text;
    int error = make_room(&name, sizeof(*names->name), names->n + 1, &room->names, FIRST_NAMES);
    names->name = name;
    if (!error)
        error = make_room(&text, 1, room->used + n, &room->text, FIRST_TEXT);
    names->text = text;
    if (error)
        return error;
    memcpy(names->text + room->used, entry->d_name, n);
    names->name[names->n++] = (struct folder_name){room->used, entry->d_type == DT_REG};
    room->used += n;
    return 0;
}

static int read_names(DIR *stream, struct folder_names *names)
{
    const struct dirent *entry;
    struct names_room room = {0};
    int error = 0;
    errno = 0;
    while (!error && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = add_name(names, &room, entry);
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
    free(names->name);
    free(names->text);
    if (names->directory >= 0)
        close(names->directory);
    *names = (struct folder_names){.directory = -1};
}

static void take_statx(const struct statx *x, struct stat *st)
{
    *st = (struct stat){
        .st_dev = makedev(x->stx_dev_major, x->stx_dev_minor),
        .st_ino = x->stx_ino,
        .st_mode = x->stx_mode,
        .st_nlink = x->stx_nlink,
        .st_uid = x->stx_uid,
        .st_gid = x->stx_gid,
        .st_size = (off_t)x->stx_size,
        .st_blksize = (blksize_t)x->stx_blksize,
        .st_blocks = (blkcnt_t)x->stx_blocks,
        .st_atim = {x->stx_atime.tv_sec, x->stx_atime.tv_nsec},
        .st_mtim = {x->stx_mtime.tv_sec, x->stx_mtime.tv_nsec},
        .st_ctim = {x->stx_ctime.tv_sec, x->stx_ctime.tv_nsec},
    };
}

/* First a look that does not ask the file system's server: it may be a mount of ours by now. */
static bool look_at_file(const struct folder *folder, int directory, const char *name,
                         struct stat *st)
{
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    struct statx found;
    if (statx(directory, name, flags | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &found) < 0 ||
        !S_ISREG(found.stx_mode))
        return false;
    take_statx(&found, st);
    if (st->st_dev != folder->device)
        return false;
    return folder->is_local || (fstatat(directory, name, st, flags) == 0 && S_ISREG(st->st_mode));
}

bool folder_knows_listed(struct folder *folder, const struct folder_names *names, size_t i,
                         struct stat *st, enum folder_kind *kind)
{
    bool is_hdf5;
    if (!names->name[i].is_file ||
        !look_at_file(folder, names->directory, names->text + names->name[i].at, st) ||
        !find_kind(folder, st, &is_hdf5))
        return false;
    *kind = is_hdf5 ? FOLDER_HDF5 : FOLDER_FILE;
    return true;
}
