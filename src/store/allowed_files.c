/* Finding the files that a file names, where they are allowed to be.
 *
 * What is found is judged, not the name that leads there: the way is walked part by part, with
 * descriptors that only say what they are, and the file at its end must lie in a folder that is
 * allowed. On the way no mount of sparsefs is entered: a daemon that waits for itself, or for one
 * that waits for it, waits for good. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/mounts.h"
#include "store/private.h"

#define MOST_SYMLINKS 40 /* the kernel's limit */
#define MOST_FOLDERS  32
#define MOST_PREFIXES 24 /* more are ignored */
#define MOST_DEPTH    32 /* files that lead to files */

/* ---- Which folders are allowed ---- */

struct folders {
    char *path[MOST_FOLDERS]; /* absolute, without symbolic links */
    size_t n;
    const char *vouched; /* the one that the user has asked for; or NULL */
    int error;           /* why not all of them could be told; or 0 */
};

/* Adds a path, which is taken over; returns the equal one that is there already, or NULL. */
static const char *add_folder(struct folders *folders, char *path)
{
    size_t i = 0;
    while (path && i < folders->n && strcmp(folders->path[i], path) != 0)
        i++;
    if (path && i == folders->n && i < MOST_FOLDERS)
        return folders->path[folders->n++] = path;
    const char *there = path && i < folders->n ? folders->path[i] : NULL;
    free(path);
    return there;
}

static void free_folders(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++)
        free(folders->path[i]);
}

static bool is_below(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    if (n > 0 && folder[n - 1] == '/') /* the root */
        n--;
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The deepest allowed folder above a path; NULL: there is none. */
static const char *deepest_folder(const struct folders *folders, const char *path)
{
    const char *deepest = NULL;
    for (size_t i = 0; i < folders->n; i++)
        if (is_below(folders->path[i], path) &&
            (!deepest || strlen(folders->path[i]) > strlen(deepest)))
            deepest = folders->path[i];
    return deepest;
}

static bool is_allowed(const struct folders *folders, const char *path)
{
    return deepest_folder(folders, path) != NULL;
}

/* The path of an open file or folder, to be freed; NULL: it has none. -ENOMEM. */
static int path_of(int fd, char **path)
{
    errno = 0;
    *path = place_of_descriptor(fd);
    return !*path && errno == ENOMEM ? -ENOMEM : 0;
}

/* What realpath says; NULL: it leads nowhere. */
static char *real_path(struct folders *folders, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real && errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ELOOP &&
        errno != ENAMETOOLONG)
        folders->error = -errno;
    return real;
}

/* The folder of the name that a store has, which a symbolic link or an image may have elsewhere
 * than its file. NULL: it is a name without a folder. */
static char *folder_of_name(struct folders *folders, const struct store *store)
{
    if (store->image && !strchr(store->path, '/'))
        return NULL;
    char *copy = strdup(store->path);
    char *folder = copy ? real_path(folders, dirname(copy)) : NULL;
    if (!copy)
        folders->error = -ENOMEM;
    free(copy);
    return folder;
}

/* The store's folder as a descriptor; -1: it has none. Errors of fcntl(2). */
static int open_folder(const struct store *store, int *fd)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&store->folder_lock;
    pthread_mutex_lock(lock);
    *fd = store->folder < 0 ? -1 : fcntl(store->folder, F_DUPFD_CLOEXEC, 0);
    int error = store->folder >= 0 && *fd < 0 ? -errno : 0;
    pthread_mutex_unlock(lock);
    return error;
}

static char *folder_of_file(struct folders *folders, const struct store *store)
{
    char *folder = NULL;
    int fd, error = open_folder(store, &fd);
    if (fd >= 0) {
        error = path_of(fd, &folder);
        close(fd);
    }
    if (error)
        folders->error = error;
    return folder;
}

/* The folders named by libhdf5's environment variables: whoever runs the program has set and so
 * allowed them. External raw data have a single one, without a list. */
