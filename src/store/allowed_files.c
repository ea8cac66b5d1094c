/* Finding the files that a file names, where they are allowed to be.
 *
 * What is found is judged, not the name that leads there: the way is walked part by part, with
 * descriptors that only say what they are, and the file at its end must lie in a folder that is
 * allowed. On the way no mount is entered that lies outside, is one of sparsefs, or may not answer (path_walk.c).
 * The folders are those that were opened with the file, whatever has their names by now. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/io.h"
#include "common/mounts.h"
#include "store/private.h"

#define MOST_PREFIXES 24 /* more are ignored */
#define MOST_DEPTH    32 /* files that lead to files */

/* ---- Which folders are allowed ---- */

/* The path of an open file or folder, to be freed; NULL: it has none. -ENOMEM. */
static int path_of(int fd, char **path)
{
    errno = 0;
    *path = place_of_descriptor(fd);
    return !*path && errno == ENOMEM ? -ENOMEM : 0;
}

/* Adds a folder by its descriptor, which is taken over, if it is not there yet. `as`, or NULL, stays the caller's. */
static const struct folder *add_folder(struct folders *folders, int fd, const char *as)
{
    struct folder folder = {.fd = fd, .as = as}, *at = folders->folder;
    int error = path_of(fd, &folder.path);
    if (error)
        folders->error = error;
    while (folder.path && at < folders->folder + folders->n && strcmp(at->path, folder.path) != 0)
        at++;
    bool is_new = folder.path && at == folders->folder + folders->n && folders->n < MOST_FOLDERS;
    if (is_new) {
        *at = folder;
        folders->n++;
        return at;
    }
    bool is_there = folder.path && at < folders->folder + folders->n;
    if (is_there && !at->as)
        at->as = as;
    close(fd);
    free(folder.path);
    return is_there ? at : NULL;
}

/* Adds one that was opened, or takes the error of that; those that say only that there is none are ignored. */
static void add_opened(struct folders *folders, int fd, int error)
{
    if (!error)
        add_folder(folders, fd, NULL);
    else if (error != -ENOENT && error != -ENOTDIR && error != -EACCES && error != -ELOOP &&
             error != -ENAMETOOLONG && error != -EXDEV && error != -EDEADLK)
        folders->error = error;
}

static void add_named(struct folders *folders, const char *path)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    add_opened(folders, fd, fd < 0 ? -errno : 0);
}

/* Of one that stays open; -1: none. */
static const struct folder *add_kept(struct folders *folders, int kept, const char *as)
{
    int fd = kept < 0 ? -1 : fcntl(kept, F_DUPFD_CLOEXEC, 0);
    if (kept >= 0 && fd < 0)
        folders->error = -errno;
    return fd < 0 ? NULL : add_folder(folders, fd, as);
}

static void free_folders(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++) {
        close(folders->folder[i].fd);
        free(folders->folder[i].path);
    }
}

int place_dup_folder(const struct store *store, int *fd)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&store->folder_lock;
    pthread_mutex_lock(lock);
    *fd = store->folder < 0 ? -1 : fcntl(store->folder, F_DUPFD_CLOEXEC, 0);
    int error = store->folder >= 0 && *fd < 0 ? -errno : 0;
    pthread_mutex_unlock(lock);
    return error;
}

/* The folders of the name that the store was opened by, which a symbolic link or an image may have elsewhere than its
 * file, and of the file. */
static void add_own(struct folders *folders, const struct store *store)
{
    add_kept(folders, store->name_folder, store->name_folder_as);
    int fd, error = place_dup_folder(store, &fd);
    if (fd >= 0)
        add_folder(folders, fd, NULL);
    if (error)
        folders->error = error;
}

/* A folder that is named from the one of the store's name, by the rules for files there. */
static void add_from(struct folders *folders, const struct folders *own, const char *name)
{
    struct walk walk = {.folders = own, .trusts_users = true, .at = -1};
    int error = own->n > 0 ? path_walk(&walk, own->folder[0].fd, name) : -ENOENT;
    if (error && walk.at >= 0)
        close(walk.at);
    add_opened(folders, walk.at, error);
}

static bool is_raw(enum store_lead lead)
{
    return lead == STORE_RAW || lead == STORE_RAW_STATE;
}

/* The folders named by libhdf5's environment variables: whoever runs the program has set and so
 * allowed them. External raw data have a single one, without a list. */
static void add_prefixes(struct folders *folders, const struct folders *own, enum store_lead lead)
{
    static const char origin[] = "${ORIGIN}";
    const char *value = getenv(is_raw(lead) ? "HDF5_EXTFILE_PREFIX" : "HDF5_VDS_PREFIX");
    bool is_wanted = value && lead != STORE_LINK && lead != STORE_ANY_LINK;
    char *copy = is_wanted ? strdup(value) : NULL, *next = copy, *prefix;
    if (is_wanted && !copy)
        folders->error = -ENOMEM;
    while (next && folders->n < MOST_PREFIXES &&
           (prefix = is_raw(lead) ? next : strsep(&next, ":"))) {
        size_t n = sizeof(origin) - 1;
        bool is_relative = strncmp(prefix, origin, n) == 0;
        if (is_raw(lead))
            next = NULL;
        while (is_relative && prefix[n] == '/')
            n++;
        if (is_relative)
            add_from(folders, own, prefix + n);
        else if (*prefix)
            add_named(folders, prefix);
    }
    free(copy);
}

