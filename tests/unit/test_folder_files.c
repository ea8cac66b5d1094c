/* Open files of a folder: who waits for one that another thread opens is interrupted, who opens it is not. And their
 * paths, of which the table of nodes keeps a limited number of bytes. */
#include "diamond.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
    unsigned n_closed;
};

struct user {
    struct mounted_file *file;
    uid_t uid;
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

static int look(void *context, struct mounted_file *file)
{
    (void)context, (void)file;
    return 0;
}

static void closing(void *context, struct mounted_file *file)
{
    struct test *test = context;
    (void)file;
    if (test->n_closed++ == 0)
        assert_int_equal(mounted_files_each(test->files, false, look, NULL), 0);
}

static void closing_slowly(void *context, struct mounted_file *file)
{
    (void)opened(context, file, NULL);
}

static struct mounted_file *make_file(const struct test *test, const char *name)
{
    struct stat st;
    make_diamond(name, 1);
    int fd = folder_find(test->folder, name, &st);
    assert_true(fd >= 0);
    close(fd);
    struct mounted_file *file = mounted_new(test->files, name, &st);
    assert_non_null(file);
    return file;
}

static void begin_with(struct test *test, unsigned most)
{
    static const struct mounted_calls calls = {opened, closing};
    const struct sfs_options options = {.workers = 1};
    char *path = getcwd(NULL, 0);
    assert_non_null(path);
    assert_int_equal(folder_create(path, false, &test->folder), 0);
    free(path);
    assert_int_equal(together_create(&options, &test->together), 0);
    assert_int_equal(mounted_files_create(test->folder, test->together, most, &test->files), 0);
    mounted_files_set_calls(test->files, &calls, test);
    test->file = make_file(test, "a.h5");
    test->n_closed = 0;
    sem_init(&test->begun, 0, 0);
    sem_init(&test->goes_on, 0, 0);
}

static void begin(struct test *test)
{
    begin_with(test, 1);
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
    user->error = mounted_use(user->file, user->uid);
    sfs_set_interrupt(NULL, NULL);
    sem_post(&user->ended);
    return NULL;
}

static void start(struct user *user, struct mounted_file *file, uid_t uid)
{
    user->file = file;
    user->uid = uid;
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

/* Who waits while a file is opened ends by himself; who opens it goes on then. */
static void check_waiting(struct test *test, struct user *opens, struct user *waits)
{
    bool has_ended = ends(waits);
    sem_post(&test->goes_on);
    pthread_join(opens->thread, NULL);
    pthread_join(waits->thread, NULL);
    assert_true(has_ended);
    assert_int_equal(waits->error, -EINTR);
    assert_int_equal(opens->error, 0);
    sem_destroy(&opens->ended);
    sem_destroy(&waits->ended);
}

static void who_waits_is_interrupted(void **state)
{
    (void)state;
    struct test test;
    struct user opens, waits;
    begin(&test);
    start(&opens, test.file, geteuid());
    while (sem_wait(&test.begun) != 0)
        ;
    start(&waits, test.file, geteuid());
    check_waiting(&test, &opens, &waits);
    mounted_put(test.file, geteuid());
    end(&test);
}

#define ONE     ((uid_t)61231)
#define ANOTHER ((uid_t)61232)

/* Who would wait for it does not, as he is interrupted. */
static int use_for(struct test *test, struct mounted_file *file, uid_t uid)
{
    struct user user;
    sem_post(&test->goes_on);
    start(&user, file, uid);
    bool has_ended = ends(&user);
    assert_true(has_ended);
    pthread_join(user.thread, NULL);
    sem_destroy(&user.ended);
    if (user.error)
        (void)sem_trywait(&test->goes_on);
    return user.error;
}

/* One file is open at a time, four are in use at most: of these the first is in use, and counts for one of them. */
static void check_others(struct test *test)
{
    struct mounted_file *second = make_file(test, "b.h5"), *third = make_file(test, "c.h5");
    assert_int_equal(use_for(test, second, ONE), -EINTR);
    assert_int_equal(use_for(test, second, ANOTHER), 0);
    assert_int_equal(use_for(test, third, ANOTHER), -EINTR);
    assert_int_equal(use_for(test, third, 0), 0);
    /* One that others have opened is no room for him, either. */
    mounted_put(third, 0);
    assert_int_equal(use_for(test, third, ANOTHER), -EINTR);
    mounted_put(second, ANOTHER);
    mounted_unref(second);
    mounted_unref(third);
}

static void who_asks_has_his_share(void **state)
{
    (void)state;
    struct test test;
    begin(&test);
    assert_int_equal(use_for(&test, test.file, ONE), 0);
    check_others(&test);
    mounted_put(test.file, ONE);
    end(&test);
}

static void opening_counts_for_who_asks(void **state)
{
    (void)state;
    struct test test;
    struct user opens;
    begin(&test);
    start(&opens, test.file, ONE);
    while (sem_wait(&test.begun) != 0)
        ;
    struct mounted_file *second = make_file(&test, "b.h5");
    struct user waits;
    start(&waits, second, ONE);
    check_waiting(&test, &opens, &waits);
    mounted_unref(second);
    mounted_put(test.file, ONE);
    end(&test);
}

/* As what commits it in the background does. */
static void committing_counts_for_who_has_changed_it(void **state)
{
    (void)state;
    struct test test;
    begin(&test);
    assert_int_equal(use_for(&test, test.file, ANOTHER), 0);
    mounted_use_again(test.file);
    mounted_put(test.file, ANOTHER);
    mounted_changed(test.file, ONE);
    check_others(&test);
    mounted_let_be(test.file);
    end(&test);
}

/* Where descriptors are so few that less than max_open can be in use. */
static void who_may_not_open_closes_no_others(void **state)
{
    (void)state;
    enum { MOST = 5, DESCRIPTORS = 80 };
    struct test test;
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){DESCRIPTORS, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    begin_with(&test, MOST);
    for (int i = 0; i < MOST; i++)
        sem_post(&test.goes_on);
    struct mounted_file *others = make_file(&test, "b.h5"), *file[MOST] = {test.file};
    unsigned n = 0;
    int error = mounted_use(others, 0);
    assert_int_equal(error, 0);
    mounted_put(others, 0);
    for (; !error && n < MOST; n++) {
        char name[8];
        snprintf(name, sizeof(name), "%u.h5", n);
        file[n] = n > 0 ? make_file(&test, name) : file[n];
        error = mounted_use_to_open(file[n], ONE);
        if (!error) {
            mounted_use_more(file[n], ONE);
            mounted_put_opened(file[n], ONE);
        }
    }
    assert_int_equal(error, -ENFILE);
    assert_in_range(n, 2, MOST - 1);
    assert_true(mounted_is_open(others));
    for (unsigned i = 0; i < n; i++) {
        if (i < n - 1)
            mounted_put_more(file[i], ONE);
        if (i > 0)
            mounted_unref(file[i]);
    }
    mounted_unref(others);
    end(&test);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void users_are_counted(void **state)
{
    (void)state;
    struct user_counts counts = {0};
    assert_int_equal(user_count_add(&counts, ONE), 0);
    assert_int_equal(user_count_add(&counts, ANOTHER), 0);
    user_count_remove(&counts, ONE);
    assert_int_equal(user_count_of(&counts, ONE), 0);
    assert_int_equal(user_count_add(&counts, ANOTHER), 0);
    assert_int_equal(user_count_add(&counts, ONE), 0);
    assert_int_equal(user_count_of(&counts, ANOTHER), 2);
    assert_int_equal(user_count_of(&counts, ONE), 1);
    user_count_remove(&counts, ANOTHER);
    user_count_remove(&counts, ANOTHER);
    assert_int_equal(user_count_of(&counts, ANOTHER), 0);
    assert_true(users_have_any(&counts));
    user_count_remove(&counts, ONE);
    assert_false(users_have_any(&counts));
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

static void who_goes_through_all_leaves_what_is_being_closed(void **state)
{
    (void)state;
    struct test test;
    begin(&test);
    sem_post(&test.goes_on);
    assert_int_equal(mounted_use(test.file, 0), 0);
    mounted_put(test.file, 0);
    mounted_unref(test.file);
    assert_int_equal(test.n_closed, 1);
    test.file = NULL;
    end(&test);
}

/* As what has committed it in the background does with one of which there is a later file. */
static void *end_use_of_outdated(void *data)
{
    mounted_let_be(data);
    return NULL;
}

struct closer {
    pthread_t thread;
    struct test *test;
    sem_t ended;
    bool left_open; /* what was open */
};

static void *close_all(void *data)
{
    struct closer *closer = data;
    assert_int_equal(mounted_files_close(closer->test->files), 0);
    closer->left_open = closer->test->file->file;
    sem_post(&closer->ended);
    return NULL;
}

/* What is lost by it is told at the end. */
static void the_end_waits_for_who_closes_one(void **state)
{
    (void)state;
    static const struct mounted_calls calls = {opened, closing_slowly};
    struct test test;
    struct closer closer = {.test = &test};
    struct timespec soon;
    pthread_t thread;
    begin(&test);
    sem_init(&closer.ended, 0, 0);
    mounted_files_set_calls(test.files, &calls, &test);
    assert_int_equal(use_for(&test, test.file, 0), 0);
    mounted_use_again(test.file);
    mounted_put(test.file, 0);
    mounted_outdate(test.file);
    start_thread(&thread, end_use_of_outdated, test.file);
    for (int i = 0; i < 2; i++) /* to be opened, and to be closed */
        while (sem_wait(&test.begun) != 0)
            ;
    start_thread(&closer.thread, close_all, &closer);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec++;
    (void)sem_timedwait(&closer.ended, &soon);
    sem_post(&test.goes_on);
    pthread_join(thread, NULL);
    pthread_join(closer.thread, NULL);
    assert_false(closer.left_open);
    sem_destroy(&closer.ended);
    end(&test);
}

TEST_MAIN(cmocka_unit_test(who_waits_is_interrupted),
          cmocka_unit_test(who_goes_through_all_leaves_what_is_being_closed),
          cmocka_unit_test(paths_of_files_have_a_limit), cmocka_unit_test(who_asks_has_his_share),
          cmocka_unit_test(opening_counts_for_who_asks),
          cmocka_unit_test(committing_counts_for_who_has_changed_it),
          cmocka_unit_test(who_may_not_open_closes_no_others), cmocka_unit_test(users_are_counted),
          cmocka_unit_test(the_end_waits_for_who_closes_one))
