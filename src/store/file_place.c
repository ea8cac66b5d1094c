/* Where the file of a store is: a name in a folder that stays open, so that a folder which is
 * renamed takes everything in it along. The journal and the counter stand beside the file, by its
 * name; a writer sees before each commit that the name still leads to its file, and follows it to
 * where it was moved.
 *
 * Between two commits a file can be moved without its journal. So the file itself has a note of
 * where it was written, as an extended attribute, if the file system has these: it is durable
 * before the first journal is, and there for as long as that may stand. And a journal knows the
 * file that it was written for, and itself (journal.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

#define NOTE "user.sparsefs.place" /* at the file: its place, absolute */

struct place {
    int folder;
    char *file, *journal, *counter;
};

bool identity_of(int fd, struct identity *identity)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
        return false;
    *identity = (struct identity){.inode = st.stx_ino};
    if (st.stx_mask & STATX_BTIME)
        identity->born = (uint64_t)st.stx_btime.tv_sec * 1000000000u + st.stx_btime.tv_nsec;
    return true;
}

bool identity_is_same(const struct identity *a, const struct identity *b)
{
    return a->inode == b->inode && (a->born == b->born || !a->born || !b->born);
}

const char *place_entry(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* ---- Names ---- */

static void close_place(struct place *place)
{
    if (place->folder >= 0)
        close(place->folder);
    free(place->file);
    free(place->journal);
    free(place->counter);
}

/* Walks from a folder, or the root, on the mounts that lead to the store's file: a descriptor that only says what it
 * is, or -errno. */
static int walk_to_file(const struct store *store, int from, const char *name, bool is_straight)
{
    const struct folders way = {.folder[0].fd = store->fd, .n = 1};
    struct walk walk = {.folders = &way, .is_straight = is_straight};
    int error = path_walk(&walk, from, name);
    if (error && walk.at >= 0)
        close(walk.at);
    return error ? error : walk.at;
}

int place_open_folder(const struct store *store, const char *path)
{
    int access = (store->writable ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC;
    bool is_new = store->fd < 0; /* its folder is the caller's choice */
    char *directory = strndup(path, (size_t)(place_entry(path) - path));
    if (!directory)
        return -ENOMEM;
    int at = is_new ? AT_FDCWD : walk_to_file(store, -1, directory, true);
    int fd = is_new || at >= 0 ? openat(at, is_new ? directory : ".", access) : at;
    int error = fd >= 0 ? 0 : fd == at ? at : -errno;
    if (at >= 0)
        close(at);
    free(directory);
    return error ? error : fd;
}

/* A path, which is absolute and which it keeps. Whoever writes syncs the folder, for which it must
 * be readable; others only look up names in it. */
static int open_place(const struct store *store, char *path, struct place *place)
{
    *place = (struct place){.folder = -1, .file = path};
    if (asprintf(&place->journal, "%s.journal", path) < 0)
        place->journal = NULL;
    if (asprintf(&place->counter, "%s.commits", path) < 0)
        place->counter = NULL;
    int error = place->journal && place->counter ? 0 : -ENOMEM;
    if (!error) {
        int folder = place_open_folder(store, path);
        place->folder = folder < 0 ? -1 : folder;
        error = folder < 0 ? folder : 0;
    }
    if (error)
        close_place(place);
    return error;
}

static void set_folder(struct store *store, int folder)
{
    pthread_mutex_lock(&store->folder_lock);
    store->folder = folder;
    pthread_mutex_unlock(&store->folder_lock);
}

/* The new folder is stored before the old one is closed, so that store_folder always finds one. */
static void take_place(struct store *store, struct place *place)
{
    journal_come_back(store);
    struct place old = {store->folder, store->place, store->journal, store->counter};
    set_folder(store, place->folder);
    store->place = place->file;
    store->journal = place->journal;
    store->counter = place->counter;
    close_place(&old);
}

void place_close(struct store *store)
{
    struct place none = {.folder = -1};
    take_place(store, &none);
}

int place_take(struct store *store, char *path)
{
    struct place place;
    int error = open_place(store, path, &place);
    if (!error)
        take_place(store, &place);
    return error;
}

bool place_is_known(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ENAMETOOLONG || error == -ELOOP ||
           error == -EXDEV || error == -EDEADLK || error == -ESTALE || error == -EACCES ||
           error == -EPERM || error == -ENOSYS;
}

/* The name may be a mount, which is not asked. As place_leads. */
static int leads_to(int folder, const char *path, const struct stat *file)
{
    struct statx st;
    if (statx(folder, place_entry(path), AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_INO, &st) <
        0)
        return place_is_known(-errno) ? 0 : -errno;
    return makedev(st.stx_dev_major, st.stx_dev_minor) == file->st_dev &&
           st.stx_ino == file->st_ino;
}

int place_leads(const struct store *store, const char *path)
{
    return leads_to(store->folder, path, &store->st);
}

char *place_of_descriptor(int fd)
{
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path));
    return n > 0 && n < (ssize_t)sizeof(path) && path[0] == '/' ? strndup(path, (size_t)n) : NULL;
}

