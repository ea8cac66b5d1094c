/* New stores: a file under a temporary name, which gets its own with the first commit (replace_file.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/io.h"
#include "common/links_of_others.h"
#include "common/log.h"
#include "store/private.h"

#define ATTEMPTS 100 /* to find an unused name */

/* A place where no file is yet, in an existing directory. */
static int name_new_place(const struct store *store, char **place)
{
    char *for_directory = strdup(store->path), *for_name = strdup(store->path);
    char *directory = NULL;
    int error = for_directory && for_name ? 0 : -ENOMEM;
    if (!error) {
        directory = realpath(dirname(for_directory), NULL);
        error = directory ? 0 : -errno;
    }
    if (!error &&
        asprintf(place, "%s/%s", strcmp(directory, "/") ? directory : "", basename(for_name)) < 0)
        error = -ENOMEM;
    free(directory);
    free(for_name);
    free(for_directory);
    return error;
}

/* The place without symbolic links. One at path itself is followed if it leads to a file: that is
 * the one to be replaced. */
static int find_place(struct store *store)
{
    char *place = realpath(store->path, NULL);
    int error = place ? 0 : errno == ENOENT ? name_new_place(store, &place) : -errno;
    if (!error)
        error = place_take(store, place);
    return error ? error : place_keep_name(store);
}

/* ---- Temporary names: .NAME.XXXXXX.sparsefs ---- */

#define TEMPORARY_ENDING ".sparsefs"
#define TEMPORARY_DIGITS 6

/* Locks the new file. A cleanup may have taken it for an abandoned one before that: then it is
 * removed, or locked for a moment. */
static int claim(struct store *store)
{
    struct stat st;
    int error = file_lock(store);
    if (!error && fstat(store->fd, &st) < 0)
        error = -errno;
    return error == -EBUSY || (!error && st.st_nlink == 0) ? -EEXIST : error;
}

static int create_named(struct store *store, const struct stat *like, char *name)
{
    store->fd = openat(store->folder, place_entry(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                       like ? store->mode & S_IRWXU : store->mode);
    if (store->fd < 0)
        return -errno;
    int error = claim(store);
    if (!error && like)
        error = rights_give(store->fd, like->st_gid, store->mode);
    if (error) {
        unlinkat(store->folder, place_entry(name), 0);
        close(store->fd);
        store->fd = -1;
    }
    return error;
}

static int create_temporary(struct store *store, const struct stat *like)
{
    const char *name = place_entry(store->place);
    int directory = (int)(name - store->place), error = -EEXIST;
    for (int i = 0; i < ATTEMPTS && error == -EEXIST; i++) {
        uint32_t number;
        char *temporary;
        if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
            error = -EIO;
        } else if (asprintf(&temporary, "%.*s.%s.%0*" PRIx32 TEMPORARY_ENDING, directory,
                            store->place, name, TEMPORARY_DIGITS, number & 0xffffff) < 0) {
            error = -ENOMEM;
        } else {
            error = create_named(store, like, temporary);
            if (error)
                free(temporary);
            else
                store->temporary = temporary;
        }
    }
    return error;
}

static bool is_temporary(const char *entry, const char *name)
{
    size_t n = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, n) != 0 || entry[1 + n] != '.')
        return false;
    entry += n + 2;
    return strspn(entry, "0123456789abcdef") == TEMPORARY_DIGITS &&
           !strcmp(entry + TEMPORARY_DIGITS, TEMPORARY_ENDING);
}

/* In a sticky folder nobody removes files of others, not even root, who could; but those of who owns the store's
 * file. */
static bool is_ours(const struct store *store, const struct stat *st)
{
    struct stat folder, file;
    if (fstat(store->folder, &folder) < 0)
        return false;
    return !(folder.st_mode & S_ISVTX) || st->st_uid == geteuid() ||
           (neighbour_stat(store->folder, store->place, &file) == 0 && st->st_uid == file.st_uid);
}

