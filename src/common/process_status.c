#include "common/process_status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXITING      0x4 /* in a thread's flags (PF_EXITING of the kernel) */
#define MOST_THREADS 4096

/* Places of fields of /proc/PID/task/TID/stat, from the state on, which comes after the name. */
enum { STATE, FLAGS = 6, PENDING = 28, FIELDS };

/* What a thread waits for in the kernel may be ended by SIGKILL alone. That becomes pending with any other signal that
 * ends a program, but for those that end it with a core (signal(7)): these stay, until it has waited. */
static const int with_core[] = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};

static unsigned long long bit_of(int number)
{
    return 1ull << (number - 1);
}

struct signals {
    unsigned long long pending, left; /* left: blocked, ignored, or there is a handler */
    int tracer;                       /* the process that is asked first; or 0 */
};

static void take_signals(const char *line, struct signals *signals)
{
    unsigned long long mask;
    if (sscanf(line, "SigPnd: %llx", &mask) == 1 || sscanf(line, "ShdPnd: %llx", &mask) == 1)
        signals->pending |= mask;
    if (sscanf(line, "SigBlk: %llx", &mask) == 1 || sscanf(line, "SigIgn: %llx", &mask) == 1 ||
        sscanf(line, "SigCgt: %llx", &mask) == 1)
        signals->left |= mask;
    (void)sscanf(line, "TracerPid: %d", &signals->tracer);
}

static bool are_fatal(const struct signals *signals)
{
    unsigned long long fatal = 0;
    for (size_t i = 0; i < sizeof(with_core) / sizeof(*with_core) && !signals->tracer; i++)
        fatal |= bit_of(with_core[i]);
    return signals->pending & (bit_of(SIGKILL) | (fatal & ~signals->left));
}

/* One that is not there any more has ended; one that cannot be looked at has not. */
static bool thread_ends(int threads, const char *thread)
{
    char path[64], text[1024] = "", *field[FIELDS], *rest;
    snprintf(path, sizeof(path), "%.31s/stat", thread);
    int fd = openat(threads, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    bool is_gone = n < 0 && errno == ESRCH;
    close(fd);
    rest = n > 0 ? strrchr(text, ')') : NULL;
    if (!rest || rest[1] != ' ')
        return is_gone;
    rest += 2;
    for (size_t i = 0; i < FIELDS; i++)
        if (!(field[i] = strsep(&rest, " ")))
            return false;
    return strchr("ZX", field[STATE][0]) || (strtoul(field[FLAGS], NULL, 10) & EXITING) ||
           (strtoull(field[PENDING], NULL, 10) & bit_of(SIGKILL));
}

static bool all_threads_end(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    bool all_end = threads;
    for (struct dirent *entry; all_end && (entry = readdir(threads));)
        if (entry->d_name[0] != '.')
            all_end = n++ < MOST_THREADS && thread_ends(dirfd(threads), entry->d_name);
    if (threads)
        closedir(threads);
    return all_end;
}

bool process_look_at(pid_t pid, struct process_status *status)
{
    char path[64], line[256], state = '\0';
    struct signals signals = {0};
    *status = (struct process_status){.uid = (uid_t)-1};
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "Name: %63[^\n]", status->name);
        (void)sscanf(line, "Uid: %u", &status->uid);
        (void)sscanf(line, "State: %c", &state);
        (void)sscanf(line, "CapEff: %" SCNx64, &status->capabilities);
        take_signals(line, &signals);
    }
    if (file)
        fclose(file);
    status->was_killed =
        are_fatal(&signals) || ((state == 'Z' || state == 'X') && all_threads_end(pid));
    return status->name[0];
}

bool process_is_in_our_user_namespace(pid_t pid)
{
    char path[64];
    struct stat own, its;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    return stat("/proc/self/ns/user", &own) == 0 && stat(path, &its) == 0 &&
           own.st_dev == its.st_dev && own.st_ino == its.st_ino;
}

uint64_t process_address_space(pid_t pid)
{
    char path[64];
    uint64_t pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