/* ---- The note ---- */

/* Of reading or writing it: this file can have none, or none by this user. */
static bool has_no_note(int error)
{
    return error == -EOPNOTSUPP || error == -ENOSYS || error == -EPERM || error == -EACCES ||
           error == -E2BIG || error == -ERANGE || error == -EINVAL || error == -ENOTTY;
}

/* NULL: there is none. */
static int read_note(const struct store *store, char **note)
{
    char path[PATH_MAX];
    *note = NULL;
    ssize_t n = TEMP_FAILURE_RETRY(fgetxattr(store->fd, NOTE, path, sizeof(path)));
    if (n < 0)
        return errno == ENODATA || has_no_note(-errno) ? 0 : -errno;
    if (n == 0 || path[0] != '/' || memchr(path, '\0', (size_t)n))
        return 0;
    *note = strndup(path, (size_t)n);
    return *note ? 0 : -ENOMEM;
}

bool place_note(struct store *store)
{
    if (store->is_noted || store->temporary)
        return false;
    size_t n = strlen(store->place);
    int error = TEMP_FAILURE_RETRY(fsetxattr(store->fd, NOTE, store->place, n, 0)) < 0 ? -errno : 0;
    store->is_noted = !error || has_no_note(error); /* or the next commit tries again */
    return !error;
}

void place_forget_note(struct store *store)
{
    fremovexattr(store->fd, NOTE);
}

int place_noted(const struct store *store, char **path)
{
    int error = read_note(store, path);
    if (*path && !strcmp(*path, store->place)) {
        free(*path);
        *path = NULL;
    }
    return error;
}

/* ---- Finding it ---- */

/* A file with several names has its journal beside the one by which it is written. */
static int take_other_name(struct store *store)
{
    struct place place;
    char *path;
    int error = place_noted(store, &path);
    if (error || !path)
        return error;
    error = open_place(store, path, &place);
    if (error)
        return place_is_known(error) ? 0 : error;
    int leads = leads_to(place.folder, place.file, &store->st);
    if (leads > 0)
        take_place(store, &place);
    else
        close_place(&place);
    return leads < 0 ? leads : 0;
}

/* Finds the place at a path, which is taken over. */
static int find_at(struct store *store, char *path)
{
    bool is_elsewhere = store->writable && store->found && strcmp(path, store->path) != 0;
    int error = place_take(store, path);
    int leads = error ? 0 : place_leads(store, store->place);
    if (leads > 0 && !is_elsewhere)
        return store->writable ? 0 : take_other_name(store);
    error = leads < 0 ? leads : error;
    if (error && (store->writable || !place_is_known(error))) {
        store_say(store, NULL, "cannot open its directory: %s", strerror(-error));
        return error;
    }
    if (store->writable) {
        store_say(store, NULL, "it was replaced just now");
        return -EBUSY;
    }
    place_close(store); /* the name belongs to another file */
    return 0;
}

int place_find(struct store *store)
{
    errno = 0;
    char *path = store->found ? place_of_descriptor(store->fd) : realpath(store->path, NULL);
    int error = path ? 0 : errno ? -errno : -ENOENT;
    if (path)
        return find_at(store, path);
    if (store->writable || !place_is_known(error)) {
        store_say(store, NULL, "cannot find its directory: %s", strerror(-error));
        return error;
    }
    return 0;
}

/* What the file's name leads to now, or what is at its place if the way to that is unknown. */
static int look_up(const struct store *store)
{
    const char *slash = strrchr(store->path, '/'), *name = slash ? slash + 1 : store->path;
    int at = store->name_folder < 0 ? -EXDEV : walk_to_file(store, store->name_folder, name, false);
    if (at != -EXDEV)
        return at;
    if (store->folder >= 0) {
        at = walk_to_file(store, store->folder, place_entry(store->place), true);
        return at == -ELOOP ? -ESTALE : at;
    }
    at = fcntl(store->fd, F_DUPFD_CLOEXEC, 0);
    return at < 0 ? -errno : at;
}

int place_find_again(struct store *store)
{
    int at = look_up(store);
    errno = at < 0 ? -at : 0;
    char *path = at < 0 ? NULL : place_of_descriptor(at);
    int error = path || !errno ? 0 : -errno;
    if (at >= 0)
        close(at);
    return path ? find_at(store, path) : place_is_known(error) ? 0 : error;
}

int place_open_file(const struct store *store)
{
    struct store_found found = {.fd = look_up(store)};
    if (found.fd < 0)
        return found.fd;
    int error = fstat(found.fd, &found.st) < 0 ? -errno : 0;
    if (!error && (found.st.st_dev != store->st.st_dev || found.st.st_ino != store->st.st_ino))
        error = -ESTALE;
    int fd = error ? error : store_found_open(&found, O_RDONLY);
    close(found.fd);
    return fd;
}

