/* A list of names, each with the one of its group. */
#include "common/object_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int object_names_add(struct object_names *names, const struct object_name *parent, const char *name,
                     const struct object_name **added)
{
    size_t n = strlen(name), above = parent && parent->level > 0 ? parent->path_bytes : 0;
    if (n + 1 > OBJECT_NAMES_MOST_PATH - above)
        return -ENAMETOOLONG;
    size_t bytes = sizeof(struct object_name) + n + 1;
    if (bytes > OBJECT_NAMES_MOST_BYTES - names->bytes)
        return -E2BIG;
    struct object_name *new = malloc(bytes);
    if (!new)
        return -ENOMEM;
    *new = (struct object_name){.before = names->last,
                                .parent = parent,
                                .path_bytes = above + 1 + n,
                                .level = parent ? parent->level + 1 : 0};
    memcpy(new->name, name, n + 1);
    names->last = new;
    names->bytes += bytes;
    *added = new;
    return 0;
}

void object_names_free(struct object_names *names)
{
    while (names->last) {
        struct object_name *name = names->last;
        names->last = name->before;
        free(name);
    }
    names->bytes = 0;
}

char *object_name_path(const struct object_name *name)
{
    char *path = malloc(name->path_bytes + 1);
    if (!path)
        return NULL;
    char *end = path + name->path_bytes;
    *end = '\0';
    do {
        size_t n = strlen(name->name);
        end -= n + 1;
        *end = '/';
        memcpy(end + 1, name->name, n);
        name = name->parent;
    } while (end > path);
    return path;
}
