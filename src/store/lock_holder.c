/* Looks through /proc for the holder of a lock and its connection; aborts that. */
#include "store/lock_holder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "common/acl.h"
#include "common/clock.h"
#include "common/fuse_connection.h"
#include "common/log.h"
#include "common/mounts.h"
#include "common/process_status.h"
#include "store/private.h"

#define PROGRAM "sparsefs"

#define TRY_NANOS   10000000
#define ABORT_TRIES 50 /* a killed process mostly ends at once */
#define MOST_TRIES  500
#define MOST_NANOS  UINT64_C(30000000000) /* of them together */

/* Anybody may have any number of locks, and each read(2) of the kernel's table, of a page, begins by passing over what
 * was read before. */
#define TABLE_NANOS UINT64_C(1000000000)

/* Of all descriptors of all threads: whoever holds the lock may have made any number. */
#define MOST_FACTS          4096
#define MOST_FACTS_OF_USER  65536 /* of all of a user's processes */
#define FACTS_NANOS         UINT64_C(1000000000)
#define FACTS_OF_USER_NANOS UINT64_C(3000000000)
#define LINES_BEFORE        32 /* of a descriptor's facts, before its connection */

bool holder_find(const struct stat *file, bool writer_only, struct holder *holder)
{
    char line[256], kind[8];
    unsigned major_number, minor_number;
    unsigned long long inode;
    bool found = false;
    uint64_t end = clock_now() + TABLE_NANOS;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && !found && clock_now() < end && fgets(line, sizeof(line), locks)) {
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

/* ---- Its descriptors ---- */

/* What is looked through so far, and how much may be, until when. */
struct facts {
    unsigned n, most;
    uint64_t end;
    bool is_denied; /* something may not be looked at */
};

static bool may_go_on(const struct facts *facts)
{
    return facts->n < facts->most && clock_now() < facts->end;
}

static DIR *open_folder(int in, const char *name)
{
    int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !folder)
        close(fd);
    return folder;
}

/* Whether a file of descriptors' facts is one of a connection, and of which. */
static bool read_connection(int folder, const char *name, unsigned *connection)
{
    char line[256];
    bool found = false;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    for (int i = 0; file && !found && i < LINES_BEFORE && fgets(line, sizeof(line), file); i++)
        found = sscanf(line, "fuse_connection: %u", connection) == 1;
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return found;
}

