/* Looks through /proc for the holder of a lock and its connection; aborts that by fusectl. */
#include "store/lock_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#ifdef SYS_fsopen
#include <linux/mount.h>
#endif

#include "common/log.h"
#include "common/mounts.h"
#include "common/process_status.h"
#include "store/private.h"

#define CONNECTIONS "/sys/fs/fuse/connections"
#define PROGRAM     "sparsefs"

#define TRY_NANOS   10000000
#define ABORT_TRIES 50 /* a killed process mostly ends at once */
#define MOST_TRIES  500

bool holder_find(const struct stat *file, bool writer_only, struct holder *holder)
{
    char line[256], kind[8];
    unsigned major_number, minor_number;
    unsigned long long inode;
    bool found = false;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && !found && fgets(line, sizeof(line), locks)) {
        found = sscanf(line, "%*u: FLOCK ADVISORY %7s %d %x:%x:%llu", kind, &holder->pid,
                       &major_number, &minor_number, &inode) == 5 &&
                inode == file->st_ino && major_number == major(file->st_dev) &&
                minor_number == minor(file->st_dev);
        holder->is_writer = found && strcmp(kind, "WRITE") == 0;
        found = found && (holder->is_writer || !writer_only);
    }
    if (locks)
        fclose(locks);
    return found;
}

/* ---- A process ---- */

/* Whether a file of descriptors' facts is one of a connection, and of which. */
static bool read_connection(const char *path, unsigned *connection)
{
    char line[256];
    bool found = false;
    FILE *facts = fopen(path, "re");
    while (facts && !found && fgets(line, sizeof(line), facts))
        found = sscanf(line, "fuse_connection: %u", connection) == 1;
    if (facts)
        fclose(facts);
    return found;
}

/* The kernel shows descriptors to some users only. The main thread of a killed process has none any
 * more, so those of all its threads are searched. */
static bool connection_of(pid_t pid, unsigned *connection)
{
    char pattern[64];
    glob_t paths;
    bool found = false;
    snprintf(pattern, sizeof(pattern), "/proc/%d/task/*/fdinfo/*", (int)pid);
    if (glob(pattern, GLOB_NOSORT, NULL, &paths) != 0)
        return false;
    for (size_t i = 0; i < paths.gl_pathc && !found; i++)
        found = read_connection(paths.gl_pathv[i], connection);
    globfree(&paths);
    return found;
}

/* ---- Its connection ---- */

/* A mount of fusectl that is nowhere: only root may make one. A negative number: none. Linux has
 * had these calls since 5.2, glibc since 2.36. */
static int mount_connections(void)
{
#ifdef SYS_fsopen
    int context = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC), folder = -1;
    if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        folder = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
    if (context >= 0)
        close(context);
    return folder;
#else
    return -1;
#endif
}

/* The file belongs to the user who mounted. */
static int open_abort(unsigned connection)
{
    char path[64];
    snprintf(path, sizeof(path), CONNECTIONS "/%u/abort", connection);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int folder = fd < 0 && errno == ENOENT ? mount_connections() : -1;
    if (folder < 0)
        return fd;
    snprintf(path, sizeof(path), "%u/abort", connection);
    fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    close(folder);
    return fd;
}

static void abort_connection(const char *path, pid_t pid)
{
    unsigned connection;
    int fd = connection_of(pid, &connection) ? open_abort(connection) : -1;
    if (fd < 0)
        return;
    if (write(fd, "1", 1) == 1)
        log_warning("%s: " PROGRAM " (process %d) was killed and does not end: its connection is "
                    "aborted",
                    path, (int)pid);
    close(fd);
}

/* ---- The lock ---- */

/* A name proves nothing: of other users only those are believed who may write the file anyway. */
static bool is_killed_sparsefs(const struct holder *holder, const struct stat *file)
{
    struct process_status process;
    return process_look_at(holder->pid, &process) && strcmp(process.name, PROGRAM) == 0 &&
           (process.uid == 0 || process.uid == geteuid() || process.uid == file->st_uid) &&
           process.was_killed;
}

int holder_outlive(int fd, const char *path, int operation)
{
    const struct timespec pause = {.tv_nsec = TRY_NANOS};
    struct stat file;
    struct holder holder;
    int error = fstat(fd, &file) < 0 ? -errno : -EWOULDBLOCK;
    bool waits = true;
    for (unsigned i = 0; waits && error == -EWOULDBLOCK && i < MOST_TRIES; i++) {
        /* A lock that had a holder a moment ago may be free by now. */
        waits =
            holder_find(&file, operation == LOCK_SH, &holder) && is_killed_sparsefs(&holder, &file);
        error = file_try_lock(fd, operation);
        if (waits && i == ABORT_TRIES)
            abort_connection(path, holder.pid);
        if (waits && error == -EWOULDBLOCK)
            nanosleep(&pause, NULL);
    }
    return error;
}

/* Found by its FUSE connection; or by the file's name, which proves less: then only if it writes.
 */
static bool is_its(const struct mounts *mount, const unsigned *connection, const char *file)
{
    return connection ? mount->minor == *connection
                      : file && mount->is_writable && strcmp(mount->source, file) == 0;
}

/* Appends the mount point of a sparsefs. */
static void describe_mount(const struct holder *holder, const char *path, char *text, size_t room)
{
    unsigned connection;
    bool is_known = connection_of(holder->pid, &connection), found = false;
    char *file = is_known || !holder->is_writer ? NULL : realpath(path, NULL);
    struct mounts mounts;
    mounts_begin(&mounts);
    while (!found && mounts_next(&mounts)) {
        found = is_its(&mounts, is_known ? &connection : NULL, file);
        if (found)
            snprintf(text, room, ", mounted at %s", mounts.point);
    }
    mounts_end(&mounts);
    free(file);
}

void holder_describe(int fd, const char *path, char text[HOLDER_TEXT])
{
    struct stat file;
    struct holder holder;
    struct process_status process;
    text[0] = '\0';
    if (fstat(fd, &file) < 0 || !holder_find(&file, false, &holder) ||
        !process_look_at(holder.pid, &process))
        return;
    int n = snprintf(text, HOLDER_TEXT, ": %s (process %d%s)", process.name, (int)holder.pid,
                     process.was_killed ? ", killed, but it has not ended" : "");
    if (strcmp(process.name, PROGRAM) == 0)
        describe_mount(&holder, path, text + n, HOLDER_TEXT - (size_t)n);
    if (!process.was_killed)
        strncat(text, "; close it there", HOLDER_TEXT - strlen(text) - 1);
}
