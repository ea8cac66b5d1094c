/* Which files of external raw data may be written, and opening them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/io.h"
#include "common/mounts.h"
#include "store/private.h"

static const char signature[] = "\x89HDF\r\n\x1a\n";

/* -EPERM: it is an HDF5 file, which begins at 0, 512, 1024, 2048, ...; errors of pread(2). */
static int check_no_hdf5(int fd)
{
    char head[sizeof(signature) - 1];
    size_t done = sizeof(head);
    for (uint64_t at = 0; done == sizeof(head) && at <= INT64_MAX / 2; at = at ? 2 * at : 512) {
        int error = io_read_at(fd, at, head, sizeof(head), &done);
        if (error)
            return error;
        if (done == sizeof(head) && memcmp(head, signature, sizeof(head)) == 0)
            return -EPERM;
    }
    return 0;
}

static bool is_own(const struct store *store, const struct stat *own, const struct store_found *at)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&store->change; /* guards the names */
    pthread_mutex_lock(lock);
    bool is_beside = (store->journal && strcmp(store->journal, at->path) == 0) ||
                     (store->counter && strcmp(store->counter, at->path) == 0);
    pthread_mutex_unlock(lock);
    return is_beside || (own->st_dev == at->st.st_dev && own->st_ino == at->st.st_ino);
}

/* Of the HDF5 file in a state; NULL: nothing. */
static const char *whats_against(const struct store *store, const struct store_found *found,
                                 const struct stat *own)
{
    uid_t owner = mounts_owner(found->fd, &found->st);
    struct audience audience = audience_of(store, own, owner, S_IWOTH);
    bool for_others = store->reach.allowed.for_others;
    return own->st_uid != owner && own->st_uid != 0 ? "it is not of the owner of the HDF5 file"
           : for_others && !audience_may(&audience, &found->st, S_IWGRP, S_IWOTH)
               ? "others would write what its owner does not let them write (allow_other)"
               : NULL;
}

/* From a folder on; also true: it is not below that. */
static bool may_find(const struct audience *writers, int fd, const struct store_found *found)
{
    struct folder folder = {.fd = fd, .path = fd < 0 ? NULL : place_of_descriptor(fd)};
    bool is_below = folder.path && path_is_below(folder.path, found->path);
    bool may = !is_below || audience_find_below(writers, &folder, found->path, &found->st) == 0;
    free(folder.path);
    return may;
}

/* Whether the same users may write it, of whom owner, group, mode and ACL tell. */
static bool has_same_writers(const struct store *store, const struct stat *own,
                             const struct store_found *found)
{
    struct stat st;
    return fstat(found->fd, &st) == 0 && own->st_mode == st.st_mode && own->st_gid == st.st_gid &&
           store_owner(store, own) == mounts_owner(found->fd, &st) &&
           acl_is_same(store->fd, own, found->fd, &st);
}

/* Whoever may write the HDF5 file, by its mode or ACL, chooses the names in it: of files that he may write, and find in
 * its folder. */
static bool writers_may(const struct store *store, const struct store_found *found)
{
    struct stat own;
    int folder = -1;
    if (fstat(store->fd, &own) < 0 || place_dup_folder(store, &folder) < 0)
        return false;
    const struct audience writers = {.has_others =
                                         own.st_mode & S_IWOTH || acl_names_writer(store->fd, &own),
                                     .has_group = own.st_mode & S_IWGRP,
                                     .group = own.st_gid};
    bool are_there = writers.has_others || writers.has_group;
    bool may = !are_there ||
               ((audience_may(&writers, &found->st, S_IWGRP, S_IWOTH) ||
                 has_same_writers(store, &own, found)) &&
                may_find(&writers, folder, found) && may_find(&writers, store->name_folder, found));
    if (folder >= 0)
        close(folder);
    return may;
}

/* Who made the HDF5 file says what is written, with the rights of who has opened it. *why: what of
 * it is not to be. */
static int judge_write(const struct store *store, const struct store_found *found, const char **why)
{
    struct stat own[2];
    size_t n = 1;
    bool has_file = !store->image && store->fd >= 0;
    if (has_file && store->reach.allowed.for_others)
        n = audience_states(store, own);
    else if (has_file)
        n = store_stat_shown(store, own) < 0 ? 0 : 1;
    if (!has_file || n == 0) {
        *why = "the HDF5 file is in memory";
        return -EPERM;
    }
    *why = is_own(store, own, found) ? "it is the HDF5 file itself, or belongs to it"
           : found->st.st_nlink != 1 ? "it has more names than one"
                                     : NULL;
    for (size_t i = 0; i < n && !*why; i++) {
        own[i].st_uid = store_owner(store, &own[i]);
        *why = whats_against(store, found, &own[i]);
    }
    if (!*why && !writers_may(store, found))
        *why = "who may write the HDF5 file may not write it, or find it in its folder";
    return *why ? -EPERM : 0;
}

int store_open_raw(const struct store *store, const char *name, int *fd, const char **why)
{
    struct store_found found;
    *why = NULL;
    int error = store_find(store, STORE_RAW, name, &found);
    bool is_known = !error && unsynced_raw_has((struct store *)store, &found.st); /* looked at */
    if (error) {
        *why = store_refusal(error);
        return error;
    }
    error = judge_write(store, &found, why);
    if (!error)
        *fd = store_found_open(&found, O_RDWR);
    store_found_free(&found);
    if (error || *fd < 0)
        return error ? error : *fd;
    error = is_known ? 0 : check_no_hdf5(*fd);
    if (error == -EPERM)
        *why = "it is an HDF5 file";
    if (error)
        close(*fd);
    return error;
}