static void add_prefixes(struct folders *folders, const struct store *store, enum store_lead lead)
{
    static const char origin[] = "${ORIGIN}";
    const char *value = getenv(lead == STORE_RAW ? "HDF5_EXTFILE_PREFIX" : "HDF5_VDS_PREFIX");
    bool is_wanted = value && lead != STORE_LINK && lead != STORE_ANY_LINK;
    char *copy = is_wanted ? strdup(value) : NULL;
    char *own = copy ? folder_of_name(folders, store) : NULL, *next = copy, *prefix;
    if (is_wanted && !copy)
        folders->error = -ENOMEM;
    while (next && folders->n < MOST_PREFIXES &&
           (prefix = lead == STORE_RAW ? next : strsep(&next, ":"))) {
        bool is_relative = strncmp(prefix, origin, sizeof(origin) - 1) == 0;
        char *whole = NULL;
        if (lead == STORE_RAW)
            next = NULL;
        if (!*prefix || (is_relative && !own))
            continue;
        if (asprintf(&whole, "%s%s", is_relative ? own : "",
                     is_relative ? prefix + sizeof(origin) - 1 : prefix) < 0) {
            folders->error = -ENOMEM;
            break;
        }
        add_folder(folders, real_path(folders, whole));
        free(whole);
    }
    free(own);
    free(copy);
}

/* Folders in which relative names are looked up, and then the others that are allowed. */
static size_t find_folders(struct folders *folders, const struct store *store, enum store_lead lead)
{
    const struct store *top = store->reach.top ? store->reach.top : store;
    *folders = (struct folders){.n = 0};
    add_prefixes(folders, store, lead);
    if (!store->reach.top)
        add_folder(folders, folder_of_name(folders, store));
    add_folder(folders, folder_of_file(folders, store));
    size_t n = folders->n;
    if (top != store) {
        add_folder(folders, folder_of_name(folders, top));
        add_folder(folders, folder_of_file(folders, top));
    }
    const char *files = lead == STORE_ANY_LINK ? "/" : store->reach.files;
    char *copy = files ? strdup(files) : NULL;
    if (files && !copy)
        folders->error = -ENOMEM;
    folders->vouched = add_folder(folders, copy);
    return n;
}

/* ---- Walking ---- */

struct walk {
    int at; /* the current directory, and its device: */
    uint32_t major, minor;
    char *name, *left; /* the rest of the path, in memory to be freed */
    unsigned symlinks;
};

/* Does not ask the file system, which may be our own. */
static int look_at(int fd, struct statx *st)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, st) < 0 ? -errno : 0;
}

/* Takes a descriptor over as the current directory. */
static void go_to(struct walk *walk, int fd, const struct statx *st)
{
    if (walk->at >= 0)
        close(walk->at);
    walk->at = fd;
    walk->major = st->stx_dev_major;
    walk->minor = st->stx_dev_minor;
}

static int go_to_folder(struct walk *walk, const char *path)
{
    struct statx st;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 ? -errno : look_at(fd, &st);
    if (!error)
        go_to(walk, fd, &st);
    else if (fd >= 0)
        close(fd);
    return error;
}

/* Puts the target of a symbolic link in front of the rest of the path. */
static int follow_symlink(struct walk *walk, int fd)
{
    char target[PATH_MAX], *name;
    ssize_t n = readlinkat(fd, "", target, sizeof(target));
    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    if (++walk->symlinks > MOST_SYMLINKS)
        return -ELOOP;
    size_t left = walk->left ? strlen(walk->left) : 0;
    if (n == sizeof(target) || left >= PATH_MAX)
        return -ENAMETOOLONG;
    if (asprintf(&name, "%.*s/%s", (int)n, target, walk->left ? walk->left : "") < 0)
        return -ENOMEM;
    free(walk->name);
    walk->name = walk->left = name;
    return target[0] == '/' ? go_to_folder(walk, "/") : 0;
}

