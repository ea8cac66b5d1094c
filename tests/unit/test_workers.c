/* Threads that work for others. */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/thread.h"
#include "common/thread_pool.h"
#include "sparsefs/sparsefs.h"

struct marks {
    atomic_uint called[1000];
    atomic_uint threads_met;
    size_t fails_at;
};

static int mark(void *context, size_t i)
{
    struct marks *marks = context;
    atomic_fetch_add(&marks->called[i], 1);
    return i == marks->fails_at ? -EIO : 0;
}

static void every_index_once(void **state)
{
    (void)state;
    for (unsigned n_workers = 0; n_workers < 4; n_workers++) {
        struct workers *workers;
        assert_int_equal(workers_create(n_workers, &workers), 0);
        for (size_t n = 0; n < 1000; n = n * 3 + 1) {
            struct marks marks = {.fails_at = SIZE_MAX};
            assert_int_equal(workers_each(workers, n, mark, &marks), 0);
            for (size_t i = 0; i < 1000; i++)
                assert_int_equal(marks.called[i], i < n);
        }
        workers_destroy(workers);
    }
}

/* Both must be in it at once, or it does not end. */
static int meet(void *context, size_t i)
{
    struct marks *marks = context;
    (void)i;
    atomic_fetch_add(&marks->threads_met, 1);
    while (atomic_load(&marks->threads_met) < 2)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return 0;
}

static void workers_help_the_caller(void **state)
{
    (void)state;
    struct workers *workers;
    struct marks marks = {0};
    assert_int_equal(workers_create(1, &workers), 0);
    assert_int_equal(workers_each(workers, 2, meet, &marks), 0);
    workers_destroy(workers);
}

#define LONG_NANOS 60000000000u

struct interrupted {
    pthread_t caller;
    atomic_bool is_wanted_no_more;
    atomic_int seen; /* by the worker */
    atomic_bool worker_has_begun;
};

static bool is_interrupted(void *context)
{
    struct interrupted *interrupted = context;
    assert_true(pthread_equal(pthread_self(), interrupted->caller));
    return atomic_load(&interrupted->is_wanted_no_more);
}

/* The caller's call ends when the worker's has begun, which goes on until it is interrupted. */
static int work_until_interrupted(void *context, size_t i)
{
    struct interrupted *interrupted = context;
    uint64_t until = clock_now() + LONG_NANOS;
    (void)i;
    if (pthread_equal(pthread_self(), interrupted->caller)) {
        while (!atomic_load(&interrupted->worker_has_begun))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        atomic_store(&interrupted->is_wanted_no_more, true);
        return 0;
    }
    atomic_store(&interrupted->worker_has_begun, true);
    int error = 0;
    while ((error = interrupt_check()) == 0 && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&interrupted->seen, error);
    return error;
}

static void workers_are_interrupted_with_the_caller(void **state)
{
    (void)state;
    struct workers *workers;
    struct interrupted interrupted = {.caller = pthread_self()};
    struct marks marks = {.fails_at = SIZE_MAX};
    assert_int_equal(workers_create(1, &workers), 0);
    sfs_set_interrupt(is_interrupted, &interrupted);
    assert_int_equal(workers_each(workers, 2, work_until_interrupted, &interrupted), -EINTR);
    assert_int_equal(interrupted.seen, -EINTR);
    sfs_set_interrupt(NULL, NULL);
    assert_int_equal(workers_each(workers, 1000, mark, &marks), 0);
    workers_destroy(workers);
}

static void *get_mask(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return NULL;
}

/* A signal to the program is handled in a thread of the program, a fault where it happens. */
static void workers_take_no_signals(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t mask, before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&thread, get_mask, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1));
    assert_false(sigismember(&mask, SIGSEGV) || sigismember(&mask, SIGABRT));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++)
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
}

