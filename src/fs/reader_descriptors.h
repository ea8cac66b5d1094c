/* Descriptors that the daemon has for as long as users have plain files and directories of a folder open: one for each,
 * so their number is the users'. They have a part of what the process may have open; the rest is for HDF5 files,
 * commits, and looking at what is in the folder. Of this part each user has a share (user_share.h). Of the process;
 * thread-safe. */
#ifndef SPARSEFS_FS_READER_DESCRIPTORS_H
#define SPARSEFS_FS_READER_DESCRIPTORS_H

#include <sys/types.h>

#define READER_DESCRIPTORS 8192 /* at most, of all users */

/* Counts one for a user, until it is given back. -EMFILE: there are too many, which is logged with the name of what is
 * mounted; -ENOMEM. */
int reader_descriptor_take(const char *mounted, uid_t user);
void reader_descriptor_give(uid_t user);

#endif
