/* Starting threads, and what belongs to one. */
#include "common/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int thread_start(pthread_t *thread, void *(*run)(void *data), void *data)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int thread_init_lock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attributes;
    int error = -pthread_rwlockattr_init(&attributes);
    if (error)
        return error;
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    error = -pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    return error;
}

void thread_yield_to_waker(void)
{
    struct sched_param parameters;
    int policy;
    if (pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER)
        (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

unsigned thread_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (unsigned)n : 1; /* -1: the system does not say */
}

/* Of one thread. */
struct kept {
    void (*end)(void *bytes);
    max_align_t bytes[];
};

static void free_kept(void *data)
{
    struct kept *kept = data;
    kept->end(kept->bytes);
    free(kept);
}

/* The key, which the first thread of all makes. */
static pthread_key_t key_of(struct own *own)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load(&own->has_key))
        return own->key;
    pthread_mutex_lock(&lock);
    if (!own->has_key && pthread_key_create(&own->key, free_kept) != 0)
        abort(); /* no key at the process's first use: nothing can work */
    atomic_store(&own->has_key, true);
    pthread_mutex_unlock(&lock);
    return own->key;
}

void *own_get(struct own *own)
{
    pthread_key_t key = key_of(own);
    struct kept *kept = pthread_getspecific(key);
    if (kept)
        return kept->bytes;
    kept = calloc(1, sizeof(*kept) + own->size);
    if (kept && pthread_setspecific(key, kept) != 0) {
        free(kept);
        kept = NULL;
    }
    if (!kept)
        return NULL;
    kept->end = own->end;
    return kept->bytes;
}
