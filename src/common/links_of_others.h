/* Symbolic links that other users have made on the way to a file that is written, or the folder of a new one. */
#ifndef SPARSEFS_COMMON_LINKS_OF_OTHERS_H
#define SPARSEFS_COMMON_LINKS_OF_OTHERS_H

#include <sys/stat.h>

/* Whether the path, by which a file or folder was just opened, leads to it. A link of a user who is neither root
 * nor this one may only lead to one of his own (mounts_owner): he must not choose which other one is written, or shown
 * to others. 0: *user is the one whose links led to it, or 0; -EPERM: a link of *user leads to what is not his;
 * -ESTALE: it leads to another file by now; errors of open(2). */
int links_check(const char *path, const struct stat *opened, uid_t *user);

#endif
