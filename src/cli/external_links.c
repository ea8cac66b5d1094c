/* Following the external links in the path of a dataset, name by name. Each file on the way is open
 * until the last one is known: where a file may be is decided by the first. */
#include "cli/external_links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/open_source.h"

#define MOST_FILES 16
#define MOST_SOFT  64 /* soft links in one file */

/* The files so far, and the path in the last one. */
struct trail {
    struct sfs_file *file[MOST_FILES];
    size_t n;
    char *path;
};

/* The next name of a path, which is cut off there; NULL: none is left. */
static char *take_name(char **rest)
{
    char *name;
    do
        name = strsep(rest, "/");
    while (name && (!*name || !strcmp(name, ".")));
    return name;
}

/* Puts what a link leads to in the place of a path up to the link, which begins at `at`. */
static int replace(char **path, size_t at, const char *target, const char *rest)
{
    char *joined;
    int before = *target == '/' ? 0 : (int)at;
    if (asprintf(&joined, "%.*s%s/%s", before, *path, target, rest ? rest : "") < 0)
        return -ENOMEM;
    free(*path);
    *path = joined;
    return 0;
}

/* Goes along the path to the first link that is no hard one; -ENOENT: there is none, or nothing.
 * *at is where its name begins in the path; the caller frees *rest, what stands behind it. */
static int find_link(const struct trail *trail, struct sfs_link *link, size_t *at, char **rest)
{
    struct sfs_file *file = trail->file[trail->n - 1];
    uint64_t group = sfs_root(file);
    char *copy = strdup(trail->path), *left = copy, *name;
    int error = copy ? 0 : -ENOMEM;
    while (!error && (name = take_name(&left))) {
        error = sfs_lookup(file, group, name, link);
        if (error)
            break;
        if (link->type == SFS_LINK_SOFT || link->type == SFS_LINK_EXTERNAL) {
            *at = (size_t)(name - copy);
            *rest = strdup(left ? left : "");
            free(copy);
            if (!*rest)
                sfs_link_free(link);
            return *rest ? 0 : -ENOMEM;
        }
        group = link->address;
        sfs_link_free(link);
    }
    free(copy);
    return error == -ENOMEM ? error : -ENOENT;
}

static int tell(const struct trail *trail, const struct sfs_link *link, int error)
{
    const char *from = sfs_path(trail->file[trail->n - 1]);
    if (error == -EXDEV)
        return fail_because("%s: an external link leads out of its folder, to %s: "
                            "--external-files DIR, before the command, would follow it",
                            from, link->target_file);
    if (error == -ENOENT)
        return fail_because("%s: an external link leads to %s, which is not there", from,
                            link->target_file);
    return fail(error, "%s: an external link to %s", from, link->target_file);
}

static int go_to_file(struct trail *trail, const struct sfs_link *link, const char *rest)
{
    struct sfs_file *next;
    int error = trail->n == MOST_FILES
                    ? -ELOOP
                    : sfs_open_beneath(trail->file[trail->n - 1], link->target_file, &next);
    if (error)
        return tell(trail, link, error);
    trail->file[trail->n++] = next;
    error = replace(&trail->path, 0, link->target, rest);
    return error ? fail(error, "%s", link->target_file) : 0;
}

/* Until no link is left in the path, in whichever file. */
static int follow(struct trail *trail)
{
    struct sfs_link link;
    size_t at;
    char *rest;
    int code = 0, error = 0;
    for (unsigned soft = 0; !code && soft < MOST_SOFT; soft++) {
        error = find_link(trail, &link, &at, &rest);
        if (error)
            break;
        if (link.type == SFS_LINK_SOFT)
            code = replace(&trail->path, at, link.target, rest) ? fail(-ENOMEM, "%s", rest) : 0;
        else
            code = go_to_file(trail, &link, rest);
        free(rest);
        sfs_link_free(&link);
    }
    return error == -ENOMEM ? fail(error, "%s", trail->path) : code;
}

/* The last file and the path there. */
static int arrive(struct trail *trail, struct target *target)
{
    const struct sfs_file *last = trail->file[trail->n - 1];
    struct stat st;
    char *file = strdup(sfs_path(last));
    int error = file ? sfs_stat(last, &st) : -ENOMEM;
    if (error) {
        free(file);
        return fail(error, "%s", target->file);
    }
    source_expect(&st);
    free(target->file);
    free(target->path);
    *target = (struct target){file, trail->path};
    trail->path = NULL;
    for (size_t n = strlen(target->path); n > 1 && target->path[n - 1] == '/'; n--)
        target->path[n - 1] = '\0';
    return 0;
}

static void leave(struct trail *trail)
{
    free(trail->path);
    while (trail->n > 0)
        sfs_discard(trail->file[--trail->n]);
}

/* Opens the first file, and all that the path leads through; the caller leaves the trail. */
static int go(const struct target *target, struct trail *trail)
{
    *trail = (struct trail){0};
    source_expect(NULL); /* of what was found before and never opened */
    int code = source_open(target->file, &trail->file[0]);
    if (code)
        return code;
    trail->n = 1;
    if (!target->path)
        return 0;
    trail->path = strdup(target->path);
    code = trail->path ? follow(trail) : fail(-ENOMEM, "%s", target->file);
    messages_forget(); /* errors of the look-up are reported when it is opened */
    return code;
}

int target_open(struct target *target, struct sfs_file **file)
{
    struct trail trail;
    int code = go(target, &trail);
    bool is_elsewhere = trail.n > 1;
    if (!code && is_elsewhere)
        code = arrive(&trail, target);
    else if (!code)
        *file = trail.file[--trail.n];
    leave(&trail);
    return code || !is_elsewhere ? code : source_open(target->file, file);
}

int source_follow(struct target *source, struct target *destination)
{
    struct trail trail;
    if (!source->path)
        return 0;
    if (!destination->path && !(destination->path = strdup(source->path)))
        return fail(-ENOMEM, "%s", source->path);
    int code = go(source, &trail);
    if (!code && trail.n > 1)
        code = arrive(&trail, source);
    leave(&trail);
    return code;
}
