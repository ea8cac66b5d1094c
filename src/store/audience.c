/* Who is shown the HDF5 file, and what these users may find: they are shown nothing that they could not read by
 * its own path.
 *
 * A directory is judged by its descriptor, and those above it by "..", whatever is mounted on their names. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/mounts.h"
#include "store/private.h"

struct audience audience_of(const struct store *store, const struct stat *own, uid_t owner,
                            mode_t permissions)
{
    mode_t added = store->reach.allowed.shown, shown = own->st_mode | added;
    bool is_anybodys = (added & S_ISUID && shown & permissions << 6) ||
                       (added & S_ISGID && shown & permissions << 3);
    return (struct audience){.has_others = is_anybodys || shown & permissions,
                             .has_group = is_anybodys || shown & permissions << 3,
                             .group = own->st_gid,
                             .has_owner = own->st_uid != owner && own->st_uid != 0 &&
                                          own->st_uid != geteuid(),
                             .owner = own->st_uid};
}

size_t audience_states(const struct store *store, struct stat own[2])
{
    own[0] = store->reach.opened;
    if (store_stat_shown(store, &own[1]) < 0)
        return 0;
    bool is_same = own[0].st_mode == own[1].st_mode && own[0].st_uid == own[1].st_uid &&
                   own[0].st_gid == own[1].st_gid;
    return is_same ? 1 : 2;
}

static bool owner_may(const struct audience *audience, const struct stat *st, bool group_may,
                      bool others_may)
{
    if (!audience->has_owner || audience->owner == st->st_uid)
        return true;
    bool is_same = group_may == others_may;
    return is_same || acl_is_member(audience->owner, st->st_gid) ? group_may : others_may;
}

bool audience_may(const struct audience *audience, const struct stat *st, mode_t group,
                  mode_t others)
{
    bool group_may = st->st_mode & group, others_may = st->st_mode & others, may;
    if (st->st_gid == audience->group)
        may = (group_may || !audience->has_group) && (others_may || !audience->has_others);
    else /* any of them may be in its group */
        may = (group_may && others_may) || (!audience->has_group && !audience->has_others);
    return may && owner_may(audience, st, group_may, others_may);
}

/* ---- Folders ---- */

/* What is known of a directory without asking its file system, which may be our own mount, whose modes have no
 * ACLs. *device: of the one before, or -1: it is on none of ours. */
static int look_at(int fd, dev_t *device, struct stat *st)
{
    struct statx found;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MODE | STATX_UID | STATX_GID,
              &found) < 0)
        return -errno;
    dev_t is_on = makedev(found.stx_dev_major, found.stx_dev_minor);
    bool is_known = *device == (dev_t)-1 || *device == is_on;
    int is_ours = is_known ? 0 : mounts_is_sparsefs(found.stx_dev_major, found.stx_dev_minor);
    *st =
        (struct stat){.st_mode = found.stx_mode, .st_uid = found.stx_uid, .st_gid = found.stx_gid};
    if (is_ours == 0)
        acl_narrow(fd, st);
    *device = is_ours == 0 ? is_on : *device;
    return is_ours < 0 ? is_ours : 0;
}

/* Who mounts opens his own folders to others by naming one of them. */
static bool is_opened(const struct folder *named, const char *path, const struct stat *st)
{
    return named && st->st_uid == geteuid() && path_is_below(path, named->path);
}

int audience_search(const struct audiences *audiences, const struct folders *folders, int fd)
{
    struct stat st;
    dev_t device = (dev_t)-1;
    bool may = true;
    int error = audiences->n > 0 ? look_at(fd, &device, &st) : 0;
    for (size_t i = 0; i < audiences->n && !error; i++)
        may = may && audience_may(&audiences->of[i], &st, S_IXGRP, S_IXOTH);
    if (error || may)
        return error;
    const struct folder *named = folders->vouched;
    char *path = place_of_descriptor(fd);
    bool is_it = path && named && path_is_below(named->path, path) && is_opened(named, path, &st);
    free(path);
    return is_it ? 0 : -EPERM;
}

/* A folder and those above it. named: one that was named, and has the file. */
static int check_above(const struct audience *audience, const struct folder *from,
                       const struct folder *named)
{
    struct stat st;
    dev_t device = (dev_t)-1;
    char *path = strdup(from->path);
    int at = path ? fcntl(from->fd, F_DUPFD_CLOEXEC, 0) : -1;
    int error = !path ? -ENOMEM : at < 0 ? -errno : 0;
    while (!error && *path) {
        error = look_at(at, &device, &st);
        char *last = strrchr(path, '/');
        if (!error && !audience_may(audience, &st, S_IXGRP, S_IXOTH) &&
            !is_opened(named, path, &st))
            error = -EPERM;
        bool is_root = last == path && last[1] == '\0';
        last[last == path && !is_root] = '\0'; /* "/" is above "/x", and "" above that */
        int next = error || is_root ? -1 : openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        error = error || is_root || next >= 0 ? error : -errno;
        close(at);
        at = next;
    }
    if (at >= 0)
        close(at);
    free(path);
    return error;
}

/* From a folder on to the file. The path is walked again, as its names may lead elsewhere by now. */
static int check_below(const struct audience *audience, const struct folder *from, const char *path,
                       const struct stat *file)
{
    char *copy = strdup(path + strlen(from->path)), *left = copy, *part;
    int at = copy ? fcntl(from->fd, F_DUPFD_CLOEXEC, 0) : -1;
    int error = !copy ? -ENOMEM : at < 0 ? -errno : 0;
    struct stat st = {.st_mode = S_IFDIR | 0777}; /* it was looked at */
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
    return error ? error : st.st_dev != file->st_dev || st.st_ino != file->st_ino ? -EPERM : 0;
}

static int of_way(int error)
{
    bool is_of_way = error == -EACCES || error == -ENOENT || error == -ENOTDIR || error == -ELOOP;
    return is_of_way ? -EPERM : error;
}

int audience_find_below(const struct audience *audience, const struct folder *folder,
                        const char *path, const struct stat *file)
{
    return of_way(check_below(audience, folder, path, file));
}

int audience_find(const struct audience *audience, const struct folders *folders, const char *path,
                  const struct stat *file)
{
    const struct folder *from = path_folder(folders, path), *named = folders->vouched;
    if (named && !path_is_below(named->path, path))
        named = NULL;
    int error = check_above(audience, from, named);
    if (!error)
        error = check_below(audience, from, path, file);
    return of_way(error);
}

mode_t audience_of_copy(gid_t group, const struct folders *folders, const char *path,
                        const struct stat *file)
{
    const mode_t shared = file->st_mode & file->st_mode >> 3 & S_IRWXO;
    mode_t mode = file->st_mode & 0777;
    if (file->st_gid != group) /* any of the others may be in its group */
        mode = (mode & S_IRWXU) | shared << 3 | shared;
    const struct audience both = {.has_group = true, .has_others = true, .group = group},
                          members = {.has_group = true, .group = group},
                          others = {.has_others = true, .group = group};
    if (!(mode & (S_IRWXG | S_IRWXO)) || audience_find(&both, folders, path, file) == 0)
        return mode;
    if (audience_find(&members, folders, path, file) < 0)
        mode &= ~(mode_t)S_IRWXG;
    if (audience_find(&others, folders, path, file) < 0)
        mode &= ~(mode_t)S_IRWXO;
    return mode;
}