static bool connection_of_thread(int threads, const char *thread, struct facts *facts,
                                 unsigned *connection)
{
    char name[32 + sizeof("/fdinfo")];
    bool found = false;
    snprintf(name, sizeof(name), "%.31s/fdinfo", thread);
    DIR *folder = open_folder(threads, name);
    facts->is_denied |= !folder && errno == EACCES;
    for (struct dirent *entry; folder && !found && may_go_on(facts) && (entry = readdir(folder));) {
        facts->n++;
        found =
            entry->d_name[0] != '.' && read_connection(dirfd(folder), entry->d_name, connection);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The kernel shows descriptors to some users only. The main thread of a killed process has none any
 * more, so those of all its threads are searched. */
static bool look_for_connection(pid_t pid, struct facts *facts, unsigned *connection)
{
    char path[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = open_folder(AT_FDCWD, path);
    for (struct dirent *entry;
         threads && !found && may_go_on(facts) && (entry = readdir(threads));) {
        facts->n++;
        found = entry->d_name[0] != '.' &&
                connection_of_thread(dirfd(threads), entry->d_name, facts, connection);
    }
    if (threads)
        closedir(threads);
    return found;
}

static bool connection_of(pid_t pid, unsigned *connection)
{
    struct facts facts = {.most = MOST_FACTS, .end = clock_now() + FACTS_NANOS};
    return look_for_connection(pid, &facts, connection);
}

/* Of those that do not let one look (prctl(2), PR_SET_DUMPABLE) ours may. */
static bool may_serve(pid_t pid, const char *name, struct facts *facts, unsigned connection)
{
    unsigned its;
    facts->is_denied = false;
    return (look_for_connection(pid, facts, &its) && its == connection) ||
           (facts->is_denied && strcmp(name, PROGRAM) == 0);
}

/* Whether another process of the user, which was not killed, has a descriptor of the connection; also when there are
 * too many to tell. */
static bool may_be_served(unsigned connection, pid_t by_other_than, uid_t user)
{
    struct facts facts = {.most = MOST_FACTS_OF_USER, .end = clock_now() + FACTS_OF_USER_NANOS};
    struct process_status process;
    bool may = false;
    DIR *processes = open_folder(AT_FDCWD, "/proc");
    for (struct dirent *entry;
         processes && !may && may_go_on(&facts) && (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name);
        may = pid > 0 && pid != by_other_than && process_look_at(pid, &process) &&
              process.uid == user && !process.was_killed &&
              may_serve(pid, process.name, &facts, connection);
    }
    if (processes)
        closedir(processes);
    return may || !processes || !may_go_on(&facts);
}

/* ---- Its connection ---- */

/* A name proves nothing: of other users only those are believed who may write the file anyway. */
static bool is_killed_sparsefs(const struct holder *holder, const struct stat *file, uid_t *user)
{
    struct process_status process;
    bool is_killed =
        process_look_at(holder->pid, &process) && strcmp(process.name, PROGRAM) == 0 &&
        (process.uid == 0 || process.uid == geteuid() || process.uid == file->st_uid) &&
        process.was_killed;
    *user = process.uid;
    return is_killed;
}

/* A descriptor of /dev/fuse goes on to tell the number of its connection when that is gone, and another mount has the
 * number: so only that of a mount that the process's user has made, and that no other process of his serves, is
 * aborted. It may be in no table of mounts, as of `umount -l`. All is looked at when what aborts the connection is
 * open. */
static void abort_connection(const char *path, const struct holder *holder, const struct stat *file)
{
    unsigned connection;
    uid_t user;
    int fd = connection_of(holder->pid, &connection) ? fuse_connection_open(connection) : -1;
    if (fd < 0)
        return;
    if (is_killed_sparsefs(holder, file, &user) && fuse_connection_is_of(fd, user) &&
        !mounts_is_of_others(connection) && !may_be_served(connection, holder->pid, user) &&
        fuse_connection_abort(fd))
        log_warning("%s: " PROGRAM " (process %d) was killed and does not end: its connection is "
                    "aborted",
                    path, (int)holder->pid);
    close(fd);
}

/* ---- The lock ---- */

int holder_outlive(int fd, const char *path, int operation)
{
    const struct timespec pause = {.tv_nsec = TRY_NANOS};
    struct stat file;
    struct holder holder;
    uid_t user;
    int error = fstat(fd, &file) < 0 ? -errno : -EWOULDBLOCK;
    bool waits = true;
    uint64_t end = clock_now() + MOST_NANOS;
    for (unsigned i = 0; waits && error == -EWOULDBLOCK && i < MOST_TRIES && clock_now() < end;
         i++) {
        /* A lock that had a holder a moment ago may be free by now. */
        waits = holder_find(&file, operation == LOCK_SH, &holder) &&
                is_killed_sparsefs(&holder, &file, &user);
        error = file_try_lock(fd, operation);
        if (waits && i == ABORT_TRIES)
            abort_connection(path, &holder, &file);
        if (waits && error == -EWOULDBLOCK)
            nanosleep(&pause, NULL);
    }
    return error;
}

/* Made by its user; and found by its FUSE connection, or by the file's name, which proves less: then only if it
 * writes. */
static bool is_its(const struct mounts *mount, uid_t user, const unsigned *connection,
                   const char *file)
{
    return mount->user == user &&
           (connection ? mount->minor == *connection
                       : file && mount->is_writable && strcmp(mount->source, file) == 0);
}

/* Appends the mount point of a sparsefs. Of a user who may only read the file no descriptors are looked at: who may
 * write it can keep others from it in any case. */
static void describe_mount(const struct holder *holder, uid_t user, bool may_write,
                           const char *path, char *text, size_t room)
{
    unsigned connection;
    bool is_known = may_write && connection_of(holder->pid, &connection), found = false;
    char *file = is_known || !holder->is_writer ? NULL : realpath(path, NULL);
    struct mounts mounts;
    mounts_begin(&mounts);
    while (!found && mounts_next(&mounts)) {
        found = is_its(&mounts, user, is_known ? &connection : NULL, file);
        if (found)
            snprintf(text, room, ", mounted at %s", mounts.point);
    }
    mounts_end(&mounts);
    free(file);
}

static bool may_write(int fd, const struct stat *file, uid_t user)
{
    return user == 0 || user == geteuid() || user == file->st_uid ||
           acl_lets_write(fd, file, user, acl_is_member);
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
        describe_mount(&holder, process.uid, may_write(fd, &file, process.uid), path, text + n,
                       HOLDER_TEXT - (size_t)n);
    if (!process.was_killed)
        strncat(text, "; close it there", HOLDER_TEXT - strlen(text) - 1);
}