/* Sets the policy that it is given, then asks. */
static void *policy_after(void *policy)
{
    struct sched_param parameters = {0};
    pthread_setschedparam(pthread_self(), *(int *)policy, &parameters);
    thread_yield_to_waker();
    pthread_getschedparam(pthread_self(), policy, &parameters);
    return NULL;
}

static void only_the_usual_policy_is_changed(void **state)
{
    (void)state;
    const int policies[][2] = {{SCHED_OTHER, SCHED_BATCH}, {SCHED_IDLE, SCHED_IDLE}};
    for (size_t i = 0; i < COUNT(policies); i++) {
        pthread_t thread;
        int policy = policies[i][0];
        assert_int_equal(thread_start(&thread, policy_after, &policy), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(policy, policies[i][1]);
    }
}

static void nothing_is_begun_after_an_error(void **state)
{
    (void)state;
    struct workers *workers;
    struct marks marks = {.fails_at = 5};
    assert_int_equal(workers_create(0, &workers), 0);
    assert_int_equal(workers_each(workers, 1000, mark, &marks), -EIO);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(marks.called[i], i <= 5);
    workers_destroy(workers);
    workers_destroy(NULL);
}

/* Work may give work. */
static int again(void *context, size_t i)
{
    struct marks *marks = context;
    (void)i;
    atomic_fetch_add(&marks->threads_met, 1);
    return 0;
}

struct nested {
    struct workers *workers;
    struct marks marks;
};

static int nest(void *context, size_t i)
{
    struct nested *nested = context;
    (void)i;
    return workers_each(nested->workers, 10, again, &nested->marks);
}

static void work_within_work(void **state)
{
    (void)state;
    struct nested nested = {0};
    assert_int_equal(workers_create(2, &nested.workers), 0);
    assert_int_equal(workers_each(nested.workers, 50, nest, &nested), 0);
    assert_int_equal(nested.marks.threads_met, 500);
    workers_destroy(nested.workers);
}

static void count_call(void *context)
{
    struct marks *marks = context;
    atomic_fetch_add(&marks->called[0], 1);
    while (atomic_load(&marks->threads_met) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void pastimes_are_called_as_often_as_wanted(void **state)
{
    (void)state;
    struct workers *workers;
    struct marks marks = {0};
    struct pastime pastime = {.run = count_call, .context = &marks};
    assert_int_equal(workers_create(2, &workers), 0);
    assert_int_equal(workers_number(workers), 2);
    for (unsigned round = 1; round <= 10; round++) {
        workers_offer(workers, &pastime, 3);
        while (atomic_load(&marks.called[0]) < 3 * round)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    workers_cancel(workers, &pastime);
    assert_int_equal(marks.called[0], 30);
    workers_destroy(workers);
}

/* The only worker is in a call: what is cancelled then is not called again, and not running. */
static void pastimes_end_when_they_are_cancelled(void **state)
{
    (void)state;
    struct workers *workers;
    struct marks marks = {.threads_met = 1};
    struct pastime pastime = {.run = count_call, .context = &marks};
    struct pastime other = {.run = count_call, .context = &marks};
    assert_int_equal(workers_create(1, &workers), 0);
    workers_offer(workers, &pastime, 1);
    while (atomic_load(&marks.called[0]) < 1)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    workers_offer(workers, &other, 100);
    workers_cancel(workers, &other);
    atomic_store(&marks.threads_met, 0);
    workers_cancel(workers, &pastime);
    workers_destroy(workers);
    assert_int_equal(marks.called[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_once),
        cmocka_unit_test(workers_help_the_caller),
        cmocka_unit_test(workers_are_interrupted_with_the_caller),
        cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(only_the_usual_policy_is_changed),
        cmocka_unit_test(nothing_is_begun_after_an_error),
        cmocka_unit_test(work_within_work),
        cmocka_unit_test(pastimes_are_called_as_often_as_wanted),
        cmocka_unit_test(pastimes_end_when_they_are_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
