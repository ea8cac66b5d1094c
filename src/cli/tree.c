/* Walking the tree of groups, and datasets by their paths. */
#include "cli/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/hash.h"
#include "common/object_names.h"

/* An object that has been met. */
struct met {
    uint64_t address;
    UT_hash_handle hh;
};

/* An object that is still to be visited. */
struct waiting {
    uint64_t address;
    const struct object_name *name;
    bool is_series;
    char *path; /* while it is visited */
};

struct walk {
    struct sfs_file *file;
    tree_function each, series; /* the second may be NULL */
    int (*unreadable)(void *context, const char *path, int error);
    void *context;
    struct object_names names;
    struct met *met;
    struct waiting *waiting; /* a stack */
    size_t n, room;
};

/* Notes an object; false in *is_new if it was met before. */
static int meet(struct walk *walk, uint64_t address, bool *is_new)
{
    struct met *met;
    HASH_FIND(hh, walk->met, &address, sizeof(address), met);
    *is_new = !met;
    if (met)
        return 0;
    met = malloc(sizeof(*met));
    if (!met)
        return -ENOMEM;
    met->address = address;
    HASH_ADD(hh, walk->met, address, sizeof(met->address), met);
    if (hash_failed()) {
        free(met);
        return -ENOMEM;
    }
    return 0;
}

/* group: NULL for the root. -ENAMETOOLONG, -E2BIG: its path, or all names, are too long. */
static int push(struct walk *walk, uint64_t address, const struct waiting *group, const char *name,
                bool is_series)
{
    const struct object_name *added;
    struct waiting *waiting = room_for_one(walk->waiting, walk->n, &walk->room, sizeof(*waiting));
    if (!waiting)
        return -ENOMEM;
    walk->waiting = waiting;
    int error = object_names_add(&walk->names, group ? group->name : NULL, name, &added);
    if (!error)
        walk->waiting[walk->n++] = (struct waiting){address, added, is_series, NULL};
    return error;
}

static bool is_walked(const struct walk *walk, const struct sfs_link *link)
{
    return link->type == SFS_LINK_HARD || (walk->series && link->type == SFS_LINK_SERIES);
}

/* The links of a group, the last first, as the stack turns them around. */
static int push_links(struct walk *walk, const struct waiting *group)
{
    struct sfs_links links;
    int error = sfs_list(walk->file, group->address, &links), too_long = 0;
    if (error)
        return error;
    for (size_t i = links.n; i-- > 0 && !error;) {
        const struct sfs_link *link = &links.link[i];
        if (is_walked(walk, link))
            error = push(walk, link->address, group, link->name, link->type == SFS_LINK_SERIES);
        if (error == -ENAMETOOLONG)
            error = 0, too_long = -ENAMETOOLONG;
    }
    sfs_links_free(&links);
    return error ? error : too_long;
}

static int fault(const struct walk *walk, const struct waiting *object, int error)
{
    return walk->unreadable ? walk->unreadable(walk->context, object->path, error)
                            : fail(error, "%s:%s", sfs_path(walk->file), object->path);
}

static int visit_series(struct walk *walk, const struct waiting *series)
{
    struct sfs_dataset *dataset;
    int error = sfs_dataset_open(walk->file, series->address, series->path, &dataset);
    if (error == -EIO) { /* of which only `fail` says why */
        (void)fail(error, "%s:%s", sfs_path(walk->file), series->path);
        messages_forget();
        return 0;
    }
    if (error)
        return fail(error, "%s:%s", sfs_path(walk->file), series->path);
    int code = walk->series(walk->context, series->path, series->address, SFS_DATASET);
    sfs_dataset_close(dataset);
    return code;
}

static int visit(struct walk *walk, const struct waiting *object)
{
    enum sfs_object_type type;
    bool is_new;
    int error = meet(walk, object->address, &is_new);
    if (error || !is_new)
        return error ? fault(walk, object, error) : 0;
    error = sfs_object_type(walk->file, object->address, &type);
    if (!error && type == SFS_GROUP && object->name->level >= SFS_MOST_LEVELS)
        error = -ELOOP;
    if (!error && type == SFS_GROUP)
        error = push_links(walk, object);
    if (error)
        return fault(walk, object, error);
    return walk->each(walk->context, object->path, object->address, type);
}