/* Folders in which relative names are looked up, and then the others that are allowed. */
static size_t find_folders(struct folders *folders, const struct store *store, enum store_lead lead)
{
    const struct store *top = store->reach.top ? store->reach.top : store;
    struct folders own = {.n = 0};
    *folders = (struct folders){.n = 0};
    add_own(&own, store);
    add_prefixes(folders, &own, lead);
    free_folders(&own);
    add_own(folders, store);
    size_t n = folders->n;
    if (top != store)
        add_own(folders, top);
    if (lead == STORE_ANY_LINK)
        add_named(folders, "/");
    else
        folders->vouched = add_kept(folders, store->reach.files, store->reach.files_name);
    folders->error = own.error ? own.error : folders->error;
    return n;
}

/* ---- Judging ---- */

/* -EPERM: reading the file would show others, to whom the HDF5 file is shown in a state, what its owner does not let
 * them read. A folder that was allowed explicitly vouches for the owners of files in it, if these may be read by
 * everybody. Errors of audience_find. */
static int check_audience(const struct store *store, const struct folders *folders,
                          const char *path, const struct stat *st, const struct stat *own)
{
    struct audience audience = audience_of(store, own, st->st_uid, S_IROTH | S_IWOTH);
    bool is_vouched =
        folders->vouched && path_is_below(folders->vouched->path, path) && st->st_mode & S_IROTH;
    if ((own->st_uid != st->st_uid && !is_vouched) ||
        !audience_may(&audience, st, S_IRGRP, S_IROTH))
        return -EPERM;
    return audience_find(&audience, folders, path, st);
}

/* By all states of the HDF5 file; or -EPERM: it has none. */
static int check_shown(const struct store *store, const struct folders *folders, const char *path,
                       const struct stat *st)
{
    struct stat own[2];
    if (!store->reach.allowed.for_others)
        return 0;
    size_t n = audience_states(store, own);
    int error = n == 0 ? -EPERM : 0;
    for (size_t i = 0; i < n && !error; i++)
        error = check_audience(store, folders, path, st, &own[i]);
    return error;
}

/* Records permission bits that a copy of this file may not have, in the group of the one that it is read for. */
static void note_mode(const struct store *store, const struct folders *folders, const char *path,
                      const struct stat *st)
{
    struct store *top = (struct store *)(store->reach.top ? store->reach.top : store);
    struct stat own;
    if (store->reach.allowed.for_others) /* such a file is not copied */
        return;
    mode_t mode = store_stat(top, &own) < 0 ? 0 : audience_of_copy(own.st_gid, folders, path, st);
    atomic_fetch_or(&top->reach.withheld, ~mode & 0777);
}

mode_t store_mode_led_to(const struct store *store)
{
    struct stat st, shown;
    if (store_stat(store, &st) < 0 || store_stat_shown(store, &shown) < 0)
        return 0;
    return 0777 & ~(atomic_load(&store->reach.withheld) | (st.st_mode & ~shown.st_mode));
}

/* Judges the file of a descriptor, which is taken over if it may be read. */
static int judge(const struct store *store, const struct folders *folders, enum store_lead lead,
                 int fd, struct store_found *found)
{
    char *path;
    int error = path_of(fd, &path);
    if (!error)
        error = !path                         ? -ENOENT
                : !path_folder(folders, path) ? -EXDEV
                : fstat(fd, &found->st) < 0   ? -errno
                                              : 0;
    if (!error && !S_ISREG(found->st.st_mode))
        error = -EINVAL;
    if (!error) {
        struct stat owned = found->st;
        if (store->reach.allowed.is_of_root)
            owned.st_uid = mounts_owner(fd, &owned);
        found->is_roots = store_is_roots(&owned);
        acl_narrow(fd, &found->st);
    }
    if (!error)
        error = check_shown(store, folders, path, &found->st);
    if (!error && store->reach.allowed.is_of_root && !is_raw(lead) && !found->is_roots)
        error = -EKEYREJECTED;
    found->path = error ? NULL : path;
    found->fd = fd;
    if (error)
        free(path);
    else if (lead != STORE_RAW_STATE)
        note_mode(store, folders, path, &found->st);
    return error;
}

/* As to any file, as nobody knows yet which one it is. */
static int find_audiences(const struct store *store, struct audiences *audiences)
{
    struct stat own[2];
    audiences->n = 0;
    if (!store->reach.allowed.for_others)
        return 0;
    audiences->n = audience_states(store, own);
    for (size_t i = 0; i < audiences->n; i++)
        audiences->of[i] = audience_of(store, &own[i], (uid_t)-1, S_IROTH | S_IWOTH);
    return audiences->n == 0 ? -EPERM : 0;
}

static bool is_absent(int error)
{
    return error == -ENOENT || error == -ENOTDIR;
}

