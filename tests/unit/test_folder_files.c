/* Open files of a folder: who waits for one that another thread opens is interrupted, who opens it is not. And their
 * paths, of which the table of nodes keeps a limited number of bytes. */
#include "diamond.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/folder_open_files.h"
#include "fs/node_table.h"

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

/* A name in a directory, looked up as the kernel does; its node. */
static int look_up(struct nodes *nodes, const struct node *directory, const char *name,
                   enum folder_kind kind, const struct node **child)
{
    const struct stat st = {.st_mode = kind == FOLDER_DIRECTORY ? S_IFDIR : S_IFREG};
    const struct folder_entry entry = {.name = name, .kind = kind, .st = &st};
    int error = node_folder_child(nodes, directory, &entry, child);
    if (!error) {
        node_looked_up(nodes, (*child)->number, 1);
        node_put(nodes, (*child)->number);
    }
    return error;
}

static int look_up_file(struct nodes *nodes, const struct node *directory, unsigned i,
                        enum folder_kind kind, uint32_t *number)
{
    char name[16];
    const struct node *child;
    snprintf(name, sizeof(name), "%c%u", kind == FOLDER_HDF5 ? 'h' : 'p', i);
    int error = look_up(nodes, directory, name, kind, &child);
    if (!error)
        *number = child->number;
    return error;
}

/* Directories can be in each other without a limit: what is no HDF5 file has no path. */
static void paths_of_files_have_a_limit(void **state)
{
    (void)state;
    enum { LEVELS = 20, BYTES = 250, MOST = 100 };
    const struct stat st = {.st_mode = S_IFDIR};
    char name[BYTES + 1];
    struct test test;
    struct nodes *nodes;
    uint32_t numbers[MOST + 1], number = 0;
    begin(&test);
    assert_int_equal(nodes_create_of_folder(test.files, &st, 0, &nodes), 0);
    nodes->most_long_texts = (size_t)MOST * LEVELS * (BYTES + 1);
    memset(name, 'd', BYTES);
    name[BYTES] = '\0';
    const struct node *root = node_get(nodes, 0), *directory = root;
    for (unsigned i = 0; i < LEVELS; i++)
        assert_int_equal(look_up(nodes, directory, name, FOLDER_DIRECTORY, &directory), 0);
    assert_string_equal(directory->mounted->path, "");
    unsigned n = 0;
    while (n <= MOST && look_up_file(nodes, directory, n, FOLDER_HDF5, &numbers[n]) == 0)
        n++;
    assert_in_range(n, MOST - 10, MOST);
    assert_int_equal(look_up_file(nodes, directory, n, FOLDER_HDF5, &number), -ENOMEM);
    for (unsigned i = 0; i < 10 * MOST; i++)
        assert_int_equal(look_up_file(nodes, directory, i, FOLDER_FILE, &number), 0);
    assert_int_equal(look_up_file(nodes, root, 0, FOLDER_HDF5, &number), 0);
    assert_string_equal(node_get(nodes, number)->mounted->path, "h0");
    for (unsigned i = 0; i < n; i++)
        node_forgotten(nodes, numbers[i], 1);
    node_folder_forget(nodes, directory, "h0");
    assert_int_equal(look_up_file(nodes, directory, n, FOLDER_HDF5, &number), 0);
    nodes_destroy(nodes);
    end(&test);
}

TEST_MAIN(cmocka_unit_test(who_waits_is_interrupted), cmocka_unit_test(paths_of_files_have_a_limit))
