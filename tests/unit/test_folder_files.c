/* Open files of a folder: who waits for one that another thread opens is interrupted, who opens it is not. */
#include "diamond.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fs/folder_open_files.h"

#define LONG_SECONDS 60 /* far more than it takes */

struct test {
    struct folder *folder;
    struct together *together;
    struct mounted_files *files;
    struct mounted_file *file;
    sem_t begun, goes_on; /* opening it */
};

struct user {
    struct test *test;
    pthread_t thread;
    sem_t ended;
    int error;
};

static int opened(void *context, struct mounted_file *file, struct sfs_file *made)
{
    struct test *test = context;
    (void)file, (void)made;
    sem_post(&test->begun);
    while (sem_wait(&test->goes_on) != 0)
        ;
    return 0;
}

static void closing(void *context, struct mounted_file *file)
{
    (void)context, (void)file;
}

static void begin(struct test *test)
{
    static const struct mounted_calls calls = {opened, closing};
    const struct sfs_options options = {.workers = 1};
    struct stat st;
    char *path = getcwd(NULL, 0);
    make_diamond("a.h5", 1);
    assert_non_null(path);
    assert_int_equal(folder_create(path, false, &test->folder), 0);
    free(path);
    assert_int_equal(together_create(&options, &test->together), 0);
    assert_int_equal(mounted_files_create(test->folder, test->together, 1, &test->files), 0);
    mounted_files_set_calls(test->files, &calls, test);
    int fd = folder_find(test->folder, "a.h5", &st);
    assert_true(fd >= 0);
    close(fd);
    test->file = mounted_new(test->files, "a.h5", &st);
    assert_non_null(test->file);
    sem_init(&test->begun, 0, 0);
    sem_init(&test->goes_on, 0, 0);
}

static void end(struct test *test)
{
    mounted_unref(test->file);
    assert_int_equal(mounted_files_close(test->files), 0);
    mounted_files_destroy(test->files);
    together_destroy(test->together);
    folder_destroy(test->folder);
    sem_destroy(&test->begun);
    sem_destroy(&test->goes_on);
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static void *use(void *data)
{
    struct user *user = data;
    sfs_set_interrupt(always, NULL);
    user->error = mounted_use(user->test->file, geteuid());
    sfs_set_interrupt(NULL, NULL);
    sem_post(&user->ended);
    return NULL;
}

static void start(struct user *user, struct test *test)
{
    user->test = test;
    sem_init(&user->ended, 0, 0);
    start_thread(&user->thread, use, user);
}

static bool ends(struct user *user)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += LONG_SECONDS;
    int error;
    while ((error = sem_timedwait(&user->ended, &deadline)) != 0 && errno == EINTR)
        ;
    return error == 0;
}

static void who_waits_is_interrupted(void **state)
{
    (void)state;
    struct test test;
    struct user opens, waits;
    begin(&test);
    start(&opens, &test);
    while (sem_wait(&test.begun) != 0)
        ;
    start(&waits, &test);
    bool has_ended = ends(&waits);
    sem_post(&test.goes_on);
    pthread_join(opens.thread, NULL);
    pthread_join(waits.thread, NULL);
    assert_true(has_ended);
    assert_int_equal(waits.error, -EINTR);
    assert_int_equal(opens.error, 0);
    mounted_put(test.file);
    sem_destroy(&opens.ended);
    sem_destroy(&waits.ended);
    end(&test);
}

TEST_MAIN(cmocka_unit_test(who_waits_is_interrupted))
