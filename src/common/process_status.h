/* What the kernel says of a process or thread (proc(5), /proc/PID/status). */
#ifndef SPARSEFS_COMMON_PROCESS_STATUS_H
#define SPARSEFS_COMMON_PROCESS_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_status {
    char name[64];
    uid_t uid;             /* the real one */
    uint64_t capabilities; /* the effective ones, in its user namespace: 1 << CAP_... */
    /* A signal is pending that ends it: SIGKILL, as for most of them, or one that ends it with a core; or it has ended,
     * except for threads that end, too. Its main thread alone may have ended, and the others go on. */
    bool was_killed;
};

/* false: it is not there, or may not be looked at. */
bool process_look_at(pid_t pid, struct process_status *status);

/* Whether it is in our user namespace; false: also if it may not be looked at. */
bool process_is_in_our_user_namespace(pid_t pid);

/* Bytes of its address space; 0: the same. */
uint64_t process_address_space(pid_t pid);

#endif
