/* Nodes of a folder: its directories, its files that are not HDF5, its symbolic links, and the root
 * groups of its HDF5 files. Their names are those of the file system, as they are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/node_table.h"

char *node_folder_path(const struct node *node)
{
    size_t n = 1;
    for (const struct node *i = node; i->parent; i = i->parent)
        n += strlen(i->name) + 1;
    char *path = malloc(n);
    if (!path)
        return NULL;
    char *at = path + n - 1;
    *at = '\0';
    for (const struct node *i = node; i->parent; i = i->parent) {
        if (i != node)
            *--at = '/';
        at -= strlen(i->name);
        memcpy(at, i->name, strlen(i->name));
    }
    memmove(path, at, strlen(at) + 1);
    return path;
}

static const enum node_type types[] = {[FOLDER_DIRECTORY] = NODE_FOLDER,
                                       [FOLDER_HDF5] = NODE_GROUP,
                                       [FOLDER_FILE] = NODE_PASSED,
                                       [FOLDER_SYMLINK] = NODE_SYMLINK};

static bool is_still(const struct node *node, enum node_type type, const struct stat *st,
                     const char *target)
{
    return node->type == type &&
           (type == NODE_FOLDER ? mounted_is_directory(node->mounted, st)
                                : mounted_is(node->mounted, st)) &&
           (type != NODE_SYMLINK ||
            (node->target && target ? strcmp(node->target, target) == 0 : node->target == target));
}

/* Whether what is found in the folder now is something else. */
static bool is_another(const struct node *node, const struct node *found)
{
    return !is_still(node, found->type, &found->mounted->st, found->target);
}

/* The path of a file that may be opened by it; all else is looked for by its node, as it has no limit: there may be any
 * number of files in any number of directories in each other. The caller frees it. NULL: no memory. */
static char *path_to_keep(const struct node *directory, const struct folder_entry *found)
{
    if (found->kind != FOLDER_HDF5)
        return strdup("");
    char *above = node_folder_path(directory), *path = NULL;
    if (above && asprintf(&path, "%s%s%s", above, *above ? "/" : "", found->name) < 0)
        path = NULL;
    free(above);
    return path;
}

/* A node that is in no table yet. */
static int make_node(struct nodes *nodes, const struct node *directory,
                     const struct folder_entry *found, struct entry_of_node **out)
{
    char *path = path_to_keep(directory, found);
    struct mounted_files *files = found->kind == FOLDER_HDF5 ? nodes->folder_files : NULL;
    struct mounted_file *mounted = path ? mounted_new(files, path, found->st) : NULL;
    if (mounted)
        mounted->is_for_others = folder_is_for_others(mounted_files_folder(nodes->folder_files));
    int error = mounted ? node_new(directory, found->name, mounted, out) : -ENOMEM;
    if (!error) {
        (*out)->node.type = types[found->kind];
        (*out)->node.level = 0;
        if (found->kind == FOLDER_SYMLINK)
            error = node_make_symlink(*out, strdup(found->target));
        if (error)
            node_free(*out);
    }
    mounted_unref(mounted);
    free(path);
    return error;
}

/* One that is there, and still that, is held; NULL: it is to be made. */
static struct entry_of_node *hold_same(struct nodes *nodes, const struct node *directory,
                                       const struct folder_entry *found)
{
    struct node_key *key = node_new_key(directory, found->name);
    if (!key)
        return NULL;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find(nodes, key);
    if (entry && !is_still(&entry->node, types[found->kind], found->st, found->target))
        entry = NULL;
    if (entry)
        node_hold_locked(nodes, entry);
    pthread_mutex_unlock(&nodes->lock);
    free(key);
    return entry;
}

int node_folder_child(struct nodes *nodes, const struct node *directory,
                      const struct folder_entry *found, const struct node **child)
{
    struct entry_of_node *entry = hold_same(nodes, directory, found);
    int error = 0;
    if (!entry) {
        error = make_node(nodes, directory, found, &entry);
        if (!error)
            error = node_add_or_free(nodes, &entry, is_another);
    }
    if (!error)
        *child = &entry->node;
    return error;
}

void node_folder_forget(struct nodes *nodes, const struct node *directory, const char *name)
{
    struct entry_of_node *removed = NULL, *gone = NULL;
    struct node_key *key = node_new_key(directory, name);
    if (!key)
        return;
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *found = node_find(nodes, key);
    if (found)
        node_remove_child(nodes, found, &removed);
    node_put_removed(nodes, removed, &gone);
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
    free(key);
}

/* ---- Files that are named in others ---- */

/* Takes "." and ".." out of a path, and double slashes; false: it leads out of the folder. */
static bool straighten(char *path)
{
    char *to = path, *left = path, *part;
    while ((part = strsep(&left, "/"))) {
        size_t n = strlen(part);
        if (n == 0 || !strcmp(part, "."))
            continue;
        if (!strcmp(part, "..")) {
            if (to == path)
                return false;
            while (to > path && *--to != '/')
                ;
            continue;
        }
        if (to > path)
            *to++ = '/';
        memmove(to, part, n);
        to += n;
    }
    *to = '\0';
    return true;
}

static bool is_file(const struct mounted_files *files, char *path)
{
    struct stat st;
    if (!straighten(path))
        return false;
    int fd = folder_find(mounted_files_folder(files), path, &st);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && S_ISREG(st.st_mode);
}

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* An absolute name that is not there is looked for beside the file by its last part. */
int node_folder_resolve(const struct mounted_file *from, const char *name, char **path)
{
    const char *folder = folder_path(mounted_files_folder(from->files));
    size_t n = strlen(folder);
    bool is_absolute = name[0] == '/';
    *path = NULL;
    if (is_absolute && !strncmp(name, folder, n) && (name[n] == '/' || folder[n - 1] == '/')) {
        *path = strdup(name + n);
        if (!*path)
            return -ENOMEM;
        if (is_file(from->files, *path))
            return 0;
        free(*path);
    }
    int above = (int)(last_part(from->path) - from->path);
    if (asprintf(path, "%.*s%s", above, from->path, is_absolute ? last_part(name) : name) < 0) {
        *path = NULL;
        return -ENOMEM;
    }
    if (is_file(from->files, *path))
        return 0;
    free(*path);
    *path = NULL;
    return -ENOENT;
}
