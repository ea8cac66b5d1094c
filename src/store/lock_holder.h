/* Who has the lock of a file, and what is done if that is a sparsefs that was killed.
 *
 * One that was killed may not be able to end: a thread of it waits in the kernel for what only an
 * answer of its own mount would end, and the lock stays. Then its connection is aborted, if the mount is its
 * user's: nobody serves it any more, and all that it waits for fails. That of a process which was not killed is
 * left alone. */
#ifndef SPARSEFS_STORE_LOCK_HOLDER_H
#define SPARSEFS_STORE_LOCK_HOLDER_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define HOLDER_TEXT 512

struct holder {
    pid_t pid;
    bool is_writer;
};

/* The first holder among the processes that the kernel shows (proc(5), /proc/locks): not one of
 * another host or pid namespace, or one that a second of reading does not find among the locks of all. */
bool holder_find(const struct stat *file, bool writer_only, struct holder *holder);

/* After a lock was refused: takes it as soon as a killed sparsefs has released it, within seconds.
 * 0 or -errno of flock(2); -EWOULDBLOCK: the holder was not killed, or does not end. */
int holder_outlive(int fd, const char *path, int operation);

/* The end of a sentence: ": h5dump (process 42); close it there", with the mount point of a
 * sparsefs; or none. */
void holder_describe(int fd, const char *path, char text[HOLDER_TEXT]);

#endif
