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
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/interrupt.h"
#include "common/links_of_others.h"
#include "common/mounts.h"

#define KINDS           ((size_t)1 << 17) /* that are known, at most */
#define KINDS_TOGETHER  ((size_t)4)       /* that have one place */
#define FIRST_BYTES     4096              /* of a file, that are read at once */
#define FIRST_OFFSET    512               /* of a signature behind a user block */
#define SETTLED_SECONDS 2
#define READ_BYTES      FOLDER_NAMES_BYTES /* of a directory, at once */
#define FIRST_DISTANCE  1024               /* of marks, in names */

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

/* Without asking a file system. Nothing is wanted (mask 0): a FUSE that is not for this user says its device only then,
 * and no type. */
static int look_at(int fd, unsigned mask, struct statx *st)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, st) < 0 ? -errno : 0;
}

/* Whether what was found in a directory is on another device because something is mounted there; also if that cannot be
 * told. */
static bool is_mounted_there(int directory, const struct statx *st)
{
    struct statx above;
    if (st->stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return st->stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return look_at(directory, 0, &above) < 0 || above.stx_dev_major != st->stx_dev_major ||
           above.stx_dev_minor != st->stx_dev_minor;
}

/* What is on another device may be our own mount, which must not be accessed, or that of somebody who lets us wait. The
 * directory in which it was found is none. */
static int check_found(const struct folder *folder, int directory, int fd)
{
    struct statx st;
    int refused = look_at(fd, STATX_TYPE, &st);
    int error = refused == -EACCES ? look_at(fd, 0, &st) : refused;
    if (error)
        return error;
    bool is_other = makedev(st.stx_dev_major, st.stx_dev_minor) != folder->device;
    int is_silent = is_other && is_mounted_there(directory, &st)
                        ? mounts_may_be_silent(st.stx_dev_major, st.stx_dev_minor)
                        : 0;
    if (is_silent || refused)
        return is_silent > 0 ? -ENOENT : is_silent < 0 ? is_silent : refused;
    bool is_shown = S_ISDIR(st.stx_mode) || S_ISREG(st.stx_mode) || S_ISLNK(st.stx_mode);
    return is_shown ? 0 : -ENOENT;
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

/* 0 or -errno. */
static int find_signature(int fd, off_t size, bool *found)
{
    char bytes[FIRST_BYTES];
    const size_t most = FIRST_BYTES / 2 + sizeof(signature);
    ssize_t n = pread(fd, bytes, most, 0);
    size_t end = n > 0 ? (size_t)n : 0;
    *found = end >= sizeof(signature) && is_signature(bytes);
    size_t at = FIRST_OFFSET;
    for (; !*found && at + sizeof(signature) <= end; at *= 2)
        *found = is_signature(bytes + at);
    const uint64_t last = size > 0 ? (uint64_t)size : 0;
    for (uint64_t offset = at; n >= 0 && !*found && end == most && offset < last; offset *= 2) {
        n = pread(fd, bytes, sizeof(signature), (off_t)offset);
        *found = n == sizeof(signature) && is_signature(bytes);
    }
    return n < 0 ? -errno : 0;
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

/* One that may not be read is none, and may be read the next time. Of one that could not be read for another reason it
 * is not known: an HDF5 file that others have open must not become something else for them. */
static int look_for_signature(struct folder *folder, int found, const struct stat *st,
                              bool *is_hdf5)
{
    int fd = folder_open_found(found);
    int error = fd < 0 ? fd : find_signature(fd, st->st_size, is_hdf5);
    if (fd >= 0)
        close(fd);
    if (!error && folder_is_old_enough(st))
        keep_kind(folder, st, *is_hdf5);
    if (error)
        *is_hdf5 = false;
    return error == -EACCES || error == -EPERM ? 0 : error;
}

int folder_kind(struct folder *folder, int found, const struct stat *st, enum folder_kind *kind)
{
    bool is_hdf5 = false;
    struct stat copy = *st;
    bool is_file = !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode);
    int error = is_file && !find_kind(folder, &copy, &is_hdf5)
                    ? look_for_signature(folder, found, st, &is_hdf5)
                    : 0;
    *kind = S_ISDIR(st->st_mode)   ? FOLDER_DIRECTORY
            : S_ISLNK(st->st_mode) ? FOLDER_SYMLINK
            : is_hdf5              ? FOLDER_HDF5
                                   : FOLDER_FILE;
    return error;
}

/* ---- Listing ---- */

/* As getdents64 gives it; glibc before 2.30 has no such function. */
struct listed_name {
    uint64_t inode;
    int64_t next; /* the offset behind it */
    unsigned short bytes;
    unsigned char type;
    char name[];
};

int folder_list(int found, struct folder_names *names)
{
    *names = (struct folder_names){.mark_distance = FIRST_DISTANCE, .n_marks = 1};
    names->directory = openat(found, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = names->directory < 0 ? -errno : 0;
    close(found);
    return error;
}

static void forget_names(struct folder_names *names)
{
    free(names->name);
    free(names->text);
    names->name = NULL;
    names->text = NULL;
    names->n = names->text_bytes = 0;
}

void folder_names_free(struct folder_names *names)
{
    forget_names(names);
    if (names->directory >= 0)
        close(names->directory);
    names->directory = -1;
}

size_t folder_names_bytes(const struct folder_names *names)
{
    return sizeof(*names) + names->n * sizeof(*names->name) + names->text_bytes;
}

/* The last one at or before a place. */
static const struct folder_mark *mark_before(const struct folder_names *names, uint64_t place)
{
    size_t i = names->n_marks;
    while (i > 1 && names->mark[i - 1].place > place)
        i--;
    return &names->mark[i - 1];
}

static void add_mark(struct folder_names *names, uint64_t place, off_t offset)
{
    if (place < names->mark[names->n_marks - 1].place + names->mark_distance)
        return;
    if (names->n_marks == FOLDER_MARKS) {
        names->mark_distance *= 2;
        names->n_marks /= 2;
        for (size_t i = 1; i < names->n_marks; i++)
            names->mark[i] = names->mark[2 * i];
    }
    names->mark[names->n_marks++] = (struct folder_mark){place, offset};
}

/* Where the descriptor stands is not known: what is wanted next is before this. */
static void forget_place(struct folder_names *names)
{
    forget_names(names);
    names->first = UINT64_MAX;
}

static int go_to(struct folder_names *names, const struct folder_mark *mark)
{
    forget_place(names);
    if (lseek(names->directory, mark->offset, SEEK_SET) < 0)
        return -errno;
    names->first = mark->place;
    return 0;
}

void folder_names_rewind(struct folder_names *names)
{
    forget_place(names);
    names->n_marks = 1;
    names->mark_distance = FIRST_DISTANCE;
}

/* How many come before those that are kept when more are read. */
static size_t count_old(const struct folder_names *names)
{
    size_t i = 0;
    while (i < names->n &&
           (names->n - i) * sizeof(*names->name) + names->text_bytes - names->name[i].at >
               FOLDER_NAMES_BYTES)
        i++;
    return i;
}

static bool is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Takes the names that were read, of n bytes, behind those that are kept of the ones before. *next: the offset behind
 * them. */
static int take_names(struct folder_names *names, const char *bytes, size_t n, off_t *next)
{
    const struct listed_name *listed;
    size_t old = count_old(names), more = 0, more_text = 0, at;
    size_t kept = names->n - old, begin = kept > 0 ? names->name[old].at : names->text_bytes;
    for (at = 0; at < n; at += listed->bytes) {
        listed = (const void *)(bytes + at);
        more += !is_dots(listed->name);
        more_text += is_dots(listed->name) ? 0 : strlen(listed->name) + 1;
    }
    size_t text_kept = names->text_bytes - begin;
    struct folder_name *name = calloc(kept + more + 1, sizeof(*name));
    char *text = malloc(text_kept + more_text + 1);
    if (!name || !text) {
        free(name);
        free(text);
        return -ENOMEM;
    }
    if (text_kept > 0)
        memcpy(text, names->text + begin, text_kept);
    for (size_t i = 0; i < kept; i++)
        name[i] =
            (struct folder_name){names->name[old + i].at - begin, names->name[old + i].is_file};
    names->first += old;
    forget_names(names);
    names->name = name;
    names->text = text;
    names->n = kept;
    names->text_bytes = text_kept;
    for (at = 0; at < n; at += listed->bytes) {
        listed = (const void *)(bytes + at);
        *next = (off_t)listed->next;
        if (is_dots(listed->name))
            continue;
        name[names->n++] = (struct folder_name){names->text_bytes, listed->type == DT_REG};
        strcpy(text + names->text_bytes, listed->name);
        names->text_bytes += strlen(listed->name) + 1;
    }
    return 0;
}

/* -ENOENT: there are no more. */
static int read_more(struct folder_names *names)
{
    off_t next = 0;
    char *bytes = malloc(READ_BYTES);
    if (!bytes)
        return -ENOMEM;
    long n = syscall(SYS_getdents64, names->directory, bytes, READ_BYTES);
    int error = n < 0 ? -errno : n == 0 ? -ENOENT : 0;
    if (!error && (error = take_names(names, bytes, (size_t)n, &next)))
        forget_place(names);
    if (!error)
        add_mark(names, names->first + names->n, next);
    free(bytes);
    return error == -EAGAIN ? -EIO : error; /* that would be tried again at once */
}

bool folder_names_are_near(const struct folder_names *names, uint64_t place)
{
    uint64_t end = names->first + names->n;
    return place >= names->first ? place <= end : place == 0;
}

int folder_names_find(struct folder_names *names, uint64_t place, size_t *i)
{
    const struct folder_mark *mark = mark_before(names, place);
    bool is_other = place < names->first || mark->place > names->first + names->n;
    int error = is_other ? go_to(names, mark) : 0;
    while (!error && place - names->first >= names->n) { /* place is not before the first */
        error = interrupt_check();
        if (!error)
            error = read_more(names);
    }
    if (!error)
        *i = (size_t)(place - names->first);
    return error;
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
