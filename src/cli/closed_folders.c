/* Walks from the root, by descriptors that only say what they are. */
#include "cli/closed_folders.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/acl.h"

/* By one folder: whoever may be in its group has only what others have, too. */
static mode_t open_to(int folder, const struct stat *file, bool is_named)
{
    struct stat st;
    if (fstat(folder, &st) < 0)
        return S_IRWXU;
    if (is_named && st.st_uid == geteuid())
        return 0777;
    acl_narrow(folder, &st);
    bool group_may = st.st_mode & S_IXGRP, others_may = st.st_mode & S_IXOTH;
    if (st.st_gid != file->st_gid)
        group_may = others_may = (group_may && others_may);
    return S_IRWXU | (group_may ? S_IRWXG : 0) | (others_may ? S_IRWXO : 0);
}

/* Length of the path of a folder that was named, without a slash at its end; -1: the file is not in it. */
static ssize_t length_of_named(const char *named, const char *place)
{
    char *folder = named ? realpath(named, NULL) : NULL;
    size_t n = folder && strcmp(folder, "/") ? strlen(folder) : 0;
    bool is_above = folder && strncmp(place, folder, n) == 0 && place[n] == '/';
    free(folder);
    return is_above ? (ssize_t)n : -1;
}

mode_t folders_open_to(const char *path, const struct stat *file, const char *named)
{
    struct stat st;
    char *place = realpath(path, NULL), *copy = place ? strdup(place) : NULL, *rest = copy, *part;
    ssize_t n_named = copy ? length_of_named(named, place) : -1;
    int at = copy ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    mode_t mode = 0777;
    while (at >= 0 && (part = strsep(&rest, "/"))) {
        if (!*part)
            continue;
        ssize_t n = part > copy + 1 ? part - copy - 1 : 0; /* of the folder's path */
        mode &= open_to(at, file, n <= n_named);
        int next = openat(at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
    }
    bool is_it =
        at >= 0 && fstat(at, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
    if (at >= 0)
        close(at);
    free(copy);
    free(place);
    return is_it ? mode : S_IRWXU;
}
