/* The names of objects in a tree of groups, each kept once: a path is put together when it is wanted. So what a file
 * can make of long names and deep groups is bounded by OBJECT_NAMES_MOST_BYTES. Not thread-safe. */
#ifndef SPARSEFS_COMMON_OBJECT_NAMES_H
#define SPARSEFS_COMMON_OBJECT_NAMES_H

#include <stddef.h>

#define OBJECT_NAMES_MOST_BYTES ((size_t)512 << 20) /* of all names together */

/* Bytes of a path in a file: a name of 64 KiB, the longest that there is, and as much above it. */
#define OBJECT_NAMES_MOST_PATH ((size_t)128 << 10)

struct object_name {
    struct object_name *before; /* the one that was added before it */
    const struct object_name *parent;
    size_t path_bytes;
    unsigned level; /* the root's is 0 */
    char name[];
};

/* Zero: none. */
struct object_names {
    struct object_name *last;
    size_t bytes;
};

/* Adds a name in a group, which keeps its place until object_names_free; parent: NULL for the root, whose name is "".
 * -ENOMEM; -ENAMETOOLONG: its path is too long; -E2BIG: there are too many. */
int object_names_add(struct object_names *names, const struct object_name *parent, const char *name,
                     const struct object_name **added);

void object_names_free(struct object_names *names);

/* "/" or "/group/name", which the caller frees; NULL: no memory. */
char *object_name_path(const struct object_name *name);

#endif
