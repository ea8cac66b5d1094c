/* A folder of the file system with all that lies below it, for reading. Everything is found from
 * the folder's own descriptor, name by name, and symbolic links are never followed: nothing leads
 * out. What is mounted below it is entered, but for mounts of sparsefs, which are not shown: a
 * daemon that waits for itself waits for good. Nor are pipes, sockets and devices, and FUSE file
 * systems of users who are neither root nor this one: they need not answer. Knows neither nodes nor
 * FUSE. Thread-safe. */
#ifndef SPARSEFS_FS_FOLDER_WALK_H
#define SPARSEFS_FS_FOLDER_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct folder;

enum folder_kind {
    FOLDER_DIRECTORY,
    FOLDER_HDF5, /* a regular file with the signature of HDF5 */
    FOLDER_FILE, /* another one, or one that may not be read */
    FOLDER_SYMLINK,
};

/* path is copied. is_for_others: modes are without what an ACL keeps from some of those they are for
 * (common/acl.h). Errors of open(2) and links_check; -ENOMEM. */
int folder_create(const char *path, bool is_for_others, struct folder **folder);
void folder_destroy(struct folder *folder); /* NULL is fine */

/* As folder_create was given it; valid until folder_destroy. */
const char *folder_path(const struct folder *folder);

bool folder_is_for_others(const struct folder *folder);

int folder_statvfs(const struct folder *folder, struct statvfs *st);

/* A descriptor that only says what a path leads to (O_PATH), or -errno: -ENOENT also for what is
 * not shown. The path is relative to the folder, "" is the folder itself. */
int folder_find(const struct folder *folder, const char *path, struct stat *st);

/* The same of a name in a directory that is open. */
int folder_find_in(const struct folder *folder, int directory, const char *name, struct stat *st);

/* Opens what was found for reading: a descriptor or -errno. */
int folder_open_found(int found);

/* What was found. Of regular files those are HDF5 which have its signature where the format allows
 * it, at 0, 512, 1024, 2048 and so on: one read of 2 KiB and one for every doubling of the
 * file's size are made to find that out, once for
 * every state of the file that is older than some seconds. Errors of open(2) and pread(2), but that it may not be
 * read: then it is not known. */
int folder_kind(struct folder *folder, int found, const struct stat *st, enum folder_kind *kind);

/* Whether another state of the file would have other times. */
bool folder_is_old_enough(const struct stat *st);

/* A name in a directory, and whether it was that of a regular file, as the directory itself says:
 * false also where it says nothing. */
struct folder_name {
    size_t at; /* of it in the text */
    bool is_file;
};

/* The names in a directory that was found, but "." and "..", each at its place, from 0 on, in the order in which the
 * directory has them. They are read as they are wanted, and the last ones are in memory, as many as take
 * FOLDER_NAMES_BYTES and what is read at once: however many there are, this takes neither long nor much. Going on from
 * what is in memory finds each name once; going back farther finds it where it was, unless the directory has changed.
 * Not thread-safe. */
#define FOLDER_NAMES_BYTES ((size_t)32 << 10)
#define FOLDER_MARKS       64
struct folder_mark {
    uint64_t place;
    off_t offset; /* in the directory, of the name that has this place */
};
struct folder_names {
    uint64_t first; /* the place of the first one that is in memory, */
    size_t n;       /* and how many are */
    struct folder_name *name;
    char *text;
    size_t text_bytes;
    int directory; /* a descriptor of it */
    /* Of folder_walk.c: places from which on can be read again, a distance apart that grows. */
    uint64_t mark_distance;
    size_t n_marks;
    struct folder_mark mark[FOLDER_MARKS];
};

/* The descriptor is taken over, also on error; the caller frees the names. Nothing is read yet. */
int folder_list(int found, struct folder_names *names);
void folder_names_free(struct folder_names *names);

/* The next one that is wanted is the first, of the directory as it is then. */
void folder_names_rewind(struct folder_names *names);

/* Whether the one at a place is in memory, or at most one reading away. */
bool folder_names_are_near(const struct folder_names *names, uint64_t place);

/* The name at a place is names->name[*i]. -ENOENT: there are not so many; -ENOMEM, -EINTR, errors of lseek(2) and
 * getdents(2), after which it can be tried again. */
int folder_names_find(struct folder_names *names, uint64_t place, size_t *i);

/* Bytes of memory. */
size_t folder_names_bytes(const struct folder_names *names);

/* The kind of a regular file that was listed, without opening it: false if that takes looking into
 * it, or if it is none any more, or not of the folder's own device. */
bool folder_knows_listed(struct folder *folder, const struct folder_names *names, size_t i,
                         struct stat *st, enum folder_kind *kind);

#endif
