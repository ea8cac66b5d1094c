/* Each door is a system call, by libc or with arguments that have no meaning. */
#include "try_doors.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char page[4096] __attribute__((aligned(4096)));

static bool opens(const char *path, int flags)
{
    return open(path, flags, 0600) >= 0;
}

static bool makes_socket(int family)
{
    return socket(family, SOCK_STREAM, 0) >= 0;
}

static bool makes_pair(void)
{
    int ends[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 || pipe(ends) == 0;
}

static bool is_parents_memory_open(bool writes)
{
    struct iovec here = {page, 8}, there = {page, 8};
    return (writes ? process_vm_writev(getppid(), &here, 1, &there, 1, 0)
                   : process_vm_readv(getppid(), &here, 1, &there, 1, 0)) > 0;
}

static bool makes_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
               MAP_FAILED ||
           mprotect(page, sizeof(page), PROT_READ | PROT_EXEC) == 0;
}

/* Whether the kernel looks at a call that has arguments without a meaning, as it does not if the call is forbidden. */
static bool reaches(long number)
{
    errno = 0;
    return syscall(number, 0, 0, 0, 0, 0, 0) >= 0 || errno != EPERM;
}

void try_doors(unsigned char *found, size_t n)
{
    static const long calls[] = {
        SYS_openat,
        SYS_socket,
        SYS_connect,
        SYS_bind,
        SYS_execve,
        SYS_execveat,
        SYS_clone3,
        SYS_ptrace,
        SYS_kill,
        SYS_tkill,
        SYS_pidfd_open,
        SYS_setrlimit,
        SYS_prlimit64,
        SYS_prctl,
        SYS_unshare,
        SYS_setns,
        SYS_mount,
        SYS_bpf,
        SYS_userfaultfd,
        SYS_keyctl,
        SYS_memfd_create,
        SYS_shmget,
        SYS_perf_event_open,
        SYS_io_uring_setup,
        SYS_ioctl,
        SYS_fcntl,
        SYS_sendmsg,
        SYS_process_vm_readv,
    };
    const bool doors[] = {
        opens("/dev/null", O_RDONLY),
        opens("/etc/passwd", O_RDONLY),
        opens("/", O_RDONLY),
        opens("made", O_CREAT | O_WRONLY),
        makes_socket(AF_UNIX),
        makes_socket(AF_INET),
        makes_pair(),
        syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0,
        execl("/bin/true", "true", NULL) == 0,
        kill(getppid(), 0) == 0,
        kill(-1, 0) == 0,
        syscall(SYS_tgkill, getppid(), getppid(), 0) == 0,
        is_parents_memory_open(false),
        is_parents_memory_open(true),
        ptrace(PTRACE_SEIZE, getppid(), 0, 0) == 0,
        makes_code(),
        dup(0) >= 0,
        unshare(CLONE_NEWUSER) == 0,
        mount("none", "/", "tmpfs", 0, 0) == 0,
        getuid() == 0 || setuid(0) == 0,
    };
    size_t done = 1;
    for (size_t i = 0; i < sizeof(doors) / sizeof(*doors) && done < n; i++)
        found[done++] = doors[i];
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls) && done < n; i++)
        found[done++] = reaches(calls[i]);
    found[0] = (unsigned char)(done - 1);
}
