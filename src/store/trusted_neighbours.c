/* Files beside a store's, under names that sparsefs uses: in a shared folder anybody may have put
 * them there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/io.h"
#include "store/private.h"

int neighbour_stat(int folder, const char *path, struct stat *st)
{
    int fd = io_open_at(folder, place_entry(path), O_PATH);
    if (fd == -EMFILE || fd == -ENFILE) /* needs none */
        return fstatat(folder, place_entry(path), st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    int error = fd < 0 ? fd : fstat(fd, st) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* A file that does not exist yet has nothing to be protected. */
static const struct stat no_file = {.st_mode = 0666};

/* Whether the mode of the store's file, or its ACL, lets a user write it. */
static bool may_write(const struct store *store, const struct stat *file, uid_t user)
{
    return store->fd < 0 || user == 0 || user == file->st_uid || user == geteuid() ||
           acl_lets_write(store->fd, file, user, acl_is_member);
}

/* Why a neighbour is not trusted whose owner may be; file: with the mode of store_stat_shown. */
static const char *who_else_writes(const struct stat *file, int fd, const struct stat *st)
{
    bool same_group = st->st_gid == file->st_gid && file->st_mode & S_IWGRP;
    return file->st_mode & S_IWOTH ? NULL
           : st->st_mode & S_IWOTH ? "everybody may write it"
           : st->st_mode & S_IWGRP && !same_group
               ? "a group may write it that may not write the file"
           : acl_names_writer(fd, st) ? "its ACL lets others write it"
                                      : NULL;
}

static const char *reason(const struct store *store, const struct stat *file, int fd,
                          const struct stat *st)
{
    struct stat shown = *file;
    if (store->fd >= 0)
        acl_narrow(store->fd, &shown);
    return !S_ISREG(st->st_mode)                 ? "it is no regular file"
           : st->st_nlink > 1                    ? "it has other names"
           : !may_write(store, file, st->st_uid) ? "its owner may not write the file"
                                                 : who_else_writes(&shown, fd, st);
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
           : error == -EXDEV ? "something is mounted there"
           : error == -ENXIO ? "it is no regular file"
           : error == -EPROTONOSUPPORT
               ? "another version of sparsefs has written it: open the HDF5 file with that one, or "
                 "move the journal away, which gives up what was committed last"
               : strerror(-error);
}

int neighbour_trust(const struct store *store, int fd, const char **why)
{
    struct stat file = no_file, st;
    if ((store->fd >= 0 && fstat(store->fd, &file) < 0) || fstat(fd, &st) < 0)
        return -errno;
    *why = reason(store, &file, fd, &st);
    return *why ? -EPERM : 0;
}

int neighbour_check(struct store *store, int fd, const char *path)
{
    const char *why = NULL;
    int error = neighbour_trust(store, fd, &why);
    if (why)
        neighbour_say(store, path, "cannot be trusted", why);
    return error;
}

/* ---- Removing one ---- */

/* As the kernel would not let them in a sticky folder, and other folders let them anyway: there root also removes
 * what those have made who may write the file. */
int neighbour_may_go(const struct store *store, const char *path)
{
    struct stat file = no_file, folder, st;
    int error = geteuid() == 0 ? neighbour_stat(store->folder, path, &st) : -ENOENT;
    if (error)
        return error == -ENOENT ? 0 : error;
    if ((store->fd >= 0 && fstat(store->fd, &file) < 0) || fstat(store->folder, &folder) < 0)
        return -errno;
    bool is_own = st.st_uid == 0 || st.st_uid == file.st_uid || folder.st_uid == file.st_uid;
    bool is_sticky = folder.st_mode & S_ISVTX;
    return is_own || (!is_sticky && store->fd >= 0 && may_write(store, &file, st.st_uid)) ? 0
                                                                                          : -EPERM;
}

int neighbour_remove(const struct store *store, const char *path)
{
    int error = neighbour_may_go(store, path);
    return error ? error : io_unlink_at(store->folder, place_entry(path));
}

/* ---- Opening one to be written ---- */

/* Gives a new file the owner of the store's, if possible, and its permissions. */
static int adopt(const struct stat *file, int fd)
{
    int error = rights_give(fd, file->st_gid, (file->st_mode & 0066) | S_IRUSR | S_IWUSR);
    bool is_given = error || geteuid() != 0 || fchown(fd, file->st_uid, (gid_t)-1) == 0;
    (void)is_given; /* or it stays root's */
    return error;
}

/* The mode of the store's file may have been changed since this one was made. If it has another
 * group, that gets the permissions of others. */
static int narrow(const struct stat *file, int fd)
{
    struct stat st;
    bool had_acl;
    if (fstat(fd, &st) < 0)
        return -errno;
    mode_t most = (file->st_mode & 0066) | S_IRUSR | S_IWUSR;
    if (st.st_gid != file->st_gid)
        most = acl_without_group(most);
    bool is_wider = st.st_mode & 0777 & ~most;
    int error = acl_remove(fd, &st, &had_acl);
    if (error || (!is_wider && !had_acl))
        return error;
    return fchmod(fd, st.st_mode & most) < 0 ? -errno : 0;
}

int neighbour_open(struct store *store, const char *path, bool or_new)
{
    const int flags = O_WRONLY | O_NONBLOCK;
    struct stat file;
    int error = store_stat_shown(store, &file);
    if (error)
        return error;
    int fd = io_open_at(store->folder, place_entry(path), flags);
    bool is_new = fd == -ENOENT && or_new;
    if (is_new)
        fd = TEMP_FAILURE_RETRY(openat(store->folder, place_entry(path),
                                       flags | IO_OPEN_AT | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
    /* Made meanwhile: by another, or by a call that was interrupted. */
    if (is_new && fd < 0 && errno == EEXIST)
        return neighbour_open(store, path, false);
    if (fd < 0)
        return is_new ? -errno : fd;
    error = is_new ? adopt(&file, fd) : neighbour_check(store, fd, path);
    if (!error && !is_new)
        error = narrow(&file, fd);
    if (error)
        close(fd);
    return error ? error : fd;
}
