/* Namespaces, identity, Landlock, limits, seccomp; in that order, as each takes away what the ones
 * before need. */
#include "hdf5/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sanitized.h"
#include "config.h"

#if HAVE_SECCOMP
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#endif

#define NOBODY 65534

/* ---- Variables ---- */

#define ENV_START  50 /* fields of /proc/self/stat; the next one is the end */
#define AFTER_COMM 3  /* the first one behind the name, which may have any bytes */

/* The strings that the program was started with: those that it has replaced are still there. */
static struct {
    char *start;
    size_t n;
} variables;

/* Where /proc is not those are forgotten that the program still has. */
static void find_variables(void)
{
    char text[2048] = "";
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    char *at = n > 0 ? strrchr(text, ')') : NULL, *last;
    at = at ? strtok_r(at + 1, " ", &last) : NULL;
    for (int field = AFTER_COMM; at && field < ENV_START; field++)
        at = strtok_r(NULL, " ", &last);
    const char *end = at ? strtok_r(NULL, " ", &last) : NULL;
    uintptr_t from = at ? strtoull(at, NULL, 10) : 0, to = end ? strtoull(end, NULL, 10) : 0;
    if (from == 0 || to <= from)
        return;
    variables.start = (char *)from;
    variables.n = to - from;
}

/* Who keeps where the value of one is finds an empty one there. */
void confine_environment(void)
{
    for (char **variable = environ; variable && *variable; variable++)
        explicit_bzero(*variable, strlen(*variable));
    if (variables.n > 0)
        explicit_bzero(variables.start, variables.n);
    (void)clearenv();
}

/* ---- Namespaces ---- */

/* A folder that always exists: what is mounted over it is visible in this namespace only. */
#define PLACE "/proc"

/* Copies of the mounts of others would keep those busy after they were unmounted: so they go first.
 */
static void empty_root(void)
{
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", PLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=0555") < 0 ||
        chdir(PLACE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return; /* Landlock and the filter stand alone then */
    (void)mount("none", "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, NULL);
}

void confine_surroundings(void)
{
    int spaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC;
    find_variables();
    /* In a user namespace root would be none that can become somebody else. */
    if (unshare(spaces) == 0 || (geteuid() != 0 && unshare(spaces | CLONE_NEWUSER) == 0))
        empty_root();
    if (chdir("/") < 0)
        return; /* which can only be for want of rights to it */
}

/* ---- Who it is ---- */

/* A number that does not exist (EINVAL) is only missing in a user namespace, where such a root has no more rights
 * than its owner; one in which groups may not be set (EPERM) is one, too, if users may be. */
static bool become_nobody(void)
{
    if (setgroups(0, NULL) < 0 && errno != EPERM)
        return false;
    return (setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0) ||
           errno == EINVAL;
}

static bool may_become_nobody(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3] = {{0}};
    const uint32_t needs = CAP_TO_MASK(CAP_SETUID) | CAP_TO_MASK(CAP_SETGID);
    return geteuid() != 0 || (syscall(SYS_capget, &header, has) == 0 &&
                              (has[CAP_TO_INDEX(CAP_SETUID)].effective & needs) == needs);
}

static bool drop_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (geteuid() == 0 && !become_nobody())
        return false;
    return syscall(SYS_capset, &header, none) == 0;
}

/* ---- Limits ---- */

static bool limit(int resource, rlim_t most)
{
    struct rlimit old, new = {most, most};
    if (getrlimit(resource, &old) < 0)
        return false;
    if (old.rlim_max < most)
        new.rlim_cur = new.rlim_max = old.rlim_max;
    return setrlimit(resource, &new) == 0;
}

static bool set_limits(size_t memory)
{
    return limit(RLIMIT_CORE, 0) && limit(RLIMIT_NOFILE, 0) && limit(RLIMIT_FSIZE, 0) &&
           limit(RLIMIT_NPROC, 0) && (memory == 0 || IS_SANITIZED || limit(RLIMIT_AS, memory));
}

/* ---- Landlock: linux/landlock.h may be older than the kernel ---- */

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self  446
#endif
#define VERSION_FLAG 1

struct ruleset {
    uint64_t files, network, scopes;
};

/* Everything that a version of it knows is handled, and no rule allows any of it. */
int confine_landlock(void)
{
    static const struct {
        int version;
        size_t n;
        struct ruleset handled;
    } known[] = {
        {6, 24, {0xffff, 3, 3}}, {5, 16, {0xffff, 3, 0}}, {4, 16, {0x7fff, 3, 0}},
        {3, 8, {0x7fff, 0, 0}},  {2, 8, {0x3fff, 0, 0}},  {1, 8, {0x1fff, 0, 0}},
    };
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_FLAG);
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (version < known[i].version)
            continue;
        long rules = syscall(SYS_landlock_create_ruleset, &known[i].handled, known[i].n, 0);
        if (rules < 0)
            return 0;
        bool done = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
        close((int)rules);
        return done ? known[i].version : 0;
    }
    return 0;
}

/* ---- The filter ---- */

/* A library of a plugin may have started threads as it was loaded, for which the other walls do not stand. Where
 * unshare(2) is forbidden it is not known (unshare(2): EINVAL). */
static bool is_alone(void)
{
    return unshare(CLONE_THREAD) == 0 || errno != EINVAL;
}

