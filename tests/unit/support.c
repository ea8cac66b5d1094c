#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "common/io.h"
#include "sparsefs/sparsefs.h"

static _Thread_local uint64_t state;

void random_seed(uint64_t seed)
{
    state = seed;
}

/* splitmix64 */
uint64_t random_next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t limit)
{
    return random_next() % limit;
}

uint64_t random_between(uint64_t low, uint64_t high)
{
    return low + random_below(high - low + 1);
}

void random_fill(void *bytes, size_t n)
{
    for (unsigned char *p = bytes; n > 0; n--)
        *p++ = (unsigned char)(random_next() >> 32);
}

void *allocate(size_t n)
{
    void *memory = malloc(n);
    if (!memory && !(memory = malloc(1)))
        fail_msg("out of memory");
    return memory;
}

size_t memory_in_use(void)
{
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
#else
    struct mallinfo info = mallinfo(); /* of less than 2 GiB */
#endif
    return (size_t)info.uordblks + (size_t)info.hblkhd;
}

void start_thread(pthread_t *thread, void *(*work)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, work, argument);
    if (!error)
        return;
    fprintf(stderr, "no thread: %s\n", strerror(error));
    _exit(1);
}

void wait_until_it_sleeps(pid_t thread)
{
    char path[64], is = ' ';
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
    while (is != 'S') {
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &is) != 1)
            fail_msg("%s cannot be read", path);
        fclose(file);
        sched_yield();
    }
}

static atomic_uint errors;

static void count_line(int level, const char *line)
{
    (void)line;
    if (level <= LOG_ERR)
        atomic_fetch_add(&errors, 1);
}

void log_quietly(void)
{
    sfs_set_log(count_line, LOG_DEBUG);
}

unsigned log_errors(void)
{
    return atomic_load(&errors);
}

static volatile sig_atomic_t child;

static void stop_child(int signal)
{
    (void)signal;
    kill(child, SIGKILL);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void choose_seed(void)
{
    uint64_t seed;
    const char *given = getenv("TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 0);
    else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = 1;
    printf("TEST_SEED=%#llx\n", (unsigned long long)seed);
    fflush(stdout);
    random_seed(seed);
}

int end_test(void **ended)
{
    const char *command = getenv("SPARSEFS_AFTER_TEST");
    (void)ended;
    return command ? system(command) : 0;
}

int in_temporary_directory(int (*tests)(void))
{
    const char *base = getenv("TMPDIR");
    char directory[4096];
    snprintf(directory, sizeof(directory), "%s/sparsefs-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(directory)) {
        perror(directory);
        return 99;
    }
    choose_seed();
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (chdir(directory) < 0)
            _exit(99);
        exit(tests());
    }

    int status = 99 << 8;
    signal(SIGINT, stop_child);
    signal(SIGTERM, stop_child);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
        return 98;
    }
    return WEXITSTATUS(status);
}

int __wrap_io_open_at(int folder, const char *name, int flags)
{
    int fd = TEMP_FAILURE_RETRY(openat(folder, name, flags | IO_OPEN_AT));
    return fd < 0 ? -errno : fd;
}
