/* A filter plugin of libhdf5 as one is that damaged chunks have taken over; with
 * SPARSEFS_TEST_LOADING=crash already while it is loaded; =thread: it starts a thread then. */
#include "hostile_filter.h"

#include <H5PLextern.h>
#include <dlfcn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SOCKET 4 /* of the process that it runs in */

static _Atomic uint32_t nobody;
static _Atomic uint32_t *meets = &nobody;
static int kept = -1; /* opened while it could */

/* ---- Doors ---- */

static int opens(void)
{
    return open("/dev/null", O_RDONLY) >= 0 || open("/", O_RDONLY) >= 0 ||
           openat(kept, "..", O_RDONLY) >= 0;
}

static int lists(void)
{
    DIR *folder = opendir("/");
    return folder != NULL;
}

static int writes(void)
{
    int fd = open("/tmp/sparsefs-was-here", O_WRONLY | O_CREAT, 0600);
    return fd >= 0 || mkdir("/tmp/sparsefs-was-here", 0700) == 0;
}

static int connects(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static int executes(void)
{
    char *const arguments[] = {(char *)"true", NULL};
    execve("/bin/true", arguments, NULL);
    return syscall(SYS_execveat, kept, "", arguments, NULL, 0x1000 /* AT_EMPTY_PATH */) == 0;
}

static int forks(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static int loads(void)
{
    return dlopen("libutil.so.1", RTLD_NOW) != NULL;
}

static int signals(void)
{
    return kill(getppid(), 0) == 0;
}

/* What both have at the same place. */
static int reads_parent(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {&environ, 1};
    return process_vm_readv(getppid(), &here, 1, &there, 1, 0) > 0;
}

static int traces(void)
{
    return ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0;
}

static int maps_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
               MAP_FAILED ||
           mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, kept, 0) != MAP_FAILED;
}

static int makes_code(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
}

static int copies_descriptors(void)
{
    return dup(SOCKET) >= 0;
}

static int is_root(void)
{
    return getuid() == 0 || setuid(0) == 0;
}

/* ---- A thread that was there before ---- */

static _Atomic bool is_asked;
static _Atomic int found = -1; /* nobody looks */

static void *look(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&is_asked))
        sched_yield();
    atomic_store(&found, opens() || lists() || writes() || connects() || executes() || forks() ||
                             signals() || is_root());
    return NULL;
}

static int thread_finds(void)
{
    atomic_store(&is_asked, true);
    while (atomic_load(&found) < 0)
        ;
    return atomic_load(&found);
}

/* What libc asks for as a thread begins, without which it ends the process. The thread that asks has it already, or
 * has it then. */
static int thread_cannot_start(void)
{
    static _Alignas(32) char area[32];
    return syscall(SYS_rseq, area, sizeof(area), 0, 0x53053053) < 0 && errno == EPERM;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SPARSEFS_TEST_MEETS"), *loading = getenv("SPARSEFS_TEST_LOADING");
    pthread_t thread;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*meets), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        meets = at;
    if (fd >= 0)
        close(fd);
    kept = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (loading && !strcmp(loading, "crash"))
        raise(SIGSEGV);
    if (loading && !strcmp(loading, "thread"))
        pthread_create(&thread, NULL, look, NULL);
}

/* ---- Harm ---- */

static void allocate(void)
{
    for (;;) {
        char *block = mmap(NULL, (size_t)16 << 20, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* malloc may write to all of it */
        if (block == MAP_FAILED)
            abort();
        *(volatile char *)block = 1; /* writing to all of it takes longer than a chunk may */
    }
}

static size_t doubles(size_t n, size_t *room, void **bytes)
{
    void *more = H5allocate_memory(2 * n, true);
    if (!more)
        return 0;
    memcpy(more, *bytes, n);
    H5free_memory(*bytes);
    *bytes = more;
    *room = 2 * n;
    return 2 * n;
}

static void answer(uint64_t kind, uint64_t n)
{
    const uint64_t message[] = {kind, 40, 0, 1, n, n, n};
    (void)!write(SOCKET, message, sizeof(message));
    for (;;)
        ;
}

/* A reply of which only the beginning comes. */
static void break_off(void)
{
    const uint64_t head[] = {3, 4096};
    (void)!write(SOCKET, head, sizeof(head));
    for (;;)
        ;
}

static void meet(void)
{
    atomic_fetch_add(meets, 1);
    while (atomic_load(meets) < 2)
        ;
}

static int (*const doors[HOSTILE_DOORS_END])(void) = {
    [HOSTILE_OPENS] = opens,
    [HOSTILE_LISTS] = lists,
    [HOSTILE_WRITES] = writes,
    [HOSTILE_CONNECTS] = connects,
    [HOSTILE_EXECUTES] = executes,
    [HOSTILE_FORKS] = forks,
    [HOSTILE_LOADS] = loads,
    [HOSTILE_SIGNALS] = signals,
    [HOSTILE_READS_PARENT] = reads_parent,
    [HOSTILE_TRACES] = traces,
    [HOSTILE_MAPS_CODE] = maps_code,
    [HOSTILE_MAKES_CODE] = makes_code,
    [HOSTILE_COPIES_DESCRIPTORS] = copies_descriptors,
    [HOSTILE_IS_ROOT] = is_root,
};

static size_t behave(unsigned how, size_t n, size_t *room, void **bytes)
{
    switch (how) {
    case HOSTILE_CRASHES:
        raise(SIGSEGV);
        *(volatile char *)NULL = 0;
        return n;
    case HOSTILE_HANGS:
        for (;;)
            ;
    case HOSTILE_LEAVES:
        close(SOCKET);
        for (;;)
            ;
    case HOSTILE_ALLOCATES:
        allocate();
        return n;
    case HOSTILE_DOUBLES:
        return doubles(n, room, bytes);
    case HOSTILE_LIES:
        return SIZE_MAX / 2;
    case HOSTILE_ANSWERS:
        answer(77, 0);
        return n;
    case HOSTILE_BREAKS_OFF:
        break_off();
        return n;
    case HOSTILE_CLAIMS:
        answer(2, UINT32_MAX);
        return n;
    case HOSTILE_THREAD:
        *(unsigned char *)*bytes = (unsigned char)thread_finds();
        return n;
    case HOSTILE_STARTS:
        *(unsigned char *)*bytes = (unsigned char)thread_cannot_start();
        return n;
    case HOSTILE_MEETS:
        meet();
        return n;
    default:
        if (how < HOSTILE_DOORS_END && doors[how])
            *(unsigned char *)*bytes = (unsigned char)doors[how]();
        return n;
    }
}

/* Encodes like a lamb, if it is not told otherwise by a second parameter. */
static size_t filter(unsigned flags, size_t n_values, const unsigned values[], size_t n,
                     size_t *room, void **bytes)
{
    bool acts = flags & H5Z_FLAG_REVERSE ? n_values == 1 : n_values == 2;
    return acts ? behave(values[0], n, room, bytes) : n;
}

static const H5Z_class2_t class = {.version = H5Z_CLASS_T_VERS,
                                   .id = HOSTILE,
                                   .encoder_present = 1,
                                   .decoder_present = 1,
                                   .name = "hostile",
                                   .filter = filter};

H5PL_type_t H5PLget_plugin_type(void)
{
    return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
    return &class;
}