#if HAVE_SECCOMP

/* Memory, its socket, the clock, and the end. Where there is no such call its name is not known to
 * libseccomp, or has a negative number: of some of those (on i386 recv, by socketcall) it knows
 * what they are instead. */
static const char *const allowed[] = {
    "read",
    "write",
    "writev",
    "brk",
    "munmap",
    "clock_gettime",
    "clock_gettime64",
    "gettimeofday",
    "time",
    "getpid",
    "gettid",
    "getrandom",
    "rt_sigreturn",
    "rt_sigprocmask",
    "rt_sigaction",
    "sigreturn",
    "sigaltstack",
    "exit",
    "exit_group",
    "close",
    "sched_yield",
    "restart_syscall",
    "set_robust_list",
    "rseq",
    "sigprocmask",
};

static bool allow_all(scmp_filter_ctx filter)
{
    for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++) {
        int number = seccomp_syscall_resolve_name(allowed[i]);
        if (number != __NR_SCMP_ERROR && seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0) < 0 &&
            number >= 0)
            return false;
    }
    return true;
}

/* A call of which only some values of an argument are allowed: those that have no other bits than these in the
 * mask. The kernel looks at 32 bits of each. */
static bool allow_values(scmp_filter_ctx filter, const char *name, unsigned argument, uint32_t mask,
                         const uint32_t values[], size_t n)
{
    int number = seccomp_syscall_resolve_name(name);
    for (size_t i = 0; i < n && number != __NR_SCMP_ERROR; i++) {
        const struct scmp_arg_cmp is_one = {
            .arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = values[i]};
        if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1, is_one) < 0 && number >= 0)
            return false;
    }
    return true;
}

/* It sends by writev, which cannot send descriptors or urgent bytes. libc wants to wait, to wake, and to give
 * memory back. */
static bool allow_parts(scmp_filter_ctx filter)
{
    static const uint32_t none[] = {0};
    static const uint32_t waits[] = {FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET};
    static const uint32_t gives_back[] = {MADV_DONTNEED, MADV_FREE};
    const uint32_t not_flags = ~(uint32_t)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    return allow_values(filter, "recvfrom", 3, ~(uint32_t)(MSG_WAITALL | MSG_DONTWAIT), none, 1) &&
           allow_values(filter, "recv", 3, ~(uint32_t)(MSG_WAITALL | MSG_DONTWAIT), none, 1) &&
           allow_values(filter, "futex", 1, not_flags, waits, 3) &&
           allow_values(filter, "futex_time64", 1, not_flags, waits, 3) &&
           allow_values(filter, "madvise", 2, UINT32_MAX, gives_back, 2);
}

/* Memory that is not to be run, nor taken from others for good: mmap without a file, neither locked nor of huge
 * pages; no change to executable. */
static bool allow_memory(scmp_filter_ctx filter)
{
    static const struct scmp_arg_cmp not_run = {
        .arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0};
    static const struct scmp_arg_cmp anonymous = {.arg = 3,
                                                  .op = SCMP_CMP_MASKED_EQ,
                                                  .datum_a =
                                                      MAP_ANONYMOUS | MAP_LOCKED | MAP_HUGETLB,
                                                  .datum_b = MAP_ANONYMOUS};
    static const char *const maps[] = {"mmap", "mmap2"};
    for (size_t i = 0; i < 2; i++) {
        int number = seccomp_syscall_resolve_name(maps[i]);
        if (number >= 0 &&
            seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 2, not_run, anonymous) < 0)
            return false;
    }
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, not_run) >= 0 &&
           seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mremap), 0) >= 0;
}

/* So that abort() is what it is: such signals for itself, but not the one by which others kill it. The kernel looks
 * at half of the argument only: "not SIGKILL" could be circumvented. */
static bool allow_faults(scmp_filter_ctx filter)
{
    static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    const struct scmp_arg_cmp itself = {
        .arg = 0, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)getpid()};
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        const struct scmp_arg_cmp is_one = {
            .arg = 2, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)faults[i]};
        if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 2, itself, is_one) < 0)
            return false;
    }
    return true;
}

/* For all threads, which needs seccomp(2); by prctl(2), in its place, for one. A call by another table ends the
 * process, where the kernel can say that it does so; or else the thread. */
static bool enter_filter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter)
        (void)seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    bool done = filter && (seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) == 0 || is_alone()) &&
                allow_all(filter) && allow_parts(filter) && allow_memory(filter) &&
                allow_faults(filter) && seccomp_load(filter) >= 0;
    if (filter)
        seccomp_release(filter);
    return done;
}

/* Containers may forbid seccomp(2), and kernels be built without it. */
static bool may_enter_filter(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

#else

static bool may_enter_filter(void)
{
    return true;
}

/* The other walls are of the calling thread alone. */
static bool enter_filter(void)
{
    return is_alone();
}

#endif

bool confine_has_filter(void)
{
    return HAVE_SECCOMP;
}

bool confine_is_allowed(void)
{
    return may_become_nobody() && may_enter_filter();
}

bool confine_worker(size_t memory)
{
    if (!drop_rights() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return false;
    (void)confine_landlock(); /* which needs a descriptor for a moment */
    return set_limits(memory) && enter_filter();
}
