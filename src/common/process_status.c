#include "common/process_status.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILLED       0x100 /* SIGKILL in a mask of signals */
#define EXITING      0x4   /* in a thread's flags (PF_EXITING of the kernel) */
#define MOST_THREADS 4096

/* Places of fields of /proc/PID/task/TID/stat, from the state on, which comes after the name. */
enum { STATE, FLAGS = 6, PENDING = 28, FIELDS };

/* One that is not there any more has ended. */
static bool thread_ends(int threads, const char *thread)
{
    char path[64], text[1024] = "", *field[FIELDS], *rest;
    snprintf(path, sizeof(path), "%.31s/stat", thread);
    int fd = openat(threads, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    rest = n > 0 ? strrchr(text, ')') : NULL;
    if (!rest || rest[1] != ' ')
        return true;
    rest += 2;
    for (size_t i = 0; i < FIELDS; i++)
        if (!(field[i] = strsep(&rest, " ")))
            return false;
    return strchr("ZX", field[STATE][0]) || (strtoul(field[FLAGS], NULL, 10) & EXITING) ||
           (strtoul(field[PENDING], NULL, 10) & KILLED);
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
    unsigned long long signals;
    *status = (struct process_status){.uid = (uid_t)-1};
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "Name: %63[^\n]", status->name);
        (void)sscanf(line, "Uid: %u", &status->uid);
        (void)sscanf(line, "State: %c", &state);
        if (sscanf(line, "SigPnd: %llx", &signals) == 1 ||
            sscanf(line, "ShdPnd: %llx", &signals) == 1)
            status->was_killed |= (signals & KILLED) != 0;
    }
    if (file)
        fclose(file);
    if (!status->was_killed && (state == 'Z' || state == 'X'))
        status->was_killed = all_threads_end(pid);
    return status->name[0];
}
