/* What the kernel says of a process or thread (proc(5), /proc/PID/status). */
#ifndef SPARSEFS_COMMON_PROCESS_STATUS_H
#define SPARSEFS_COMMON_PROCESS_STATUS_H

#include <stdbool.h>
#include <sys/types.h>

struct process_status {
    char name[64];
    uid_t uid; /* the real one */
    bool
        was_killed; /* SIGKILL is pending, as for any signal that ends it; or it has ended, except for threads of
                      * which that can be said. Its main thread alone may end, and the others go on. */
};

/* false: it is not there, or may not be looked at. */
bool process_look_at(pid_t pid, struct process_status *status);

#endif