/* Names like .nfsXXXX, under which NFS and FUSE keep a removed file while it is open. */
static bool is_removed(const char *entry)
{
    return !strncmp(entry, ".nfs", 4) || !strncmp(entry, ".fuse_hidden", 12);
}

/* Another name of the file in the folder, as after `ln OLD NEW; rm OLD`. NULL: none, or errno. */
static char *find_in_folder(const struct store *store)
{
    char *found = NULL;
    struct dirent *entry;
    char *directory = place_of_descriptor(store->folder);
    int fd = directory ? openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    while (folder && !found && (errno = 0, entry = readdir(folder)))
        if (entry->d_ino == store->st.st_ino && !is_removed(entry->d_name) &&
            asprintf(&found, "%s/%s", strcmp(directory, "/") ? directory : "", entry->d_name) < 0)
            found = NULL;
    int error = errno;
    if (folder)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    free(directory);
    errno = error;
    return found;
}

/* Finds the file's present name. -ESTALE: it cannot be found. */
static int find_again(const struct store *store, struct place *place)
{
    for (int i = 0; i < 2; i++) {
        errno = 0;
        char *path = i ? find_in_folder(store) : place_of_descriptor(store->fd);
        int error = path ? open_place(store, path, place) : errno ? -errno : -ESTALE;
        if (error && !place_is_known(error))
            return error;
        if (error)
            continue;
        int leads = leads_to(place->folder, place->file, &store->st);
        if (leads > 0 && !is_removed(place_entry(place->file)))
            return 0;
        close_place(place);
        if (leads < 0)
            return leads;
    }
    return -ESTALE;
}

/* The folder may have another name by now. */
static int rename_folder(struct store *store)
{
    char *directory = place_of_descriptor(store->folder), *path = NULL;
    const char *entry = place_entry(store->place);
    size_t n = directory && strcmp(directory, "/") ? strlen(directory) : 0;
    bool same =
        !directory || (strncmp(store->place, directory, n) == 0 && store->place + n + 1 == entry);
    int error = 0;
    if (!same && asprintf(&path, "%.*s/%s", (int)n, directory, entry) < 0)
        error = -ENOMEM;
    free(directory);
    struct place place;
    if (error || same)
        return error;
    error = open_place(store, path, &place);
    if (error)
        return error == -ENOMEM ? error : 0;
    if (leads_to(place.folder, place.file, &store->st) > 0) {
        take_place(store, &place);
        store->is_noted = false;
    } else {
        close_place(&place);
    }
    return 0;
}

/* Ends the journal of the last commit, at the old name or, if it was moved along, at the new one.
 */
static int move(struct store *store, struct place *place)
{
    int along = journal_is_at(store, place->folder, place->journal);
    int error = along < 0 ? along : along ? 0 : settle(store);
    if (error) {
        close_place(place);
        return error;
    }
    uint64_t counted = store->counted;
    counter_remove(store);
    take_place(store, place);
    store->counted = counted; /* the counter may have been moved along, too */
    store->is_noted = false;
    log_warning("%s: it was moved while it is written: it is %s now; its journal goes with it",
                store->path, store->place);
    return along ? settle(store) : 0;
}

/* Removes journal and counter beside a name that belongs to another file now: all that was
 * committed is in the file. */
static int leave(struct store *store)
{
    int error = settle(store);
    if (error)
        return error;
    counter_remove(store);
    why_say(store->why,
            "%s: it was removed or replaced while it is written: nothing can be committed until "
            "it has that name again",
            store->place);
    store->is_lost = true;
    return -ESTALE;
}

int place_follow(struct store *store)
{
    struct place place;
    int leads = place_leads(store, store->place);
    if (leads < 0)
        return leads;
    if (leads) {
        store->is_lost = false;
        return rename_folder(store);
    }
    int error = find_again(store, &place);
    if (!error) {
        store->is_lost = false;
        return move(store, &place);
    }
    return error == -ESTALE && !store->is_lost ? leave(store) : error;
}

int place_keep_name(struct store *store)
{
    char *copy = strdup(store->path);
    if (!copy)
        return -ENOMEM;
    const char *directory = dirname(copy);
    errno = 0;
    char *absolute = path_absolute(directory);
    int fd = absolute || errno != ENOMEM ? open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = errno == ENOMEM || errno == EMFILE || errno == ENFILE ? -errno : 0;
    place_forget_name(store);
    store->name_folder = fd;
    store->name_folder_as = absolute;
    free(copy);
    return fd < 0 ? error : 0;
}

void place_forget_name(struct store *store)
{
    if (store->name_folder >= 0)
        close(store->name_folder);
    free(store->name_folder_as);
    store->name_folder = -1;
    store->name_folder_as = NULL;
}

int store_rename(struct store *store, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(store->path);
    store->path = copy;
    return place_keep_name(store);
}
