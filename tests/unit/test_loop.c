/* How many threads serve, while some wait: requests are bytes in a pipe, and serving one stands still until the test
 * lets it end. The linker's wrap has libfuse's calls, and counts the threads. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"
#include "fs/daemon/loop.h"

#define MOST       2
#define MOST_NANOS 200000000000u /* only what hangs takes so long */

#define WAITS 'w' /* twice, one wait in the midst of the other, as when a long one is noticed */
#define LATE  'l' /* as WAITS, until the loop's other threads have ended */
#define WORKS 'n'

static struct loop *loop;
static int requests[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed;
static unsigned begun, started, ended; /* requests, threads, threads */
static bool is_created, may_end, may_end_late;
static bool fails; /* the next start of a thread, once */

static void note(unsigned *count)
{
    pthread_mutex_lock(&lock);
    ++*count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void note_that(bool *is)
{
    pthread_mutex_lock(&lock);
    *is = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* What it is then, or when nothing happens any more. */
static unsigned await_count(const unsigned *count, unsigned n)
{
    const struct timespec end = clock_in(MOST_NANOS);
    pthread_mutex_lock(&lock);
    while (*count < n && pthread_cond_timedwait(&changed, &lock, &end) != ETIMEDOUT)
        ;
    unsigned now = *count;
    pthread_mutex_unlock(&lock);
    return now;
}

static void wait_for_count(const unsigned *count, unsigned n)
{
    assert_int_equal(await_count(count, n), n);
}

static void wait_for(const bool *is)
{
    pthread_mutex_lock(&lock);
    while (!*is)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- What the loop calls ---- */

int __real_thread_start(pthread_t *thread, void *(*run)(void *), void *data);
int __wrap_thread_start(pthread_t *thread, void *(*run)(void *), void *data);
int __wrap_fuse_session_fd(struct fuse_session *session);
int __wrap_fuse_session_receive_buf(struct fuse_session *session, struct fuse_buf *buffer);
void __wrap_fuse_session_process_buf(struct fuse_session *session, const struct fuse_buf *buffer);

static void *(*run_of_loop)(void *);

static void *run_and_note(void *data)
{
    void *result = run_of_loop(data);
    note(&ended);
    return result;
}

__attribute__((visibility("default"))) int __wrap_thread_start(pthread_t *thread,
                                                               void *(*run)(void *), void *data)
{
    run_of_loop = run; /* always the same */
    if (fails) {
        fails = false;
        return EAGAIN;
    }
    int error = __real_thread_start(thread, run_and_note, data);
    if (!error)
        note(&started);
    return error;
}

__attribute__((visibility("default"))) int __wrap_fuse_session_fd(struct fuse_session *session)
{
    (void)session;
    return requests[0];
}

__attribute__((visibility("default"))) int
__wrap_fuse_session_receive_buf(struct fuse_session *session, struct fuse_buf *buffer)
{
    (void)session;
    if (!buffer->mem)
        buffer->mem = allocate(1);
    ssize_t n = read(requests[0], buffer->mem, 1);
    return n < 0 ? -errno : (int)n;
}

__attribute__((visibility("default"))) void
__wrap_fuse_session_process_buf(struct fuse_session *session, const struct fuse_buf *buffer)
{
    (void)session;
    const char request = *(const char *)buffer->mem;
    bool waits = request == WAITS || request == LATE;
    for (int i = 0; waits && i < 2; i++)
        loop_begin_wait(loop);
    note(&begun);
    wait_for(request == LATE ? &may_end_late : &may_end);
    for (int i = 0; waits && i < 2; i++)
        loop_end_wait(loop);
}

/* ---- The tests ---- */

static void *run(void *data)
{
    int *error = data;
    *error = loop_create(NULL, MOST, &loop);
    note_that(&is_created);
    if (!*error)
        *error = loop_run(loop);
    return NULL;
}

static pthread_t runner;
static int error_of_runner;

static void begin(void)
{
    begun = started = ended = 0;
    is_created = may_end = may_end_late = false;
    clock_init_condition(&changed);
    assert_int_equal(pipe(requests), 0);
    start_thread(&runner, run, &error_of_runner);
    wait_for(&is_created);
    wait_for_count(&started, 1);
}

static void end(void)
{
    loop_end(loop);
    note_that(&may_end);
    pthread_join(runner, NULL);
    assert_int_equal(error_of_runner, 0);
    assert_int_equal(loop_stop(loop), 0);
    loop_destroy(loop);
    close(requests[0]);
    close(requests[1]);
    pthread_cond_destroy(&changed);
}

/* It is begun by a thread when this returns. */
static void ask(char request)
{
    unsigned before = begun; /* all that was asked for before has begun */
    assert_int_equal(write(requests[1], &request, 1), 1);
    wait_for_count(&begun, before + 1);
}

static void each_that_waits_is_replaced_by_one(void **state)
{
    (void)state;
    begin();
    for (unsigned waiting = 0; waiting < 5; waiting++)
        ask(WAITS);
    for (unsigned working = 0; working < MOST; working++)
        ask(WORKS);
    assert_int_equal(started, 5 + MOST); /* and nobody would read another request */
    end();
}

static void others_that_wait_are_not_among_them(void **state)
{
    (void)state;
    begin();
    for (unsigned i = 0; i < 3; i++)
        loop_begin_wait(loop);
    for (unsigned working = 0; working < MOST; working++)
        ask(WORKS);
    assert_int_equal(started, MOST);
    for (unsigned i = 0; i < 3; i++)
        loop_end_wait(loop);
    end();
}

static void those_that_take_long_are_replaced(void **state)
{
    (void)state;
    begin();
    for (unsigned working = 0; working < 3 * MOST; working++)
        ask(WORKS);
    assert_in_range(started, 3 * MOST,
                    3 * MOST + 1); /* the next one is read when another takes long */
    end();
}

static void what_cannot_be_started_is_tried_again(void **state)
{
    (void)state;
    begin();
    fails = true; /* nobody reads the next request */
    for (unsigned working = 0; working < MOST; working++)
        ask(WORKS);
    assert_false(fails);
    end();
}

static void who_waits_is_served_while_it_ends(void **state)
{
    (void)state;
    begin();
    ask(WAITS);
    loop_end(loop);
    for (unsigned working = 0; working < MOST; working++)
        ask(WORKS);
    assert_int_equal(started, 1 + MOST);
    end();
}

static void *let_late_end(void *data)
{
    *(unsigned *)data -= await_count(&ended, *(unsigned *)data);
    note_that(&may_end_late);
    return NULL;
}

static void who_waits_later_does_not_keep_it_from_its_end(void **state)
{
    (void)state;
    pthread_t other;
    unsigned others;
    begin();
    ask(WAITS);
    loop_end(loop);
    ask(LATE);
    others = started - 1;
    start_thread(&other, let_late_end, &others);
    end();
    pthread_join(other, NULL);
    assert_int_equal(others, 0); /* those that did not end before it */
}

TEST_MAIN(cmocka_unit_test(each_that_waits_is_replaced_by_one),
          cmocka_unit_test(others_that_wait_are_not_among_them),
          cmocka_unit_test(those_that_take_long_are_replaced),
          cmocka_unit_test(what_cannot_be_started_is_tried_again),
          cmocka_unit_test(who_waits_is_served_while_it_ends),
          cmocka_unit_test(who_waits_later_does_not_keep_it_from_its_end))
