/* HDF5 link names as file names. Nearly all are the same; the others are percent-encoded, so that
 * every link has exactly one file name and no name means anything to a path walk. */
#ifndef SPARSEFS_FS_ESCAPED_NAMES_H
#define SPARSEFS_FS_ESCAPED_NAMES_H

#include <stdbool.h>

#define NAME_BYTES 256 /* of the longest file name, with its NUL */

/* The name of the directory at the root of a mount that is not in the file. */
#define NAME_CONTROL ".sparsefs"

/* That of a file in a group, unless a link has it. */
#define NAME_GROUP_JSON "group.json"

/* The targets of symbolic links that lead nowhere: no name is one of them, or begins so. */
#define NAME_EXTERNAL     "external:" /* and what it names */
#define NAME_USER_DEFINED "user-defined-link"
#define NAME_TOO_DEEP     "too-many-levels-of-groups"

/* Encoded are: "." and "..", a link at the root called .sparsefs (in_root), the first letter of a
 * target that leads nowhere, '/', and in names in which '%' stands before two hexadecimal digits or
 * '~', each '%'. What is longer than a file name can be is cut and ends in "%~" and a hash of the whole. */
void link_name_encode(const char *link, bool in_root, char name[NAME_BYTES]);

/* The link that a file name stands for; false if it cannot be told from the name alone (cut) or if
 * there can be none. `link` has room for NAME_BYTES. */
bool link_name_decode(const char *name, bool in_root, char link[NAME_BYTES]);

/* The same for a group that is to be made: false, too, for the link `.`, and for one with a '/', which HDF5
 * would take for a path. */
bool link_name_for_group(const char *name, bool in_root, char link[NAME_BYTES]);

/* Whether the name can only be one that was cut, as it contains "%~": its link is found by encoding all
 * links of the group. */
bool link_name_is_cut(const char *name);

#endif