int tree_walk_series(struct sfs_file *file, tree_function each, tree_function series,
                     int (*unreadable)(void *context, const char *path, int error), void *context)
{
    struct walk walk = {
        .file = file, .each = each, .series = series, .unreadable = unreadable, .context = context};
    int result = push(&walk, sfs_root(file), NULL, "", false);
    if (result)
        result = fail(result, "%s", sfs_path(file));
    while (!result && walk.n > 0) {
        struct waiting object = walk.waiting[--walk.n];
        object.path = object_name_path(object.name);
        if (!object.path)
            result = fail(-ENOMEM, "%s", sfs_path(file));
        else
            result = object.is_series ? visit_series(&walk, &object) : visit(&walk, &object);
        free(object.path);
    }
    free(walk.waiting);
    object_names_free(&walk.names);
    struct met *met, *next;
    HASH_ITER (hh, walk.met, met, next) {
        HASH_DEL(walk.met, met);
        free(met);
    }
    return result;
}

int tree_walk(struct sfs_file *file, tree_function each, void *context)
{
    return tree_walk_series(file, each, NULL, NULL, context);
}

int tree_open(struct sfs_file *file, const char *path, struct sfs_dataset **dataset)
{
    uint64_t address;
    enum sfs_object_type type;
    int error = sfs_find(file, sfs_root(file), path, &address);
    if (error == -ENOENT || error == -ENOTDIR)
        return fail_because("%s:%s: there is no such dataset", sfs_path(file), path);
    if (!error)
        error = sfs_object_type(file, address, &type);
    if (!error && type != SFS_DATASET)
        return fail_because("%s:%s: it is not a dataset", sfs_path(file), path);
    if (!error)
        error = sfs_dataset_open(file, address, path, dataset);
    return error ? fail(error, "%s:%s", sfs_path(file), path) : 0;
}

/* ---- The only dataset ---- */

#define MOST_LISTED 8

struct candidates {
    struct sfs_file *file;
    size_t n;
    char *path;   /* of the first */
    char *series; /* of the last series */
    char list[1024];
};

/* A series stands for its members. Names are in ascending order: it comes before them. */
static bool is_of_series(const struct candidates *candidates, const char *path)
{
    size_t n = candidates->series ? strlen(candidates->series) : 0;
    return n > 0 && !strncmp(path, candidates->series, n) && path[n] == '_';
}

static int consider(void *context, const char *path, uint64_t address, enum sfs_object_type type)
{
    struct candidates *candidates = context;
    struct sfs_dataset *dataset;
    if (type != SFS_DATASET || is_of_series(candidates, path))
        return 0;
    int error = sfs_dataset_open(candidates->file, address, path, &dataset);
    if (error)
        return fail(error, "%s:%s", sfs_path(candidates->file), path);
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    bool is_one = info->rank >= 2 && !info->type.has_pointers;
    sfs_dataset_close(dataset);
    if (!is_one)
        return 0;
    if (candidates->n == 0 && !(candidates->path = strdup(path)))
        return fail(-ENOMEM, "%s", path);
    size_t used = strlen(candidates->list);
    if (candidates->n < MOST_LISTED)
        snprintf(candidates->list + used, sizeof(candidates->list) - used, "%s%s",
                 candidates->n ? " " : "", path);
    else if (candidates->n == MOST_LISTED)
        snprintf(candidates->list + used, sizeof(candidates->list) - used, " ...");
    candidates->n++;
    return 0;
}

static int consider_series(void *context, const char *path, uint64_t address,
                           enum sfs_object_type type)
{
    struct candidates *candidates = context;
    free(candidates->series);
    candidates->series = strdup(path);
    return candidates->series ? consider(context, path, address, type) : fail(-ENOMEM, "%s", path);
}

int tree_open_only(struct sfs_file *file, struct sfs_dataset **dataset, char **path)
{
    struct candidates candidates = {.file = file};
    int code = tree_walk_series(file, consider, consider_series, NULL, &candidates);
    free(candidates.series);
    if (!code && candidates.n == 0)
        code = fail_because("%s: there is no dataset of rank 2 or more", sfs_path(file));
    else if (!code && candidates.n > 1)
        code = fail_because("%s: say which of its %zu datasets, as FILE:DATASET: %s",
                            sfs_path(file), candidates.n, candidates.list);
    if (!code)
        code = tree_open(file, candidates.path, dataset);
    if (code)
        free(candidates.path);
    else
        *path = candidates.path;
    return code;
}

bool is_numeric(const struct sfs_type *type)
{
    return type->class == SFS_INTEGER || type->class == SFS_FLOAT || type->class == SFS_BITFIELD ||
           type->class == SFS_ENUM;
}
