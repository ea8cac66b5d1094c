/* Whether others may write the folders of plugins. */
#include "hdf5/trusted_plugin_folders.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/plugin_pool.h"

/* In a user namespace what is root's outside may belong to a user who has no number inside, as may
 * what is others': then it is told by what the system itself belongs to. 0 outside of namespaces.
 */
static uid_t find_system_owner(void)
{
    unsigned inside = 0, outside = 0, n = 0;
    struct stat system;
    FILE *map = fopen("/proc/self/uid_map", "re");
    bool is_namespace = map && fscanf(map, "%u %u %u", &inside, &outside, &n) == 3 &&
                        !(inside == 0 && outside == 0 && n == UINT_MAX);
    if (map)
        fclose(map);
    return is_namespace && stat("/usr", &system) == 0 ? system.st_uid : 0;
}

/* Under libhdf5's lock. */
static bool is_others(uid_t owner)
{
    static uid_t of_system;
    static bool is_known;
    if (!is_known)
        of_system = find_system_owner();
    is_known = true;
    return owner != 0 && owner != geteuid() && owner != of_system;
}

static bool others_may_write(const struct stat *stat)
{
    mode_t theirs = geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
    return is_others(stat->st_uid) || (stat->st_mode & theirs);
}

/* In a sticky folder, as /tmp is, users can replace only their own files. */
static bool others_may_replace_in(const struct stat *folder, bool is_ours)
{
    bool is_sticky = (folder->st_mode & S_ISVTX) && !is_others(folder->st_uid);
    return others_may_write(folder) && !(is_sticky && is_ours);
}

static bool is_there_and_ours(const char *path)
{
    struct stat itself, target;
    return lstat(path, &itself) == 0 && !is_others(itself.st_uid) && stat(path, &target) == 0;
}

/* Of what lies at an absolute path: the file or folder itself, or else the last folder on the way
 * to it, that others may write, or replace it in; NULL: none. is_there: else they could make it.
 * The caller frees it. */
static char *find_open_door(const char *path, bool is_there)
{
    struct stat found;
    char *at = strdup(path);
    if (is_there && (stat(path, &found) < 0 || others_may_write(&found)))
        return at;
    while (at && strcmp(at, "/") != 0) {
        bool is_ours = is_there_and_ours(at);
        char *slash = strrchr(at, '/');
        slash[slash == at] = '\0';
        if (stat(at, &found) == 0 && others_may_replace_in(&found, is_ours))
            return at;
    }
    free(at);
    return NULL;
}

/* The same for what libhdf5 would load of a folder; the folder itself if that cannot be told. What is none, or may not
 * be read, has nothing for libhdf5 either. */
static char *find_open_file(const char *folder)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    bool is_known = directory || errno == EACCES || errno == ENOTDIR;
    char *door = is_known ? NULL : strdup(folder);
    while (directory && !door && (entry = readdir(directory))) {
        char *path, *real;
        if (!strstr(entry->d_name, ".so"))
            continue;
        if (asprintf(&path, "%s/%s", folder, entry->d_name) < 0) {
            door = strdup(folder);
            break;
        }
        real = realpath(path, NULL);
        door = real ? find_open_door(real, true) : strdup(path); /* a link to nothing, as yet */
        free(real);
        free(path);
    }
    if (directory)
        closedir(directory);
    return door;
}

/* As libhdf5 would look for it; NULL: there is no memory, or the working directory is gone. */
static char *absolute(const char *path)
{
    if (path[0] == '/')
        return strdup(path);
    char *here = realpath(".", NULL), *whole = NULL;
    if (!here || asprintf(&whole, "%s/%s", here, path) < 0)
        whole = NULL;
    free(here);
    return whole;
}

/* ---- libhdf5's list; under its lock ---- */

#define MOST_SAID 64

static void say(const char *folder, const char *door)
{
    static char *said[MOST_SAID];
    static size_t n;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(said[i], folder))
            return;
    if (n < MOST_SAID && (said[n] = strdup(folder)))
        n++;
    log_warning("plugins of libhdf5 in %s are not used: others may write %s", folder, door);
}

static char *folder_at(unsigned i)
{
    ssize_t n = H5PLget(i, NULL, 0);
    char *path = n < 0 ? NULL : malloc((size_t)n + 1);
    if (path && H5PLget(i, path, (size_t)n + 1) < 0) {
        free(path);
        path = NULL;
    }
    return path;
}

/* Whether the folder stays in the list: by its own name, which no link can change. */
static bool sift_one(unsigned i, const char *path)
{
    char *whole = absolute(path), *real = realpath(path, NULL);
    char *door = whole ? find_open_door(whole, real != NULL) : strdup(path);
    if (real && !door)
        door = find_open_door(real, true);
    if (real && !door)
        door = find_open_file(real);
    if (real && door)
        say(path, door);
    bool stays = whole && !door && (!real || !strcmp(real, path) || H5PLreplace(real, i) >= 0);
    free(door);
    free(real);
    free(whole);
    return stays;
}

static unsigned sift(void)
{
    unsigned n;
    if (H5PLsize(&n) < 0)
        return 0;
    for (unsigned i = n; i-- > 0;) {
        char *path = folder_at(i);
        if ((!path || !sift_one(i, path)) && H5PLremove(i) >= 0)
            n--;
        free(path);
    }
    H5Eclear2(H5E_DEFAULT);
    return n;
}

void plugin_folders_sift(void)
{
    library_enter();
    (void)sift();
    library_leave();
}

void plugin_folders_put(struct wire *wire)
{
    library_enter();
    unsigned n = sift();
    n = n < PLUGINS_MOST_FOLDERS ? n : PLUGINS_MOST_FOLDERS;
    wire_uint(wire, n);
    for (unsigned i = 0; i < n; i++) {
        char *path = folder_at(i);
        wire_string(wire, path ? path : "/");
        free(path);
    }
    library_leave();
}
