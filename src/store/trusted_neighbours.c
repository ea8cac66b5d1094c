/* Files beside a store's, under names that sparsefs uses: in a shared folder anybody may have put
 * them there. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/private.h"

#define NAMES_BYTES 16384 /* of a user, with all that getpwuid_r(3) says */
#define FIRST_COUNT 64    /* of groups */

static bool is_member(uid_t user, gid_t group)
{
    struct passwd entry, *found;
    char *names = malloc(NAMES_BYTES);
    gid_t *groups = NULL;
    int n = FIRST_COUNT, room = 0;
    bool is_in = false;
    if (names && getpwuid_r(user, &entry, names, NAMES_BYTES, &found) == 0 && found) {
        do {
            gid_t *more = reallocarray(groups, (size_t)n, sizeof(*groups));
            if (!more)
                break;
            groups = more;
            room = n;
        } while (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) < 0 && n > room);
        for (int i = 0; i < n && i < room && !is_in; i++)
            is_in = groups[i] == group;
    }
    free(groups);
    free(names);
    return is_in;
}

/* Whether the mode of the store's file lets a user write it. */
static bool may_write(const struct stat *file, uid_t user)
{
    return user == 0 || user == file->st_uid || user == geteuid() || file->st_mode & S_IWOTH ||
           (file->st_mode & S_IWGRP && is_member(user, file->st_gid));
}

static const char *reason(const struct stat *file, const struct stat *st)
{
    bool same_group = st->st_gid == file->st_gid && file->st_mode & S_IWGRP;
    return !S_ISREG(st->st_mode)          ? "it is no regular file"
           : st->st_nlink > 1             ? "it has other names"
           : !may_write(file, st->st_uid) ? "its owner may not write the file"
           : file->st_mode & S_IWOTH      ? NULL
           : st->st_mode & S_IWOTH        ? "everybody may write it"
           : st->st_mode & S_IWGRP && !same_group
               ? "a group may write it that may not write the file"
               : NULL;
}

/* Followers look again and again: logged once. Takes the line over. */
static void say_once(struct store *store, char *line)
{
    if (line && store->said && strcmp(line, store->said) == 0) {
        free(line);
        return;
    }
    neighbour_forget(store);
    store->said = line;
    if (line)
        why_say(store->why, "%s", line);
}

void neighbour_forget(struct store *store)
{
    free(store->said);
    store->said = NULL;
}

void neighbour_say(struct store *store, const char *path, const char *is_what, const char *why)
{
    char *line;
    if (asprintf(&line, "%s: what stands beside it as %s %s: %s; move it away", store->path, path,
                 is_what, why) < 0)
        line = NULL;
    say_once(store, line);
}

const char *neighbour_reason(int error)
{
    return error == -ELOOP   ? "it is a symbolic link"
           : error == -ENXIO ? "it is no regular file"
           : error == -EPROTONOSUPPORT
               ? "another version of sparsefs has written it: open the HDF5 file with that one, or "
                 "move the journal away, which gives up what was committed last"
               : strerror(-error);
}

int neighbour_check(struct store *store, int fd, const char *path)
{
    /* A file that does not exist yet has nothing to be protected. */
    struct stat file = {.st_mode = 0666}, st;
    if ((store->fd >= 0 && fstat(store->fd, &file) < 0) || fstat(fd, &st) < 0)
        return -errno;
    const char *why = reason(&file, &st);
    if (!why)
        return 0;
    neighbour_say(store, path, "cannot be trusted", why);
    return -EPERM;
}

/* ---- Opening one to be written ---- */

/* Gives a new file the owner and group of the store's, if possible; otherwise its group gets no
 * permissions. */
static int adopt(const struct stat *file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_gid == file->st_gid && (st.st_uid == file->st_uid || geteuid() != 0))
        return 0;
    uid_t owner = geteuid() == 0 ? file->st_uid : (uid_t)-1;
    if (fchown(fd, owner, file->st_gid) == 0)
        return 0;
    return fchmod(fd, st.st_mode & (S_IRUSR | S_IWUSR | S_IROTH | S_IWOTH)) < 0 ? -errno : 0;
}

/* The mode of the store's file may have been changed since this one was made. If it has another
 * group, that gets the permissions of others. */
static int narrow(const struct stat *file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    mode_t most = (file->st_mode & 0066) | S_IRUSR | S_IWUSR;
    if (st.st_gid != file->st_gid)
        most &= ~(mode_t)S_IRWXG | (most & S_IRWXO) << 3;
    bool is_wider = st.st_mode & 0777 & ~most;
    return is_wider && fchmod(fd, st.st_mode & most) < 0 ? -errno : 0;
}

int neighbour_open(struct store *store, const char *path, bool or_new)
{
    const int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat file;
    if (fstat(store->fd, &file) < 0)
        return -errno;
    int fd = TEMP_FAILURE_RETRY(openat(store->folder, place_entry(path), flags));
    bool is_new = fd < 0 && errno == ENOENT && or_new;
    if (is_new)
        fd = TEMP_FAILURE_RETRY(openat(store->folder, place_entry(path), flags | O_CREAT | O_EXCL,
                                       file.st_mode & 0666));
    /* Made meanwhile: by another, or by a call that was interrupted. */
    if (is_new && fd < 0 && errno == EEXIST)
        return neighbour_open(store, path, false);
    if (fd < 0)
        return -errno;
    int error = is_new ? adopt(&file, fd) : neighbour_check(store, fd, path);
    if (!error)
        error = narrow(&file, fd);
    if (error)
        close(fd);
    return error ? error : fd;
}