/* A new file that no process has locked any more, which its creator would. Others may give any file such a name, and
 * mount anything on one. */
static bool remove_if_left(const struct store *store, const char *entry)
{
    struct stat st;
    int fd = io_open_at(store->folder, entry, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool left = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
                is_ours(store, &st) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                unlinkat(store->folder, entry, 0) == 0;
    close(fd);
    return left;
}

unsigned store_remove_temporaries(const struct store *store)
{
    unsigned n = 0;
    int fd = file_may_lock() ? openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        n += is_temporary(entry->d_name, place_entry(store->place)) &&
             remove_if_left(store, entry->d_name);
    closedir(directory);
    if (n > 0)
        log_info("%s: %u unfinished new files of programs that died were removed", store->path, n);
    return n;
}

int store_set_mode(struct store *store, mode_t mode)
{
    struct stat st;
    if (!store->temporary)
        return 0;
    return fstat(store->fd, &st) < 0 ? -errno : rights_give(store->fd, st.st_gid, mode);
}

/* Of the folder that was opened. */
static int check_links(const struct store *store, struct why *why)
{
    struct stat st;
    uid_t user;
    char *copy = strdup(store->path);
    int error = !copy                           ? -ENOMEM
                : fstat(store->folder, &st) < 0 ? -errno
                                                : links_check(dirname(copy), &st, &user);
    if (error == -EPERM)
        why_say(why,
                "a symbolic link of user %u leads to a folder of user %u: name that folder itself",
                (unsigned)user, (unsigned)st.st_uid);
    free(copy);
    return error;
}

/* Nothing is changed in a folder that others have chosen. If a file is there that is said first. */
static int check_place(struct store *store, bool own_links, struct why *why)
{
    int held = -1, links = own_links ? check_links(store, why) : 0;
    int error = links && links != -ESTALE ? links : publish_check(store, &held);
    if (held >= 0)
        close(held);
    return error ? error : links;
}

static int create(const char *path, const struct store_creation *how, const struct stat *replaced,
                  struct store **out)
{
    struct why why = {0};
    struct store *store = file_new(path, true);
    if (!store)
        return -ENOMEM;
    store->replace = how->replace;
    store->replaced = replaced;
    store->mode = how->mode;
    store->unnamed = true;
    int error = find_place(store);
    if (!error)
        error = check_place(store, how->own_links, &why);
    if (!error) {
        store_remove_temporaries(store);
        error = create_temporary(store, how->like);
    }
    if (!error && fstat(store->fd, &store->st) < 0)
        error = -errno;
    if (error) {
        log_error("%s: cannot create it: %s", path, *why.text ? why.text : strerror(-error));
        store_close(store);
        return error;
    }
    *out = store;
    return 0;
}

static int create_as_before(const char *path, const struct store_creation *how,
                            const struct stat *replaced, struct store **out)
{
    struct stat st;
    int fd = how->replace ? open(path, O_PATH | O_CLOEXEC) : -1;
    bool is_there = fd >= 0 && fstat(fd, &st) == 0;
    if (is_there)
        acl_narrow(fd, &st);
    if (fd >= 0)
        close(fd);
    const struct store_creation like = {.replace = how->replace,
                                        .mode = is_there ? st.st_mode & 0777 : 0666,
                                        .like = is_there ? &st : NULL,
                                        .own_links = how->own_links};
    return create(path, &like, replaced, out);
}

int store_create(const char *path, bool replace, struct store **out)
{
    return create_as_before(path, &(struct store_creation){.replace = replace}, NULL, out);
}

int store_create_as(const char *path, const struct store_creation *how, struct store **out)
{
    return how->mode ? create(path, how, NULL, out) : create_as_before(path, how, NULL, out);
}

int create_in_place_of(const char *path, const struct stat *replaced, struct store **out)
{
    return create_as_before(path, &(struct store_creation){.replace = true}, replaced, out);
}
