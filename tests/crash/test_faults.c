/* Every call of the store in turn fails, once or from then on, and another one soon after it, while
 * random work goes on: the error is returned by the call that met it or by the next flush; the file
 * holds what was flushed last; and when the disk is well again all that was written is still there
 * to be flushed, whatever the kernel has dropped. The power may fail at any time besides.
 *
 *   test_faults [long]     all calls; without it every few */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/support.h"
#include "disk.h"
#include "states.h"

#define PATH        DISK "/" NAME
#define TEMPLATE    "template.h5"
#define STEPS       6 /* between two flushes */
#define FLUSHES     3
#define MOST_AGAIN  2  /* errors more */
#define SOON        30 /* calls, until the next one */
#define AFTER_ERROR 20 /* calls behind an error, at which the power may fail too */

static bool is_long;
static struct sfs_file *template;

/* What fails, and the errors that were returned. */
struct fault {
    int error;
    bool lasting;
    long met;
    long at;   /* calls before the first of this run */
    long left; /* failed calls of this run of which no error was returned */
    int again; /* how often it may fail once more */
};

/* After an error: the file is as it was flushed, and the disk gets well, for a while. What the
 * encoder's thread met beside the call that returned an error is returned by a later one. */
static void take_error(struct fault *fault, int error)
{
    if (error != -fault->error)
        print_error("%s instead of %s\n", strerror(-error), strerror(fault->error));
    assert_int_equal(error, -fault->error);
    fault->left += disk_failed();
    assert_true(fault->left-- > 0);
    fault->met++;
    fault->at = fault->at < 0 ? disk_calls() : fault->at;
    disk_fail(-1, 0, false);
    states_check_after(disk_calls(), 1);
    if (fault->again-- > 0)
        disk_fail((long)random_below(SOON), fault->error, false);
}

static void do_step(struct work *work, struct fault *fault)
{
    int error;
    while ((error = work_step(work)))
        take_error(fault, error);
}

static void flush(struct work *work, struct fault *fault)
{
    const char *why = "";
    int error;
    for (;;) {
        long failed = disk_failed();
        error = states_flush(work);
        if (!error && failed == 0 && disk_failed() > 0)
            assert_false(disk_sync_failed()); /* the others may have been tried again */
        if (!error)
            return;
        take_error(fault, error);
        if (!work_is(work->file, work->model, &why))
            fail_msg("after a failed flush: %s", why);
        for (uint64_t i = random_below(3); i > 0; i--)
            do_step(work, fault);
    }
}

/* The whole file after it was closed. */
static void check_file(const struct model *model)
{
    const char *why = "";
    struct sfs_file *file;
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    if (!work_is(file, model, &why))
        fail_msg("in the end: %s", why);
    assert_true(work_is_sound(file));
    sfs_discard(file);
}

static void begin(struct work *work, bool new_file)
{
    assert_int_equal(system("rm -rf " DISK " && mkdir " DISK), 0);
    if (new_file) {
        memset(work->model, 0, sizeof(*work->model));
        states_begin(false, work->model);
    } else {
        work_make_old(PATH, work->seed & 1, work->model);
        states_begin(true, work->model);
    }
}

static int open_file(struct work *work, bool new_file)
{
    struct sfs_options options = {.writable = true, .workers = 1};
    options.cache_size = work->seed & 2 ? 8000 : 0;
    return new_file ? sfs_create(PATH, &options, &work->file)
                    : sfs_open(PATH, &options, &work->file);
}

/* The n-th call fails; whether there were so many. */
static bool fail_at(long n, uint64_t seed, bool new_file, struct fault *fault)
{
    struct model model;
    struct work work = {.template = template, .model = &model, .seed = seed};
    begin(&work, new_file);
    fault->at = -1;
    fault->left = 0;
    fault->again = (int)(n % (MOST_AGAIN + 1));
    disk_fail(n, fault->error, fault->lasting);
    int error;
    while ((error = open_file(&work, new_file)))
        take_error(fault, error);
    for (int i = 0; i < FLUSHES; i++) {
        for (int k = 0; k < STEPS; k++)
            do_step(&work, fault);
        flush(&work, fault);
    }
    error = sfs_close(work.file); /* nothing is left to be written */
    assert_true(!error || error == -fault->error);
    bool failed = disk_failed() > 0 || fault->at >= 0;
    disk_fail(-1, 0, false);
    disk_record(false);
    check_file(&model);
    for (long i = fault->at; i >= 0 && i <= disk_calls() && i < fault->at + AFTER_ERROR; i++)
        states_check_after(i, 1);
    return failed;
}

static void sweep(bool new_file)
{
    const int errors[] = {ENOSPC, EIO};
    uint64_t seed = random_next();
    long met = 0;
    for (int i = 0; i < 4; i++) {
        struct fault fault = {.error = errors[i & 1], .lasting = i & 2};
        uint64_t step = is_long ? 1 : 5;
        long n = (long)random_below(step);
        printf("seed %#llx, %s, %s\n", (unsigned long long)seed, strerror(fault.error),
               fault.lasting ? "from then on" : "once");
        for (uint64_t salt = random_next(); fail_at(n, seed, new_file, &fault);
             n += (long)(1 + salt++ % (2 * step - 1)))
            ;
        printf("%ld calls, %ld errors returned\n", n, fault.met);
        met += fault.met;
    }
    printf("%ld pages lost by failed syncs\n", disk_lost());
    assert_true(met > 0);
}

/* The short form does not let each call fail: until a sync that lost something was among them. */
static void sweep_all(bool new_file)
{
    for (int round = 0; round < (is_long ? 8 : 1) || (disk_lost() == 0 && round < 50); round++)
        sweep(new_file);
    assert_true(disk_lost() > 0);
}

static void a_new_file_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_all(true);
}

static void an_old_file_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_all(false);
}

/* A commit fails, and its journal cannot be removed; the next attempt at that is in the middle of a copy of attributes:
 * libhdf5 says only that it cannot allocate. */
static void no_attribute_is_left_out_for_an_error_of_the_disk(void **state)
{
    (void)state;
    struct fault fault = {.error = EIO, .lasting = true};
    assert_true(fail_at(83, 0x3b7fc8cf637b2ea9, true, &fault));
}

static int all_tests(void)
{
    if (!getenv("LOUD"))
        log_quietly();
    assert_int_equal(mkdir(AFTER, 0700), 0);
    work_make_template(TEMPLATE);
    assert_int_equal(sfs_open(TEMPLATE, NULL, &template), 0);
    states_use(template);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_survives_every_failing_call),
        cmocka_unit_test(an_old_file_survives_every_failing_call),
        cmocka_unit_test(no_attribute_is_left_out_for_an_error_of_the_disk),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    sfs_discard(template);
    return result;
}

int main(int argc, char **argv)
{
    is_long = argc > 1 && !strcmp(argv[1], "long");
    return in_temporary_directory(all_tests);
}
