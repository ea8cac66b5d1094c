/* Preloaded into the daemon, or sparsectl: the first SPARSEFS_FAILING_FORKS processes of libhdf5 cannot be forked. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static long failing; /* the variable is gone in the process that forks them */

__attribute__((constructor)) static void look(void)
{
    const char *value = getenv("SPARSEFS_FAILING_FORKS");
    failing = value ? strtol(value, NULL, 10) : 0;
}

__attribute__((visibility("default"))) pid_t fork(void)
{
    pid_t (*real)(void);
    char name[16] = "";
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    prctl(PR_GET_NAME, name);
    if (strcmp(name, "sparsefs-hdf5z") == 0 && failing-- > 0) {
        errno = EAGAIN;
        return -1;
    }
    return real();
}