struct search {
    const struct store *store;
    const struct folders *folders;
    enum store_lead lead;
    struct audiences audiences;
    /* A walk has failed in a folder that is not allowed, or at a mount that is not to be entered, or
     * there in a folder that is closed to others who look on, so that nobody knows what is there. */
    bool was_outside, was_ended;
};

/* Errors outside of allowed folders are made equal: they must not tell what exists there. In those that are closed to
 * others who look on nothing is looked for. The name, and links on the way, are the file's affair: the walk can be
 * interrupted, and what Linux would not take for a path is none. */
static int try_name(struct search *search, int from, const char *name, struct store_found *found)
{
    struct walk walk = {.folders = search->folders,
                        .audiences = &search->audiences,
                        .trusts_users = search->lead == STORE_ANY_LINK,
                        .ends = true};
    if (strlen(name) >= PATH_MAX)
        return -ENAMETOOLONG;
    int error = path_walk(&walk, from, name);
    if (error == -EINTR) {
        if (walk.at >= 0)
            close(walk.at);
        return error;
    }
    char *reached = error && walk.at >= 0 ? place_of_descriptor(walk.at) : NULL;
    bool is_outside = reached && !path_folder(search->folders, reached);
    bool is_ended = error == -EXDEV || (error == -EPERM && is_outside);
    free(reached);
    if (!error)
        error = judge(search->store, search->folders, search->lead, walk.at, found);
    if (error && walk.at >= 0)
        close(walk.at);
    search->was_outside |= is_outside;
    search->was_ended |= is_ended;
    return is_ended ? -ENOENT : is_outside && !is_absent(error) ? -EXDEV : error;
}

/* In the first n folders. */
static int search(struct search *search, size_t n, const char *name, struct store_found *found)
{
    bool is_told = search->lead != STORE_LINK && !search->store->reach.allowed.for_others;
    if (name[0] == '/') {
        int error = try_name(search, -1, name, found);
        if (!is_absent(error))
            return error;
        name = is_raw(search->lead) || search->lead == STORE_AS_IT_IS ? "" : place_entry(name);
    }
    for (size_t i = 0; i < n && *name; i++) {
        int error = try_name(search, search->folders->folder[i].fd, name, found);
        if (!is_absent(error))
            return error;
    }
    return search->was_ended || (search->was_outside && !is_told) ? -EXDEV : -ENOENT;
}

/* ---- The outside ---- */

int store_folder(const struct store *store)
{
    int folder;
    (void)place_dup_folder(store, &folder);
    return folder;
}

/* Both are taken over. */
static void set_files(struct store *store, int fd, char *name)
{
    if (store->reach.files >= 0)
        close(store->reach.files);
    free(store->reach.files_name);
    store->reach.files = fd;
    store->reach.files_name = name;
}

void store_close_reach(struct store *store)
{
    set_files(store, -1, NULL);
}

/* Errors of fstat(2). */
static int note_opened(struct store *store)
{
    return store->reach.allowed.for_others ? store_stat_shown(store, &store->reach.opened) : 0;
}

int store_set_reach(struct store *store, const struct store_reach *reach)
{
    char *name = reach->files ? path_absolute(reach->files) : NULL;
    if (reach->files && !name)
        return -errno;
    int fd = name ? open(name, O_PATH | O_CLOEXEC) : -1;
    if (name && fd < 0) {
        int error = -errno;
        free(name);
        return error;
    }
    set_files(store, fd, name);
    store->reach.allowed = *reach;
    store->reach.allowed.files = NULL; /* belongs to the caller */
    return note_opened(store);
}

int store_share_reach(struct store *store, const struct store *from, bool is_free)
{
    bool has_files = from->reach.files >= 0;
    char *name = has_files ? strdup(from->reach.files_name) : NULL;
    int fd = name ? fcntl(from->reach.files, F_DUPFD_CLOEXEC, 0) : -1;
    if (has_files && fd < 0) {
        int error = name ? -errno : -ENOMEM;
        free(name);
        return error;
    }
    set_files(store, fd, name);
    store->reach.allowed = from->reach.allowed;
    store->reach.top = is_free ? NULL : from->reach.top ? from->reach.top : from;
    store->reach.depth = from->reach.depth + 1;
    return note_opened(store);
}

int store_find(const struct store *store, enum store_lead lead, const char *name,
               struct store_found *found)
{
    struct folders folders;
    if (store->reach.depth >= MOST_DEPTH)
        return -ELOOP;
    size_t n = find_folders(&folders, store, lead);
    struct search how = {.store = store, .folders = &folders, .lead = lead};
    int error = folders.error ? folders.error : find_audiences(store, &how.audiences);
    if (!error)
        error = search(&how, n, name, found);
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
    return io_open_again(found->fd, access);
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
        return "others would see what its owner does not let them see (allow_other), by its mode "
               "or that of a "
               "folder above it; external_files=DIR opens folders of who mounts";
    case -EKEYREJECTED:
        return "libhdf5 would read another user's file as root, or one that others may write, and "
               "others look on (allow_other): mount with ro, or trust";
    case -ELOOP:
        return "too many files or links lead there";
    default:
        return NULL;
    }
}
