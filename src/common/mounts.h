/* The mounts that this process sees (proc(5), /proc/self/mountinfo): those of sparsefs, and which lead to which. */
#ifndef SPARSEFS_COMMON_MOUNTS_H
#define SPARSEFS_COMMON_MOUNTS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

/* What is seen of one, until the next is. */
struct mounts {
    FILE *table; /* NULL: it cannot be read */
    char *line;
    size_t size;
    int number;         /* mounts_number of what is on it */
    long long user;     /* who has mounted; -1: it does not say */
    unsigned minor;     /* of its device: the number of its connection, too */
    const char *point;  /* where it is mounted */
    const char *source; /* the file, as it was called then */
    bool is_writable;
    bool is_part; /* a bind mount of what is below the top */
};

void mounts_begin(struct mounts *mounts);

/* False: there are no more. Bind mounts of what is below the top are none. */
bool mounts_next(struct mounts *mounts);

void mounts_end(struct mounts *mounts);

/* Whether a device is that of a mount of sparsefs, or of a part of one: 1 or 0; or -errno, if the table cannot
 * be read though there is one. */
int mounts_is_sparsefs(unsigned major, unsigned minor);

/* The same of a FUSE that may wait for this process, or never answer: of sparsefs, or one that a user
 * has mounted who is neither root nor this one. */
int mounts_may_be_silent(unsigned major, unsigned minor);

/* Whether a mount has the device that sparsefs with this number of a connection would have, and is none. */
bool mounts_is_of_others(unsigned connection);

/* The number of the connection of the sparsefs whose mount, or part of one, has that number. False: there is none. */
bool mounts_connection(int number, unsigned *connection);

/* The owner of what a descriptor is of, whose state is st. A FUSE says what it likes: what lies on one of a user who is
 * neither root nor this one is that user's; on one that is not in the table, as another mount namespace has it, that of
 * (uid_t)-1. */
uid_t mounts_owner(int fd, const struct stat *st);

/* The number (in the table) of the mount that a descriptor is on; -1: it cannot be told. No file system is asked. */
int mounts_number(int fd);

/* Whether the mount that a descriptor is on is passed on the way from the root to that of another one, is that
 * itself, or has the same file system: 1 or 0; or -errno, if the table cannot be read though there is one. No file
 * system is asked. */
int mounts_is_on_way(int fd, int to);

#endif
