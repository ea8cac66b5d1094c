#include "common/process_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define KILLED 0x100 /* SIGKILL in a mask of signals */

bool process_look_at(pid_t pid, struct process_status *status)
{
    char path[64], line[256], state;
    unsigned long long signals;
    *status = (struct process_status){.uid = (uid_t)-1};
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "Name: %63[^\n]", status->name);
        (void)sscanf(line, "Uid: %u", &status->uid);
        if (sscanf(line, "State: %c", &state) == 1)
            status->was_killed = state == 'Z' || state == 'X';
        if (sscanf(line, "SigPnd: %llx", &signals) == 1 ||
            sscanf(line, "ShdPnd: %llx", &signals) == 1)
            status->was_killed |= (signals & KILLED) != 0;
    }
    if (file)
        fclose(file);
    return status->name[0];
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
