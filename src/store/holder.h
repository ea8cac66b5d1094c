/* Who has the lock of a file, and what is done if that is a sparsefs that was killed.
 *
 * One that was killed may not be able to end: a thread of it waits in the kernel for what only an
 * answer of its own mount would end, and the lock stays. Then its connection is aborted: nobody
 * serves it any more, and all that it waits for fails. That of a process which was not killed is
 * left alone. */
#ifndef SPARSEFS_STORE_HOLDER_H
#define SPARSEFS_STORE_HOLDER_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define HOLDER_TEXT 512

struct holder {
    pid_t pid;
    bool is_writer;
};

/* The first process of those that the kernel shows (proc(5), /proc/locks). None of another host or
 * another pid namespace is. */
bool holder_find(const struct stat *file, bool writer_only, struct holder *holder);

/* After a lock was refused: takes it as soon as a sparsefs that was killed has let go of it, within
 * seconds. 0 or -errno of flock(2); -EWOULDBLOCK: who has it lives, or does not end. */
int holder_outlive(int fd, const char *path, int operation);

/* The end of a sentence: ": h5dump (process 42)", with the mount point of a sparsefs; or none. */
void holder_describe(int fd, const char *path, char text[HOLDER_TEXT]);

#endif
