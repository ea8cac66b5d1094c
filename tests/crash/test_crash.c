/* The power fails at every call of the store while random work goes on, with what was not synced
 * kept, lost or torn, and again while a file is recovered: the file always holds one of the states
 * that were flushed, not before the last flush that had returned, element for element.
 *
 *   test_crash [STATES]     at least so many different states; without it a few seconds' worth */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/support.h"
#include "disk.h"
#include "states.h"

#define PATH         DISK "/" NAME
#define AFTER_PATH   AFTER "/" NAME
#define TEMPLATE     "template.h5"
#define SHORT_STATES 1500

static long wanted = SHORT_STATES;

static struct sfs_file *template;

/* ---- Workloads ---- */

static void clear_disk(void)
{
    assert_int_equal(system("rm -rf " DISK " && mkdir " DISK), 0);
}

/* Flushes with up to `most` steps between them. */
static void do_work(struct work *work, int flushes, int most)
{
    for (int i = 0; i < flushes; i++) {
        for (uint64_t k = random_between(1, (uint64_t)most); k > 0; k--) {
            assert_int_equal(work_step(work), 0);
            random_seed(work->seed + k);
        }
        assert_int_equal(states_flush(work), 0);
    }
}

/* A little cache evicts chunks before they are flushed. */
static struct sfs_options options_of(bool small)
{
    return (struct sfs_options){.writable = true, .cache_size = small ? 6000 : 0, .workers = 1};
}

static void a_new_file(int flushes, int most, int others)
{
    struct model model = {0};
    struct sfs_options options = options_of(random_below(2));
    struct work work = {.template = template, .model = &model, .seed = random_next()};
    clear_disk();
    states_begin(false, &model);
    assert_int_equal(sfs_create(PATH, &options, &work.file), 0);
    do_work(&work, flushes, most);
    assert_int_equal(sfs_close(work.file), 0);
    states_check(others);
}

/* A file of libhdf5 is opened for writing twice. */
static void an_old_file(bool oldest, int flushes, int most, int others)
{
    struct model model;
    struct sfs_options options = options_of(random_below(2));
    struct work work = {.template = template, .model = &model, .seed = random_next()};
    clear_disk();
    work_make_old(PATH, oldest, &model);
    states_begin(true, &model);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sfs_open(PATH, &options, &work.file), 0);
        do_work(&work, flushes, most);
        assert_int_equal(sfs_close(work.file), 0);
    }
    states_check(others);
}

static int make_sets(struct work *work)
{
    int error = 0;
    for (int i = 0; i < 8 && !error; i++) {
        random_seed(work->seed + (uint64_t)i);
        error = work_step_of(work, i < 6 ? 2 : 0);
    }
    return error;
}

/* Every kind of step alone, and every pair of kinds, each followed by a flush, in a file that has
 * all datasets. */
static void every_pair_of_steps(int kinds, int others)
{
    for (int a = 0; a < WORK_KINDS; a++)
        for (int b = 0; b < kinds; b++) {
            struct model model = {0};
            struct work work = {.template = template, .model = &model, .seed = random_next()};
            clear_disk();
            assert_int_equal(sfs_create(PATH, NULL, &work.file), 0);
            assert_int_equal(make_sets(&work), 0);
            assert_int_equal(sfs_flush(work.file), 0);
            states_begin(true, &model);
            assert_int_equal(work_step_of(&work, a), 0);
            assert_int_equal(work_step_of(&work, b), 0);
            assert_int_equal(states_flush(&work), 0);
            assert_int_equal(work_step_of(&work, b), 0);
            assert_int_equal(states_flush(&work), 0);
            assert_int_equal(sfs_close(work.file), 0);
            states_check(others);
        }
}

/* ---- Tests ---- */

static void every_state_is_one_that_was_flushed(void **state)
{
    (void)state;
    bool is_long = wanted > SHORT_STATES;
    while (states_count() < wanted) {
        a_new_file(is_long ? 12 : 4, 6, 2);
        an_old_file(random_below(2), 3, 4, 2);
        every_pair_of_steps(is_long ? WORK_KINDS : 1, is_long ? 4 : 1);
    }
    printf("%ld different states, %ld of them changed again\n", states_count(), states_changed());
    assert_true(states_changed() > 10);
}

/* Makes the disk a state in which a journal waits; false if this cut is none. */
static bool cut_with_journal(long n)
{
    disk_cut(&(struct cut){.n = n, .kept = random_next(), .torn = random_next()}, AFTER);
    if (access(AFTER_PATH ".journal", F_OK) != 0)
        return false;
    assert_int_equal(system("rm -rf " DISK " && cp -r " AFTER " " DISK), 0);
    return true;
}

static void recovering_may_be_cut_too(void **state)
{
    (void)state;
    long until = states_count() + wanted / 5, recovered = 0;
    while (states_count() < until) {
        struct model model;
        struct work work = {.template = template, .model = &model, .seed = random_next()};
        clear_disk();
        work_make_old(PATH, random_below(2), &model);
        states_begin(true, &model);
        assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &work.file), 0);
        do_work(&work, 2, 8);
        assert_int_equal(sfs_close(work.file), 0);
        disk_record(false);
        long n = (long)random_below((uint64_t)disk_calls() + 1);
        while (n <= disk_calls() && !cut_with_journal(n))
            n++;
        if (n > disk_calls())
            continue;

        int found = states_find(PATH, false, n);
        assert_true(found >= 0);
        struct model is = *states_model(found);
        states_begin(true, &is);
        assert_int_equal(states_find(PATH, true, 0), 0);
        recovered += disk_calls() > 2;
        states_check(3);
    }
    printf("%ld recoveries cut short\n", recovered);
    assert_true(recovered > 0);
}

/* The file that is replaced has a journal that its writer has left. */
static void replacing_a_file_that_needs_recovery_leaves_one_of_both(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct model model;
        struct work work = {.template = template, .model = &model, .seed = random_next()};
        long n = 0;
        clear_disk();
        work_make_old(PATH, false, &model);
        states_begin(true, &model);
        assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &work.file), 0);
        assert_int_equal(make_sets(&work), 0);
        assert_int_equal(states_flush(&work), 0);
        sfs_discard(work.file);
        disk_record(false);
        while (!cut_with_journal(n))
            assert_true(++n <= disk_calls());
        for (; n <= disk_calls() && random_below(8); n++)
            cut_with_journal(n);

        int found = states_find(PATH, false, n);
        assert_true(found >= 0);
        struct model old = *states_model(found);
        states_begin(true, &old);
        memset(&model, 0, sizeof(model));
        struct sfs_options options = {.replace = true};
        assert_int_equal(sfs_create(PATH, &options, &work.file), 0);
        do_work(&work, 2, 4);
        assert_int_equal(sfs_close(work.file), 0);
        states_check(6);
    }
}

static int all_tests(void)
{
    log_quietly();
    assert_int_equal(mkdir(AFTER, 0700), 0);
    work_make_template(TEMPLATE);
    assert_int_equal(sfs_open(TEMPLATE, NULL, &template), 0);
    states_use(template);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_is_one_that_was_flushed),
        cmocka_unit_test(recovering_may_be_cut_too),
        cmocka_unit_test(replacing_a_file_that_needs_recovery_leaves_one_of_both),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    sfs_discard(template);
    return result;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        wanted = strtol(argv[1], NULL, 10);
    return in_temporary_directory(all_tests);
}