static int step(struct walk *walk, const char *part)
{
    struct statx st;
    int fd = openat(walk->at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? -errno : look_at(fd, &st);
    bool is_other = !error && (st.stx_dev_major != walk->major || st.stx_dev_minor != walk->minor);
    int is_ours = is_other ? mounts_is_sparsefs(st.stx_dev_major, st.stx_dev_minor) : 0;
    if (is_ours)
        error = is_ours < 0 ? is_ours : -EDEADLK;
    if (!error && !S_ISLNK(st.stx_mode)) {
        go_to(walk, fd, &st);
        return 0;
    }
    if (!error)
        error = follow_symlink(walk, fd);
    if (fd >= 0)
        close(fd);
    return error;
}

/* Walks a name from a folder; after an error walk->at is the last directory that was reached. */
static int walk_to(struct walk *walk, const char *folder, const char *name)
{
    const char *part;
    *walk = (struct walk){.at = -1, .name = strdup(name)};
    walk->left = walk->name;
    int error = walk->name ? go_to_folder(walk, folder) : -ENOMEM;
    while (!error && walk->left && (part = strsep(&walk->left, "/")))
        if (*part && strcmp(part, ".") != 0)
            error = step(walk, part);
    free(walk->name);
    return error;
}

/* ---- Judging ---- */

bool audience_may(const struct audience *audience, const struct stat *st, mode_t group,
                  mode_t others)
{
    bool group_may = st->st_mode & group, others_may = st->st_mode & others;
    if (st->st_gid == audience->group)
        return (group_may || !audience->has_group) && (others_may || !audience->has_others);
    /* Any of them may be in its group. */
    return (group_may && others_may) || (!audience->has_group && !audience->has_others);
}

/* Whether all of them could find the file from this folder on: 0, or -EPERM. The path is walked again, as its
 * names may lead elsewhere by now. Errors of open(2) that say nothing of the way. */
static int check_way(const struct audience *audience, const char *folder, const char *path,
                     const struct stat *file)
{
    char *copy = strdup(path + strlen(folder)), *left = copy, *part;
    int at = copy ? open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    int error = !copy ? -ENOMEM : at < 0 ? -errno : 0;
    struct stat st = {.st_mode = S_IFDIR | 0777};
    while (!error && (part = strsep(&left, "/"))) {
        if (!*part)
            continue;
        bool may = audience_may(audience, &st, S_IXGRP, S_IXOTH);
        int next = may ? openat(at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
        error = !may ? -EPERM : next < 0 || fstat(next, &st) < 0 ? -errno : 0;
        if (!error)
            acl_narrow(next, &st);
        close(at);
        at = next;
    }
    if (at >= 0)
        close(at);
    free(copy);
    if (error && error != -EPERM && error != -EACCES && error != -ENOENT && error != -ENOTDIR &&
        error != -ELOOP)
        return error;
    return error || st.st_dev != file->st_dev || st.st_ino != file->st_ino ? -EPERM : 0;
}

/* -EPERM: reading the file would show others what its owner does not let them read. A folder that
 * was allowed explicitly vouches for the owners of files in it, if these may be read by everybody.
 * Errors of check_way. */
static int check_shown(const struct store *store, const struct folders *folders, const char *path,
                       const struct stat *st)
{
    struct stat own;
    const struct store_reach *allowed = &store->reach.allowed;
    const char *from = deepest_folder(folders, path);
    if (!allowed->for_others)
        return 0;
    int error = store_stat_shown(store, &own);
    if (error)
        return error;
    mode_t shown = own.st_mode | allowed->shown;
    struct audience audience = {
        .has_others = shown & S_IROTH, .has_group = shown & S_IRGRP, .group = own.st_gid};
    bool is_vouched = folders->vouched && is_below(folders->vouched, path) && st->st_mode & S_IROTH;
    if ((own.st_uid != st->st_uid && !is_vouched) || !audience_may(&audience, st, S_IRGRP, S_IROTH))
        return -EPERM;
    return check_way(&audience, from, path, st);
}

/* Records permission bits that this file does not have, for the file that it is read for. */
static void note_mode(const struct store *store, const struct stat *st)
{
    struct store *top = (struct store *)(store->reach.top ? store->reach.top : store);
    atomic_fetch_or(&top->reach.withheld, ~st->st_mode & 0777);
}

mode_t store_mode_led_to(const struct store *store)
{
    return 0777 & ~atomic_load(&store->reach.withheld);
}

/* Judges the file of a descriptor, which is taken over if it may be read. */
static int judge(const struct store *store, const struct folders *folders, enum store_lead lead,
                 int fd, struct store_found *found)
{
    char *path;
    int error = path_of(fd, &path);
    if (!error)
        error = !path                        ? -ENOENT
                : !is_allowed(folders, path) ? -EXDEV
                : fstat(fd, &found->st) < 0  ? -errno
                                             : 0;
    if (!error && !S_ISREG(found->st.st_mode))
        error = -EINVAL;
    if (!error) {
        found->is_roots = store_is_roots(&found->st);
        acl_narrow(fd, &found->st);
    }
    if (!error)
        error = check_shown(store, folders, path, &found->st);
    if (!error && store->reach.allowed.is_of_root && lead != STORE_RAW && !found->is_roots)
        error = -EKEYREJECTED;
    found->path = error ? NULL : path;
    found->fd = fd;
    if (error)
        free(path);
    else
        note_mode(store, &found->st);
    return error;
}

/* *is_outside: the walk failed in a folder that is not allowed. */
static int try_name(const struct store *store, const struct folders *folders, enum store_lead lead,
                    const char *folder, const char *name, struct store_found *found,
                    bool *is_outside)
{
    struct walk walk;
    int error = walk_to(&walk, folder, name);
    char *reached = error && walk.at >= 0 ? place_of_descriptor(walk.at) : NULL;
    *is_outside = reached && !is_allowed(folders, reached);
    free(reached);
    if (!error)
        error = judge(store, folders, lead, walk.at, found);
    if (error && walk.at >= 0)
        close(walk.at);
    return error;
}

static bool is_absent(int error)
{
    return error == -ENOENT || error == -ENOTDIR;
}

static int search(const struct store *store, const struct folders *folders, size_t n,
                  enum store_lead lead, const char *name, struct store_found *found)
{
    /* Errors outside of allowed folders are made equal: they must not tell what exists there. */
    bool is_told = lead != STORE_LINK && !store->reach.allowed.for_others, was_outside = false,
         is_outside;
    bool is_absolute = name[0] == '/';
    if (is_absolute) {
        int error = try_name(store, folders, lead, "/", name, found, &was_outside);
        if (!is_absent(error))
            return was_outside ? -EXDEV : error;
        name = lead == STORE_RAW || lead == STORE_AS_IT_IS ? "" : place_entry(name);
    }
    for (size_t i = 0; i < n && *name; i++) {
        int error = try_name(store, folders, lead, folders->path[i], name, found, &is_outside);
        if (!is_absent(error))
            return is_outside ? -EXDEV : error;
        was_outside |= is_outside;
    }
    return was_outside && !is_told ? -EXDEV : -ENOENT;
}

/* ---- The outside ---- */

int store_folder(const struct store *store)
{
    int folder;
    (void)open_folder(store, &folder);
    return folder;
}

int store_set_reach(struct store *store, const struct store_reach *reach)
{
    char *real = reach->files ? realpath(reach->files, NULL) : NULL;
    if (reach->files && !real)
        return -errno;
    free(store->reach.files);
    store->reach.files = real;
    store->reach.allowed = *reach;
    store->reach.allowed.files = NULL; /* belongs to the caller */
    return 0;
}

int store_share_reach(struct store *store, const struct store *from, bool is_free)
{
    char *files = from->reach.files ? strdup(from->reach.files) : NULL;
    if (from->reach.files && !files)
        return -ENOMEM;
    free(store->reach.files);
    store->reach.files = files;
    store->reach.allowed = from->reach.allowed;
    store->reach.top = is_free ? NULL : from->reach.top ? from->reach.top : from;
    store->reach.depth = from->reach.depth + 1;
    return 0;
}

int store_find(const struct store *store, enum store_lead lead, const char *name,
               struct store_found *found)
{
    struct folders folders;
    if (store->reach.depth >= MOST_DEPTH)
        return -ELOOP;
    size_t n = find_folders(&folders, store, lead);
    int error = folders.error ? folders.error : search(store, &folders, n, lead, name, found);
    free_folders(&folders);
    return error;
}

void store_found_free(struct store_found *found)
{
    close(found->fd);
    free(found->path);
}

int store_found_open(const struct store_found *found, int access)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", found->fd);
    int fd = open(path, access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

const char *store_refusal(int error)
{
    switch (error) {
    case -EXDEV:
        return "it leads out of the folder of the HDF5 file (external_files=DIR allows another "
               "one)";
    case -EDEADLK:
        return "it leads into a mount of sparsefs";
    case -EPERM:
        return "others would see what its owner does not let them see (allow_other)";
    case -EKEYREJECTED:
        return "libhdf5 would read another user's file as root, or one that others may write, and "
               "others "
               "look on (allow_other): mount with ro, or trust";
    case -ELOOP:
        return "too many files or links lead there";
    default:
        return NULL;
    }
}
